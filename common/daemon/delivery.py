"""Copies of audit records outside the database: JSON lines in a file, or this machine's syslog.

The database of a party is the truth; a sink is a copy of it for other tools. Records are delivered in order,
and at least once to a file and to a socket of this machine: the source stores the last sequence number that
each sink has taken. A sink that fails (a full disk, a syslog that is down) is retried and delays nothing
else. After a crash a record may be written twice, with the same `sequence`.

    sinks = open_sinks(config.audit, "tessera-owner-node")
    delivery = Delivery(source, sinks)      # `source` keeps records and cursors, in the party's database
    await delivery.run()                    # in a task of the daemon
    delivery.wake()                         # after every commit, from any thread

The handlers of `logging.handlers` are made for logs and lose records: `WatchedFileHandler` flushes to the
kernel, not to the disk, keeps what did not fit in its buffer, and blocks on a pipe; `SysLogHandler` has no
time-out and drops a datagram that is too long.

Records hold ids, counts, digests, decisions and rules; never a value of a record, an identifier or a token.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from common.daemon.audit import AuditSection, AuditSink
from common.daemon.process import in_own_thread, in_thread
from common.errors import ConfigurationError, TesseraError
from common.files import PRIVATE_FILE

_PRIORITY = 13 * 8 + 6
"""Facility "log audit", severity "informational" (RFC 5424, section 6.2.1)."""
_SEND_SECONDS = 5.0
_LAST_SECONDS = 2.0
"""How long a stopping daemon waits for its sinks: they take what is left, or it is abandoned."""
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 15.0, 240.0
_MOST = 500
_SHORT_TEXT = 200
_log = logging.getLogger(__name__)


def open_sinks(section: AuditSection, program: str) -> tuple[AuditSink, ...]:
    """Return the sinks of a configuration; nothing is opened before the first record."""
    sinks: list[AuditSink] = [] if section.file is None else [FileSink(section.file)]
    return (*sinks, SyslogSink(section.syslog, program)) if section.syslog else tuple(sinks)


class FileSink:
    """Appends JSON lines to a file and flushes them to the disk.

    The file is opened again for every batch, so it can be rotated, and it may be append-only (`chattr +a`).
    """

    most = _MOST

    def __init__(self, path: Path) -> None:
        self.name = f"file:{path}"
        self._path = path

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, one line each; a batch that does not fit on the disk is rolled back."""
        data = b"".join(f"{_line(record)}\n".encode() for record in records)
        if not data:
            return
        try:
            # Not blocking, because the path may be a pipe without a reader.
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
            # A crash cut the last line short.
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
    """Sends records to the socket of this machine's syslog, one datagram each."""

    most = _MOST

    def __init__(self, socket_path: str, program: str) -> None:
        self.name = f"syslog:{socket_path}"
        self._path, self._program = socket_path, program

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send records, one message each."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.settimeout(_SEND_SECONDS)
                connection.connect(self._path)
                for record in records:
                    self._send(connection, record)
        except OSError as error:
            raise ConfigurationError(
                f"audit syslog {self._path} cannot be reached: {error.strerror or type(error).__name__}",
                hint="nothing is lost: what is missing is sent as soon as it can be",
            ) from None

    def _send(self, connection: socket.socket, record: Mapping[str, Any]) -> None:
        head = f"<{_PRIORITY}>{self._program}[{os.getpid()}]: "
        try:
            connection.sendall(f"{head}{_line(record)}".encode())
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            # Too long for a datagram. The database has the whole record.
            connection.sendall(f"{head}{_line(_shorten(record))}".encode())


def _line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of ASCII."""
    return json.dumps(record, sort_keys=True, default=str)


def _shorten(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten(item) for key, item in value.items()} | {"shortened": True}
    if isinstance(value, str):
        return value[:_SHORT_TEXT]
    return value if isinstance(value, int | float | None) else []


class AuditSource(Protocol):
    """Keeps audit records and the cursor of every sink. All calls block, one at a time."""

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return at most so many records after a sequence number, with their numbers, oldest first."""

    def position(self, sink: str) -> int:
        """Return the sequence number up to which a sink has taken everything; 0 for a new one."""

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Store the sequence number up to which a sink has taken everything."""


class Delivery:
    """Delivers the records of a source to sinks while a daemon runs; no sink waits for another."""

    def __init__(self, source: AuditSource, sinks: Sequence[AuditSink]) -> None:
        self._source, self._sinks = source, tuple(sinks)
        self._due = {sink.name: asyncio.Event() for sink in sinks}
        self._loop = asyncio.get_running_loop()
        self._failing: dict[str, str] = {}

    def wake(self) -> None:
        """Note that there may be new records; from any thread."""
        if self._sinks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note_due)

    def _note_due(self) -> None:
        for due in self._due.values():
            due.set()

    async def run(self) -> None:
        """Deliver records when there are new ones, and retry sinks that fail, until cancelled.

        Once cancelled, sinks have a moment to take what is left. What they do not take is abandoned, and
        delivered after the next start.
        """
        async with asyncio.TaskGroup() as group:
            for sink in self._sinks:
                group.create_task(self._serve(sink))

    async def _serve(self, sink: AuditSink) -> None:
        due, pause = self._due[sink.name], _RETRY_SECONDS
        delivery: asyncio.Task[None] | None = None
        try:
            while True:
                due.clear()
                delivery = asyncio.create_task(self._deliver(sink))
                await asyncio.wait([delivery])
                fails = sink.name in self._failing
                pause = min(2 * pause, _LONGEST_RETRY_SECONDS) if fails else _RETRY_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause / 2 if fails else None):
                        await due.wait()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    if delivery is not None:
                        await delivery
                    if sink.name not in self._failing:
                        await self._deliver(sink)

    async def _deliver(self, sink: AuditSink) -> None:
        """Deliver all records to a sink; one that fails is warned about once for each reason."""
        try:
            while await self._deliver_batch(sink):
                pass
        except Exception as error:  # noqa: BLE001 - no release may wait for a sink, whatever the error
            reason = error.message if isinstance(error, TesseraError) else type(error).__name__
            if self._failing.get(sink.name) != reason:
                _log.warning("audit sink fails", extra={"sink": sink.name, "reason": reason})
            self._failing[sink.name] = reason
        else:
            if self._failing.pop(sink.name, None) is not None:
                _log.info("audit sink caught up", extra={"sink": sink.name})

    async def _deliver_batch(self, sink: AuditSink) -> bool:
        # The database stays open until a call that is cancelled has ended. A sink is not waited for.
        records = await in_thread(self._next_records, sink)
        if records:
            await in_own_thread(sink.write, [record for _, record in records])
            await in_thread(self._source.note_delivered, sink.name, records[-1][0])
        return len(records) == sink.most

    def _next_records(self, sink: AuditSink) -> Sequence[tuple[int, Mapping[str, Any]]]:
        return self._source.audit_records(self._source.position(sink.name), sink.most)
