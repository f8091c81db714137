"""Every mechanism through real daemons, from command line to manifest, for persons with several records."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from common.model.mechanisms import MECHANISMS, REQUESTABLE
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import ask, declared, identifiers, people, policy, released, spends, write

SIZES = {"a": 130, "b": 90}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners of different people, most with two records, whose budgets count as the papers do."""
    folder = tmp_path_factory.mktemp("mechanisms")
    says = {}
    for place, (owner, size) in enumerate(SIZES.items()):
        table = people(identifiers(1000 * place, size), seed=place)
        table["person"] = [table["person"][row // 2] for row in range(size)]
        write(folder, owner, "patients", table)
        says[owner] = declared("patients", max_records_per_person=2) + policy(accounting="per-centroid")
    make_setup(folder, says)
    share_linkage_key(folder, tuple(SIZES))
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.mark.parametrize("mechanism", REQUESTABLE)
def test_a_release_with_each_mechanism(cluster, mechanism):
    """What was asked for is what plan, manifest, ledger and both verifications speak of."""
    code, document = released(cluster, f"by-{mechanism}", mechanism=mechanism, k="auto")
    assert code == 0, document
    folder = Path(document["directory"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert mechanism in " ".join(manifest["guarantee"])
    assert "up to 2 records" in manifest["guarantee"][0]
    clustered = MECHANISMS[mechanism].clustered
    for owner in manifest["owners"]:
        assert {each["mechanism"] for each in owner["attributes"]} == {mechanism}
        assert all((each["k"] is not None) is clustered for each in owner["attributes"])
        charged = spends(cluster, owner["id"], f"by-{mechanism}")[0].charge
        assert charged == Decimal(owner["epsilon"])
    assert [each["k"] is not None for each in document["owners"]] == [clustered] * 2
    assert len(pd.read_parquet(folder / "data.parquet")) == sum(SIZES.values())
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    assert ask(cluster, "owner-node", "verify", folder, owner="a")[0] == 0


def test_weights_decide_the_shares(cluster):
    """An attribute of weight 5 among six of weight 1 in sum 10 gets half of epsilon at every owner."""
    names = ("age", "income", "admitted", "ward", "severity", "emergency")
    weights = ",".join(f"{name}={5 if name == 'income' else 1}" for name in names)
    options = {"budget-split": "weights", "weights": weights, "k": "auto"}
    code, document = released(cluster, "weighted", **options)
    assert code == 0, document
    manifest = json.loads((Path(document["directory"]) / "manifest.json").read_text())
    for owner in manifest["owners"]:
        shares = {each["name"]: each["epsilon"] for each in owner["attributes"]}
        assert shares == {name: "0.5" if name == "income" else "0.1" for name in names}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mechanism": "ir"}, "evaluation only"),
        ({"mechanism": "dp"}, "takes no k"),
        ({"k": "4"}, "at least 5"),
        ({"budget-split": "weights"}, "needs weights"),
        ({"budget-split": "weights", "weights": "age=1"}, "no weight for income"),
    ],
)
def test_what_cannot_be_asked_for(cluster, options, told):
    """Exit 2 with the reason, and no ledger has heard of it."""
    before = len(spends(cluster, "a"))
    code, document = released(cluster, "refused-" + "-".join(options), **options)
    assert code == 2
    assert told in document["error"]["message"]
    assert len(spends(cluster, "a")) == before
