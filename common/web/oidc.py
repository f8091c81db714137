"""Signing in at an OpenID Connect provider: the authorization code flow, with PKCE, state and nonce.

References:
    OpenID Connect Core 1.0, sections 3.1 (the flow), 3.1.3.7 (checks of an id token) and 5.3 (userinfo);
    RFC 7636 (PKCE); RFC 9207 (issuer in the answer).
"""

import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from common.daemon.console import OidcSection, comparable, readings
from common.daemon.settings import parse_web_address
from common.errors import NotConnectedError, RefusedError
from common.files import read_secret
from common.web.doors import LINK_SECONDS

CALLBACK = "/signed-in"
"""Where the provider leads back to."""
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a key that the provider alone has."""
_SECONDS = 10.0
_LEEWAY = 30
"""Seconds by which clocks may differ."""
_MOST_BEGUN = 1000
_AGAIN = "sign in again; if this continues, ask the person who runs this console"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person, as the provider says."""

    name: str
    """The subject or verified e-mail address that the configuration names."""
    subject: str
    """What tells persons apart: the provider and its subject, which it gives to nobody else."""
    stated: str
    """The name that the provider shows; people may choose it themselves."""
    user: str
    """The user of this machine who is the same person, as the configuration says; empty if it says none."""
    decides: bool
    """Whether the person may decide; others may look."""


@dataclass(frozen=True, slots=True)
class _Begun:
    state: str
    nonce: str
    verifier: str
    when: float


class SignIn(Generic[_T]):
    """Sign-ins at one provider. Its calls block while they ask the provider.

    Args:
        section: The provider, and who may enter.
        origin: Scheme, host and port of the console.
        person: Makes the console's person of what the provider says.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        section: OidcSection,
        origin: str,
        person: Callable[[SignedIn], _T],
        clock: Callable[[], float],
    ) -> None:
        self._section, self._back, self._person, self._clock = section, origin + CALLBACK, person, clock
        self._begun: dict[str, _Begun] = {}

    def begin(self) -> tuple[str, str]:
        """Begin a sign-in.

        Returns:
            The secret of the browser's cookie, and the provider's address that it has to open.

        Raises:
            NotConnectedError: If the provider cannot be reached.
        """
        now = self._clock()
        self._begun = {name: each for name, each in self._begun.items() if now - each.when <= LINK_SECONDS}
        while len(self._begun) >= _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        begun = _Begun(state, nonce, verifier, now)
        with self._client() as client:
            there, _ = client.create_authorization_url(
                self._discovered(client)["authorization_endpoint"],
                state=begun.state, nonce=begun.nonce, code_verifier=begun.verifier,
            )  # fmt: skip
        secret = secrets.token_urlsafe(32)
        self._begun[secret] = begun
        return secret, there

    def end(self, secret: str, query: Mapping[str, str]) -> tuple[_T, bool]:
        """End a sign-in with what the provider sent the browser back with.

        Args:
            secret: The browser's cookie.
            query: The parameters of the request.

        Returns:
            The person, and whether the person may decide.

        Raises:
            RefusedError: If the answer is not one to this sign-in, or nobody who may enter.
            NotConnectedError: If the provider cannot be reached.
        """
        begun = self._begun.pop(secret, None)
        if begun is None or self._clock() - begun.when > LINK_SECONDS:
            raise RefusedError(
                "this sign-in was not begun here, has ended, or is older than ten minutes", _AGAIN
            )
        if not hmac.compare_digest(query.get("state", "").encode(), begun.state.encode()):
            raise RefusedError("this answer belongs to another sign-in", _AGAIN)
        if query.get("iss", self._section.issuer) != self._section.issuer:
            raise RefusedError("this answer is of another provider", _AGAIN)
        if "code" not in query:
            raise RefusedError("the provider did not sign you in", _AGAIN)
        found = self._known(self._claims(query["code"], begun))
        return self._person(found), found.decides

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
        # What the environment says, such as a proxy or .netrc, is not for this.
        client.trust_env = False
        return client

    def _discovered(self, client: Any) -> dict[str, str]:
        """Return the addresses of the provider."""
        found = _ask(client, f"{self._section.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self._section.issuer:
            raise RefusedError(
                "the provider says that it is another one", "correct [console.oidc] issuer to what it says"
            )
        try:
            names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            addresses = {name: parse_web_address(found.get(name)) for name in names}
            userinfo = found.get("userinfo_endpoint")
            return addresses | ({"userinfo_endpoint": parse_web_address(userinfo)} if userinfo else {})
        except ValueError:
            raise RefusedError("the provider names an address that is not https", _AGAIN) from None

    def _claims(self, code: str, begun: _Begun) -> dict[str, Any]:
        """Return what the provider says of a person, its signature and every condition checked."""
        from authlib.integrations.base_client import OAuthError
        from requests import RequestException

        with self._client() as client:
            addresses = self._discovered(client)
            try:
                token = client.fetch_token(
                    addresses["token_endpoint"], code=code, code_verifier=begun.verifier,
                    grant_type="authorization_code", allow_redirects=False,
                )  # fmt: skip
            except OAuthError as error:
                raise _unusable("does not accept this sign-in", error) from None
            except (RequestException, ValueError) as error:
                raise _away(error) from None
            claims = self._checked(token, _ask(client, addresses["jwks_uri"]), begun.nonce)
            if "email" not in claims and "userinfo_endpoint" in addresses:
                more = _ask(client, addresses["userinfo_endpoint"], with_token=True)
                # Core 5.3.2: it may be of another person otherwise.
                claims = (more if more.get("sub") == claims["sub"] else {}) | claims
        return claims

    def _checked(self, token: Mapping[str, Any], keys: Any, nonce: str) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
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
            decoded = jwt.decode(str(token.get("id_token")), KeySet.import_key_set(keys), _ALGORITHMS)
            claims = CodeIDToken(decoded.claims, decoded.header, wanted, about)
            claims.validate(leeway=_LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _unusable("sent an id token that is not valid here", error) from None
        return dict(claims)

    def _known(self, claims: Mapping[str, Any]) -> SignedIn:
        """Return the person whom the configuration names."""
        subject, mail = str(claims["sub"]), claims.get("email")
        own = {subject} if "@" not in subject else set()
        if isinstance(mail, str) and claims.get("email_verified") is True:
            own.add(comparable(mail))
        # A subject that looks like an address is not one: addresses are those that were verified.
        for decides, entries in ((True, self._section.approvers), (False, self._section.viewers)):
            for entry in entries:
                user = next((user for name, user in readings(entry) if name in own), None)
                if user is not None:
                    name = entry.removesuffix(f"={user}") if user else entry
                    stated = str(claims.get("name", ""))[:200]
                    return SignedIn(name, self._section.subject_of(subject), stated, user, decides)
        raise RefusedError(
            "you have signed in, but are not among those who may open this console",
            "ask the person who runs it: [console.oidc] names subjects and verified e-mail addresses",
        )


def _ask(client: Any, address: str, *, with_token: bool = False) -> dict[str, Any]:
    """Return the object at an address of the provider."""
    from authlib.integrations.base_client import OAuthError
    from requests import RequestException

    try:
        answer = client.get(address, allow_redirects=False, withhold_token=not with_token)
        answer.raise_for_status()
        found = answer.json()
    except (OAuthError, RequestException, ValueError) as error:
        raise _away(error) from None
    if answer.status_code != 200 or not isinstance(found, dict):
        raise NotConnectedError("the sign-in provider gives an unexpected answer", "try again in a minute")
    return found


def _away(error: Exception) -> NotConnectedError:
    return NotConnectedError(
        f"the sign-in provider cannot be asked: {type(error).__name__}", "try again in a minute"
    )


def _unusable(text: str, error: Exception) -> RefusedError:
    reason = getattr(error, "error", "") or type(error).__name__
    return RefusedError(f"the provider {text} ({reason})", _AGAIN)
