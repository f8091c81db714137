"""Pages that listen: in a process that a person starts, on this machine alone, or in a daemon."""

import asyncio
import socket
import ssl
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from common.cli import console as terminal
from common.daemon.backup import LINKS
from common.daemon.console import UNIX, ConsoleSection
from common.daemon.process import file_limit
from common.daemon.settings import is_loopback
from common.errors import CannotListenError, ConfigurationError
from common.files import read_private
from common.web.address import Address
from common.web.connections import ConnectionLimits, GatedLoop, LimitedConnection, limits_for
from common.web.doors import Doors, put_key
from common.web.oidc import SignedIn, SignIn

LOOPBACK = "127.0.0.1"
_USUAL_PORTS = {"http": 80, "https": 443}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """Where a console is reached."""

    listener: socket.socket
    address: Address


def listen(address: str, scheme: str = "http", url: str = "", proxies: Sequence[str] = ()) -> ConsoleAddress:
    """Listen at an address.

    Args:
        address: "host:port", port 0 for any free one; or "unix:/path" of a socket.
        url: The address that browsers use; empty for that of `address`.
        proxies: Addresses or networks of proxies.
    """
    host, _, port = address.rpartition(":")
    by_socket = address.startswith(UNIX)
    try:
        if by_socket:
            listener = _unix_listener(Path(address.removeprefix(UNIX)))
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        raise CannotListenError(
            f"cannot listen at {address} for web pages: {error.strerror}",
            hint="choose another port, 0 for any free one; a socket needs a folder of this user",
        ) from None
    if url:
        parts, networks = urlsplit(url), [ip_network(proxy) for proxy in proxies]
        root = parts.path.rstrip("/")
        return ConsoleAddress(listener, Address((parts.netloc,), scheme, root, networks, by_socket))
    own = listener.getsockname()[1]
    names = dict.fromkeys([host, *([LOOPBACK, "localhost", "[::1]"] if is_loopback(address) else [])])
    hosts = [f"{name}:{own}" for name in names]
    # Browsers leave the usual port out.
    return ConsoleAddress(
        listener, Address((*hosts, *(names if own == _USUAL_PORTS[scheme] else ())), scheme)
    )


def _unix_listener(path: Path) -> socket.socket:
    """Listen at a Unix socket, for its user and its group; one that a process left behind is removed."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        # Nobody can connect before it listens.
        path.chmod(0o660)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """A server that ends all visits before it stops, so that streams of events end by themselves."""

    def __init__(self, settings: uvicorn.Config, doors: Doors[Any], limits: ConnectionLimits) -> None:
        super().__init__(settings)
        self._doors, self._limits = doors, limits

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with asyncio.Runner(loop_factory=lambda: GatedLoop(self._limits)) as runner:
            runner.run(self.serve(sockets))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._doors.close()
        await super().shutdown(sockets)


def server(
    application: ASGIApp,
    doors: Doors[Any],
    tls: tuple[Path, Path] | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - an immutable value
) -> uvicorn.Server:
    """Return a server of an application."""
    settings = uvicorn.Config(
        application, log_config=None, access_log=False, server_header=False, date_header=False, ws="none",
        http=LimitedConnection, timeout_graceful_shutdown=2, lifespan="on",
        proxy_headers=False,
        ssl_context_factory=None if tls is None else lambda *_: _context(*tls),
    )  # fmt: skip
    settings.load()
    return _Server(settings, doors, limits)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    read_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the console's certificate {certificate} and key {key} cannot be used: "
            f"{error.strerror or type(error).__name__}",
            hint="correct [console] certificate and key: PEM files that belong together",
        ) from None
    return context


class PageServer:
    """Serves pages in its own thread and event loop, until it is closed."""

    def __init__(
        self, application: ASGIApp, doors: Doors[Any], section: ConsoleSection, listener: socket.socket
    ) -> None:
        tls = None
        if section.certificate is not None and section.key is not None:
            tls = section.certificate, section.key
        self._server = server(application, doors, tls, limits_for(file_limit()))
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="console")
        self._thread.start()

    async def close(self) -> None:
        """Answer no more requests, and wait until those under way have ended, at most for seconds."""
        self._server.should_exit = True
        await asyncio.to_thread(self._thread.join)


Application = Callable[[Doors[_T], Address, SignIn[_T] | None], ASGIApp]
"""Makes pages of who may enter, how browsers reach them, and the provider."""


def serve_section(
    section: ConsoleSection,
    state_dir: Path,
    read: Callable[[Mapping[str, Any]], _T],
    person: Callable[[SignedIn], _T],
    application: Application[_T],
) -> PageServer:
    """Serve the pages that `[console]` of a daemon asks for.

    Args:
        state_dir: The daemon's state folder, through which commands pass one-time links.
        read: Makes a person of what a command wrote there.
    """
    place = listen(section.listen, section.scheme, section.url, section.proxies)
    try:
        doors = Doors(time.monotonic, state_dir / LINKS, read)
        provider = None
        if section.oidc is not None:
            provider = SignIn(section.oidc, place.address.url, person, doors.clock)
        pages = application(doors, place.address, provider)
        return PageServer(pages, doors, section, place.listener)
    except BaseException:
        place.listener.close()
        raise


def offer(
    whose: str,
    person: Any,
    section: ConsoleSection,
    state_dir: Path,
    application: Callable[[Doors[Any], Address], ASGIApp],
    port: int,
    *,
    by_daemon: bool,
    opened: bool,
    decides: bool = True,
) -> None:
    """Print a link that signs a person in, to pages of the daemon, or of this process until Ctrl-C.

    Args:
        whose: Whose pages they are, such as "owner north".
    """
    if by_daemon:
        link = section.url.rstrip("/") or f"{section.scheme}://{section.listen}"
        if section.oidc is None:
            key = put_key(state_dir / LINKS, asdict(person), decides=decides)
            link = _show(whose, f"{link}/enter?key={key}")
        else:
            terminal.print_line(f"{whose}: open this address and sign in: {link}")
        if opened:
            webbrowser.open(link)
        return
    place = listen(f"{LOOPBACK}:{port}")
    doors: Doors[Any] = Doors(time.monotonic)
    pages = application(doors, place.address)

    def show_link() -> str:
        return _show(whose, f"{place.address.url}/enter?key={doors.new_key(person, decides=decides)}")

    link = show_link()
    if opened:
        webbrowser.open(link)
    if sys.stdin.isatty():
        threading.Thread(target=lambda: [show_link() for _ in sys.stdin], daemon=True).start()
    server(pages, doors).run(sockets=[place.listener])


def _show(whose: str, link: str) -> str:
    terminal.print_line(f"{whose}: open this link, which works once: {link}")
    return link
