"""The connections of a console: how many there are, and how long each may take.

Anybody who reaches the port can open connections, so they are counted when they are accepted, before a
handshake, and leave most of the process's open files to its work. A connection is a stranger's except while
a request of somebody who has signed in is answered. Where strangers have too many, the oldest of the network
that has most of them is closed for a new one: a flood closes its own connections, and a person's request,
which arrives within milliseconds, is answered.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from traceback import clear_frames
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from common.daemon.console import most_connections


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What all connections of a console have together."""

    connections: int = 256
    """Most open connections."""
    strangers: int = 96
    """Most connections of strangers, from before their handshake to the end of an answer."""
    of_network: int = 32
    """Most of these from one network, as `network_of` gives it."""
    request_seconds: float = 10.0
    """Within which a handshake has to end, and within which a request has to arrive."""
    write_seconds: float = 10.0
    """Within which a browser has to take what waits for it: a page, or `_MOST_WAITING` bytes of a file."""


def limits_for(files: int) -> ConnectionLimits:
    """Return the limits of a console in a process that may have a number of files open."""
    most = most_connections(files)
    return ConnectionLimits(most, most * 3 // 8, most // 8)


ADMIT = "admit"
"""What a request's state names the function by that the guard calls where somebody has signed in."""
_MOST_WAITING = 64 * 1024
"""Bytes of a file that wait for a browser; a page waits whole."""
_ACCEPTED_AT_ONCE = 16
_PAUSE_SECONDS = 1.0
"""How long no connection is accepted when the system has no more open files."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_WAITING = (h11.IDLE, h11.SEND_BODY)
_log = logging.getLogger(__name__)


def network_of(address: str) -> str:
    """Return what limits count an address by: itself, or the /64 of an IPv6 address, all of one machine."""
    with suppress(ValueError):
        ip = ip_address(address.partition("%")[0])
        if ip.version == 6:
            mapped = ip.ipv4_mapped
            return str(mapped or ip_network((ip, 64), strict=False))
    return address


class LimitedConnection(H11Protocol):
    """A connection that is closed if a request or the reading of an answer takes too long."""

    gate: "Gate"
    """What accepted it."""
    socket: socket.socket
    network: str
    """Where it comes from, as `network_of` gives it."""
    _ended = False
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app_state = {**self.app_state, ADMIT: lambda: self.gate.set_stranger(self, False)}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(_MOST_WAITING)
        if self._ended:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every timer."""
        for timer in (self._late, self._stuck):
            if timer is not None:
                timer.cancel()
        self.gate.left(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._expect_request()
        if not self.transport.is_closing():
            self.gate.set_stranger(self, True)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the browser to read what waits for it: reading a little does not extend the time."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self.gate.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no more for a browser that reads."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def end(self) -> None:
        """Close the connection at once."""
        self._ended = True
        if self in self.connections:
            self.transport.abort()
        else:
            # In its handshake, which this ends.
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def _expect_request(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(self.gate.limits.request_seconds, self._end_if_late)

    def _end_if_late(self) -> None:
        # An answer may take longer than a request; a connection that closes has only its last bytes to send.
        if self.conn.their_state in _WAITING or self.transport.is_closing():
            self.transport.abort()


class Gate:
    """Accepts the connections of a listener, in place of asyncio's server."""

    def __init__(
        self,
        limits: ConnectionLimits,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        new: Callable[[], LimitedConnection],
    ) -> None:
        self.limits, self._listener, self._tls, self._new = limits, listener, tls, new
        self._loop = asyncio.get_running_loop()
        self._open: set[LimitedConnection] = set()
        self._strangers: dict[str, dict[LimitedConnection, None]] = {}
        self._n_strangers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more connections, and end every handshake."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: uvicorn itself waits for the connections."""

    def set_stranger(self, connection: LimitedConnection, stranger: bool) -> None:  # noqa: FBT001 - its name says it
        """Note whether a connection is a stranger's."""
        same = self._strangers.get(connection.network, {})
        if stranger and connection in self._open and connection not in same:
            self._strangers.setdefault(connection.network, {})[connection] = None
            self._n_strangers += 1
        elif not stranger and connection in same:
            del same[connection]
            self._n_strangers -= 1
            if not same:
                del self._strangers[connection.network]

    def left(self, connection: LimitedConnection) -> None:
        """Note that a connection is closed."""
        self.set_stranger(connection, False)
        self._open.discard(connection)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.warning("cannot accept connections", extra={"reason": error.strerror})
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            network = network_of(address[0]) if isinstance(address, tuple) else ""
            if not self._has_room(network):
                accepted.close()
                continue
            connection = self._new()
            connection.gate, connection.socket, connection.network = self, accepted, network
            self._open.add(connection)
            self.set_stranger(connection, True)
            task = self._loop.create_task(self._connect(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _has_room(self, network: str) -> bool:
        """Whether there is room for one more connection, which another one may have to make."""
        full = len(self._open) >= self.limits.connections
        candidates = self._strangers.get(network, {})
        if len(candidates) < self.limits.of_network:
            if not full and self._n_strangers < self.limits.strangers:
                return True
            candidates = max(self._strangers.values(), key=len, default={})
        _log.warning("too many connections to the console: the oldest are closed")
        for oldest in candidates:
            # It is open until its transport has ended.
            self.set_stranger(oldest, False)
            oldest.end()
            break
        return not full

    async def _connect(self, connection: LimitedConnection) -> None:
        about: dict[str, Any] = {}
        if self._tls is not None:
            about = {
                "ssl": self._tls,
                "ssl_handshake_timeout": self.limits.request_seconds,
                "ssl_shutdown_timeout": self.limits.request_seconds,
            }
        try:
            await self._loop.connect_accepted_socket(lambda: connection, connection.socket, **about)
        except OSError as error:
            # The handshake failed or took too long: a scanner, or a browser that distrusts the certificate.
            # Its frames refer to the error, and to buffers of 256 KiB.
            clear_frames(error.__traceback__)
            self.left(connection)


class GatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers of listening sockets are gates."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self._limits = limits

    async def create_server(self, protocol_factory: Any, *_: Any, **options: Any) -> Any:
        """Accept connections of the socket `sock`."""
        if options["sock"].family != socket.AF_UNIX:
            # Otherwise the system takes megabytes of answers before anything waits here.
            options["sock"].setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_WAITING)
        options["sock"].listen(options["backlog"])
        return Gate(self._limits, options["sock"], options.get("ssl"), protocol_factory)
