"""Synthetic releases of owners who hold other persons, by separate processes that are killed in every round.

a and b have different attributes; in the mixed layout b and c have those of b. By an identifier, and by match
keys with mistakes.
"""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.values.match_keys import SUGGESTED
from tests.fakes.misspelt import COLUMNS, misspelt, population
from tests.system.small_owners import (
    ATTRIBUTES,
    ask,
    declared,
    identifiers,
    people,
    policy,
    released,
    spends,
    write,
)
from tests.system.test_synthetic_release import kill_in_round, verified_records

HELD = {"a": ("age", "severity"), "b": ("ward", "income"), "c": ("ward", "income")}
PERSONS = {
    "differ": {"a": (0, 240), "b": (60, 300)},
    "grid": {"a": (0, 240), "b": (60, 150), "c": (150, 300)},
}
"""The first and the last of 300 persons of each owner, by data set: 180 are in both groups."""
COMMON = 180
FEW = {"nobody-both": (240, 300), "one": (239, 300), "everybody": (0, 240)}
"""Persons of b, where a has the first 240."""
MATCH = [{"name": name, "keys": list(keys)} for name, keys in SUGGESTED.items()]
BY_KEYS = {"identifier": [], "normalise": [], "match": MATCH}
COMMON_ALONE = {"product": "synthetic", "k": "", "on_mismatch": "intersect", "epsilon": "2"}
VERTICAL = COMMON_ALONE | {"layout": "vertical", "owners": "a,b"}
MIXED = COMMON_ALONE | {"layout": "mixed", "owners": "", "groups": "a;b,c"}
UNION = VERTICAL | {"on_mismatch": "union"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Owners of some of 300 persons each, in orders of their own."""
    folder = tmp_path_factory.mktemp("common")
    says = dict.fromkeys(HELD, policy(allow_intersect=True, min_match_quality=Decimal("0.8")))
    records = people(identifiers(0, 300), seed=1)
    few = {name: {"a": (0, 240), "b": each} for name, each in FEW.items()}
    for name, persons in (PERSONS | few).items():
        for place, (owner, (first, end)) in enumerate(persons.items()):
            own = records[["person", *HELD[owner]]][first:end].sample(frac=1, random_state=place)
            write(folder, owner, name, own)
            attributes = {each: ATTRIBUTES[each] for each in HELD[owner]}
            says[owner] += declared(name, attributes=attributes, total_epsilon="1000", budget="people")
    for owner, own in (("a", records[:100]), ("b", records[50:150])):
        twice = pd.concat([own, own[:1]]) if owner == "b" else own
        for name, table in (("twice", twice), ("empty", own[:0] if owner == "b" else own)):
            write(folder, owner, name, table[["person", *HELD[owner]]])
            attributes = {each: ATTRIBUTES[each] for each in HELD[owner]}
            says[owner] += declared(name, attributes=attributes, total_epsilon="1000", budget="people")
    everybody = population(300, seed=1)
    names = {
        "a": everybody[:240],
        "b": misspelt(everybody, seed=2)[60:],
        "c": misspelt(everybody, seed=2)[150:],
    }
    for owner, table in names.items():
        for name in ("names", "name-grid"):
            own = table[: 90 if (owner, name) == ("b", "name-grid") else None]
            of = records.iloc[own["truth"]][[*HELD[owner]]].set_index(own.index)
            write(folder, owner, name, own[[*COLUMNS]].join(of).sample(frac=1, random_state=3))
            attributes = {each: ATTRIBUTES[each] for each in HELD[owner]}
            says[owner] += declared(
                name, attributes=attributes, total_epsilon="1000", budget="people", **BY_KEYS
            )
    make_setup(folder, says)
    share_linkage_key(folder, tuple(says))
    with LocalCluster(folder) as running:
        running.start()
        yield running


def check_published(cluster: LocalCluster, release: str, shown: dict, owners: str) -> int:
    """Check that a release holds for everybody and each owner was charged ε once; return its records."""
    n_records, _ = verified_records(cluster, release, shown["directory"])
    stated = json.loads((Path(shown["directory"]) / "manifest.json").read_bytes())
    found = stated["addendum"]["document"]
    assert int(found["common"] if "common" in found else next(iter(found["records"].values()))) == n_records
    assert pq.read_table(Path(shown["directory"]) / "data.parquet").num_rows == n_records
    for owner in owners:
        assert [each.epsilon for each in spends(cluster, owner, release)] == [2]
        code, verified = ask(cluster, "owner-node", "verify", shown["directory"], owner=owner)
        assert code == 0, verified
    return n_records


@pytest.mark.parametrize(
    ("dataset", "asked", "least"),
    [
        ("differ", VERTICAL, COMMON),
        ("grid", MIXED, COMMON),
        ("names", VERTICAL, 170),
        ("name-grid", MIXED, 170),
    ],
)
def test_common_persons_are_counted(cluster, dataset, asked, least):
    """Records are as many as the persons of all groups; nobody else's are counted, and all can verify it."""
    code, shown = released(cluster, dataset, **asked, dataset=dataset)
    assert (code, shown.get("state")) == (0, "published"), shown
    n_records = check_published(cluster, dataset, shown, "abc" if asked is MIXED else "ab")
    assert least <= n_records <= COMMON
    said = ask(cluster, "aggregator", "show", dataset)[1]["linking"]
    assert any("only these are counted" in each for each in said)


@pytest.mark.parametrize(
    ("dataset", "n_both"), [("differ", 180), ("nobody-both", 0), ("one", 1), ("everybody", 240)]
)
def test_everybody_is_counted(cluster, dataset, n_both):
    """Records of all persons, absent in whole at an owner or not at all; no exact overlap is published."""
    release = f"union-{dataset}"
    code, shown = released(cluster, release, **UNION | {"epsilon": "20"}, dataset=dataset)
    assert (code, shown.get("state")) == (0, "published"), shown
    n_records, _ = verified_records(cluster, release, shown["directory"])
    assert n_records == {"everybody": 240}.get(dataset, 300)
    table = pq.read_table(Path(shown["directory"]) / "data.parquet").to_pandas()
    for owner, label, number in (("a", "severity", "age"), ("b", "ward", "income")):
        present = table[f"at_{owner}"].astype(str).str.lower() == "true"
        assert ((table[label] == "(absent)") == ~present).all()
        assert (table[number].isna() == ~present).all()
    both = (table["at_a"].astype(str).str.lower() == "true") & (
        table["at_b"].astype(str).str.lower() == "true"
    )
    assert abs(both.sum() - n_both) < 30
    code, verified = ask(cluster, "owner-node", "verify", shown["directory"], owner="b")
    assert code == 0, verified
    shown_both = next(each for each in verified["presence"] if len(each["owners"]) == 2)
    # One interval in twenty does not have it: none is missed by three times its width.
    width = shown_both["high"] - shown_both["low"] + 1
    assert shown_both["low"] - 3 * width <= n_both <= shown_both["high"] + 3 * width
    stated = json.loads((Path(shown["directory"]) / "manifest.json").read_bytes())["addendum"]["document"]
    assert set(stated["records"].values()) == {str(n_records)}
    assert not {"matches", "common"} & stated.keys()
    assert "95 % intervals" in (Path(shown["directory"]) / "report.html").read_text()


def test_nobody_one_and_everybody(cluster):
    """No common person ends the release before a charge; one is enough, and all are as with equal lists."""
    code, shown = released(cluster, "nobody", **VERTICAL, dataset="nobody-both")
    assert code == 3, shown
    assert "0 persons are common to all groups" in shown["error"]["message"]
    for owner in "ab":
        assert not spends(cluster, owner, "nobody")
    code, shown = released(cluster, "one", **VERTICAL, dataset="one")
    assert code == 0, shown
    assert check_published(cluster, "one", shown, "ab") == 1
    code, shown = released(cluster, "everybody", **VERTICAL, dataset="everybody")
    assert code == 0, shown
    assert verified_records(cluster, "everybody", shown["directory"])[0] == 240
    code, shown = released(cluster, "too-few", **VERTICAL, dataset="differ", min_common="181")
    assert code == 3, shown
    assert "180 persons are common to all groups, at least 181 are agreed" in shown["error"]["message"]


@pytest.mark.parametrize("asked", [VERTICAL, UNION], ids=["intersect", "union"])
def test_persons_held_twice_and_nobody(cluster, asked):
    """An owner that has a person twice, or no records, ends the release before anybody is charged."""
    for dataset in ("twice", "empty"):
        release = f"{asked['on_mismatch']}-{dataset}"
        code, shown = released(cluster, release, **asked, dataset=dataset)
        assert code not in (0, 1), shown
        for owner in "ab":
            assert not spends(cluster, owner, release)


@pytest.mark.parametrize(
    ("dataset", "asked", "victim", "number"),
    [
        ("differ", VERTICAL, "a", 2), ("differ", VERTICAL, "aggregator", 3), ("grid", MIXED, "aggregator", 2),
        ("grid", MIXED, "b", 3), ("names", VERTICAL, "b", 2), ("names", VERTICAL, "a", 3),
        ("differ", UNION, "a", 2), ("differ", UNION, "aggregator", 2), ("differ", UNION, "b", 3),
        ("differ", UNION, "aggregator", 3),
    ],
)  # fmt: skip
def test_killed_in_a_round(cluster, dataset, asked, victim, number):
    """Whoever dies goes on with the same persons: answers stay, and each owner spends once."""
    kill_in_round(
        cluster, victim, number, asked | {"dataset": dataset},
        lambda release, shown: check_published(cluster, release, shown, "abc" if asked is MIXED else "ab"),
        witness="b",
    )  # fmt: skip
