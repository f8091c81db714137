"""The parties of a chaos run, as real processes, and what is on their disks, read beside them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from aggregator.protocol.events import Event, from_json
from aggregator.protocol.release import Release, fold
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon
from deploy.local_setup import AGGREGATOR as AGGREGATOR_NAME
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.state.records import Records
from tests.chaos.schedule import AGGREGATOR, OWNERS
from tests.system.small_owners import (
    ATTRIBUTES,
    declared,
    identifiers,
    people,
    policy,
    state_dir,
    write,
)

DATASETS = {"horizontal": "patients", "vertical": "members"}
"""The data set of each layout."""
SIZES = {"a": 2_500, "b": 1_500}
MEMBERS = 2_500
DEADLINES = {"invite": 20, "consent": 15, "link": 20, "mask": 20, "collect": 20}
"""Seconds that each step may take."""
_SPLIT = {"a": ("age", "income", "admitted"), "b": ("ward", "severity", "emergency")}
_TOTAL_EPSILON = "1000000"


def make_parties(folder: Path) -> LocalCluster:
    """Return two owners with data for each layout, of whom the first asks a person about much epsilon."""
    first = 0
    for seed, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(first, SIZES[owner]), seed))
        first += SIZES[owner]
    members = people(identifiers(first, MEMBERS), seed=len(OWNERS))
    says = {}
    for owner, names in _SPLIT.items():
        write(folder, owner, "members", members[["person", *names]].sample(frac=1, random_state=1))
        rules = policy(max_epsilon_per_release="30", manual_above_epsilon="6" if owner == "a" else "30")
        own = {name: ATTRIBUTES[name] for name in names}
        says[owner] = rules + declared("patients", total_epsilon=_TOTAL_EPSILON)
        says[owner] += declared("members", attributes=own, total_epsilon=_TOTAL_EPSILON)
    make_setup(folder, says, deadlines={step: f"{seconds}s" for step, seconds in DEADLINES.items()})
    share_linkage_key(folder, OWNERS)
    return LocalCluster(folder)


def daemon_of(cluster: LocalCluster, party: str) -> LocalDaemon:
    """Return the process of a party."""
    return cluster.aggregator if party == AGGREGATOR else cluster.owner(party)


def aggregator_state(cluster: LocalCluster) -> Path:
    """Return the aggregator's state directory."""
    return cluster.aggregator.config.parent / "state"


def events_of(cluster: LocalCluster, release: str) -> list[Event]:
    """Return a release's events, read from the journal beside the daemon."""
    rows = _read(
        aggregator_state(cluster) / "aggregator.db",
        "SELECT document FROM events WHERE release = ? ORDER BY sequence",
        release,
    )
    return [from_json(document) for (document,) in rows]


def release_of(cluster: LocalCluster, release: str) -> Release | None:
    """Return a release as the journal has it; None before it is stored."""
    events = events_of(cluster, release)
    return fold(events) if events else None


def session_state(cluster: LocalCluster, owner: str, release: str) -> str:
    """Return the state of an owner's session; empty if there is none."""
    path = state_dir(cluster, owner) / "owner.db"
    rows = _read(path, "SELECT state FROM sessions WHERE release = ?", release)
    return str(rows[0][0]) if rows else ""


@contextmanager
def records_of(cluster: LocalCluster, owner: str) -> Iterator[Records]:
    """Open an owner's records beside its daemon."""
    records = Records.open(state_dir(cluster, owner), lambda: datetime.now(UTC))
    with closing(records.db):
        yield records


def aggregator_name() -> str:
    """Return what owners call the aggregator."""
    return AGGREGATOR_NAME


def _read(path: Path, statement: str, release: str) -> list[tuple[str, ...]]:
    """Read rows without keeping the file open, as nobody would who is to die beside it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, (release,)).fetchall()
    except sqlite3.OperationalError:
        # Between the death of the only writer and its return a reader cannot always open the database.
        return []
