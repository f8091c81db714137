"""A real OpenID Connect provider at a port of this machine, which signs in whomever a test names."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlencode

import requests
from werkzeug.serving import BaseWSGIServer, make_server

from common.daemon.console import OidcSection
from tests.fakes.owner_console import Answer, OwnerConsole

CLIENT = "tessera-a"


@dataclass
class Provider:
    """A provider that listens."""

    server: BaseWSGIServer
    secret_file: Path
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and parameters of every request."""
    answers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    """What becomes of the answers of a path."""

    @property
    def issuer(self) -> str:
        """Its address."""
        return f"http://{self.server.host}:{self.server.server_port}"

    def section(self, *approvers: str, viewers: tuple[str, ...] = ()) -> OidcSection:
        """Return the table `[console.oidc]` that names this provider."""
        return OidcSection(
            issuer=self.issuer, client_id=CLIENT, client_secret_file=self.secret_file, approvers=approvers,
            viewers=viewers,
        )  # fmt: skip

    def knows(self, subject: str, **claims: Any) -> None:
        """Make a person known; claims replace what it would say by itself."""
        requests.put(f"{self.issuer}/users/{subject}", json=claims, timeout=60).raise_for_status()

    def knows_mail(self, subject: str, mail: str, **claims: Any) -> None:
        """Make a person with a verified e-mail address known."""
        self.knows(subject, **({"email": mail, "email_verified": True} | claims))

    def approves(self, there: str, subject: str) -> str:
        """Let a person sign in at an address of the provider; return where the browser is sent then."""
        answer = requests.post(there, data={"sub": subject}, allow_redirects=False, timeout=60)
        return answer.headers["location"]


def sign_in(console: OwnerConsole, provider: Provider, subject: str) -> Answer:
    """Let a person sign in at a console as a browser would."""
    begun = console.ask("GET", "/sign-in")
    assert begun.status == 303
    back = provider.approves(begun.header("location"), subject)
    assert back.startswith(console.origin)
    return end(console, back.removeprefix(console.origin), begun.cookie())


def end(console: OwnerConsole, path: str, cookie: str) -> Answer:
    """Send the browser back to the console, and keep the cookie of the visit."""
    ended = console.ask("GET", path, headers={"Cookie": cookie})
    if ended.status == 200:
        console.cookie = ended.cookie()
    return ended


def changed(address: str, **parameters: str) -> str:
    """Return an address with other parameters."""
    path, _, query = address.partition("?")
    return f"{path}?{urlencode(dict(parse_qsl(query)) | parameters)}"


@contextmanager
def oidc_provider(folder: Path, host: str = "127.0.0.1") -> Iterator[Provider]:
    """Run a provider at an address of this machine."""
    with warnings.catch_warnings():
        # It uses a module that its own library calls deprecated.
        warnings.simplefilter("ignore")
        import oidc_provider_mock
        from flask import request

        app = oidc_provider_mock.app()
    secret = folder / "client-secret"
    secret.touch(0o600)
    secret.write_text("a secret\n")
    server = make_server(host, 0, app, threaded=True)
    made = Provider(server, secret)
    app.before_request(lambda: made.asked.append((request.path, request.values.to_dict())))

    @app.after_request
    def change(answer: Any) -> Any:
        return made.answers[request.path](answer) if request.path in made.answers else answer

    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
