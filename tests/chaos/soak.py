"""Ten owners, one release after the other, random kills: what grows, and whether everything still holds.

Two of the eleven daemons live long enough to show a leak. One owner is never killed, and the aggregator is
not killed any more after the first third of the time. Growth is measured from there on, per release, as the
slope of a line through all measurements.

Exit code 1 if something does not hold: a release that is not published, a ledger that is wrong, a file that
is left, a fault in a log, or growth above the limits below. Then the folder is kept.
"""

import argparse
import random
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import psutil

from aggregator.control.connection import daemon, stated_user
from aggregator.protocol.states import State
from common.errors import NotConnectedError, TesseraError
from common.release.verification import verify_release
from common.wire.v1.control_pb2 import OwnerGroup, StartRequest
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.ledger.ledger import EntryKind
from tests.chaos.parties import aggregator_state, records_of, release_of
from tests.system.small_owners import ATTRIBUTES, declared, identifiers, people, state_dir, write

OWNERS = tuple(f"o{number}" for number in range(10))
SPARED = OWNERS[0]
"""The owner that is never killed."""
N_RECORDS = 300
DEADLINES = dict.fromkeys(("invite", "consent", "link", "mask", "collect"), "120s")
"""So long that no kill keeps a release from being published."""
REST_SECONDS = 300.0
LATEST_KILL_SECONDS = 3.0
"""How long after its start a release may be hit; on two processors it takes about as long."""
MEMORY_LIMIT = 300_000
"""Most bytes of resident memory that a release may add to a daemon. The aggregator holds the history of all
releases in memory: 145 KB for one with ten owners."""
DESCRIPTOR_LIMIT = 0.05
"""Most open descriptors that a release may add to a daemon."""
FAULTS = ("Traceback", "internal fault", "step failed", "ledger halted")
CALL_SECONDS = 30.0
AGGREGATOR = "aggregator"
HEADINGS = "| | memory | per release | descriptors | per release | files per release | stored per release |"


@dataclass(frozen=True, slots=True)
class Measured:
    """A daemon between two releases."""

    memory: int
    """Resident bytes."""
    descriptors: int
    threads: int
    files: int
    """Files in its state, and at the aggregator in the folder of releases."""
    stored: int
    """Bytes of the files in its state, without write-ahead logs."""


@dataclass(slots=True)
class Soak:
    """What came of it."""

    ends: Counter[str] = field(default_factory=Counter)
    """How the releases ended."""
    killed: Counter[str] = field(default_factory=Counter)
    """How often each party was killed."""
    problems: list[str] = field(default_factory=list)
    """What did not hold."""
    measured: dict[str, list[tuple[int, Measured]]] = field(default_factory=dict)
    """Of the aggregator and the spared owner, with the number of releases so far."""


def make_cluster(folder: Path) -> LocalCluster:
    """Return an aggregator and ten owners with one horizontal data set."""
    for number, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(N_RECORDS * number, N_RECORDS), seed=number))
    make_setup(
        folder,
        {owner: declared("patients", attributes=ATTRIBUTES, total_epsilon="1000000") for owner in OWNERS},
        deadlines=DEADLINES,
    )
    share_linkage_key(folder, OWNERS)
    return LocalCluster(folder)


def measure(process: LocalDaemon, folders: Sequence[Path]) -> Measured:
    """Return the size of a running daemon and of what it keeps."""
    seen = psutil.Process(process.pid)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    # The write-ahead log of a database is bounded, and used again.
    state = [path for path in files if path.is_relative_to(folders[0]) and not path.name.endswith("-wal")]
    return Measured(
        seen.memory_info().rss,
        seen.num_fds(),
        seen.num_threads(),
        len(files),
        sum(path.stat().st_size for path in state),
    )


def one_release(cluster: LocalCluster, release: str, victims: Sequence[str], draw: random.Random) -> str:
    """Make a release while parties are killed and started again; returns its state once all know its end."""
    request = StartRequest(
        release=release, dataset="patients", layout="horizontal", groups=[OwnerGroup(owners=OWNERS)],
        epsilon="1", k="20", budget_split="owner", formats=["parquet"], confirmed=True, anyway=True,
    )  # fmt: skip
    _start(cluster, request)
    began = monotonic()
    for victim, moment in sorted(
        ((each, draw.uniform(0, LATEST_KILL_SECONDS)) for each in victims), key=lambda drawn: drawn[1]
    ):
        sleep(max(0.0, began + moment - monotonic()))
        process = cluster.aggregator if victim == AGGREGATOR else cluster.owner(victim)
        process.kill()
        process.start()
        process.wait_for("ready")
    while monotonic() - began < REST_SECONDS:
        found = release_of(cluster, release)
        if found is not None and found.ended and not found.missing("acknowledged"):
            return str(found.state)
        sleep(0.1)
    return "not at rest"


def _start(cluster: LocalCluster, request: StartRequest) -> None:
    """Ask for a release as soon as all owners are connected; the same request may be repeated."""
    until = monotonic() + REST_SECONDS
    while True:
        try:
            with daemon(cluster.aggregator.config) as calls:
                calls.Start(request, timeout=CALL_SECONDS, metadata=stated_user())
        except NotConnectedError:
            if monotonic() > until:
                raise
            sleep(0.2)
        else:
            return


def problems(cluster: LocalCluster, release: str, state: str) -> Iterator[str]:
    """Yield what does not hold after a release."""
    if state != State.PUBLISHED:
        yield f"{release} is {state}"
        return
    verify_release(cluster.folder / "releases" / release, cluster.folder / "tls" / "ca.pem")
    if list((aggregator_state(cluster) / "incoming").iterdir()):
        yield f"{release}: left in incoming"
    for owner in OWNERS:
        with records_of(cluster, owner) as records:
            records.ledger.verify()
            spends = [
                each
                for each in records.ledger.entries()
                if each.kind is EntryKind.SPEND and each.release == release
            ]
            left = [each.name for each in records.outbox.leftovers()]
        if len(spends) != 1:
            yield f"{release}: {owner} spent {len(spends)} times"
        # The sealed fragment stays, for the owner's own check of what was published.
        left += [each.name for each in (state_dir(cluster, owner) / "scratch").glob("*")]
        if left:
            yield f"{release}: {owner} left {left}"


def _faults(cluster: LocalCluster) -> Iterator[str]:
    for path in sorted((cluster.folder / "logs").iterdir()):
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from (
                f"{path.name}: {line[:300]}" for line in stream if any(each in line for each in FAULTS)
            )


def soak(folder: Path, seed: int, minutes: float, result: Soak) -> None:
    """Make releases until the time is up.

    Args:
        folder: For the cluster.
        seed: Of what is killed when.
        minutes: How long.
        result: Is added to.
    """
    draw, number = random.Random(seed), 0
    with make_cluster(folder) as cluster:
        cluster.start()
        watched = {
            AGGREGATOR: (cluster.aggregator, (aggregator_state(cluster), folder / "releases")),
            SPARED: (cluster.owner(SPARED), (state_dir(cluster, SPARED),)),
        }
        began = monotonic()
        while (gone := (monotonic() - began) / 60) < minutes:
            number += 1
            spares = gone > minutes / 3
            mortal = OWNERS[1:] if spares else (AGGREGATOR, *OWNERS[1:])
            victims = draw.sample(mortal, draw.choice((0, 1, 1, 2)))
            state = one_release(cluster, f"soak-{number}", victims, draw)
            result.ends[state] += 1
            result.killed.update(victims)
            result.problems += problems(cluster, f"soak-{number}", state)
            if spares:
                for party, (process, folders) in watched.items():
                    result.measured.setdefault(party, []).append((number, measure(process, folders)))
            print(
                f"{gone:5.1f} min: soak-{number} {state}, killed: {', '.join(victims) or 'nobody'}",
                flush=True,
            )
            if result.problems:
                return
        result.problems += _faults(cluster)


def growth(measured: Sequence[tuple[int, Measured]], name: str) -> float:
    """Return how much a number grows with each release: the slope of the line through all measurements."""
    numbers = [number for number, _ in measured]
    return float(np.polyfit(numbers, [getattr(each, name) for _, each in measured], 1)[0])


def figures(result: Soak) -> Iterator[str]:
    """Yield the rows of the table in docs/operations.md."""
    for party, measured in result.measured.items():
        last = measured[-1][1]
        cells = (
            party,
            f"{last.memory / 1e6:.0f} MB",
            f"{growth(measured, 'memory') / 1e3:.1f} KB",
            f"{last.descriptors}",
            f"{growth(measured, 'descriptors'):.3f}",
            f"{growth(measured, 'files'):.1f}",
            f"{growth(measured, 'stored') / 1e3:.1f} KB",
        )
        yield f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description="Look for what grows.")
    parser.add_argument("--minutes", type=float, default=15, help="how long (15)")
    parser.add_argument("--seed", type=int, help="seed of the kills")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    folder, result = Path(tempfile.mkdtemp(prefix="tessera-soak-")), Soak()
    print(f"{options.minutes:g} minutes with seed {seed}, in {folder}", flush=True)
    with suppress(KeyboardInterrupt):
        try:
            soak(folder, seed, options.minutes, result)
        except (TesseraError, OSError) as error:
            result.problems.append(f"{type(error).__name__}: {error}")
    print(
        f"{sum(result.ends.values())} releases:",
        dict(result.ends),
        f"killed: {sum(result.killed.values())} processes",
    )
    if all(len(each) > 2 for each in result.measured.values()):
        print(HEADINGS, *figures(result), sep="\n")
        for party, measured in result.measured.items():
            for name, most in (("memory", MEMORY_LIMIT), ("descriptors", DESCRIPTOR_LIMIT)):
                if (slope := growth(measured, name)) > most:
                    result.problems.append(f"{party}: {name} grows by {slope:.3g} per release")
    for each in result.problems:
        print("DOES NOT HOLD:", each)
    if not result.problems:
        shutil.rmtree(folder)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
