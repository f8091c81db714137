"""Releases with an attribute that follows another one: masked and synthetic, through real daemons."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import tessera
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import ATTRIBUTES, ask, declared, identifiers, people, policy, released, write

SIZE = 300
BEDS = {"medicine": 40, "surgery": 20, "paediatrics": 12, "eye, ear": 6}
DECLARED = {
    "beds": {"type": "integer", "min": 0, "max": 50, "follows": "ward", "values": BEDS},
    "age": ATTRIBUTES["age"],
    "ward": ATTRIBUTES["ward"],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """One owner has the column and the other one has not."""
    folder = tmp_path_factory.mktemp("following")
    rules = {}
    for owner, first in (("a", 0), ("b", SIZE)):
        table = people(identifiers(first, SIZE), first)
        write(folder, owner, "rows", table.assign(beds=table["ward"].map(BEDS)) if owner == "a" else table)
        rules[owner] = policy() + declared("rows", attributes=DECLARED, total_epsilon="100")
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.mark.parametrize("product", ["masked", "synthetic"])
def test_every_released_record_has_the_value_that_follows(cluster, product):
    """In both formats; the others share ε, the codebook says why it has none, and everything verifies."""
    code, document = released(
        cluster, product, dataset="rows", epsilon="4", format="parquet,csv", product=product, k=""
    )
    assert code == 0, document
    folder = Path(document["directory"])
    release = tessera.read_release(folder)
    assert list(release.frame) == ["age", "ward", "beds"]
    assert (release.frame["ward"].astype(str).map(BEDS) == release.frame["beds"]).all()
    texts = pd.read_csv(folder / "data.csv")
    assert (texts["ward"].map(BEDS) == texts["beds"]).all()
    assert release.verified.plan.tasks[0].names == ("age", "ward")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert any(each.startswith("beds follows ward:") for each in manifest["guarantee"])
    assert "beds" in set(release.codebook.index)
    assert "derived from ward" in (folder / "report.html").read_text()
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    for owner in "ab":
        code, document = ask(cluster, "owner-node", "verify", folder, owner=owner)
        assert code == 0, document
