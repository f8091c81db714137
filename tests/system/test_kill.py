"""SIGKILL at every step of both layouts, of either side: the release goes on, and is charged once."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

import pytest

from aggregator.control.connection import daemon
from aggregator.protocol.states import State as ReleaseState
from aggregator.store.journal import Journal
from common.release.verification import verify_release
from common.wire.v1.control_pb2 import OwnerGroup, StartRequest
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, make_setup, section, share_linkage_key
from owner_node.state.database import OwnerDatabase
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    fragment_path,
    identifiers,
    people,
    policy,
    released,
    spends,
    start_release,
    state_dir,
    write,
)

OWNERS = ("a", "b")
SIZES = {"a": 12_000, "b": 8_000}
MEMBERS = 9_000
SPLIT = {"a": ("age", "income", "admitted"), "b": ("ward", "severity", "emergency")}
ENGINES = {"a": "disk", "b": "memory"}
"""What each owner holds its records in."""
LAYOUTS = {"horizontal": "patients", "vertical": "members"}
"""The data set of each layout."""
TOTAL = "1000"
MUCH = "20"
"""An epsilon about which a person at owner a is asked."""
PAUSE_SECONDS = 0.002
"""Between two looks at the sessions of another process, which needs the processor, too."""
ATTEMPTS = 8
"""How often a release is made until the process dies in the very state that is meant."""
STEPS = (
    SessionState.INVITED,
    SessionState.RESERVED,
    SessionState.LINKED,
    SessionState.SPENT,
    SessionState.SEALED,
    SessionState.ACKNOWLEDGED,
)
"""Owners' states in their order; `uploaded` is never alone on the disk: the receipt comes with it."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners whose data sets, one of each layout, are large enough for every step to take a moment."""
    folder = tmp_path_factory.mktemp("kill")
    first = 0
    for seed, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(first, SIZES[owner]), seed))
        first += SIZES[owner]
    members = people(identifiers(first, MEMBERS), seed=len(OWNERS))
    says = {}
    for owner, names in SPLIT.items():
        write(folder, owner, "members", members[["person", *names]].sample(frac=1, random_state=1))
        own = {name: ATTRIBUTES[name] for name in names}
        rules = policy(manual_above_epsilon="6" if owner == "a" else MUCH)
        says[owner] = rules + declared("patients", total_epsilon=TOTAL)
        says[owner] += declared("members", attributes=own, total_epsilon=TOTAL)
        says[owner] += section("[engine]", {"kind": ENGINES[owner], "memory_limit": "256MB"})
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


@contextmanager
def sessions(cluster: LocalCluster, owner: str) -> Iterator[Sessions]:
    """Open an owner's sessions beside its daemon."""
    with OwnerDatabase(state_dir(cluster, owner), make=False) as db:
        yield Sessions(db, lambda: datetime.now(UTC))


def reached(kept: Sessions, release: str, state: SessionState) -> Session:
    """Return an owner's session as soon as it is in a state or past it; no log line tells some of them."""
    order = (*STEPS, SessionState.PUBLISHED)
    until = monotonic() + 180
    while monotonic() < until:
        session = kept.get(AGGREGATOR, release)
        if session is not None and order.index(session.state) >= order.index(state):
            return session
        sleep(PAUSE_SECONDS)
    raise AssertionError(f"the session of {release} never came to {state}")


def begin(cluster: LocalCluster, release: str, layout: str) -> None:
    """Start a release as the command does, which itself takes longer than the release."""
    groups = [OwnerGroup(owners=OWNERS)] if layout == "horizontal" else [OwnerGroup(owners=o) for o in OWNERS]
    with daemon(cluster.aggregator.config) as calls:
        calls.Start(
            StartRequest(
                release=release, dataset=LAYOUTS[layout], layout=layout, groups=groups, epsilon="1", k="20",
                budget_split="owner", formats=["parquet", "csv"], confirmed=True, anyway=True,
            )
        )  # fmt: skip


def directory(cluster: LocalCluster, release: str) -> str:
    """Return the folder of a release that `begin` started, once it is published."""
    await_state(cluster, release, ReleaseState.PUBLISHED)
    return str(cluster.folder / "releases" / release)


def check_published(cluster: LocalCluster, release: str, folder: str) -> None:
    """Check that a release is whole, that every owner knows it, and that each was charged exactly once."""
    verified = verify_release(Path(folder), cluster.folder / "tls" / "ca.pem")
    assert verified.n_records == (MEMBERS if verified.plan.n_groups > 1 else sum(SIZES.values()))
    for owner in OWNERS:
        with sessions(cluster, owner) as kept:
            session = reached(kept, release, SessionState.PUBLISHED)
        assert session.fragment_digest == verified.owners[owner].statement.fragment_digest
        charges = [entry.charge for entry in spends(cluster, owner, release)]
        assert charges == [verified.plan.assignment_of(owner).epsilon_joint]
        path = fragment_path(cluster, owner, release)
        assert [each.name for each in path.parent.glob(f"*{release}*")] == [path.name]
        assert not list((state_dir(cluster, owner) / "scratch").glob("*"))


# Every state at each owner, thus in each engine, and in each layout; each owner in both layouts.
@pytest.mark.parametrize(
    ("owner", "state", "layout"),
    [
        (owner, state, tuple(LAYOUTS)[(place + number) % 2])
        for place, owner in enumerate(OWNERS)
        for number, state in enumerate([*STEPS, SessionState.PUBLISHED])
    ],
)
def test_owner_killed(cluster, owner, state, layout):
    """An owner that dies in any state goes on from there; what it had sealed it never makes anew."""
    for attempt in range(ATTEMPTS):
        release = f"owner-{owner}-{layout}-{state}-{attempt}"
        begin(cluster, release, layout)
        with sessions(cluster, owner) as kept:
            reached(kept, release, state)
            cluster.owner(owner).kill()
            died = kept.get(AGGREGATOR, release)
        assert died is not None
        cluster.owner(owner).start()
        check_published(cluster, release, directory(cluster, release))
        if died.fragment_digest:
            with sessions(cluster, owner) as kept:
                assert reached(kept, release, state).fragment_digest == died.fragment_digest
        if died.state is state:
            return
    pytest.fail(f"the owner never died in state {state}")


def journaled(cluster: LocalCluster, release: str) -> ReleaseState:
    """Return where a release is by the journal of an aggregator that does not run."""
    journal = Journal(cluster.aggregator.config.parent / "state" / "aggregator.db")
    try:
        return journal.replay()[release].state
    finally:
        journal.close()


# Both layouts where the aggregator does something else in each: it links persons, and joins what they have.
@pytest.mark.parametrize(
    ("state", "layout"),
    [
        (ReleaseState.INVITING, "horizontal"),
        (ReleaseState.CONSENTING, "vertical"),
        (ReleaseState.LINKING, "horizontal"),
        (ReleaseState.LINKING, "vertical"),
        (ReleaseState.MASKING, "horizontal"),
        (ReleaseState.COLLECTING, "vertical"),
        (ReleaseState.JOINING, "horizontal"),
        (ReleaseState.JOINING, "vertical"),
    ],
)
def test_aggregator_killed(cluster, state, layout):
    """An aggregator that dies in any state goes on from its journal; its owners wait and find it again."""
    options = {"layout": layout, "dataset": LAYOUTS[layout]}
    for attempt in range(ATTEMPTS):
        release = f"aggregator-{layout}-{state}-{attempt}"
        begin(cluster, release, layout)
        await_state(cluster, release, state)
        cluster.aggregator.kill()
        died = journaled(cluster, release)
        cluster.aggregator.start()
        cluster.aggregator.wait_for("ready")
        code, document = released(cluster, release, **options)
        assert (code, document.get("state")) == (0, "published"), document
        check_published(cluster, release, document["directory"])
        if died is state:
            return
    pytest.fail(f"the aggregator never died in state {state}")


def await_state(cluster: LocalCluster, release: str, state: ReleaseState) -> None:
    """Wait until the aggregator's log tells that a release is in a state."""
    daemon_log = cluster.aggregator
    daemon_log.wait_until(
        lambda: next(
            (e for e in daemon_log.entries if (e.get("release"), e.get("state")) == (release, state)), None
        ),
        state,
        timeout=180,
    )


def test_aggregator_killed_at_the_plan(cluster):
    """A plan that waits for its operator is still there after a kill, unchanged, and can be agreed to."""
    release = "aggregator-planned"
    request = StartRequest(
        release=release, dataset="patients", layout="horizontal", groups=[OwnerGroup(owners=OWNERS)],
        epsilon="1", k="20", budget_split="owner", formats=["parquet", "csv"],
    )  # fmt: skip
    with daemon(cluster.aggregator.config) as calls:
        calls.Start(request)
    planned = cluster.aggregator.wait_for("planned", release=release)
    assert planned["state"] == "planned"
    cluster.aggregator.kill()
    assert journaled(cluster, release) is ReleaseState.PLANNED
    cluster.aggregator.start()
    cluster.aggregator.wait_for("ready")
    assert [spends(cluster, owner, release) for owner in OWNERS] == [[], []]
    code, document = released(cluster, release)
    assert (code, document.get("state")) == (0, "published"), document
    check_published(cluster, release, document["directory"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_power_loss(cluster, layout):
    """Everything dies at once while fragments are made, and everything comes back, in either layout."""
    release = f"power-loss-{layout}"
    options = {"layout": layout, "dataset": LAYOUTS[layout]}
    command = start_release(cluster, release, **options)
    with sessions(cluster, "a") as kept:
        reached(kept, release, SessionState.SPENT)
    kill_all(cluster)
    assert answer_of(command)[0] == 6
    cluster.start()
    code, document = released(cluster, release, **options)
    assert (code, document.get("state")) == (0, "published"), document
    check_published(cluster, release, document["directory"])


def kill_all(cluster: LocalCluster) -> None:
    """Kill every daemon."""
    for each in (cluster.aggregator, *cluster.owners.values()):
        each.kill()


@pytest.mark.parametrize(("layout", "decision"), [("horizontal", "refuse"), ("vertical", "approve")])
def test_power_loss_while_a_person_is_asked(cluster, layout, decision):
    """Everything dies while a person decides; what was decided meanwhile is what happens afterwards."""
    release = f"asked-{layout}-{decision}"
    options = {"layout": layout, "dataset": LAYOUTS[layout], "epsilon": MUCH}
    command = start_release(cluster, release, **options)
    cluster.owner("a").wait_for("waiting for a person", release=release)
    kill_all(cluster)
    assert answer_of(command)[0] == 6
    assert spends(cluster, "a", release) == []
    words = ["--reason", "no"] if decision == "refuse" else ["--yes", "--anyway"]
    assert ask(cluster, "owner-node", decision, release, *words, owner="a")[0] == 0
    cluster.start()
    code, document = released(cluster, release, **options)
    if decision == "approve":
        assert (code, document.get("state")) == (0, "published"), document
        check_published(cluster, release, document["directory"])
        return
    assert (code, document["error"]["code"]) == (4, "refused")
    cluster.owner("b").wait_for("concluded", release=release)
    assert [spends(cluster, owner, release) for owner in OWNERS] == [[], []]


def test_source_changed(cluster):
    """Data that changed between linking and masking end the release before they are charged: exit 4."""
    source = cluster.owner("a").config.parent / "patients.csv"
    before = source.read_text()
    for attempt in range(ATTEMPTS):
        release = f"changed-{attempt}"
        command = start_release(cluster, release)
        with sessions(cluster, "a") as kept:
            reached(kept, release, SessionState.LINKED)
            cluster.owner("a").kill()
            died = kept.get(AGGREGATOR, release)
        source.write_text(before.replace(",true,", ",false,", 1))
        try:
            cluster.owner("a").start()
            code, document = answer_of(command)
        finally:
            source.write_text(before)
        if died is not None and died.state is SessionState.LINKED:
            assert (code, document["error"]["code"]) == (4, "data_changed")
            assert spends(cluster, "a", release) == []
            cluster.owner("b").wait_for("concluded", release=release)
            with sessions(cluster, "b") as kept:
                ended = kept.get(AGGREGATOR, release)
            # What b had paid for stays: the release could go on.
            assert ended is not None
            assert fragment_path(cluster, "b", release).exists() == bool(ended.fragment_digest)
            return
    pytest.fail("the owner never died between linking and masking")
