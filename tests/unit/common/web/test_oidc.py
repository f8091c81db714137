"""Signing in at a real OpenID Connect provider: who gets in, and every answer that is not one for us."""

import hashlib
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from threading import Event, Thread
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from flask import Response, jsonify
from joserfc import jws, jwt
from joserfc.jwk import RSAKey

from common.errors import NotConnectedError, RefusedError
from common.web.doors import LINK_SECONDS, MOST_BEGUN, MOST_WRONG
from common.web.oidc import SignIn, with_userinfo
from common.web.site import MOST_FAILURES
from tests.fakes.oidc_provider import CLIENT, changed, end, oidc_provider, sign_in
from tests.fakes.owner_console import owner_console

DESCRIPTION = "/.well-known/openid-configuration"
PLAN = "/plans/hub/r1"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def running_provider(tmp_path_factory):
    """A provider for all tests: starting it makes an RSA key."""
    with oidc_provider(tmp_path_factory.mktemp("provider")) as made:
        yield made


@pytest.fixture
def provider(running_provider):
    """A provider that knows an approver, a viewer and somebody else, and was asked for nothing yet."""
    running_provider.answers.clear()
    running_provider.knows_mail("17", "dpo@north.example", name="Dora Öz")
    running_provider.knows_mail("18", "Audit@north.example")
    running_provider.knows_mail("19", "mallory@north.example")
    running_provider.asked.clear()
    return running_provider


@pytest.fixture
def console(tmp_path, provider, monkeypatch):
    """A console that people sign in to at the provider, which a busy machine gives more time to answer."""
    monkeypatch.setattr("common.web.oidc._SECONDS", 60.0)
    section = provider.section("dpo@north.example", "s-7", viewers=("audit@north.example",))
    with owner_console(tmp_path, oidc=section) as made:
        yield made


@pytest.fixture(scope="module")
def running_console(tmp_path_factory, running_provider):
    """A console for tests in which nobody gets in."""
    section = running_provider.section("dpo@north.example", "s-7", viewers=("audit@north.example",))
    with owner_console(tmp_path_factory.mktemp("console"), oidc=section) as made:
        yield made


@pytest.fixture
def closed_console(running_console, provider, monkeypatch):
    """A console that nobody is signed in to, and whose counts of attempts are over."""
    monkeypatch.setattr("common.web.oidc._SECONDS", 60.0)
    running_console.cookie = ""
    running_console.later[0] += 61
    return running_console


def approve(console) -> int:
    """Approve the plan with the form of the page."""
    form = console.approval()
    return console.ask("POST", f"{PLAN}/approve", form).status


def test_an_approver_signs_in_and_decides(console, provider):
    """The page leads to the provider and back; the history has address and subject."""
    assert '<a href="/sign-in">' in console.ask("GET", "/").body
    answer = sign_in(console, provider, "17")
    assert (answer.status, answer.header("refresh")) == (200, "0; url=/")
    assert "dpo@north.example" in console.ask("GET", "/").body
    assert approve(console) == 303
    details = console.offering.records.history.entries(event="approved")[0].details
    assert details["by"] == "dpo@north.example"
    assert details["subject"] == f"{provider.issuer} 17"


def test_a_subject_may_be_named_instead_of_an_address(console, provider):
    """A provider that verifies no addresses names people by its own ids."""
    provider.knows("s-7")
    assert sign_in(console, provider, "s-7").status == 200


@pytest.mark.parametrize("subject", ["YWxpY2U=", "ab=cd", "sub=="])
def test_subjects_may_have_an_equals_sign(provider, subject):
    """An entry is the whole subject."""
    sign_ins = SignIn(provider.section(subject), "http://127.0.0.1:1", lambda found: found, time.monotonic)
    provider.knows(subject)
    secret, there = sign_ins.begin()
    person, decides = sign_ins.end(secret, dict(parse_qsl(urlsplit(provider.approves(there, subject)).query)))
    assert (person.name, decides) == (subject, True)


def test_a_viewer_looks_and_changes_nothing(console, provider):
    """Every page opens; approval, refusal and everything else that is sent is refused; signing out is not."""
    assert sign_in(console, provider, "18").status == 200
    assert console.ask("GET", PLAN).status == 200
    before = console.offering.records.history.head()
    assert approve(console) == 403
    assert console.ask("POST", f"{PLAN}/refuse", {"csrf": console.csrf(), "reason": "x"}).status == 403
    assert console.offering.records.history.head() == before
    assert console.ask("POST", "/leave", {"csrf": console.csrf()}).status == 200
    assert console.ask("GET", "/").status == 401


@pytest.mark.parametrize(
    ("subject", "claims"),
    [
        ("19", {}),
        ("20", {"email": "dpo@north.example"}),
        ("20", {"email": "dpo@north.example", "email_verified": False}),
        ("20", {"email": "dpo@north.example", "email_verified": "true"}),
        ("20", {"email": ["dpo@north.example"], "email_verified": True}),
        # A subject that somebody chose to look like an approver's address.
        ("dpo@north.example", {}),
        ("S-7", {}),
    ],
)
def test_strangers_and_unverified_addresses_stay_outside(closed_console, provider, subject, claims):
    """The provider knows them; the configuration does not."""
    if claims or subject != "19":
        provider.knows(subject, **claims)
    answer = sign_in(closed_console, provider, subject)
    assert (answer.status, answer.header("set-cookie")) == (403, "")
    assert "not among those who may open" in answer.body


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-client"},
        {"aud": ["another-client", "third"]},
        {"aud": [CLIENT, "another-client"]},
        {"azp": "another-client"},
        {"nonce": "guess"},
        {"nonce": None},
        {"exp": 1_600_000_000},
        {"exp": "tomorrow"},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"iss": "https://other.example"},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    ],
    ids=str,
)
def test_tokens_that_are_not_for_this_sign_in(closed_console, provider, claims):
    """The provider signs them with its key, for another audience, nonce, time or issuer: nobody gets in."""
    provider.knows_mail("17", "dpo@north.example", **claims)
    answer = sign_in(closed_console, provider, "17")
    assert (answer.status, answer.header("set-cookie")) == (403, "")
    assert "id token" in answer.body


def signed(provider, nonce: str, key: RSAKey, algorithm: str = "RS256") -> dict[str, str]:
    """Return a right id token, signed by somebody."""
    now = int(time.time())
    claims = {"iss": provider.issuer, "aud": CLIENT, "sub": "17", "iat": now, "exp": now + 60, "nonce": nonce}
    return {"id_token": jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])}


def test_signatures_of_others_and_weak_algorithms(provider):
    """A token is worth what its signature is; no signature, or one with a known secret, is worth nothing."""
    own, other = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
    signing = SignIn(provider.section("17"), "http://127.0.0.1:1", lambda each: each, time.monotonic)
    keys = {"keys": [own.as_dict(private=False)]}
    assert signing._verify(signed(provider, "n", own), keys, "n")["sub"] == "17"
    head, body, mark = signed(provider, "n", own)["id_token"].split(".")
    none = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    wrong = ["", "x.y", f"{head}.{body}.", f"{none}.{body}.", f"{head}.{body[:-4]}AAAA.{mark}"]
    wrong.append(signed(provider, "n", other)["id_token"])
    wrong += [jws.serialize_compact({"alg": "RS256"}, text, own) for text in ("[" * 2_000, "[]", "x", "")]
    for token in wrong:
        with pytest.raises(RefusedError):
            signing._verify({"id_token": token}, keys, "n")


def test_pkce_state_and_nonce_are_new_every_time(console, provider):
    """The code is worth nothing without the verifier, which never leaves the console."""
    sign_in(console, provider, "17")
    sign_in(console, provider, "17")
    begun = [asked for path, asked in provider.asked if path == "/oauth2/authorize" and "sub" in asked]
    ended = [asked for path, asked in provider.asked if path == "/oauth2/token"]
    for ask, redeem in zip(begun, ended, strict=True):
        challenge = hashlib.sha256(redeem["code_verifier"].encode()).digest()
        assert ask["code_challenge"] == urlsafe_b64encode(challenge).decode().rstrip("=")
        assert ask["code_challenge_method"] == "S256"
    for name in ("state", "nonce", "code_challenge"):
        assert len({asked[name] for asked in begun}) == len(begun) == 2


def test_answers_to_other_sign_ins(console, provider):
    """An attacker's answer in a person's browser, a used one, one without its cookie, and none at all."""
    mine, theirs = console.ask("GET", "/sign-in"), console.ask("GET", "/sign-in")
    back = provider.approves(mine.header("location"), "17").removeprefix(console.origin)
    assert end(console, back, theirs.cookie()).status == 403
    assert end(console, back, "").status == 403
    assert end(console, back, mine.cookie()).status == 200
    assert end(console, back, mine.cookie()).status == 403
    for wrong in ({"state": "guess"}, {"iss": "https://other.example"}, {"code": "guess"}):
        begun = console.ask("GET", "/sign-in")
        back = provider.approves(begun.header("location"), "17").removeprefix(console.origin)
        assert end(console, changed(back, **wrong), begun.cookie()).status == 403
    begun = console.ask("GET", "/sign-in")
    state = parse_qs(urlsplit(begun.header("location")).query)["state"][0]
    denied = f"/signed-in?error=access_denied&error_description=%3Cb%3EZq7&state={state}"
    answer = end(console, denied, begun.cookie())
    assert (answer.status, "Zq7" in answer.body) == (403, False)


def test_a_sign_in_ends_after_ten_minutes(console, provider):
    """A browser that was left at the provider's page comes back too late."""
    begun = console.ask("GET", "/sign-in")
    back = provider.approves(begun.header("location"), "17").removeprefix(console.origin)
    console.later[0] += LINK_SECONDS + 1
    assert end(console, back, begun.cookie()).status == 403


def test_sign_ins_are_counted(console, provider):
    """Neither the provider nor the console is asked without end; a minute later it works."""
    for _ in range(MOST_WRONG):
        assert end(console, "/signed-in?code=x&state=y", "").status == 403
    assert end(console, "/signed-in?code=x&state=y", "").status == 429
    assert console.ask("GET", "/sign-in").status == 429
    console.later[0] += 61
    for _ in range(MOST_BEGUN):
        assert console.ask("GET", "/sign-in").status == 303
    assert console.ask("GET", "/sign-in").status == 429
    console.later[0] += 61
    assert sign_in(console, provider, "17").status == 200


def test_nobody_takes_the_place_of_a_sign_in(console, provider):
    """However many begin to sign in, from however many addresses, and the provider is asked nothing more."""
    begun = console.ask("GET", "/sign-in")
    for number in range(1100):
        connection = HTTPConnection(
            "127.0.0.1", console.port, 30, source_address=(f"127.0.1.{number % 37 + 1}", 0)
        )
        connection.request("GET", "/sign-in")
        assert connection.getresponse().status == 303
        connection.close()
    back = provider.approves(begun.header("location"), "17").removeprefix(console.origin)
    assert end(console, back, begun.cookie()).status == 200
    described = [path for path, _ in provider.asked if path == DESCRIPTION]
    assert len(described) == 1


def test_a_provider_that_names_itself(console, provider):
    """Where it says that it does, an answer that names none is of another one (RFC 9207)."""
    announced = {"authorization_response_iss_parameter_supported": True}
    provider.answers[DESCRIPTION] = lambda answer: jsonify(answer.json | announced)
    for named, status in (
        ({}, 403),
        ({"iss": "https://other.example"}, 403),
        ({"iss": provider.issuer}, 200),
    ):
        begun = console.ask("GET", "/sign-in")
        back = provider.approves(begun.header("location"), "17").removeprefix(console.origin)
        assert end(console, changed(back, **named), begun.cookie()).status == status


@pytest.mark.parametrize(
    ("token", "userinfo", "expected"),
    [
        ({"email_verified": True}, {"sub": "1", "email": "a@b.c"}, None),
        ({"email_verified": True}, {"sub": "1", "email": "a@b.c", "email_verified": False}, False),
        ({}, {"sub": "1", "email": "a@b.c", "email_verified": True}, True),
        ({}, {"sub": "2", "email": "a@b.c", "email_verified": True}, None),
        ({}, {"email": "a@b.c", "email_verified": True}, None),
    ],
)
def test_an_address_is_verified_by_what_names_it(token, userinfo, expected):
    """A token that names no address says nothing about that of userinfo."""
    claims = with_userinfo({"sub": "1"} | token, userinfo)
    assert claims["sub"] == "1"
    assert (claims.get("email_verified") if "email" in claims else None) == expected


@pytest.mark.parametrize("path", [DESCRIPTION, "/jwks", "/oauth2/token"])
@pytest.mark.parametrize(
    "content", [b'{"keys": [' + b" " * 2**25, b"[" * 200_000, b"", b'{"keys": 1}', b"\xff"]
)
def test_answers_without_sense(console, provider, path, content):
    """Whatever a provider answers: nobody enters, and the page says so."""
    provider.answers[path] = lambda answer: Response(content, content_type="application/json")
    begun = console.ask("GET", "/sign-in")
    if begun.status == 303:
        back = provider.approves(begun.header("location"), "17").removeprefix(console.origin)
        begun = end(console, back, begun.cookie())
    assert begun.status in (403, 502)
    assert not begun.header("set-cookie")


@contextmanager
def dripping(beginning: bytes) -> Iterator[tuple[str, list[bytes], Event]]:
    """Answer the first request with a byte every tenth of a second; yields address, request and the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked, ended, stop = [], Event(), Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            asked.append(connection.recv(65536))
            connection.sendall(beginning)
            while not stop.wait(0.1):
                connection.sendall(b"x")
        ended.set()

    thread = Thread(target=answer)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked, ended
    finally:
        stop.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
    ],
)
def test_a_provider_that_drips(provider, beginning, monkeypatch):
    """The whole exchange has a time, not every byte of it."""
    monkeypatch.setattr("common.web.oidc._SECONDS", 1.0)
    with dripping(beginning) as (address, _, ended):
        section = replace(provider.section("17"), issuer=address)
        with pytest.raises(NotConnectedError):
            SignIn(section, "http://127.0.0.1:1", lambda each: each, time.monotonic).begin()
        assert ended.wait(10)


@pytest.mark.parametrize(("direct", "first"), [("", b"GET http://"), ("127.0.0.1", b"GET /.well-known")])
def test_a_proxy_of_the_environment(provider, direct, first, monkeypatch):
    """The provider is asked through it, unless it is to be asked directly."""
    monkeypatch.setattr("common.web.oidc._SECONDS", 1.0)
    monkeypatch.setenv("no_proxy", direct)
    with dripping(b"HTTP/1.1 502 No\r\n\r\n") as (address, asked, _):
        monkeypatch.setenv("http_proxy", address)
        issuer = address if direct else provider.issuer
        with pytest.raises(NotConnectedError):
            SignIn(
                replace(provider.section("17"), issuer=issuer), "http://127.0.0.1:1", str, time.monotonic
            ).begin()
        assert asked[0].startswith(first)


def test_the_history_has_who_signed_in(console, provider):
    """And who could not, and why; failures that anybody can cause fill no database."""
    sign_in(console, provider, "17")
    console.ask("POST", "/leave", {"csrf": console.csrf()})
    sign_in(console, provider, "19")
    for number in range(200):
        source = (f"127.0.2.{number // 5 + 1}", 0)
        connection = HTTPConnection("127.0.0.1", console.port, timeout=30, source_address=source)
        connection.request("GET", "/signed-in?code=x&state=y")
        assert connection.getresponse().status == 403
        connection.close()
    lines = console.offering.records.history.entries(aggregator="")
    signed = [each for each in lines if each.event.startswith("sign")]
    events = [each.event for each in signed]
    assert events == ["signed-in", "signed-out", *["sign-in-failed"] * MOST_FAILURES]
    assert signed[0].details["by"] == signed[1].details["by"] == "dpo@north.example"
    assert signed[0].details["subject"] == f"{provider.issuer} 17"
    assert "not among those who may open" in signed[2].details["reason"]
    assert {each.details["address"] for each in signed} == {"127.0.0.1", "127.0.2.1"}


def test_the_cookies(console, provider):
    """The cookie of the visit is strict; that of the sign-in, which comes back from the provider, is not."""
    begun = console.ask("GET", "/sign-in").header("set-cookie").lower()
    assert "samesite=lax" in begun
    assert "httponly" in begun
    ended = sign_in(console, provider, "17").header("set-cookie").lower()
    assert "samesite=strict" in ended
    assert "httponly" in ended
    (name,) = SimpleCookie(ended)
    (other,) = SimpleCookie(begun)
    assert name != other


def test_no_link_opens_a_console_with_a_provider(console):
    """Whoever has to be two persons is not one of them by a link."""
    assert console.ask("GET", console.link()).status == 404


def test_a_provider_that_is_away_or_another_one(tmp_path, provider):
    """What the provider says is not taken from another one; a provider that is away is said to be."""
    section = provider.section("17")
    for issuer in ("http://127.0.0.1:1", f"{provider.issuer}/"):
        wrong = type(section)(
            issuer=issuer, client_id=CLIENT, client_secret_file=section.client_secret_file, approvers=("17",)
        )
        folder = tmp_path / str(len(issuer))
        folder.mkdir()
        with owner_console(folder, oidc=wrong) as console:
            assert console.ask("GET", "/sign-in").status in (403, 502)
