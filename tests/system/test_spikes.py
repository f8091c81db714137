"""Releases of owners who declare spikes and a step: their share and the grid are kept, and all verifies."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tessera
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, section, share_linkage_key
from tests.system.small_owners import ATTRIBUTES, ask, declared, identifiers, people, policy, released, write

SIZE = 1500
INCOME = {**ATTRIBUTES["income"], "spikes": [0, 9000], "step": Decimal("0.25")}
DECLARED = {"income": INCOME, "ward": ATTRIBUTES["ward"]}


def _mostly_nothing(first: int) -> pd.DataFrame:
    """Return persons of whom nine in ten have no income, and one in fifty has the highest one."""
    table, draw = people(identifiers(first, SIZE), first), np.random.default_rng(first)
    lots = draw.random(SIZE)
    table["income"] = table["income"].mask(lots < 0.9, "0").mask(lots > 0.98, "9000.00")
    return table


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """One owner masks in memory, the other one in scratch."""
    folder = tmp_path_factory.mktemp("spikes")
    rules = {}
    for owner, first, engine in (("a", 0, "memory"), ("b", SIZE, "disk")):
        write(folder, owner, "rows", _mostly_nothing(first))
        without = {**DECLARED, "income": {**INCOME, "spikes": [0]}} if owner == "b" else DECLARED
        rules[owner] = policy() + section("[engine]", {"kind": engine}) + "".join(
            declared(name, attributes=attributes, source="rows.csv", budget="people")
            for name, attributes in (("rows", DECLARED), ("differing", without))
        )  # fmt: skip
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_the_share_of_spikes_is_released(cluster):
    """Within a few records of each owner, in a release that verifies as a whole and at every owner."""
    code, document = released(cluster, "spikes", dataset="rows", epsilon="8", format="parquet,csv")
    assert code == 0, document
    folder = Path(document["directory"])
    release = tessera.read_release(folder)
    of_income = next(each for each in release.verified.plan.tasks[0].attributes if each.name == "income")
    assert (of_income.mechanism, of_income.epsilon_spikes * 10) == ("idp-quantiles", of_income.epsilon)
    original = pd.concat([_mostly_nothing(first)["income"].astype(float) for first in (0, SIZE)])
    for spike in (0, 9000):
        released_share = (release.frame["income"] == spike).mean()
        assert released_share == pytest.approx((original == spike).mean(), abs=0.03)
    assert ((release.frame["income"] / 0.25) % 1 == 0).all()
    assert any("income: how many released values are 0.00 and 9000.00" in each for each in release.guarantee)
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    for owner in "ab":
        code, document = ask(cluster, "owner-node", "verify", folder, owner=owner)
        assert code == 0, document


def test_owners_declare_the_same_spikes(cluster):
    """Others are a conflict, before anybody is asked for consent."""
    code, document = released(cluster, "differing", dataset="differing")
    assert code == 3
    (conflict,) = document["error"]["details"]["conflicts"]
    assert (conflict["owner"], conflict["attribute"]) == ("b", "income")
    assert conflict["what"] == "spikes are 0.00, 0.00, 9000.00 at a"
