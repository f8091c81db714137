"""The running daemon as commands see it: whether it runs, its connections, and how to notify it.

The daemon stores its state in owner.db. Whether it still runs is decided by the lock that it holds, which the
system releases when the process dies, and never by a process id alone.

The progress of long steps is in a file beside the database, written every few seconds while there are any: it
is worth nothing after a crash, and must not keep the database busy.

A command notifies the daemon of a decision by a named pipe in the state directory. A byte in it means "look
again"; the decision itself is in owner.db. It is no error if no daemon listens: it looks when it starts.

The same pipe shows whether the daemon responds. Its event loop empties the pipe at once; a stopped process or
a blocked event loop leaves the byte of a check in it. No file can show this: it could be an old one.
"""

import asyncio
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

from common.errors import ConfigurationError, TesseraError
from common.files import PRIVATE_FILE, exclusive_lock, is_locked, read_private, write_atomic
from common.progress import MASKING, Progress, StepEstimate
from owner_node.state.database import Clock, OwnerDatabase

LOCK_NAME = "daemon.lock"
_MOST_WAITS = 100
"""Limit of reasons that are kept; aggregators can invent releases while nothing can be stored."""
PROGRESS_NAME = "daemon.progress"


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The connection to one aggregator."""

    aggregator: str
    connected: bool
    """Whether it is up."""
    since: str
    """ISO 8601, UTC: since when it is up or down."""
    reason: str
    """Why it is down; empty if it is up."""


@dataclass(frozen=True, slots=True)
class DaemonState:
    """The known state of the daemon."""

    running: bool
    """Whether a process holds the daemon's lock."""
    pid: int | None
    version: str
    """Its software version; empty if it does not run."""
    started: str
    """ISO 8601, UTC; empty if it does not run."""
    connections: tuple[ConnectionState, ...]
    """One per aggregator that it has tried; empty if it does not run."""
    configuration: str = ""
    """SHA-256 of the owner.toml that it runs with; empty if it does not run, or did not record it."""
    progress: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """How far long steps are, in words, by aggregator and release; short steps are not in it."""

    def outdated(self, configuration: str) -> str:
        """Return a warning if the daemon runs with another owner.toml than commands read; empty if not.

        Args:
            configuration: SHA-256 of the file as it is now.
        """
        if not self.running or self.configuration in ("", configuration):
            return ""
        return (
            "the daemon runs with another owner.toml than this: restart it, until then the former one applies"
        )


def daemon_lock(state_dir: Path) -> AbstractContextManager[None]:
    """Hold the daemon's lock for a block: one daemon works on a state directory.

    Raises:
        UsageError: If another process holds it.
    """
    return exclusive_lock(state_dir / LOCK_NAME, "owner-node run")


def is_running(state_dir: Path) -> bool:
    """Whether a process holds the daemon's lock."""
    return is_locked(state_dir / LOCK_NAME)


class DaemonPresence:
    """The state that the daemon records about itself."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._db, self._clock = db, clock
        # One is kept by the step that it shows, and by the pinned records of its release.
        self._steps: WeakValueDictionary[tuple[str, str], Progress] = WeakValueDictionary()
        self._waits: dict[tuple[str, str], str] = {}
        self._written: list[list[str]] = []

    def progress(self, aggregator: str, release: str) -> Progress:
        """Return what shows how far the work for a release is."""
        return self._steps.setdefault((aggregator, release), Progress(release))

    def masking(self, aggregator: str, release: str) -> StepEstimate | None:
        """Return how far the masking for a release is; None before and after.

        An aggregator gets this and nothing of earlier steps: the share that is done and the time that it took
        would disclose the exact number of records, which is known only once they are linked.
        """
        progress = self._steps.get((aggregator, release))
        return progress.estimate() if progress is not None and progress.what == MASKING else None

    def stop(self, aggregator: str, release: str) -> None:
        """Let the work for a release end, if there is any; later work is shown anew."""
        progress = self._steps.pop((aggregator, release), None)
        if progress is not None:
            progress.stop()

    def note_wait(self, aggregator: str, release: str, reason: str = "") -> None:
        """Note why the work for a release is retried later; without a reason, that it is not."""
        self._waits.pop((aggregator, release), None)
        if reason and len(self._waits) < _MOST_WAITS:
            self._waits[aggregator, release] = f"waits: {reason}"

    def write_progress(self) -> None:
        """Write how far long steps are, and why others wait, if that has changed."""
        steps = {key: text for key, step in self._steps.copy().items() if (text := step.text())}
        texts = sorted([*key, text] for key, text in (self._waits | steps).items())
        if texts != self._written:
            # Without room on the disk, it is shown later or never.
            with suppress(OSError):
                write_atomic(self._progress_file, json.dumps(texts).encode())
                self._written = texts

    @property
    def _progress_file(self) -> Path:
        return self._db.state_dir / PROGRESS_NAME

    def _progress(self) -> dict[tuple[str, str], str]:
        with suppress(OSError, ValueError, TypeError, TesseraError):
            texts = json.loads(read_private(self._progress_file))
            return {(str(aggregator), str(release)): str(text) for aggregator, release, text in texts}
        return {}

    def note_started(self, pid: int, version: str, configuration: str = "") -> None:
        """Record that the daemon runs, and delete the records of an earlier one.

        Args:
            configuration: SHA-256 of the owner.toml that it runs with.
        """
        self._progress_file.unlink(missing_ok=True)
        with self._db.transaction() as tx:
            tx.execute("DELETE FROM connections")
            values = (pid, version, self._clock().isoformat(), configuration)
            tx.execute(
                "INSERT OR REPLACE INTO daemon (id, pid, version, started, configuration) "
                "VALUES (1, ?, ?, ?, ?)",
                values,
            )

    def note_connected(self, aggregator: str) -> None:
        """Record a connection."""
        self._note(aggregator, connected=True, reason="")

    def note_disconnected(self, aggregator: str, reason: str) -> None:
        """Record that a connection broke, or could not be made, and why."""
        self._note(aggregator, connected=False, reason=reason)

    def note_stopped(self) -> None:
        """Record an orderly end."""
        self._progress_file.unlink(missing_ok=True)
        with self._db.transaction() as tx:
            tx.execute("DELETE FROM connections")
            tx.execute("DELETE FROM daemon")

    def state(self) -> DaemonState:
        """Return the state of the daemon; the lock decides whether it runs."""
        daemon = self._db.rows("SELECT pid, version, started, configuration FROM daemon")
        if not is_running(self._db.state_dir):
            return DaemonState(False, None, "", "", ())
        rows = self._db.rows(
            "SELECT aggregator, connected, since, reason FROM connections ORDER BY aggregator"
        )
        connections = tuple(
            ConnectionState(row["aggregator"], bool(row["connected"]), row["since"], row["reason"])
            for row in rows
        )
        if not daemon:
            return DaemonState(True, None, "", "", connections)
        pid, version, started, configuration = daemon[0]
        return DaemonState(True, pid, version, started, connections, configuration, self._progress())

    def _note(self, aggregator: str, *, connected: bool, reason: str) -> None:
        values = (aggregator, int(connected), self._clock().isoformat(), reason)
        with self._db.transaction() as tx:
            # If the reason stays the same, its first time is kept, so that "since" is when it began.
            same = "SELECT 1 FROM connections WHERE aggregator = ? AND connected = ? AND reason = ?"
            if tx.execute(same, (aggregator, int(connected), reason)).fetchone() is None:
                tx.execute(
                    "INSERT OR REPLACE INTO connections (aggregator, connected, since, reason) "
                    "VALUES (?, ?, ?, ?)",
                    values,
                )


PIPE_NAME = "daemon.bell"
_DRAIN = 4096
LOOK_AGAIN, CHECK = b"\0", b"?"


class NotificationPipe:
    """The daemon's end of the pipe. Only while the daemon's lock is held, and in a running event loop.

    Args:
        answer: Called in the event loop at every notification.

    Raises:
        ConfigurationError: If the pipe cannot be made there.
    """

    def __init__(self, state_dir: Path, answer: Callable[[], None]) -> None:
        self._path, self._answer = state_dir / PIPE_NAME, answer
        try:
            if not (self._path.exists() and stat.S_ISFIFO(self._path.lstat().st_mode)):
                self._path.unlink(missing_ok=True)
                os.mkfifo(self._path, PRIVATE_FILE)
            # Open for writing too, so that the pipe does not end when the last command has written to it.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"{self._path} cannot be made: {error.strerror}",
                hint="state_dir must be on a file system with named pipes",
            ) from None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._drain)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            if os.read(self._descriptor, _DRAIN).strip(CHECK):
                self._answer()
