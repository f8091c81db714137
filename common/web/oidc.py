"""Signing in at an OpenID Connect provider: the authorization code flow, with PKCE, state and nonce.

References:
    OpenID Connect Core 1.0, sections 3.1 (the flow), 3.1.3.7 (checks of an id token) and 5.3 (userinfo);
    RFC 7636 (PKCE); RFC 9207 (issuer in the answer).
"""

import hmac
import json
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from common.canonical import parse_json
from common.daemon.console import OidcSection, comparable
from common.daemon.settings import parse_web_address
from common.errors import NotConnectedError, RefusedError, TesseraError
from common.files import read_secret
from common.web.doors import LINK_SECONDS

CALLBACK = "/signed-in"
"""Where the provider leads back to."""
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a key that the provider alone has."""
_SECONDS = 15.0
"""For everything that the provider is asked in one step of a sign-in."""
_LEEWAY = 30
"""Seconds by which clocks may differ."""
_KNOWN_SECONDS = 3600.0
"""How long the provider's description of itself is used."""
_AWAY_SECONDS = 5.0
"""How long a provider that could not be asked is not asked for its description again."""
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_OPTIONAL = ("userinfo_endpoint", "end_session_endpoint")
_AGAIN = "sign in again; if this continues, ask the person who runs this console"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person, as the provider says."""

    name: str
    """The subject or verified e-mail address that the configuration names."""
    subject: str
    """What tells persons apart: the provider and its subject, which it gives to nobody else."""
    decides: bool
    """Whether the person may decide; others may look."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A sign-in that waits for the provider, which the browser keeps in a sealed cookie.

    So nobody's sign-in takes the place of another's, however many there are.
    """

    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True, slots=True)
class _Provider:
    """What a provider says of itself."""

    authorization: str
    token: str
    keys: str
    userinfo: str
    end_session: str
    names_itself: bool = field(kw_only=True)
    """Whether it names itself in every answer (RFC 9207)."""


class SignIn(Generic[_T]):
    """Sign-ins at one provider. Its calls block while they ask the provider."""

    def __init__(
        self,
        section: OidcSection,
        origin: str,
        person: Callable[[SignedIn], _T],
        clock: Callable[[], float],
    ) -> None:
        self._section, self._back, self._person, self._clock = section, origin + CALLBACK, person, clock
        # Loaded where people sign in alone.
        from cryptography.fernet import Fernet

        self._seal = Fernet(Fernet.generate_key())
        self._lock = threading.Lock()
        self._provider: tuple[float, _Provider | NotConnectedError | RefusedError] | None = None

    def begin(self) -> tuple[str, str]:
        """Begin a sign-in.

        Returns:
            The browser's cookie, and the provider's address that it has to open.

        Raises:
            NotConnectedError: If the provider cannot be reached.
        """
        begun = _Begun(*(secrets.token_urlsafe(32) for _ in range(3)))
        provider = self._description()
        with self._client() as client:
            there, _ = client.create_authorization_url(
                provider.authorization,
                state=begun.state, nonce=begun.nonce, code_verifier=begun.verifier,
            )  # fmt: skip
        sealed = self._seal.encrypt_at_time(json.dumps(asdict(begun)).encode(), int(self._clock()))
        return sealed.decode(), there

    def end(self, cookie: str, query: Mapping[str, str]) -> tuple[_T, bool]:
        """End a sign-in with what the provider sent the browser back with.

        Returns:
            The person, and whether the person may decide.

        Raises:
            RefusedError: If the answer is not one to this sign-in, or nobody who may enter.
            NotConnectedError: If the provider cannot be reached.
        """
        begun = self._unseal(cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), begun.state.encode()):
            raise RefusedError("this answer belongs to another sign-in", _AGAIN)
        absent = "" if self._description().names_itself else self._section.issuer
        if query.get("iss", absent) != self._section.issuer:
            raise RefusedError("this answer is of another provider", _AGAIN)
        if "code" not in query:
            raise RefusedError("the provider did not sign you in", _AGAIN)
        signed_in = self._person_of(self._claims(query["code"], begun))
        return self._person(signed_in), signed_in.decides

    def leave_address(self) -> str:
        """Return where a person signs out at the provider; empty if it says no address or is away.

        References:
            OpenID Connect RP-Initiated Logout 1.0, section 2.
        """
        try:
            there = self._description().end_session
        except TesseraError:
            return ""
        joint = "&" if "?" in there else "?"
        return there and f"{there}{joint}{urlencode({'client_id': self._section.client_id})}"

    def _unseal(self, cookie: str) -> _Begun:
        from cryptography.fernet import InvalidToken

        try:
            sealed = self._seal.decrypt_at_time(cookie.encode(), int(LINK_SECONDS), int(self._clock()))
            return _Begun(**json.loads(sealed))
        except InvalidToken:
            raise RefusedError(
                "this sign-in was not begun here, or is older than ten minutes", _AGAIN
            ) from None

    def _client(self) -> Any:
        # Loaded by the first sign-in: an idle daemon stays small.
        from authlib.integrations.requests_client import OAuth2Session

        section = self._section
        client = OAuth2Session(
            section.client_id, read_secret(section.client_secret_file),
            scope="openid email profile", redirect_uri=self._back, code_challenge_method="S256",
            default_timeout=_SECONDS,
        )  # fmt: skip
        system = ssl.get_default_verify_paths()
        client.verify = str(section.ca or system.cafile or system.capath or "") or True
        # Of the environment, .netrc and authorities are not for this; a proxy is the exchange's.
        client.trust_env = False
        return client

    @contextmanager
    def _exchange(self) -> Iterator[Any]:
        """Return a client for all calls of one step, which end in time."""
        from common.web.exchange import Exchange

        with self._client() as client:
            exchange = Exchange(_SECONDS)
            for scheme in ("https://", "http://"):
                client.mount(scheme, exchange)
            yield client

    def _description(self) -> _Provider:
        """Return what the provider says of itself, asked once an hour however many people sign in."""
        with self._lock:
            now = self._clock()
            if self._provider is None or now >= self._provider[0]:
                try:
                    with self._exchange() as client:
                        self._provider = (now + _KNOWN_SECONDS, self._ask_description(client))
                except (NotConnectedError, RefusedError) as error:
                    self._provider = (now + _AWAY_SECONDS, error.with_traceback(None))
            provider = self._provider[1]
        if isinstance(provider, _Provider):
            return provider
        raise type(provider)(provider.message, provider.hint)

    def _ask_description(self, client: Any) -> _Provider:
        description = _ask(client, f"{self._section.issuer.rstrip('/')}/.well-known/openid-configuration")
        if description.get("issuer") != self._section.issuer:
            raise RefusedError(
                "the provider says that it is another one", "correct [console.oidc] issuer to what it says"
            )
        try:
            needed = [parse_web_address(description.get(name)) for name in _NEEDED]
            given = [description.get(name) for name in _OPTIONAL]
            optional = [parse_web_address(address) if address else "" for address in given]
        except ValueError:
            raise RefusedError("the provider names an address that is not https", _AGAIN) from None
        names_itself = description.get("authorization_response_iss_parameter_supported") is True
        return _Provider(*needed, *optional, names_itself=names_itself)

    def _claims(self, code: str, begun: _Begun) -> dict[str, Any]:
        """Return what the provider says of a person, its signature and every condition checked."""
        from authlib.integrations.base_client import OAuthError
        from requests import RequestException

        provider = self._description()
        with self._exchange() as client:
            try:
                token = client.fetch_token(
                    provider.token, code=code, code_verifier=begun.verifier,
                    grant_type="authorization_code", allow_redirects=False,
                )  # fmt: skip
            except OAuthError as error:
                raise _unusable("does not accept this sign-in", error) from None
            except (RequestException, ValueError) as error:
                raise _away(error) from None
            claims = self._verify(token, _ask(client, provider.keys), begun.nonce)
            if "email" not in claims and provider.userinfo:
                claims = with_userinfo(claims, _ask(client, provider.userinfo, with_token=True))
        return claims

    def _verify(self, token: Mapping[str, Any], keys: Any, nonce: str) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jws
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        section = self._section
        wanted = {
            "iss": {"essential": True, "value": section.issuer},
            "aud": {"essential": True, "value": section.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        about = {"nonce": nonce, "client_id": section.client_id, "access_token": token.get("access_token")}
        try:
            signed = jws.deserialize_compact(
                str(token.get("id_token")), KeySet.import_key_set(keys), _ALGORITHMS
            )
            claims = CodeIDToken(parse_json(signed.payload or b""), signed.headers(), wanted, about)
            claims.validate(leeway=_LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _unusable("sent an id token that is not valid here", error) from None
        return dict(claims)

    def _person_of(self, claims: Mapping[str, Any]) -> SignedIn:
        """Return the person whom the configuration names."""
        subject, mail = str(claims["sub"]), claims.get("email")
        own = {subject} if "@" not in subject else set()
        if isinstance(mail, str) and claims.get("email_verified") is True:
            own.add(comparable(mail))
        # A subject that looks like an address is not one: addresses are those that were verified.
        for decides, entries in ((True, self._section.approvers), (False, self._section.viewers)):
            for entry in entries:
                if comparable(entry) in own:
                    return SignedIn(entry, self._section.subject_of(subject), decides)
        raise RefusedError(
            "you have signed in, but are not among those who may open this console",
            "ask the person who runs it: [console.oidc] names subjects and verified e-mail addresses",
        )


def with_userinfo(claims: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of an id token that names no e-mail address, with those of userinfo."""
    # Core 5.3.2: it may be of another person otherwise.
    if more.get("sub") != claims["sub"]:
        return dict(claims)
    # The token verifies the address that it names; it names none.
    return dict(more) | {name: value for name, value in claims.items() if name != "email_verified"}


def _ask(client: Any, address: str, *, with_token: bool = False) -> dict[str, Any]:
    """Return the object at an address of the provider."""
    from authlib.integrations.base_client import OAuthError
    from requests import RequestException

    try:
        answer = client.get(address, allow_redirects=False, withhold_token=not with_token)
        answer.raise_for_status()
        document = answer.json()
    except (OAuthError, RequestException, ValueError) as error:
        raise _away(error) from None
    if answer.status_code != 200 or not isinstance(document, dict):
        raise NotConnectedError("the sign-in provider gives an unexpected answer", "try again in a minute")
    return document


def _away(error: Exception) -> NotConnectedError:
    return NotConnectedError(
        f"the sign-in provider cannot be asked: {type(error).__name__}", "try again in a minute"
    )


def _unusable(text: str, error: Exception) -> RefusedError:
    reason = getattr(error, "error", "") or type(error).__name__
    return RefusedError(f"the provider {text} ({reason})", _AGAIN)
