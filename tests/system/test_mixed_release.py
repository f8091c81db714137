"""Mixed layouts from end to end with real processes: groups of owners, and an owner in several groups."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from common.release.verification import Verified, verify_release
from common.wire.decoding import decode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.fakes.published import read_units
from tests.system.small_owners import (
    ATTRIBUTES,
    ask,
    declared,
    identifiers,
    people,
    sealed_and_released,
    sealed_path,
    spends,
    write,
)

OWNERS = ("a", "b", "c", "d")
N = 300
COLUMNS = {
    "a": ("age", "income"),
    "b": ("age", "income"),
    "c": ("ward", "severity"),
    "d": ("ward", "severity"),
}
ROWS = {"a": slice(0, 180), "b": slice(180, N), "c": slice(0, 90), "d": slice(90, N)}
"""Of `grid`, in groups 'a,b;c,d'."""
TWICE_COLUMNS = {"a": ("age", "ward", "income"), "b": ("age", "income"), "c": ("ward",)}
TWICE_ROWS = {"a": slice(0, 180), "b": slice(180, N), "c": slice(180, N)}
"""Of `twice`, in groups 'a,b;a,c': owner a holds all attributes of its persons."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Four owners that hold the same people in a grid, or three of which one is in two groups."""
    folder = tmp_path_factory.mktemp("mixed")
    says = dict.fromkeys(OWNERS, "")
    sets: dict[str, tuple[Mapping[str, tuple[str, ...]], Mapping[str, slice]]]
    sets = {"grid": (COLUMNS, ROWS), "twice": (TWICE_COLUMNS, TWICE_ROWS)}
    for first, (dataset, (columns, rows)) in enumerate(sets.items()):
        everybody = people(identifiers(first * N, N), seed=first)
        for seed, (owner, names) in enumerate(columns.items()):
            own = everybody[["person", *names]][rows[owner]].sample(frac=1, random_state=seed)
            write(folder, owner, dataset, own)
            says[owner] += declared(dataset, attributes={name: ATTRIBUTES[name] for name in names})
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def verified(cluster: LocalCluster, directory: str) -> Verified:
    """Verify a release folder against the CA."""
    return verify_release(Path(directory), cluster.folder / "tls" / "ca.pem")


def fragments(cluster: LocalCluster, found: Verified) -> dict[str, pd.DataFrame]:
    """Return every owner's sealed fragment in resolution units, tokens as bytes."""
    plan = found.plan
    return {
        owner: decode(
            sealed_path(cluster, owner, plan.release), plan, plan.assignment_of(owner),
            found.addendum.records[owner],
        ).to_pandas()
        for owner in plan.owners
    }  # fmt: skip


def joined(cluster: LocalCluster, found: Verified) -> pd.DataFrame:
    """Join the owners' fragments on their tokens with pandas, the parts of each group stacked."""
    parts, plan = fragments(cluster, found), found.plan
    result: pd.DataFrame | None = None
    for group in range(plan.n_groups):
        names = [each.name for task in plan.tasks if task.group == group for each in task.attributes]
        names = list(dict.fromkeys(names))
        stacked = pd.concat([parts[owner][["token", *names]] for owner in plan.owners_of(group)])
        result = stacked if result is None else result.merge(stacked, on="token", validate="1:1")
    assert result is not None
    return result


def assert_same_records(directory: str, found: Verified, expected: pd.DataFrame) -> None:
    """Check that a release holds exactly these records, in whatever order."""
    names = [attribute.name for attribute in found.plan.attributes]
    units = read_units(Path(directory) / "data.parquet", found.plan, names).to_pandas()
    assert len(units) == found.n_records == len(expected)
    counted = units.value_counts(names, sort=False).to_dict()
    assert counted == expected.value_counts(names, sort=False).to_dict()


def test_grid_of_four_owners(cluster):
    """Parts are stacked, groups joined on the person; every owner is charged ε/G, as the folder says."""
    options = {"dataset": "grid", "layout": "mixed", "groups": "a,b;c,d", "owners": ""}
    code, document = sealed_and_released(cluster, "grid", **options)
    assert code == 0, document
    found = verified(cluster, document["directory"])
    assert found.n_records == N
    assert found.addendum.linking == "equal"
    assert [attribute.name for attribute in found.plan.attributes] == ["age", "income", "ward", "severity"]
    assert_same_records(document["directory"], found, joined(cluster, found))
    for owner in OWNERS:
        assert [each.charge for each in spends(cluster, owner, "grid")] == [Decimal("0.5")]
        code, shown = ask(cluster, "owner-node", "verify", document["directory"], owner=owner)
        assert code == 0, shown


def test_owner_in_two_groups(cluster):
    """It sends one fragment with all its attributes, is charged for both groups, and can prove its values."""
    options = {"dataset": "twice", "layout": "mixed", "groups": "a,b;a,c", "owners": ""}
    code, document = sealed_and_released(cluster, "twice", **options)
    assert code == 0, document
    found = verified(cluster, document["directory"])
    assert found.n_records == N
    assert found.plan.assignment_of("a").groups == (0, 1)
    assert list(fragments(cluster, found)["a"].columns) == ["token", "age", "income", "ward"]
    assert_same_records(document["directory"], found, joined(cluster, found))
    charged = {owner: [each.charge for each in spends(cluster, owner, "twice")] for owner in "abc"}
    assert charged == {"a": [Decimal(1)], "b": [Decimal("0.5")], "c": [Decimal("0.5")]}
    told = {owner["id"]: Decimal(owner["epsilon"]) for owner in document["owners"]}
    assert told == {"a": Decimal(1), "b": Decimal("0.5"), "c": Decimal("0.5")}
    for owner in "abc":
        code, shown = ask(cluster, "owner-node", "verify", document["directory"], owner=owner)
        assert code == 0, shown
