"""Pages that listen, in a process of their own: for a person, on this machine alone, or as a service."""

import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from common.cli import console as terminal
from common.daemon.backup import LINKS
from common.daemon.console import UNIX, ConsoleSection
from common.daemon.process import READY, STOPPING, notify, raise_file_limit
from common.daemon.settings import is_loopback
from common.errors import CannotListenError, CannotRunError, CannotStoreError, ConfigurationError
from common.files import exclusive_lock, is_locked, private_directory, read_private
from common.web.address import Address
from common.web.doors import Doors, put_key
from common.web.oidc import SignedIn, SignIn

LOOPBACK = "127.0.0.1"
_USUAL_PORTS = {"http": 80, "https": 443}
_LOCK = "console.lock"
"""Held by the process that serves the pages of `[console]`."""
_MOST_CONNECTIONS = 256
"""Open connections from which on a request is answered with status 503."""
_KEPT_SECONDS = 10
"""How long a connection is kept for the next request."""
_LONGEST_HEAD = 64 * 1024
"""Bytes of the first lines of a request."""
_FILES = 4096
"""Open files of a process that serves pages: more than the connections that a flood keeps open for long."""
_BACKLOG = 64
"""Connections that wait; Python logs each of them where there are no more files."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


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

    def __init__(self, settings: uvicorn.Config, doors: Doors[Any], parent: int) -> None:
        super().__init__(settings)
        self._doors, self._parent = doors, parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        notify(READY)

    async def on_tick(self, counter: int) -> bool:
        orphaned = self._parent not in (0, os.getppid())
        return await super().on_tick(counter) or orphaned

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        notify(STOPPING)
        self._doors.close()
        await super().shutdown(sockets)


def server(
    application: ASGIApp, doors: Doors[Any], tls: tuple[Path, Path] | None = None, parent: int = 0
) -> uvicorn.Server:
    """Return a server of an application.

    Args:
        tls: Its certificate and private key; None for HTTP.
        parent: Process id of the process whose end ends the server, too; 0 for none.
    """
    # A warning is one line for every malformed or refused request: a flood would fill the log.
    settings = uvicorn.Config(
        application, log_config=None, log_level=logging.ERROR, access_log=False, server_header=False,
        date_header=False, ws="none", http="h11", loop="asyncio", lifespan="on", proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS, timeout_keep_alive=_KEPT_SECONDS, timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=_LONGEST_HEAD, backlog=_BACKLOG,
        ssl_context_factory=None if tls is None else lambda *_: _context(*tls),
    )  # fmt: skip
    settings.load()
    return _Server(settings, doors, parent)


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


Application = Callable[[Doors[_T], Address, SignIn[_T] | None], ASGIApp]
"""Makes pages of who may enter, how browsers reach them, and the provider."""


@dataclass(frozen=True, slots=True)
class Console(Generic[_T]):
    """The pages of one party."""

    whose: str
    """Whose they are, such as "owner north"."""
    section: ConsoleSection
    state_dir: Path
    """The party's state folder, through which commands pass one-time links."""
    read: Callable[[Mapping[str, Any]], _T]
    """Makes a person of what a command wrote there."""
    person: Callable[[SignedIn], _T]
    """Makes a person of whom a provider names."""
    application: Application[_T]

    @property
    def served(self) -> bool:
        """True if a process serves them where `[console]` says."""
        return bool(self.section.listen) and is_locked(self.state_dir / _LOCK)


def section_server(console: Console[_T], parent: int = 0) -> tuple[uvicorn.Server, socket.socket]:
    """Return a server of the pages that `[console]` asks for, and its listener.

    Raises:
        CannotListenError: If the address cannot be listened at.
        ConfigurationError: If certificate or key cannot be used.
    """
    section = console.section
    place = listen(section.listen, section.scheme, section.url, section.proxies)
    try:
        doors = Doors(time.monotonic, console.state_dir / LINKS, console.read)
        provider = None
        if section.oidc is not None:
            provider = SignIn(section.oidc, place.address.url, console.person, doors.clock)
        tls = None
        if section.certificate is not None and section.key is not None:
            tls = section.certificate, section.key
        pages = console.application(doors, place.address, provider)
        return server(pages, doors, tls, parent), place.listener
    except BaseException:
        place.listener.close()
        raise


def serve(console: Console[Any], program: str, parent: int = 0) -> None:
    """Serve the pages that `[console]` asks for until a stop signal arrives.

    Args:
        program: The program whose command this is, such as "owner-node".

    Raises:
        ConfigurationError: If `[console]` names no address, or certificate or key cannot be used.
        UsageError: If another process serves them.
        CannotRunError: If the address cannot be listened at, which may pass.
    """
    if not console.section.listen:
        raise ConfigurationError(
            "[console] names no address to serve pages at",
            hint='add listen = "127.0.0.1:8441" to [console], or leave --serve out',
        )
    with ExitStack() as opened:
        try:
            lock = private_directory(console.state_dir) / _LOCK
            opened.enter_context(exclusive_lock(lock, f"{program} console --serve"))
            pages, listener = section_server(console, parent)
        except (CannotListenError, CannotStoreError) as fault:
            raise CannotRunError(fault.message, fault.hint) from None

        # A signal before the server has its own handlers counts, too; afterwards it raises the signal again.
        def stop(*_: object) -> None:
            pages.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        raise_file_limit(_FILES)
        with closing(listener):
            _log.info("ready", extra={"address": console.section.listen})
            pages.run(sockets=[listener])
    _log.info("stopped")


def offer(
    console: Console[_T], person: Any, port: int, *, opened: bool, decides: bool = True, parent: int = 0
) -> None:
    """Print a link that signs a person in: to pages that are served, or to this process's until Ctrl-C.

    Args:
        port: The port of pages of this process.
        opened: Whether the link is opened in the browser.
        decides: Whether the person may change anything.
    """
    section, whose = console.section, console.whose
    if console.served:
        link = section.url.rstrip("/") or f"{section.scheme}://{section.listen}"
        if section.oidc is None:
            key = put_key(console.state_dir / LINKS, asdict(person), decides=decides)
            link = _show(whose, f"{link}/enter?key={key}")
        else:
            terminal.print_line(f"{whose}: open this address and sign in: {link}")
        if opened:
            webbrowser.open(link)
        return
    place = listen(f"{LOOPBACK}:{port}")
    doors: Doors[Any] = Doors(time.monotonic)
    pages = console.application(doors, place.address, None)

    def show_link() -> str:
        return _show(whose, f"{place.address.url}/enter?key={doors.new_key(person, decides=decides)}")

    link = show_link()
    if opened:
        webbrowser.open(link)
    if sys.stdin.isatty():
        threading.Thread(target=lambda: [show_link() for _ in sys.stdin], daemon=True).start()
    server(pages, doors, parent=parent).run(sockets=[place.listener])


def _show(whose: str, link: str) -> str:
    terminal.print_line(f"{whose}: open this link, which works once: {link}")
    return link
