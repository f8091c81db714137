"""Releases of owners that store the identifiers of the same persons in different types."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import ATTRIBUTES, ask, declared, people, policy, released

SIZE = 60
NUMBERS = range(1234567890123450, 1234567890123450 + SIZE)
DAYS = pd.date_range("2024-01-01", periods=SIZE)
MOMENTS = pa.array(DAYS).cast(pa.timestamp("us"))
ONE_AT_FIVE = pa.array([*DAYS[:7], DAYS[7] + pd.Timedelta(hours=5), *DAYS[8:]]).cast(pa.timestamp("us"))
FIRST, SECOND = {name: ATTRIBUTES[name] for name in ("age", "income")}, {"ward": ATTRIBUTES["ward"]}

STORED = {
    "text": pa.array(map(str, NUMBERS)),
    "integer": pa.array(NUMBERS),
    "float": pa.array([float(each) for each in NUMBERS]),
    "decimal": pa.array([Decimal(f"{each}.00") for each in NUMBERS]),
    "dates": MOMENTS.cast(pa.date32()),
    "midnights": MOMENTS,
    "moments": ONE_AT_FIVE,
    "large-float": pa.array([each * 2.0**40 for each in NUMBERS]),
}
"""The identifiers of owner b, by the name of the data set; those of owner a are texts."""
WRITTEN = dict.fromkeys(STORED, STORED["text"]) | dict.fromkeys(
    ("dates", "midnights", "moments"), MOMENTS.cast(pa.date32()).cast(pa.string())
)


def _keep(folder: Path, owner: str, name: str, identifiers: pa.Array) -> str:
    """Write the persons of one owner, and declare them with all attributes (`rows`) and half (`columns`)."""
    table = pa.Table.from_pandas(people(["-"] * SIZE, seed=1), preserve_index=False)
    place = folder / "owners" / owner
    place.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(table.set_column(0, "person", identifiers), place / f"{name}.parquet")
    halves = {"rows": FIRST, "columns": FIRST if owner == "a" else SECOND}
    return "".join(
        declared(
            f"{layout}-{name}", attributes=attributes, source=f"{name}.parquet", normalise=[],
            budget="people", total_epsilon="1000",
        )
        for layout, attributes in halves.items()
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners of the same persons, with data sets for each type that the identifiers are stored in."""
    folder = tmp_path_factory.mktemp("stored-types")
    rules = dict.fromkeys("ab", policy())
    for owner, kept in (("a", WRITTEN), ("b", STORED)):
        for name, identifiers in kept.items():
            rules[owner] += _keep(folder, owner, name, identifiers)
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.mark.parametrize("name", ["integer", "float", "decimal", "midnights"])
def test_persons_at_two_owners_are_found(cluster, name):
    """All persons of both owners are the same, and nothing is released, whatever type b stores them in."""
    code, document = released(cluster, f"rows-{name}", dataset=f"rows-{name}")
    assert code == 3, document
    assert f"{SIZE} persons" in document["error"]["message"]


@pytest.mark.parametrize("name", ["float", "decimal", "dates"])
def test_records_of_one_person_are_joined(cluster, name):
    """Every person of a is one of b."""
    code, document = released(cluster, f"columns-{name}", dataset=f"columns-{name}", layout="vertical")
    assert code == 0, document
    assert pa.parquet.read_metadata(Path(document["directory"]) / "data.parquet").num_rows == SIZE


def test_one_time_of_day_is_one_person_that_does_not_match(cluster):
    """One timestamp at 05:00 changes the text of no other."""
    code, document = released(cluster, "moments", dataset="columns-moments", layout="vertical")
    assert code == 3, document
    (found,) = document["error"]["details"]["matches"]
    assert (int(found["both"]), *map(int, found["only"].values())) == (SIZE - 1, 1, 1)


def test_what_is_not_one_number_is_refused(cluster):
    """Floats that stand for several whole numbers end the release, and the owner's check says how many."""
    code, document = released(cluster, "large", dataset="rows-large-float")
    assert code == 4, document
    code, document = ask(cluster, "owner-node", "check", "--dataset", "rows-large-float", owner="b")
    assert code == 2
    problems = document["error"]["details"]["problems"]
    assert [(each["column"], each["count"]) for each in problems] == [("person", SIZE)]
    assert "a float beyond the exact whole numbers" in problems[0]["problem"]
