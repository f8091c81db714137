"""The demonstration: real daemons on this machine, and three releases.

Masked and synthetic records of three hospitals, and synthetic ones of all persons of a clinic and a registry.

    python -m deploy.demo [--out build/demo] [--epsilon 1] [--k auto] [--seed 1] [--keep-running]

Makes data, certificates, configurations and linkage keys, starts an aggregator and five owner nodes as
separate processes that use mutual TLS, makes the releases, verifies them, stops everything, even after an
error, and says how to read a release.
"""

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from types import FrameType

from common.cli import console
from common.errors import ExitCode, TesseraError, UsageError, from_document
from common.words.numbers import bound_text
from deploy.demo_data import DATASET, OwnerData, hospitals, overlap
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key

MARKER = ".tessera-demo"
"""File that marks a folder as a demonstration, which the next one replaces."""
_LAYOUTS = {"hospitals": "horizontal", "overlap": "vertical"}
_SYNTHETIC = ("--product", "synthetic", "--delta", "0.000001", "--anyway")
"""Of a release whose small ε may make it poor: the demonstration goes on."""
_COLUMNS = ("owner", "records", "ε", "k", "state")
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """A termination signal arrived; like KeyboardInterrupt, handlers of ordinary errors do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise _Terminated(number)


def fresh_folder(folder: Path) -> None:
    """Create an empty folder for a demonstration; an earlier demonstration is replaced.

    Raises:
        UsageError: If the folder exists and is something else.
    """
    if folder.is_dir() and (folder / MARKER).is_file():
        shutil.rmtree(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(
            f"{folder} exists and is not an earlier demonstration", "name another folder with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("made by python -m deploy.demo, which replaces this folder\n")


def prepare(folder: Path, seed: int) -> dict[str, tuple[OwnerData, ...]]:
    """Make data, certificates, configurations and linkage keys; returns the owners of each scenario."""
    scenarios = {"hospitals": hospitals(seed), "overlap": overlap(seed)}
    owners = [owner for scenario in scenarios.values() for owner in scenario]
    make_setup(folder, {owner.owner: owner.settings for owner in owners})
    for owner in owners:
        owner.write(folder / "owners")
    for scenario in scenarios.values():
        share_linkage_key(folder, [owner.owner for owner in scenario])
    return scenarios


def make_release(
    cluster: LocalCluster,
    scenario: str,
    owners: Sequence[str],
    arguments: Sequence[str],
    release_id: str,
) -> Path:
    """Make a release of one scenario and print its table; returns the release folder.

    Raises:
        TesseraError: The error of a failed release.
    """
    started = time.monotonic()
    ended = cluster.cli(
        *("aggregator", "release", "--dataset", DATASET[scenario], "--layout", _LAYOUTS[scenario]),
        *("--owners", ",".join(owners), *arguments),
        *("--purpose", "demonstration", "--id", release_id, "--yes", "--json"),
    )
    _check(ended.returncode, ended.stdout)
    release = json.loads(ended.stdout)
    beside = f", δ {release['delta']}" if "delta" in release else ""
    title = (
        f"release {release['release']} ({_LAYOUTS[scenario]}{beside}): {release['state']}, "
        f"{time.monotonic() - started:.1f} s"
    )
    rows = [
        (o["id"], o["records"], bound_text(Decimal(o["epsilon"])), o["k"], o["state"])
        for o in release["owners"]
    ]
    console.table(title, _COLUMNS, rows)
    console.print_line(f"release folder: {release['directory']}")
    return Path(release["directory"])


def verify(cluster: LocalCluster, release: Path, owners: Sequence[str]) -> None:
    """Check a release as the aggregator and as each of its owners, several at a time."""
    ca = cluster.folder / "tls" / "ca.pem"
    checks = [("aggregator", ""), *(("owner-node", owner) for owner in owners)]
    # Processes end with the thread that started them, so they are started here, and threads only wait for
    # them.
    commands = [
        cluster.start_cli(program, "verify", release, "--ca", ca, "--json", owner=owner)
        for program, owner in checks
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        printed = list(pool.map(lambda command: command.communicate()[0], commands))
    for command, text in zip(commands, printed, strict=True):
        _check(command.returncode, text)
    console.print_line(f"verified by the aggregator and by {', '.join(owners)}")
    console.print_line()


def _check(code: int, printed: str) -> None:
    """Raise the error that a failed command printed as JSON."""
    if not code:
        return
    try:
        document = json.loads(printed)
    except ValueError:
        document = {"error": {"code": "internal", "message": f"a command ended with exit code {code}"}}
    raise from_document(document)


def demonstrate(options: argparse.Namespace) -> None:
    """Run the whole demonstration."""
    started = time.monotonic()
    folder: Path = options.out.absolute()
    fresh_folder(folder)
    console.note("making data, certificates, configurations and linkage keys")
    scenarios = prepare(folder, options.seed)
    names = {scenario: [owner.owner for owner in owners] for scenario, owners in scenarios.items()}
    releases = []
    with LocalCluster(folder, [name for group in names.values() for name in group]) as cluster:
        console.note(f"starting an aggregator and {len(cluster.owners)} owner nodes; logs: {folder / 'logs'}")
        cluster.start()
        console.note("all owners are connected")
        epsilon = ("--epsilon", options.epsilon)
        drawn = (*epsilon, *_SYNTHETIC)
        for name, scenario, arguments in (
            ("hospitals", "hospitals", (*epsilon, "--k", options.k)),
            ("hospitals-synthetic", "hospitals", drawn),
            ("overlap", "overlap", (*drawn, "--on-mismatch", "union")),
        ):
            owners = names[scenario]
            releases.append(make_release(cluster, scenario, owners, arguments, name))
            verify(cluster, releases[-1], owners)
        if options.keep_running:
            config = cluster.aggregator.config
            console.note(f"running until Ctrl-C; try: aggregator owners --config {config}")
            threading.Event().wait()
    console.note(f"everything is stopped; it took {time.monotonic() - started:.0f} s")
    console.print_line(f"read a release in Python ({sys.executable}), more in docs/analysis.md:")
    for line in reading_lines(releases[0], folder / "tls" / "ca.pem"):
        console.print_line(f"    {line}")


def reading_lines(release: Path, ca: Path) -> tuple[str, ...]:
    """Return the lines of Python that read a release and show what is known about it."""
    return (
        "import tessera",
        f"release = tessera.read_release({str(release)!r}, ca={str(ca)!r})",
        'print(release, release.codebook, release.frame.describe(), sep="\\n")',
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.demo", description="Three releases, on this machine."
    )
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder (default: build/demo)")
    parser.add_argument("--epsilon", default="1", help="privacy budget of each release (default: 1)")
    parser.add_argument("--k", default="auto", help="minimum cluster size (default: auto)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the made-up data (default: 1)")
    parser.add_argument("--keep-running", action="store_true", help="leave the daemons up until Ctrl-C")
    options = parser.parse_args(arguments)
    for number in _ENDING:
        # Signals that were ignored from the start, as by nohup, stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminate)
    try:
        demonstrate(options)
    except TesseraError as error:
        return console.report(error, as_json=False)
    except KeyboardInterrupt:
        console.note("interrupted; everything is stopped")
        return ExitCode.INTERRUPTED
    except _Terminated as end:
        console.note("terminated; everything is stopped")
        return end.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
