"""Processes of the two programs on this machine: start them, follow their logs, and leave none behind.

A child gets its own process group, so that Ctrl-C at a terminal reaches only the program that started it,
which then ends its children in order. On Linux a child also dies with the thread that started it, so that not
even `kill -9` of the starting program leaves anything running.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from common.errors import TesseraError

PROGRAMS = "TESSERA_PROGRAMS"
"""Environment variable that names the folder of the programs to run, if not those of this interpreter."""
READY_SECONDS = 180.0
_GRACE_SECONDS = 10.0
_LAST_LINES = 5
# prctl(PR_SET_PDEATHSIG, SIGKILL), set by the child on itself: nothing runs between fork and exec, and the
# program that it becomes keeps it. A parent that died before is seen by the child having another parent.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

POPEN: type[subprocess.Popen[str]] = subprocess.Popen
"""Makes the process of a program; tests that start hundreds replace it by a quicker one."""
LAUNCH_WORDS = 6
"""Number of arguments in front of the program's path."""

Entry = Mapping[str, Any]
"""One line of a daemon's log: time, level, logger, event, and the fields of the event."""


class LocalProcessError(TesseraError):
    """A program ended, or logged nothing, where it should have continued."""

    code = "local_process"


def program_path(program: str, programs: Path | None = None) -> Path:
    """Return the path of an installed program."""
    path = (programs or Path(os.environ.get(PROGRAMS) or Path(sys.executable).parent)) / program
    if not path.is_file():
        raise LocalProcessError(f"{path.parent} has no {program}", "install the project there: make setup")
    return path


def start_program(
    program: str,
    arguments: Sequence[str | Path],
    folder: Path,
    *,
    programs: Path | None = None,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Start one of the programs, without a terminal for questions.

    Args:
        stdout: As in `subprocess.Popen`; None shows what it prints.
        stderr: The same for standard error.

    Returns:
        The process, leader of its own process group. It ends with the calling thread.
    """
    launch = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _LAUNCH,
        str(os.getpid()),
        str(program_path(program, programs)),
    ]
    # The installed package runs, not the one that this process would import.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return POPEN(
        [*launch, *map(str, arguments)],
        cwd=folder,
        env=environment | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def run_program(
    program: str, arguments: Sequence[str | Path], folder: Path, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run one of the programs to its end; see `start_program`.

    Raises:
        subprocess.TimeoutExpired: If it takes longer than `timeout` seconds; it is killed.
    """
    process = start_program(program, arguments, folder)
    try:
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess([program, *map(str, arguments)], process.returncode, out, err)
    finally:
        end_process(process)


def run_json(program: str, arguments: Sequence[str | Path], folder: Path) -> Any:
    """Run one of the programs with `--json`, which must succeed; returns its document."""
    ended = run_program(program, [*arguments, "--json"], folder)
    if ended.returncode:
        words = " ".join([program, *map(str, arguments)])
        raise LocalProcessError(f"{words} ended with exit code {ended.returncode}", ended.stdout.strip())
    return json.loads(ended.stdout)


def end_process(process: subprocess.Popen[str]) -> None:
    """Kill a process with its whole group, wait for it, and close its pipes."""
    if process.poll() is None:
        # Other members of the group were started by the leader, so they are ended as well.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class LocalDaemon:
    """One daemon, which can be started, stopped, killed and restarted, while its log is followed.

    Args:
        log_file: File of its log; every start appends to it.
        command: The command that runs; that of the program's daemon if empty.
    """

    def __init__(
        self, program: str, name: str, config: Path, log_file: Path, command: Sequence[str] = ()
    ) -> None:
        self.program, self.name, self.config, self.log_file = program, name, config, log_file
        self.command = command or ("serve" if program == "aggregator" else "run",)
        self.programs: Path | None = None
        """Folder of the programs that it runs from its next start on; None as in `program_path`."""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        self._lines: list[str] = []
        self._silent = True

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the latest start."""
        if self._process is None:
            raise LocalProcessError(f"{self.name} was never started")
        return self._process.pid

    @property
    def entries(self) -> list[Entry]:
        """Log of the latest start, line by line."""
        with self._changed:
            return list(self._entries)

    def start(self) -> None:
        """Start the process; `wait_for("ready")` returns when it serves."""
        if self.running:
            raise LocalProcessError(f"{self.name} is running already")
        self._join()
        arguments: list[str | Path] = [*self.command, "--config", self.config]
        process = start_program(
            self.program, arguments, self.config.parent, programs=self.programs, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        self._entries, self._lines, self._silent = [], [], False
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def wait_for(self, event: str, *, after: int = 0, timeout: float = READY_SECONDS, **fields: Any) -> Entry:
        """Wait until the log of the latest start has a line.

        Args:
            after: Number of lines to skip from the beginning, a length of `entries`.
            fields: Further fields of the line, for example `release="r1"`.

        Raises:
            LocalProcessError: If the process ends before, or on time-out.
        """

        def found() -> Entry | None:
            wanted = {"event": event, **fields}
            return next((e for e in self._entries[after:] if wanted.items() <= dict(e).items()), None)

        return self.wait_until(found, event, timeout)

    def wait_until(
        self, found: Callable[[], Entry | None], what: str, timeout: float = READY_SECONDS
    ) -> Entry:
        """Wait until a function of the log returns a line of it; it is called again for every line."""
        with self._changed:
            self._changed.wait_for(lambda: self._silent or found() is not None, timeout)
            entry, silent, last = found(), self._silent, self._lines[-_LAST_LINES:]
        if entry is None:
            why = "ended" if silent else f"waited {timeout:.0f} s"
            raise LocalProcessError(f"{self.name}: {why} before {what!r}", "\n".join(last) or "no log")
        return entry

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def stop(self, grace: float = _GRACE_SECONDS) -> int:
        """Terminate the process, and kill it after `grace` seconds; returns its exit code."""
        self.signal(signal.SIGTERM)
        if self._process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        return self.kill()

    def kill(self) -> int:
        """End the process as a loss of power would, with SIGKILL; returns its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._join()
        return code

    def _join(self) -> None:
        if self._reader is not None:
            self._reader.join()
            self._reader = None

    def _read(self, pipe: IO[str]) -> None:
        """Follow the log until the process closes it."""
        try:
            with pipe, self.log_file.open("a", encoding="utf-8") as log:
                for line in pipe:
                    log.write(line)
                    log.flush()
                    self._hear(line.rstrip("\n"))
        finally:
            with self._changed:
                self._silent = True
                self._changed.notify_all()

    def _hear(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        with self._changed:
            self._lines.append(line)
            if isinstance(entry, dict) and "event" in entry:
                self._entries.append(entry)
            self._changed.notify_all()
