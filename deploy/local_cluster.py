"""An aggregator and its owners as real processes on this machine, from one folder of configurations.

    with LocalCluster(folder) as cluster:
        cluster.start()
        done = cluster.cli("aggregator", "release", "--dataset", "patients", ..., "--yes")
        cluster.owner("north").kill()
        cluster.owner("north").start()
        balance = cluster.cli("owner-node", "ledger", "--json", owner="north")

The folder holds `aggregator/aggregator.toml` and `owners/ID/owner.toml`, as `deploy.local_setup` makes them;
logs go to `logs/`. Leaving the `with` block ends every process, however it is left.
"""

import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from common.errors import UsageError
from deploy.local_process import READY_SECONDS, LocalDaemon, end_process, start_program
from deploy.local_setup import remove_control_folder

_SHUTDOWN_SECONDS = 5.0
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C while processes are ended; only the main thread receives signals."""
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTING}
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LocalCluster:
    """The processes of one folder.

    Use it from one thread that lives as long as the cluster: processes end with the thread that started them.

    Args:
        owners: Ids of the owners to run; default: all of the folder.

    Raises:
        UsageError: If the folder has no such configuration.
    """

    def __init__(self, folder: Path, owners: Iterable[str] | None = None) -> None:
        self.folder = folder.resolve()
        configs = {path.parent.name: path for path in sorted(self.folder.glob("owners/*/owner.toml"))}
        names = list(configs if owners is None else owners)
        config = self.folder / "aggregator" / "aggregator.toml"
        if not names or not configs.keys() >= set(names) or not config.is_file():
            raise UsageError(
                f"{folder} lacks aggregator/aggregator.toml or an owners/ID/owner.toml",
                "make it with deploy.local_setup",
            )
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        self.aggregator = LocalDaemon("aggregator", "aggregator", config, logs / "aggregator.log")
        self.owners = {
            name: LocalDaemon("owner-node", name, configs[name], logs / f"owner-{name}.log") for name in names
        }
        """The owners' daemons by id."""
        self.consoles: list[LocalDaemon] = []
        """The processes that serve pages, in the order of their start."""
        self._commands: list[subprocess.Popen[str]] = []

    def owner(self, name: str) -> LocalDaemon:
        """Return an owner's daemon."""
        return self.owners[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and return when every owner is connected."""
        self.aggregator.start()
        self.aggregator.wait_for("ready")
        for owner in self.owners.values():
            owner.start()
        self.wait_connected()

    def wait_connected(self, timeout: float = READY_SECONDS) -> None:
        """Wait until every running owner has connected since its latest start."""
        for owner in self.owners.values():
            if owner.running:
                owner.wait_for("connected", timeout=timeout)

    def serve_console(self, owner: str = "") -> LocalDaemon:
        """Serve the pages of an owner, or of the aggregator, where its [console] says."""
        party = self.owners[owner] if owner else self.aggregator
        log = party.log_file.with_name(f"console-{party.name}.log")
        console = LocalDaemon(
            party.program, f"{party.name}'s console", party.config, log, ("console", "--serve")
        )
        console.programs = party.programs
        self.consoles.append(console)
        console.start()
        console.wait_for("ready")
        return console

    def restart(self, daemon: LocalDaemon) -> None:
        """Kill a daemon and start it again; returns when it is ready, and an owner when it is connected."""
        daemon.kill()
        daemon.start()
        daemon.wait_for("ready" if daemon is self.aggregator else "connected")

    def start_cli(
        self, program: str, *arguments: str | Path, owner: str = "", show: bool = False
    ) -> subprocess.Popen[str]:
        """Start a command of either program in the folder of its configuration.

        Args:
            show: Whether it inherits the output of this program instead of writing to pipes.

        Returns:
            The process; it is ended with the cluster if not before.
        """
        daemon = self.aggregator if program == "aggregator" else self.owners[owner]
        pipe = None if show else subprocess.PIPE
        place, programs = daemon.config.parent, daemon.programs
        process = start_program(program, arguments, place, programs=programs, stdout=pipe, stderr=pipe)
        self._commands.append(process)
        return process

    def cli(
        self,
        program: str,
        *arguments: str | Path,
        owner: str = "",
        show: bool = False,
        timeout: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of either program to its end; see `start_cli`.

        Raises:
            subprocess.TimeoutExpired: If it takes longer than `timeout` seconds; it is killed.
        """
        process = self.start_cli(program, *arguments, owner=owner, show=show)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            end_process(process)
            self._commands.remove(process)
        command = [program, *map(str, arguments)]
        return subprocess.CompletedProcess(command, process.returncode, out or "", err or "")

    def stop(self) -> None:
        """End every command, console and daemon, the aggregator last; those that linger are killed."""
        with ignore_interrupts():
            for process in self._commands:
                end_process(process)
            self._commands.clear()
            # A process that a test has halted handles SIGTERM only after this signal.
            first = (*self.consoles, *self.owners.values())
            for daemon in (*first, self.aggregator):
                daemon.signal(signal.SIGCONT)
            for daemon in first:
                daemon.signal(signal.SIGTERM)
            for daemon in (*first, self.aggregator):
                daemon.stop(_SHUTDOWN_SECONDS)
            remove_control_folder(self.aggregator.config.parent)
