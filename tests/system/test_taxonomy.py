"""Taxonomies through real daemons: from the hierarchy file to the manifest and the charge."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import Attributes, ask, declared, identifiers, people, released, spends, write

SIZES = {"a": 120, "b": 90}
WARDS = "medicine;adults;*\nsurgery;adults;*\npaediatrics;children;*\neye, ear;senses;adults;*\n"
ATTRIBUTES: Attributes = {
    "age": {"type": "integer", "min": 0, "max": 120},
    "ward": {"type": "category", "taxonomy": "wards.csv", "method": "exponential"},
    "severity": {
        "type": "category",
        "categories": ["mild", "moderate", "severe"],
        "taxonomy": "severity.csv",
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners with the same hierarchies, and a data set whose hierarchies differ."""
    folder = tmp_path_factory.mktemp("taxonomy")
    says = {}
    for place, (owner, size) in enumerate(SIZES.items()):
        for name in ("patients", "others"):
            write(folder, owner, name, people(identifiers(1000 * place, size), seed=place))
        wards = folder / "owners" / owner
        (wards / "wards.csv").write_text(WARDS)
        (wards / "severity.csv").write_text("mild;*\nmoderate;serious;*\nsevere;serious;*\n")
        (wards / "own.csv").write_text(WARDS.replace("adults", owner))
        differing: Attributes = {"ward": {"type": "category", "taxonomy": "own.csv"}}
        says[owner] = declared("patients", attributes=ATTRIBUTES) + declared("others", attributes=differing)
    make_setup(folder, says)
    share_linkage_key(folder, list(SIZES))
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_release_with_taxonomies(cluster):
    """Plan, manifest, data and ledger speak of the drawn attribute, its hierarchy and its own bound."""
    code, document = released(cluster, "wards", epsilon="3")
    assert code == 0, document
    folder = Path(document["directory"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "ward of b (exponential): differential privacy with ε = 1 " in " ".join(manifest["guarantee"])
    wards = {each["name"]: each for each in manifest["schema"]}
    assert (wards["ward"]["method"], wards["severity"]["method"]) == ("exponential", "rank")
    assert len({wards["ward"]["taxonomy"], wards["severity"]["taxonomy"]}) == 2
    # 100 to 199 records and 90 to 99: at most 9 and 4 clusters of 20, each with epsilon 1.
    for owner, bound in (("a", 9), ("b", 4)):
        (told,) = (each for each in manifest["owners"] if each["id"] == owner)
        joint = {each["name"]: each["epsilon_joint"] for each in told["attributes"]}
        assert joint == {"age": "1", "ward": str(bound), "severity": "1"}
        assert spends(cluster, owner, "wards")[0].charge == bound + 2
    data = pd.read_parquet(folder / "data.parquet")
    assert set(data["ward"]) <= {"medicine", "surgery", "paediatrics", "eye, ear"}
    assert len(data) == sum(SIZES.values())
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    assert ask(cluster, "owner-node", "verify", folder, owner="a")[0] == 0


def test_owners_must_agree_on_the_hierarchy(cluster):
    """Another tree at another owner would be another order: exit 3, named, and nothing is spent."""
    before = len(spends(cluster, "a"))
    code, document = released(cluster, "differing", dataset="others")
    assert code == 3
    assert "the taxonomy is the hierarchy with digest" in document["error"]["message"]
    assert len(spends(cluster, "a")) == before


def test_exponential_cannot_be_asked_for(cluster):
    """It is the owners' declaration and not the operator's choice: exit 2 with what to do."""
    code, document = released(cluster, "asked", mechanism="exponential")
    assert code == 2
    assert 'method = "exponential"' in document["error"]["hint"]
