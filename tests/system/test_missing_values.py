"""Releases of owners whose numbers and dates are missing at some records: kept, masked, and verified."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tessera
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, section, share_linkage_key
from tests.system.small_owners import ATTRIBUTES, ask, declared, identifiers, people, policy, released, write

SIZE = 400
GAPS = ("age", "income", "admitted")
KEPT = {
    name: {**ATTRIBUTES[name], **({"missing": "category"} if name in GAPS else {})}
    for name in (*GAPS, "ward")
}
KEPT["income"] |= {"decimals": 0, "outside": "clamp"}


def _with_gaps(first: int, seed: int) -> pd.DataFrame:
    """Return persons of whom three in ten lack each of the numbers and dates."""
    table, draw = people(identifiers(first, SIZE), seed), np.random.default_rng(seed)
    for name in GAPS:
        table.loc[draw.random(SIZE) < 0.3, name] = None
    return table.astype({"income": float})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """A CSV file in memory, and a Parquet file in scratch, whose owners keep missing values."""
    folder = tmp_path_factory.mktemp("missing")
    rules = {}
    for owner, first in (("a", 0), ("b", SIZE)):
        file = write(folder, owner, "rows", _with_gaps(first, seed=first))
        shared = write(folder, owner, "columns", _with_gaps(0, seed=first))
        if owner == "b":
            for path in (file, shared):
                pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
        ending = {"a": "csv", "b": "parquet"}[owner]
        half = {name: KEPT[name] for name in {"a": GAPS[:2], "b": (GAPS[2], "ward")}[owner]}
        mixed = KEPT if owner == "a" else KEPT | {"age": {**ATTRIBUTES["age"], "missing": "drop"}}
        engine = section("[engine]", {"kind": {"a": "memory", "b": "duckdb"}[owner]})
        rules[owner] = policy() + engine + "".join(
            declared(name, attributes=attributes, source=f"{source}.{ending}", budget="people")
            for name, attributes, source in (
                ("rows", KEPT, "rows"), ("differing", mixed, "rows"), ("columns", half, "columns")
            )
        )  # fmt: skip
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.mark.parametrize(
    ("layout", "dataset", "n_records"), [("horizontal", "rows", 2 * SIZE), ("vertical", "columns", SIZE)]
)
def test_missing_values_are_released(cluster, layout, dataset, n_records):
    """About as many as before, in both formats; the release verifies, and so do all own values."""
    code, document = released(
        cluster, layout, layout=layout, dataset=dataset, epsilon="20", format="parquet,csv"
    )
    assert code == 0, document
    folder = Path(document["directory"])
    frame = tessera.read_release(folder).frame
    texts = pd.read_csv(folder / "data.csv", index_col="record")
    assert len(frame) == n_records
    for name in GAPS:
        assert frame[name].isna().mean() == pytest.approx(0.3, abs=0.08)
        assert (frame[name].isna() == texts[name].isna()).all()
    assert frame["ward"].notna().all()
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    for owner in "ab":
        code, document = ask(cluster, "owner-node", "verify", folder, owner=owner)
        assert code == 0, document


def test_owners_who_differ_are_a_conflict(cluster):
    """It is named with owner, attribute and setting, before anybody is asked for consent."""
    code, document = released(cluster, "differing", dataset="differing")
    assert code == 3
    (conflict,) = document["error"]["details"]["conflicts"]
    assert (conflict["owner"], conflict["attribute"]) == ("b", "age")
    assert conflict["what"] == 'missing = "category" is not declared, but at a'


def test_missing_values_are_counted_by_themselves(cluster):
    """A histogram of an attribute that keeps them has a count of them; there is no mean."""
    asked = ("owner-node", "query", "--dataset", "rows", "--attribute", "age", "--epsilon", "5", "--yes")
    code, document = ask(cluster, *asked[:2], "histogram", *asked[2:], "--bins", "50", owner="b")
    assert code == 0, document
    assert document["answer"][-1].pop("equals") == "(missing)"
    assert sum(int(each["count"]) for each in document["answer"]) == pytest.approx(SIZE, abs=30)
    code, document = ask(cluster, *asked[:2], "mean", *asked[2:], owner="b")
    assert (code, "missing values" in document["error"]["message"]) == (2, True)
