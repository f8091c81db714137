"""`owner-node mask` and `query` beside a running daemon: one ledger, one balance, real processes."""

import json
from collections.abc import Iterator
from decimal import Decimal

import pandas as pd
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.local.charge import LOCAL
from tests.system.small_owners import (
    ask,
    declared,
    identifiers,
    ledger,
    logs,
    people,
    released,
    spends,
    state_dir,
    write,
)

OWNERS = ("a", "b")
MASK = ("mask", "--dataset", "patients", "--epsilon", "1", "--yes", "--anyway")
QUERY = ("query", "count", "--dataset", "patients", "--attribute", "age", "--at-least", "50", "--yes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners of different people, whose budgets hold 4, and their daemons, connected."""
    folder = tmp_path_factory.mktemp("local")
    for place, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(1000 * place, 200), seed=place))
    make_setup(folder, {owner: declared("patients", total_epsilon="4") for owner in OWNERS})
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_one_ledger_for_releases_masks_and_queries(cluster):
    """What the owner does for itself and what it takes part in add up, while the daemon runs."""
    code, masked = ask(cluster, "owner-node", *MASK, "--out", "masked.csv", "--id", "mine", owner="a")
    assert code == 0, masked
    file = cluster.owner("a").config.parent / "masked.csv"
    assert len(pd.read_csv(file)) == 200
    code, made = released(cluster, "r1", epsilon="1")
    assert code == 0, made
    code, answered = ask(cluster, "owner-node", *QUERY, "--epsilon", "0.5", owner="a")
    assert code == 0, answered
    found = {each.release: (each.aggregator, each.charge) for each in spends(cluster, "a")}
    assert found["mine"] == (LOCAL, Decimal("0.999999999996"))
    assert found[answered["id"]] == (LOCAL, Decimal("0.5"))
    assert found["r1"][1] == Decimal("0.999999999996")
    assert Decimal(answered["remaining"]) == 4 - sum(charge for _, charge in found.values())
    # The release after local charges shows the aggregator the longer ledger, and nothing is wrong with it.
    code, made = released(cluster, "r2", epsilon="0.5")
    assert code == 0, made
    assert ask(cluster, "owner-node", "status", "--check", owner="a")[0] == 0
    assert "ID-" not in logs(cluster)


def test_processes_at_the_same_time(cluster):
    """Six queries of 1 against a balance that fits fewer: as many are answered, the others end with 5."""
    with ledger(cluster, "b") as book:
        left = book.balance("patients", Decimal(4)).remaining
    asked = (*QUERY, "--epsilon", "1", "--json")
    commands = [cluster.start_cli("owner-node", *asked, owner="b") for _ in range(6)]
    ended = [(each.communicate(timeout=100), each.returncode) for each in commands]
    codes = sorted(code for _, code in ended)
    fits = int(left)
    assert 0 < fits < 6
    assert codes == [0] * fits + [5] * (6 - fits)
    for (out, _), code in ended:
        document = json.loads(out)
        assert ("answer" in document) == (code == 0)
    with ledger(cluster, "b") as book:
        assert 0 <= book.balance("patients", Decimal(4)).remaining < 1


def test_the_kept_results_are_for_their_owner_alone(cluster):
    """What was masked stays in the state directory, closed to others, without identifiers."""
    folder = state_dir(cluster, "a") / "masked"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    assert b"ID-" not in (folder / "mine.parquet").read_bytes()
