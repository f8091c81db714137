"""Persons at several owners, and groups that differ, where plan and policies allow them: real processes."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from common.release.verification import Verified, verify_release
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.ledger.ledger import EntryKind
from owner_node.state.session import SessionState
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    identifiers,
    ledger,
    people,
    policy,
    released,
    sealed_and_released,
    start_release,
    write,
)
from tests.system.test_kill import reached, sessions
from tests.system.test_mixed_release import assert_same_records, fragments, joined

OWNERS = ("a", "b", "c")
SETS: dict[str, dict[str, tuple[slice, tuple[str, ...]]]] = {
    "shared": {"a": (slice(0, 200), ("age",)), "b": (slice(150, 350), ("age",))},
    "apart": {"a": (slice(0, 200), ("age",)), "b": (slice(200, 400), ("age",))},
    "refused": {"a": (slice(0, 60), ("age",)), "c": (slice(60, 120), ("age",))},
    "differ": {"a": (slice(0, 200), ("age", "income")), "b": (slice(120, 300), ("ward",))},
    "grid": {
        "a": (slice(0, 200), ("age",)),
        "b": (slice(150, 330), ("age",)),
        "c": (slice(20, 330), ("ward",)),
    },
}
"""Which persons and attributes every owner has in every data set; those of different data sets are others."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Owners a and b, whose policies allow exceptions, and c, whose policy allows them for one purpose."""
    folder = tmp_path_factory.mktemp("exceptions")
    allowing = policy(max_overlap=2, allow_intersect=True)
    says = {"a": allowing, "b": allowing, "c": policy(allow_intersect=True, max_overlap=2, purposes=["grid"])}
    for number, (name, held) in enumerate(SETS.items()):
        everybody = people(identifiers(1000 * number, 400), seed=number)
        for owner, (rows, attributes) in held.items():
            write(
                folder, owner, name, everybody[["person", *attributes]][rows].sample(frac=1, random_state=1)
            )
            says[owner] += declared(name, attributes={each: ATTRIBUTES[each] for each in attributes})
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def verified(cluster: LocalCluster, document: dict[str, Any]) -> Verified:
    """Verify a published release against the CA."""
    return verify_release(Path(document["directory"]), cluster.folder / "tls" / "ca.pem")


def entries(cluster: LocalCluster, owner: str, release: str) -> dict[str, Decimal]:
    """Return what an owner's ledger says about a release, by kind; the whole of it is verified."""
    with ledger(cluster, owner) as book:
        return {str(each.kind): each.charge for each in book.entries() if each.release == release}


def proved(cluster: LocalCluster, document: dict[str, Any], *owners: str) -> None:
    """Check that the owners find their own values in a release, and that their ledgers hold."""
    for owner in owners:
        code, shown = ask(cluster, "owner-node", "verify", document["directory"], owner=owner)
        assert code == 0, shown
        code, shown = ask(cluster, "owner-node", "ledger", "--verify", owner=owner)
        assert code == 0, shown


def test_shared_persons_are_charged_for_every_owner(cluster):
    """Persons at two owners: both spend twice the charge; the folder says what that makes for one person."""
    code, document = sealed_and_released(cluster, "shared", dataset="shared", max_overlap="2")
    assert code == 0, document
    found = verified(cluster, document)
    assert (found.addendum.linking, found.addendum.multiples) == ("overlapping", (2,))
    assert found.n_records == found.addendum.released == 400
    everything = pd.concat(fragments(cluster, found).values())
    assert_same_records(document["directory"], found, everything)
    for owner in "ab":
        assert entries(cluster, owner, "shared") == {"reserve": Decimal(2), "spend": Decimal(2)}
    manifest = Path(document["directory"], "manifest.json").read_text()
    assert "persons at up to 2 owners" in manifest
    assert found.plan.epsilon_joint == 2
    proved(cluster, document, "a", "b")


def test_what_is_not_needed_of_a_reservation_comes_back(cluster):
    """Where nobody is shared each owner spends its charge once, in the transaction that returns the rest."""
    code, document = released(cluster, "apart", dataset="apart", max_overlap="2")
    assert code == 0, document
    found = verified(cluster, document)
    assert (found.addendum.linking, found.addendum.multiples) == ("disjoint", (1,))
    expected = {"reserve": Decimal(2), "return": Decimal(1), "spend": Decimal(1)}
    for owner in "ab":
        assert entries(cluster, owner, "apart") == expected
    with ledger(cluster, "a") as book:
        balance = book.balance("apart", Decimal(100))
        kinds = [each.kind for each in book.entries("apart")]
    assert tuple(map(int, (balance.reserved, balance.spent, balance.remaining))) == (0, 1, 99)
    assert kinds == [EntryKind.RESERVE, EntryKind.RETURN, EntryKind.SPEND]
    proved(cluster, document, "a", "b")


def test_policies_allow_shared_persons_or_not(cluster):
    """Without the policy's word no plan may let owners hold the same person, and nothing is reserved."""
    code, document = released(
        cluster, "refused", dataset="refused", owners="a,c", max_overlap="2", purpose="study"
    )
    assert code == 4, document
    assert entries(cluster, "c", "refused") == {}
    code, document = released(cluster, "shared-1", dataset="shared")
    assert code == 3, document
    assert "share 50 persons" in document["error"]["message"]
    cluster.owner("a").wait_for("concluded", release="shared-1")
    assert entries(cluster, "a", "shared-1") == {"reserve": Decimal(1), "return": Decimal(1)}


def test_common_persons_alone(cluster):
    """Groups that differ: owners mask the common persons alone; the addendum counts them, all can verify."""
    options = {"dataset": "differ", "layout": "vertical", "on_mismatch": "intersect"}
    code, document = sealed_and_released(cluster, "differ", **options)
    assert code == 0, document
    found = verified(cluster, document)
    addendum = found.addendum
    assert (addendum.linking, addendum.common, dict(addendum.records)) == (
        "intersected",
        80,
        {"a": 80, "b": 80},
    )
    assert found.n_records == 80
    assert_same_records(document["directory"], found, joined(cluster, found))
    for owner in "ab":
        assert entries(cluster, owner, "differ") == {"reserve": Decimal("0.5"), "spend": Decimal("0.5")}
    proved(cluster, document, "a", "b")
    assert not list(cluster.folder.glob("aggregator/**/*.selection"))


def test_too_few_common_persons(cluster):
    """Fewer than agreed stop the release before anything is spent; so does a plan that does not intersect."""
    options = {"dataset": "differ", "layout": "vertical", "on_mismatch": "intersect", "min_common": "81"}
    code, document = released(cluster, "few", **options)
    assert code == 3, document
    assert "80 persons are common to all groups, at least 81 are agreed" in document["error"]["message"]
    for owner in "ab":
        cluster.owner(owner).wait_for("concluded", release="few")
        assert set(entries(cluster, owner, "few")) == {"reserve", "return"}
    code, document = released(cluster, "stop", dataset="differ", layout="vertical")
    assert code == 3, document
    assert "--on-mismatch intersect" in document["error"]["hint"]


def test_shared_and_common_persons_in_a_grid(cluster):
    """Two owners share persons, another group lacks some: common persons alone, charged by group, joined."""
    options = {"dataset": "grid", "layout": "mixed", "groups": "a,b;c", "owners": "", "purpose": "grid"}
    code, document = sealed_and_released(cluster, "grid", **options, max_overlap="2", on_mismatch="intersect")
    assert code == 0, document
    found = verified(cluster, document)
    addendum = found.addendum
    assert (addendum.linking, addendum.common, addendum.multiples) == ("intersected", 310, (2, 1))
    assert dict(addendum.records) == {"a": 180, "b": 180, "c": 310}
    assert found.n_records == addendum.released == 360
    parts = fragments(cluster, found)
    of_ages = pd.concat([parts["a"], parts["b"]])
    assert_same_records(document["directory"], found, of_ages.merge(parts["c"], on="token", validate="m:1"))
    assert entries(cluster, "a", "grid") == {"reserve": Decimal(1), "spend": Decimal(1)}
    assert entries(cluster, "c", "grid") == {"reserve": Decimal("0.5"), "spend": Decimal("0.5")}
    proved(cluster, document, *OWNERS)


@pytest.mark.parametrize(
    "state", [SessionState.RESERVED, SessionState.LINKED, SessionState.SPENT, SessionState.SEALED]
)
def test_an_owner_that_dies_gets_the_same_selection(cluster, state):
    """Killed around linking, it asks again for its selection; multiple and rest are charged once, whole."""
    release = f"killed-{state}"
    options = {"dataset": "grid", "layout": "mixed", "groups": "a,b;c", "owners": "", "purpose": "grid"}
    command = start_release(cluster, release, **options, max_overlap="2", on_mismatch="intersect")
    with sessions(cluster, "a") as kept:
        reached(kept, release, state)
        cluster.owner("a").kill()
    cluster.owner("a").start()
    code, document = answer_of(command)
    assert code == 0, document
    found = verified(cluster, document)
    assert (found.addendum.common, found.addendum.multiples) == (310, (2, 1))
    assert entries(cluster, "a", release) == {"reserve": Decimal(1), "spend": Decimal(1)}
    proved(cluster, document, "a")
