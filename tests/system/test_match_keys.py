"""Owners without a common identifier: names, dates and postcodes with mistakes, linked by real processes."""

import html
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.release.verification import verify_release
from common.words.linking import pass_text
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.values.match_keys import SUGGESTED
from tests.fakes.misspelt import COLUMNS, misspelt, population
from tests.system.small_owners import ask, declared, ledger, logs, policy, released, state_dir, write

N = 600
N_COMMON = 500
MATCH = [{"name": name, "keys": list(keys)} for name, keys in SUGGESTED.items()]
NUMBER = {"type": "integer", "min": 0, "max": 2 * N}
BY_KEYS = {"identifier": [], "normalise": [], "match": MATCH}
BY_NAME = {"identifier": ["forename", "surname", "born"], "normalise": ["trim", "casefold"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Owners a and b with 500 common persons of 550 each; b writes two in five with a mistake."""
    folder = tmp_path_factory.mktemp("match")
    says = dict.fromkeys("ab", policy(max_overlap=2, allow_intersect=True, min_match_quality=Decimal("0.9")))
    everybody = population(N, seed=1)
    held = {"a": everybody[:550], "b": misspelt(everybody, seed=2)[N - 550 :]}
    for owner, table in held.items():
        for name, column in (("columns", f"number_{owner}"), ("rows", "number"), ("exact", "number")):
            own = table.assign(**{column: table["truth"]})[[*COLUMNS, column]]
            write(folder, owner, name, own.sample(frac=1, random_state=3))
            how = BY_NAME if name == "exact" else BY_KEYS
            says[owner] += declared(
                name, attributes={column: NUMBER}, total_epsilon="1000", budget="people", **how
            )
    make_setup(folder, says)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_vertical_release_of_misspelt_persons(cluster):
    """Both halves of a released record are of one person, though names differ; the evidence is verifiable."""
    code, document = released(
        cluster, "vertical", dataset="columns", layout="vertical", on_mismatch="intersect", epsilon="400",
        k="5", mechanism="idp-joint", rank_noise="0",
    )  # fmt: skip
    assert code == 0, document
    folder = Path(document["directory"])
    found = verify_release(folder, cluster.folder / "tls" / "ca.pem")
    quality = found.addendum.match_quality
    assert quality is not None
    assert [each.name for each in quality.passes] == list(SUGGESTED)
    assert found.addendum.common == quality.linked == found.n_records
    assert 0.95 * N_COMMON < found.n_records <= N_COMMON
    assert quality.quality_least > Decimal("0.9")
    table = pd.read_parquet(folder / "data.parquet")
    # Clusters of three or more neighbours share a value: halves of different persons would be far apart.
    assert np.abs(table["number_a"] - table["number_b"]).max() < 60
    assert np.corrcoef(table["number_a"], table["number_b"])[0, 1] > 0.99
    for owner in "ab":
        code, shown = ask(cluster, "owner-node", "verify", str(folder), owner=owner)
        assert code == 0, shown
    said = pass_text(quality.passes[0])
    assert quality.passes[0].agreement[1] > Decimal("0.9")
    assert "; agreement of later passes " in said
    assert said in ask(cluster, "aggregator", "show", "vertical")[1]["linking"]
    assert said in ask(cluster, "owner-node", "show", "vertical", owner="a")[1]["linking_found"]
    assert said in html.unescape((folder / "report.html").read_text())
    stated = json.loads((folder / "manifest.json").read_bytes())
    written = stated["addendum"]["document"]["match_quality"]["passes"][0]["agreement"]
    assert tuple(map(Decimal, written)) == quality.passes[0].agreement
    assert not list(cluster.folder.glob("aggregator/**/*.selection"))
    assert not list(cluster.folder.glob("aggregator/**/*.tokens"))


def test_overlap_that_an_exact_identifier_misses(cluster):
    """Persons at two horizontal owners are charged for both, also those who are written differently."""
    code, by_name = released(cluster, "exact", dataset="exact", max_overlap="1")
    assert code == 3, by_name
    shared_exactly = by_name["error"]["details"]["overlaps"][0]["shared"]
    code, by_keys = released(cluster, "stopped", dataset="rows")
    assert code == 3, by_keys
    shared = by_keys["error"]["details"]["overlaps"][0]["shared"]
    assert shared_exactly < 0.75 * N_COMMON < 0.95 * N_COMMON < shared <= N_COMMON
    code, document = released(cluster, "overlapping", dataset="rows", max_overlap="2")
    assert code == 0, document
    with ledger(cluster, "a") as book:
        spent = [each.charge for each in book.entries() if each.release == "overlapping"]
    assert spent == [Decimal(2), Decimal(2)]


def test_nothing_of_a_person_is_logged_or_stored_by_the_aggregator(cluster):
    """No name and no date of birth is in a log, or in the aggregator's state."""
    texts = logs(cluster)
    stored = b"".join(
        path.read_bytes() for path in (cluster.folder / "aggregator").rglob("*") if path.is_file()
    )
    for name in ("Papadopoulos", "PAPADOPOULOS", "Tkachenko"):
        assert name not in texts
        assert name.encode() not in stored
    assert state_dir(cluster, "a").exists()
