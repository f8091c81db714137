"""Loading half a million records of a DuckDB file through Arrow, against the Python objects of its driver."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import duckdb

from owner_node import config
from owner_node.loading import load
from owner_node.sources import sql
from tests.benchmarks.result import Result, medians

N_RECORDS = 500_000
REPETITIONS = 3
OWNER = """
[owner]
id = "a"
trust_domain = "clinics.example"
state_dir = "state"
[tls]
ca = "ca.pem"
cert = "a.pem"
key = "a.key"
[[dataset]]
name = "patients"
source = "duckdb:///patients.duckdb"
query = "select * from patients"
total_epsilon = 1
identifier = "person"
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
[dataset.attributes.income]
type = "number"
min = 0
max = 9999
decimals = 2
[dataset.attributes.weight]
type = "number"
min = 0
max = 200
decimals = 1
[dataset.attributes.seen]
type = "date"
min = 2000-01-01
max = 2030-01-01
[dataset.attributes.ward]
type = "category"
categories = ["medicine", "surgery", "paediatrics"]
[dataset.attributes.emergency]
type = "boolean"
"""


def run() -> Iterator[Result]:
    """Measure the whole loading in both ways, and check that they give the same data."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "owner.toml")
        path.write_text(OWNER)
        with duckdb.connect(Path(folder, "patients.duckdb")) as connection:
            connection.execute(
                "create table patients as select 'P' || i as person, (i * 7919 % 101)::integer as age, "
                "(i * 104729 % 999900 / 100.0)::decimal(10, 2) as income, i * 31 % 2000 / 10.0 as weight, "
                "(date '2010-01-01' + (i % 5000)::integer) as seen, "
                "['medicine', 'surgery', 'paediatrics'][1 + i % 3] as ward, i % 5 = 0 as emergency "
                f"from range({N_RECORDS}) t(i)"
            )
        dataset, digests = config.load(path).dataset("patients"), set()

        def through_arrow() -> None:
            digests.add(load(dataset).digest)

        def by_objects() -> None:
            with patch.object(sql, "DUCKDB", "another database"):
                digests.add(load(dataset).digest)

        arrow, objects = medians(REPETITIONS, through_arrow, by_objects)
    if len(digests) > 1:
        raise AssertionError("both ways give other values")
    detail = f"{N_RECORDS:,} records of seven columns in {arrow:.1f} s, by objects {objects:.1f} s"
    yield Result("DuckDB through Arrow / by Python objects", arrow / objects, 0.5, detail)
