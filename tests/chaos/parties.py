"""The parties of a chaos run, as real processes, and what is on their disks, read beside them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from aggregator.protocol.events import Event, from_json
from aggregator.protocol.release import Release, fold
from common.settings import toml
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon
from deploy.local_setup import AGGREGATOR as AGGREGATOR_NAME
from deploy.local_setup import make_setup, section, share_linkage_key
from owner_node.config.engine import EngineKind
from owner_node.release.records import Records
from tests.chaos.schedule import AGGREGATOR, OWNERS, SQL_OWNER, Linking, Schedule, Work
from tests.postgres_server import PostgresServer
from tests.spark_cluster import SMALL
from tests.system.small_owners import (
    ATTRIBUTES,
    declared,
    identifiers,
    people,
    policy,
    state_dir,
    stored,
    write,
)

SIZES = {"a": 2_500, "b": 1_500}
"""Records of each owner in the horizontal layout."""
MEMBERS = 2_500
"""Records of each owner in the vertical layout."""
SHARED = 500
"""Persons at both owners where there are such."""
COMMON = 1_500
"""Persons that both owners have where each has others, too."""
_FIRST = {
    "patients": {"a": 0, "b": SIZES["a"]},
    "shared": {"a": 10_000, "b": 10_000 + SIZES["a"] - SHARED},
    "members": {"a": 20_000, "b": 20_000},
    "others": {"a": 30_000, "b": 30_000 + MEMBERS - COMMON},
}
"""The number of each owner's first person in each data set."""
_OF_KEYS = 100_000
"""Number of the first person whom match keys link."""
_KEYS = "_by_keys"
"""Ending of the names of data sets whose persons match keys link; otherwise they are as the others."""
BUDGETS = tuple(f"{name}{ending}" for ending in ("", _KEYS) for name in _FIRST)
"""All data sets, each with a budget of its own."""
_BY_KEYS = {
    "identifier": [],
    "normalise": [],
    "match": [
        {"name": "as-written", "keys": ["person:exact"]},
        {"name": "any-case", "keys": ["person:fold"]},
    ],
}
DEADLINES = {"invite": 20, "consent": 15, "link": 20, "mask": 20, "collect": 20}
"""Seconds that each step may take; where Spark starts, as many times more as the schedule's patience."""
_SPLIT = {"a": ("age", "income", "admitted"), "b": ("ward", "severity", "emergency")}
_ENGINE = "\n[engine]"
_DEADLINES = "\n[deadlines]"
_SPARK = "tessera-spark-"
"""What the name of a session's folder begins with, which is in scratch until the daemon ends."""
_TOTAL_EPSILON = "1000000"
_POLICY = {
    owner: policy(
        max_epsilon_per_release="30", manual_above_epsilon=manual, max_overlap=2, allow_intersect=True
    )
    for owner, manual in (("a", "6"), ("b", "30"))
}


@dataclass(frozen=True, slots=True)
class Linked:
    """What linking has to find in a data set, under a plan that allows it."""

    dataset: str
    """The data set."""
    linking: str
    """What the addendum calls it."""
    records: dict[str, int]
    """How many records each owner masks."""
    released: int
    """How many records are released."""
    multiple: int = 1
    """How many owners of a group hold the same person."""
    common: int | None = None
    """How many persons all groups hold, where others are left out."""


_BOTH = dict.fromkeys(OWNERS, MEMBERS)
_LINKED = {
    ("horizontal", False): Linked("patients", "disjoint", SIZES, sum(SIZES.values())),
    ("horizontal", True): Linked("shared", "overlapping", SIZES, sum(SIZES.values()), multiple=2),
    ("vertical", False): Linked("members", "equal", _BOTH, MEMBERS),
    ("vertical", True): Linked("others", "intersected", dict.fromkeys(OWNERS, COMMON), COMMON, common=COMMON),
}


def linked_by(schedule: Schedule) -> Linked:
    """Return what linking has to find."""
    found = _LINKED[schedule.layout, schedule.linking is Linking.FOUND]
    return replace(found, dataset=f"{found.dataset}{_KEYS}") if schedule.by_keys else found


def make_parties(folder: Path, server: PostgresServer | None = None) -> LocalCluster:
    """Return two owners with data for each layout, of whom the first asks a person about much epsilon.

    Args:
        folder: The cluster's folder.
        server: Gets the records of the first owner; None: files have all records.
    """
    says = {owner: _POLICY[owner] for owner in OWNERS}
    for number, name in enumerate(BUDGETS):
        kind, by_keys = name.removesuffix(_KEYS), name.endswith(_KEYS)
        for place, owner in enumerate(OWNERS):
            split = kind in ("members", "others")
            # No two tables are equal in a column: a ledger would take them for the same data.
            first = _FIRST[kind][owner] + (_OF_KEYS if by_keys else 0)
            persons = identifiers(first, MEMBERS if split else SIZES[owner])
            if by_keys and place:
                # One in three is written differently: the second pass has to find them.
                persons[::3] = [each.lower() for each in persons[::3]]
            table = people(persons, seed=2 * number + place).sample(frac=1, random_state=1)
            names = _SPLIT[owner] if split else tuple(ATTRIBUTES)
            table, source = table[["person", *names]], {}
            if server is not None and owner == SQL_OWNER:
                source = stored(server, folder, owner, name, table)
            else:
                write(folder, owner, name, table)
            own = {attribute: ATTRIBUTES[attribute] for attribute in names}
            says[owner] += declared(
                name, attributes=own, total_epsilon=_TOTAL_EPSILON, **source, **(_BY_KEYS if by_keys else {})
            )
    make_setup(folder, says, deadlines=_deadlines(1))
    share_linkage_key(folder, OWNERS)
    return LocalCluster(folder)


def set_engines(cluster: LocalCluster, schedule: Schedule) -> None:
    """Let each owner's daemon hold its records in its engine, with little memory, and give steps time."""
    for owner, engine in schedule.engines.items():
        says = section(_ENGINE, {"kind": str(engine), "memory_limit": "256MB"})
        if engine is EngineKind.SPARK:
            says += 'master = "local[1]"\n'
            says += section("[engine.conf]", {toml(name): each for name, each in SMALL.items()})
        _set(cluster.owner(owner), _ENGINE, says)
    _set(cluster.aggregator, _DEADLINES, section(_DEADLINES, _deadlines(schedule.patience)))


def _deadlines(patience: int) -> dict[str, str]:
    return {step: f"{seconds * patience}s" for step, seconds in DEADLINES.items()}


def _set(process: LocalDaemon, table: str, says: str) -> None:
    """Let the last table of a configuration say something; if it changed, its daemon is started again."""
    text = process.config.read_text()
    wanted = text.partition(table)[0] + says
    if text != wanted:
        process.stop()
        process.config.write_text(wanted)
        process.start()


def in_scratch(cluster: LocalCluster, party: str) -> list[str]:
    """Return the names of what is in a party's scratch folder, without the session of Spark."""
    folder = daemon_of(cluster, party).config.parent / "state" / "scratch"
    return sorted(each.name for each in folder.glob("*") if not each.name.startswith(_SPARK))


def is_at(cluster: LocalCluster, owner: str, work: Work) -> bool:
    """Whether an owner can be seen to do some work."""
    if work is Work.PINNING:
        return bool(in_scratch(cluster, owner))
    return any((state_dir(cluster, owner) / "outbox").glob(".*.partial"))


def daemon_of(cluster: LocalCluster, party: str) -> LocalDaemon:
    """Return the process of a party."""
    return cluster.aggregator if party == AGGREGATOR else cluster.owner(party)


def aggregator_state(cluster: LocalCluster) -> Path:
    """Return the aggregator's state directory."""
    return cluster.aggregator.config.parent / "state"


def events_of(cluster: LocalCluster, release: str) -> list[Event]:
    """Return a release's events, read from the journal beside the daemon."""
    return [from_json(document) for document in _documents(cluster, release)]


def release_of(cluster: LocalCluster, release: str) -> Release | None:
    """Return a release as the journal has it; None before it is stored."""
    documents = _documents(cluster, release)
    return _folded(documents) if documents else None


@lru_cache(1)
def _folded(documents: tuple[str, ...]) -> Release:
    """Return the release of some events; a player looks every few milliseconds, mostly at the same ones."""
    return fold([from_json(each) for each in documents])


def _documents(cluster: LocalCluster, release: str) -> tuple[str, ...]:
    path = aggregator_state(cluster) / "aggregator.db"
    rows = _read(path, "SELECT document FROM events WHERE release = ? ORDER BY sequence", release)
    return tuple(document for (document,) in rows)


def session_state(cluster: LocalCluster, owner: str, release: str) -> str:
    """Return the state of an owner's session; empty if there is none."""
    path = state_dir(cluster, owner) / "owner.db"
    rows = _read(path, "SELECT state FROM sessions WHERE release = ?", release)
    return str(rows[0][0]) if rows else ""


def answered_rounds(cluster: LocalCluster, owner: str, release: str) -> int:
    """Return how many rounds of a release an owner has answered."""
    path = state_dir(cluster, owner) / "owner.db"
    return len(_read(path, "SELECT round FROM rounds WHERE release = ?", release))


def newest_head(cluster: LocalCluster, owner: str) -> int:
    """Return the number of the newest entry of an owner's ledger that the aggregator has a signature of."""
    path = aggregator_state(cluster) / "aggregator.db"
    rows = _read(path, "SELECT sequence FROM ledger_heads WHERE owner = ?", owner)
    return max((int(sequence) for (sequence,) in rows), default=0)


@contextmanager
def records_of(cluster: LocalCluster, owner: str) -> Iterator[Records]:
    """Open an owner's records beside its daemon."""
    records = Records.open(state_dir(cluster, owner), lambda: datetime.now(UTC))
    with closing(records.db):
        yield records


def aggregator_name() -> str:
    """Return what owners call the aggregator."""
    return AGGREGATOR_NAME


def _read(path: Path, statement: str, which: str) -> list[tuple[str, ...]]:
    """Read rows without keeping the file open, as nobody would who is to die beside it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, (which,)).fetchall()
    except sqlite3.OperationalError:
        # Between the death of the only writer and its return a reader cannot always open the database.
        return []
