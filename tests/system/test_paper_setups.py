"""The set-ups of Del Vasto-Terrientes et al. 2025, §5.1.2-5.1.3, on published data through real daemons."""

import json
import os
from decimal import Decimal
from pathlib import Path
from statistics import median

import pandas as pd
import pyarrow.parquet as pq
import pytest

from deploy.local_cluster import LocalCluster
from tests.papers.prepare import ADULT, DATASET, IDENTIFIER, SETUPS, WINE, prepare, read_adult, read_wine
from tests.papers.run_setup import description, make_release, measure

pytestmark = pytest.mark.needs("data")

EPSILON, K = "1", "100"
# Records, attributes, records of each owner, into how many shares the budget is divided.
EXPECTED = {
    "adult-horizontal": (45_222, ADULT, [11_100, 15_000, 12_000, 7_122], 1),
    "wine-horizontal": (6_497, WINE, [500, 1_000, 4_997], 1),
    "wine-vertical": (6_497, WINE, [6_497] * 3, 3),
    "adult-vertical": (45_222, ADULT, [45_222] * 10, 10),
}


def data() -> Path:
    """Return the folder of the published data sets."""
    return Path(os.environ["TESSERA_DATA"])


def owned(folder: Path, owner: str) -> pd.DataFrame:
    """Return the records of an owner as texts."""
    return pd.read_csv(folder / "owners" / owner / f"{DATASET}.csv", dtype=str, keep_default_na=False)


@pytest.mark.parametrize("name", SETUPS)
def test_setup(name, tmp_path):
    """The release has every record and attribute, categories and domains as declared, is worth more than the
    means of most attributes, costs each owner what the layout says, and is verified by aggregator and owners.
    """
    n_records, attributes, sizes, n_shares = EXPECTED[name]
    owners = prepare(name, data(), tmp_path)
    with LocalCluster(tmp_path, owners) as cluster:
        cluster.start()
        layout = str(description(tmp_path)["layout"])
        folder = make_release(cluster, layout, owners, "first", EPSILON, K)
        errors = measure(cluster, folder)
        verified = [
            cluster.cli("aggregator", "verify", folder, "--ca", tmp_path / "tls" / "ca.pem"),
            *(cluster.cli("owner-node", "verify", folder, owner=owner) for owner in (owners[0], owners[-1])),
        ]
        ledgers = [json.loads(cluster.cli("owner-node", "ledger", "--json", owner=o).stdout) for o in owners]
    table = pq.read_table(folder / "data.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert table.num_rows == n_records
    assert table.column_names == ["record", *attributes]
    assert [int(each["records"]) for each in manifest["owners"]] == sizes
    declared = {each["name"]: each for each in manifest["plan"]["document"]["attributes"]}
    for attribute in attributes:
        column = table[attribute].to_pylist()
        if declared[attribute]["type"] == "category":
            assert set(column) <= set(declared[attribute]["categories"])
        else:
            low, high = (Decimal(declared[attribute][end]) for end in ("min", "max"))
            assert low <= min(column) <= max(column) <= high
    assert set(errors) == set(attributes)
    # A mean costs 1. In one of 500 releases of Wine Quality a single draw makes the average over attributes
    # larger than that. In 6,000 releases no median was above 0.8.
    assert 0 < median(errors.values()) < 1
    assert [each.returncode for each in verified] == [0, 0, 0]
    for ledger in ledgers:
        (charge,) = [Decimal(each["charge"]) for each in ledger["entries"] if each["kind"] == "spend"]
        # Shares are rounded down, never up.
        assert 0 <= Decimal(EPSILON) / n_shares - charge < Decimal("1e-10")


@pytest.mark.parametrize(("name", "read"), [("adult-horizontal", read_adult), ("wine-horizontal", read_wine)])
def test_horizontal_parts(name, read, tmp_path):
    """The owners' records are randomised subsets that together are the data set, by seed."""
    tables = {}
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        owners = prepare(name, data(), folder, seed=seed)
        tables[seed] = [owned(folder, owner) for owner in owners]
        together = pd.concat(tables[seed]).sort_values(by=list(tables[seed][0].columns), ignore_index=True)
        whole = read(data()).sort_values(by=list(together.columns), ignore_index=True)
        pd.testing.assert_frame_equal(together, whole)
        assert [len(table) for table in tables[seed]] == list(SETUPS[name].records)
    assert not tables[1][0].equals(tables[2][0])


def test_vertical_parts(tmp_path):
    """The owners' attributes, joined on the identifier, are the data set; every owner has its own order."""
    owners = prepare("wine-vertical", data(), tmp_path)
    tables = [owned(tmp_path, owner) for owner in owners]
    assert [tuple(table.columns[1:]) for table in tables] == [WINE[:3], WINE[3:7], WINE[7:]]
    assert len({tuple(table[IDENTIFIER]) for table in tables}) == len(owners)
    joined = tables[0].merge(tables[1], on=IDENTIFIER).merge(tables[2], on=IDENTIFIER)[list(WINE)]
    whole = read_wine(data())
    pd.testing.assert_frame_equal(
        joined.sort_values(by=list(WINE), ignore_index=True),
        whole.sort_values(by=list(WINE), ignore_index=True),
    )
