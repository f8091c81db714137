"""Rank noise and the automatic choice of carriers through real daemons: plan, consent, ledger, manifest."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import ask, declared, identifiers, people, policy, released, spends, write

SIZE = 400
LOSS = Decimal("66.666666666667")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Three owners of different people; one of them wants rank noise, and not much told about ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    says = {}
    for place, owner in enumerate("abc"):
        write(folder, owner, "patients", people(identifiers(1000 * place, SIZE), seed=place))
        rules = policy(min_rank_noise="0.02", total_rank_loss="500") if owner == "c" else ""
        says[owner] = declared("patients") + rules
    make_setup(folder, says)
    share_linkage_key(folder, ("a", "b", "c"))
    with LocalCluster(folder) as running:
        running.start()
        yield running


def manifest_of(document: dict) -> dict:
    """The manifest of a published release."""
    return json.loads((Path(document["directory"]) / "manifest.json").read_text())


def test_the_default_release(cluster):
    """Few values are counted, many make quantiles, all have rank noise: all that is signed says so."""
    code, document = released(cluster, "usual", k="")
    assert code == 0, document
    manifest = manifest_of(document)
    for owner in manifest["owners"]:
        found = {each["name"]: (each["mechanism"], each["rank_noise"]) for each in owner["attributes"]}
        assert found["income"] == ("idp-quantiles", "0.03")
        assert found["emergency"] == found["ward"] == ("dp-hist", "0.03")
        assert Decimal(owner["rank_loss"]) == 6 * LOSS
        assert Decimal(owner["epsilon_table"]) == Decimal(owner["epsilon_joint"]) + 6 * LOSS
        (spent,) = spends(cluster, owner["id"], "usual")
        assert spent.rank_loss == 6 * LOSS
        assert spent.charge == Decimal(owner["epsilon_joint"])
    assert manifest["totals"]["epsilon_table"] == manifest["plan"]["document"]["epsilon_table"]
    told = " ".join(manifest["guarantee"])
    assert "1 % of the ranks away, no result becomes more than 1.95 times, exp(0.6667)," in told
    assert "who has which value included" in told
    assert "not of the attachment" not in " ".join(manifest["invariants"])
    for program, owner in (("aggregator", ""), ("owner-node", "a"), ("owner-node", "b")):
        assert ask(cluster, program, "verify", document["directory"], owner=owner)[0] == 0
    masked = pd.read_parquet(Path(document["directory"]) / "data.parquet")
    assert len(masked) == 2 * SIZE
    shown = ask(cluster, "owner-node", "ledger", owner="a")[1]
    assert Decimal(shown["balances"][0]["rank_loss"]) == 6 * LOSS


def test_the_papers(cluster):
    """No rank noise and a named mechanism: no trace of it, and the ledger counts a charge without a bound."""
    code, document = released(cluster, "papers", mechanism="idp-joint", rank_noise="0")
    assert code == 0, document
    manifest = manifest_of(document)
    assert "rank" not in json.dumps(manifest["plan"]["document"])
    assert "not of the attachment" in " ".join(manifest["invariants"])
    shown = ask(cluster, "owner-node", "ledger", owner="a")[1]
    assert shown["balances"][0]["without_rank_loss"] == 1


def test_policies(cluster):
    """Little rank noise, or none, is refused unasked; what passes c's total, by c, whose history says why."""
    for name, rank_noise, rule in (
        ("little", "0.01", "c: policy.min_rank_noise = 0.02"),
        ("partly", "age=0", "c: policy.min_rank_noise = 0.02, 'age' is planned with rank noise 0"),
    ):
        code, document = released(cluster, name, owners="a,c", k="", rank_noise=rank_noise)
        assert (code, document["error"]["code"]) == (4, "refused")
        assert rule in document["error"]["message"]
        history = ask(cluster, "owner-node", "history", "--release", name, owner="c")[1]["history"]
        assert not any(each["event"] == "refused" for each in history)
    assert released(cluster, "first", owners="a,c", k="")[0] == 0
    assert released(cluster, "second", owners="a,c", k="")[0] == 4
    code, document = released(cluster, "more-noise", owners="a,c", k="", rank_noise="0.2")
    assert code == 0, document
    shown = ask(cluster, "owner-node", "ledger", owner="c")[1]
    assert Decimal(shown["balances"][0]["rank_loss"]) == 6 * LOSS + 60


def test_what_cannot_be_asked_for(cluster):
    """Refused at once, with what to do."""
    for options, told in (
        ({"rank_noise": "2"}, "no rank noise"),
        ({"rank_noise": "0.1", "mechanism": "dp", "k": ""}, "takes no rank noise"),
        ({"rank_noise": "agee=0.1"}, "not released: agee"),
    ):
        code, document = released(cluster, "wrong", **options)
        assert code == 2, document
        assert told in document["error"]["message"]


def test_check_and_mask_at_the_owner(cluster, tmp_path):
    """The owner's own commands take the same option and say the same."""
    code, document = ask(
        cluster, "owner-node", "check", "--dataset", "patients", "--epsilon", "1", "--rank-noise", "0.1",
        owner="b",
    )  # fmt: skip
    assert code == 0, document
    assert (
        Decimal(document["release"]["rank_loss"] if "release" in document else document["rank_loss"]) == 120
    )
    out = tmp_path / "masked.parquet"
    arguments = ("--dataset", "patients", "--epsilon", "1", "--out", out, "--rank-noise", "ward=0")
    code, document = ask(cluster, "owner-node", "mask", *arguments, "--yes", "--anyway", owner="b")
    assert code == 0, document
    noise = {each["name"]: each.get("rank_noise") for each in document["report"]["attributes"]}
    assert (noise["ward"], noise["age"]) == (None, "0.03")
    assert document["report"]["epsilon_table"] is None
