"""Where audit records go beside the database: JSON lines in a file, or syslog.

The database of a party is the truth; a sink is a copy of it for somebody else's tools. Records are delivered
in order, to a file and to a socket of this machine at least once: how far a sink has come is remembered by
whoever keeps the records, and a sink that fails (a full disk, a syslog that is away) delays nothing but
itself. After a crash a record may come twice; its `sequence` says so. Over a network records go in clear text
and may be lost: over UDP always, over TCP those that are on their way when a connection breaks.

    sinks = open_sinks(config.audit, "tessera-owner-node")
    delivery = Delivery(source, sinks)      # `source` keeps records and cursors, in the party's database
    await delivery.run()                    # in a task of the daemon
    delivery.wake()                         # after every commit, from any thread

Records hold ids, counts, digests, decisions and rules; never a value of a record, an identifier or a token.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import re
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import PlainValidator

from common.errors import ConfigurationError, TesseraError
from common.files import PRIVATE_FILE
from common.settings import FilePath, Section

LOCAL_SYSLOG = "/dev/log"
"""Where this machine's syslog listens."""
DEFAULT_PORT = 514
_PRIORITY = 13 * 8 + 6
"""Facility "log audit", severity "informational" (RFC 5424, section 6.2.1)."""
_SEND_SECONDS = 5.0
_RETRY_SECONDS = 15.0
_BATCH = 500
_SHORT_TEXT = 200
_ADDRESS = re.compile(
    r"(?:(?P<scheme>udp|tcp)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
)
_log = logging.getLogger(__name__)


class AuditSink(Protocol):
    """Takes audit records."""

    name: str
    """What the sink is remembered by; another place is another sink, which gets everything from the start."""

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take records, all of them or with an error.

        Raises:
            ConfigurationError: If they could not be taken; they have to be written again.
        """


def parse_syslog(value: object) -> str:
    """Read what a configuration says about syslog: true, the path of a socket, or the address of a host.

    Raises:
        ValueError: If it is something else.
    """
    if isinstance(value, bool):
        return LOCAL_SYSLOG if value else ""
    if isinstance(value, str) and value.startswith("/"):
        return value
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 2**16:
        raise ValueError('expected true, the path of a socket, or an address such as "tcp://host:514"')
    return f"{match['scheme'] or 'udp'}://{match['host']}:{match['port'] or DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class AuditSection(Section):
    """The table `[audit]` of a configuration."""

    file: FilePath | None = None
    """JSON lines are appended here; None for no file."""
    syslog: Annotated[str, PlainValidator(parse_syslog)] = ""
    """The path of a socket, or "udp://host:port" or "tcp://host:port"; empty for no syslog."""


def open_sinks(section: AuditSection, program: str) -> tuple[AuditSink, ...]:
    """Return the sinks of a configuration; nothing is opened before there is something to write.

    Args:
        section: What the configuration says.
        program: What syslog knows this program by.
    """
    sinks: list[AuditSink] = [] if section.file is None else [FileSink(section.file)]
    return (*sinks, SyslogSink(section.syslog, program)) if section.syslog else tuple(sinks)


class FileSink:
    """Appends JSON lines to a file and flushes them to the disk.

    The file is opened anew for every batch, so that it can be rotated, and may be append-only (`chattr +a`).

    Args:
        path: The file; made, for this user alone, where it is absent.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"file:{path}"
        self._path = path

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, one line each; of a batch that does not fit on the disk nothing stays.

        Raises:
            ConfigurationError: If the file cannot be written.
        """
        data = b"".join(f"{_line(each)}\n".encode() for each in records)
        if not data:
            return
        try:
            # Not blocking: what is behind the name could be a pipe that nobody reads.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, PRIVATE_FILE)
            with os.fdopen(descriptor, "r+b", buffering=0):
                self._append(descriptor, data)
        except OSError as error:
            raise ConfigurationError(
                f"audit file {self._path} cannot be written: {error.strerror}",
                hint="nothing is lost: what is missing is written as soon as it can be",
            ) from None

    def _append(self, descriptor: int, data: bytes) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # Somebody died in the middle of a line; the next one begins on its own.
            data = b"\n" + data
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise


class SyslogSink:
    """Sends records to syslog: to a socket of this machine, or to a host as RFC 5424 messages.

    Over UDP nobody says whether they arrived; over TCP (RFC 6587, octet counting) at least a connection does,
    and what is on its way when it breaks is lost. Neither is encrypted.

    Args:
        address: As `parse_syslog` returns it.
        program: What syslog knows this program by.
    """

    def __init__(self, address: str, program: str) -> None:
        self.name = f"syslog:{address}"
        self._address, self._program = address, program

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send records, one message each.

        Raises:
            ConfigurationError: If they could not be sent.
        """
        try:
            with self._connected() as connection:
                for record in records:
                    self._send(connection, record)
        except OSError as error:
            raise ConfigurationError(
                f"audit syslog {self._address} cannot be reached: {error.strerror or type(error).__name__}",
                hint="nothing is lost: what is missing is sent as soon as it can be",
            ) from None

    def _connected(self) -> socket.socket:
        if self._address.startswith("/"):
            return _local(self._address)
        scheme, _, place = self._address.partition("://")
        host, _, port = place.rpartition(":")
        kind = socket.SOCK_STREAM if scheme == "tcp" else socket.SOCK_DGRAM
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=kind)[0]
        return _connect(socket.socket(family, kind, protocol), target)

    def _send(self, connection: socket.socket, record: Mapping[str, Any]) -> None:
        try:
            connection.sendall(self._message(connection, record))
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            # A record that no datagram holds is told with shorter texts; the database has it whole.
            connection.sendall(self._message(connection, _shortened(record)))

    def _message(self, connection: socket.socket, record: Mapping[str, Any]) -> bytes:
        stream = connection.type == socket.SOCK_STREAM
        if connection.family == socket.AF_UNIX:
            text = f"<{_PRIORITY}>{self._program}[{os.getpid()}]: {_line(record)}"
            return text.encode() + (b"\0" if stream else b"")
        time, host = str(record.get("time") or "-"), socket.gethostname() or "-"
        text = f"<{_PRIORITY}>1 {time} {host} {self._program} {os.getpid()} audit - {_line(record)}"
        return f"{len(text.encode())} {text}".encode() if stream else text.encode()


def _local(path: str) -> socket.socket:
    """Connect to a socket of this machine; some take datagrams, some streams."""
    try:
        return _connect(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), path)
    except OSError as error:
        if error.errno != errno.EPROTOTYPE:
            raise
    return _connect(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _connect(connection: socket.socket, target: Any) -> socket.socket:
    try:
        connection.settimeout(_SEND_SECONDS)
        connection.connect(target)
    except BaseException:
        connection.close()
        raise
    return connection


def _line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of ASCII, whatever texts are in it."""
    return json.dumps(record, sort_keys=True, default=str)


def _shortened(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shortened(each) for key, each in value.items()} | {"shortened": True}
    if isinstance(value, str):
        return value[:_SHORT_TEXT]
    return value if isinstance(value, int | float | None) else []


class AuditSource(Protocol):
    """Keeps audit records, and how far every sink has come. All calls block, one at a time."""

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return records with their sequence numbers, oldest first, that come after a sequence number."""

    def delivered(self, sink: str) -> int:
        """Return the sequence number up to which a sink has everything; 0 for a new one."""

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Remember that a sink has everything up to a sequence number."""


class Delivery:
    """Brings a source's records to its sinks, for as long as a daemon runs.

    Args:
        source: Keeps the records.
        sinks: Where they go.
    """

    def __init__(self, source: AuditSource, sinks: Sequence[AuditSink]) -> None:
        self._source, self._sinks = source, tuple(sinks)
        self._due = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failing: dict[str, str] = {}

    def wake(self) -> None:
        """Say that there may be something new; from any thread."""
        if self._sinks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._due.set)

    async def run(self) -> None:
        """Deliver whatever there is, whenever there is something, until cancelled."""
        while True:
            self._due.clear()
            await self._delivered()
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if self._failing else None):
                    await self._due.wait()

    async def _delivered(self) -> None:
        """Deliver in a thread; who is cancelled meanwhile waits, so that it finds its database open."""
        future = asyncio.ensure_future(asyncio.to_thread(self.deliver))
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def deliver(self) -> None:
        """Bring every sink as far as it goes; one that fails is warned about, once for every reason."""
        for sink in self._sinks:
            try:
                while self._deliver_batch(sink):
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it is, no release may wait for it
                reason = error.message if isinstance(error, TesseraError) else type(error).__name__
                if self._failing.get(sink.name) != reason:
                    _log.warning("audit sink fails", extra={"sink": sink.name, "reason": reason})
                self._failing[sink.name] = reason
            else:
                if self._failing.pop(sink.name, None) is not None:
                    _log.info("audit sink caught up", extra={"sink": sink.name})

    def _deliver_batch(self, sink: AuditSink) -> bool:
        records = self._source.audit_records(self._source.delivered(sink.name), _BATCH)
        if records:
            sink.write([record for _, record in records])
            self._source.note_delivered(sink.name, records[-1][0])
        return len(records) == _BATCH
