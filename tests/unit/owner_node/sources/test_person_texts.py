"""The text that a value has as an identifier: one text per value, whatever type it is stored in."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from common.errors import DataError
from owner_node.config import DatasetConfig
from owner_node.config.dataset import MatchTable
from owner_node.loading import load, reading, schema_of
from owner_node.loading.advice import advice
from owner_node.sources.findings import Findings
from owner_node.sources.frames import FrameReader
from owner_node.sources.frames import _arrow as arrow_of_frame
from owner_node.sources.person_texts import person_texts
from owner_node.sources.sql_values import arrow
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server

wall = datetime.fromisoformat
"""Makes timestamps without a time zone."""
INEXACT = "a float beyond the exact whole numbers as an identifier"
FRACTION = "a number with decimals as an identifier"
NOT_FINITE = "NaN or infinite as an identifier"
LARGE = 1234567890123450
"""A number of 16 digits that a 64-bit float holds exactly, and that Arrow writes with an exponent."""


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([LARGE, 0, -7]), [str(LARGE), "0", "-7"]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([float(LARGE), 1e10, -0.0, -7.0, None]), [str(LARGE), "10000000000", "0", "-7", None]),
        (pa.array([2.0**53 - 1, 1 - 2.0**53]), [str(2**53 - 1), str(1 - 2**53)]),
        (pa.array([2.0**24 - 1, 1e6], pa.float32()), [str(2**24 - 1), "1000000"]),
        (pa.array(np.array([2047, 3], np.float16)), ["2047", "3"]),
        (pa.array([Decimal("17.00"), Decimal("-0.00"), Decimal("100.00"), None]), ["17", "0", "100", None]),
        (pa.array([Decimal(17)], pa.decimal128(20, 0)), ["17"]),
        (pa.array([Decimal("5.000000000000"), Decimal(0)], pa.decimal256(40, 12)), ["5", "0"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["007", "1.0", "1e3", " x", "17.00"]), ["007", "1.0", "1e3", " x", "17.00"]),
        (pa.array(["007", "1.0"]).dictionary_encode(), ["007", "1.0"]),
        (pa.array([date(2024, 1, 31)], pa.date32()), ["2024-01-31"]),
        (pa.array([date(2024, 1, 31)], pa.date64()), ["2024-01-31"]),
        *(
            (
                pa.array([wall("2024-01-31"), wall("2024-01-31 05:00")], pa.timestamp(unit)),
                ["2024-01-31", "2024-01-31 05:00:00"],
            )
            for unit in ("s", "ms", "us", "ns")
        ),
        (
            pa.array([wall("0001-01-01"), wall("9999-12-31 23:59:59.00012")], pa.timestamp("us")),
            ["0001-01-01", "9999-12-31 23:59:59.00012"],
        ),
        (
            pa.array([datetime(2024, 6, 1, 22, tzinfo=UTC)], pa.timestamp("ms", "Europe/Madrid")),
            ["2024-06-02"],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_value_has_one_text(array, expected):
    """Every stored type of one value has its text, and a value alone has the text it has among others."""
    found = person_texts(array)
    assert found.texts.to_pylist() == expected
    assert found.faults.null_count == len(array)
    alone = [person_texts(array[number : number + 1]).texts.to_pylist() for number in range(len(array))]
    assert [text for (text,) in alone] == expected


@pytest.mark.parametrize(
    ("array", "fault"),
    [
        (pa.array([0.5]), FRACTION),
        (pa.array([1e-9]), FRACTION),
        (pa.array([Decimal("1.50")]), FRACTION),
        (pa.array([Decimal("1E-12")]), FRACTION),
        (pa.array([2.0**53]), INEXACT),
        (pa.array([-1e300]), INEXACT),
        (pa.array([2.0**24], pa.float32()), INEXACT),
        (pa.array(np.array([2048], np.float16)), INEXACT),
        (pa.array([float("nan")]), NOT_FINITE),
        (pa.array([float("-inf")], pa.float32()), NOT_FINITE),
    ],
    ids=str,
)
@pytest.mark.parametrize("recognised_by", ["identifier", "match"])
def test_what_cannot_be_decided_is_refused_and_counted(dataset, array, fault, recognised_by):
    """A number that another owner may write differently identifies nobody, however persons are linked."""
    by = {"identifier": ("id",)} if recognised_by == "identifier" else {"match": (MatchTable("p", ("id",)),)}
    settings = dataset(None, ".parquet", **by)
    pa.parquet.write_table(pa.table({"id": pa.concat_arrays([array, array]), "age": [1, 2]}), settings.source)
    with pytest.raises(DataError) as caught:
        load(settings)
    problems = [(each["problem"], each["count"]) for each in caught.value.details["problems"]]
    assert (fault, 2) in problems
    assert caught.value.hint


# --- the same persons in every kind of source --------------------------------------------------------------

IDS = [LARGE, 10**10, 17, 0, -7]
TEXTS = list(map(str, IDS))
AGES = [1, 2, 3, 4, 5]
Kept = Callable[..., DatasetConfig]


def _parquet(array: pa.Array) -> Kept:
    def kept(make: Kept, folder: Path, **settings: Any) -> DatasetConfig:
        made = make(None, ".parquet", **settings)
        pa.parquet.write_table(pa.table({"id": array, "age": AGES}), made.source)
        return made

    return kept


def _csv(make: Kept, folder: Path, **settings: Any) -> DatasetConfig:
    lines = "".join(f"{text},{age}\n" for text, age in zip(TEXTS, AGES, strict=True))
    return make(f"id,age\n{lines}", **settings)


def _sqlite(values: list[object], kind: str = "") -> Kept:
    def kept(make: Kept, folder: Path, **settings: Any) -> DatasetConfig:
        path = folder / "people.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"create table people (id {kind}, age integer)")
            connection.executemany("insert into people values (?, ?)", zip(values, AGES, strict=True))
        connection.close()
        return make(None, source=f"sqlite:///{path}", query="select * from people", **settings)

    return kept


STORED: dict[str, Kept] = {
    "csv": _csv,
    "parquet-text": _parquet(pa.array(TEXTS)),
    "parquet-integer": _parquet(pa.array(IDS)),
    "parquet-float": _parquet(pa.array([LARGE, 1e10, 17.0, -0.0, -7.0])),
    "parquet-decimal": _parquet(pa.array([Decimal(f"{each}.00") for each in IDS])),
    "sqlite-integer": _sqlite(list(IDS), "integer"),
    "sqlite-real": _sqlite([float(each) for each in IDS], "real"),
    "sqlite-mixed": _sqlite([float(LARGE), str(10**10), 17, -0.0, -7.0]),
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("recognised_by", ["identifier", "match"])
def test_one_person_is_one_text_in_every_source(dataset, tmp_path, stored, recognised_by):
    """Whole numbers that owners store as text, integers, floats or decimals are the same identifiers."""
    by = {"identifier": ("id",)} if recognised_by == "identifier" else {"match": (MatchTable("p", ("id",)),)}
    assert load(STORED[stored](dataset, tmp_path, **by)).identifiers[0].to_pylist() == TEXTS


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with postgres_server() as running:
        yield running


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("kind", ["text", "bigint", "numeric", "numeric(20, 2)", "double precision"])
def test_one_person_is_one_text_in_postgresql(dataset, server, tmp_path, kind):
    """The types of the database mean nothing."""
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text(f"{PASSWORD}\n")
    server.run("drop table if exists people")
    server.run(f"create table people (id {kind}, age integer)")
    for text, age in zip(TEXTS, AGES, strict=True):
        server.run(f"insert into people values ('{text}', {age})")
    place = {"source": server.url(), "query": "select * from people", "password_file": secret}
    settings = dataset(None, identifier=("id",), **place)
    assert sorted(load(settings).identifiers[0].to_pylist()) == sorted(TEXTS)
    if kind in ("numeric", "double precision"):
        server.run("update people set id = 0.5 where id = 17")
        server.run("update people set id = 'NaN' where id = 0")
        with pytest.raises(DataError) as caught:
            load(settings)
        found = [(each["problem"], each["count"]) for each in caught.value.details["problems"]]
        assert sorted(found) == [(NOT_FINITE, 1), (FRACTION, 1)]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(TEXTS),
        pd.Series(IDS),
        pd.Series([float(each) for each in IDS]),
        pd.Series(IDS, dtype="Int64"),
        pd.Series([Decimal(f"{each}.0") for each in IDS]),
    ],
    ids=["text", "integer", "float", "nullable-integer", "decimal"],
)
def test_one_person_is_one_text_in_a_notebook(dataset, column):
    """Frames follow the rule of files."""
    settings = dataset(None, identifier=("id",))
    source = FrameReader(pd.DataFrame({"id": column, "age": AGES}))
    findings = Findings()
    loaded = reading.gather(reading.Reading(settings, settings.attributes, source, findings))
    findings.check("people", "a frame")
    assert loaded.identifiers[0].to_pylist() == TEXTS


def test_values_of_sqlite_are_refused_one_by_one(dataset, tmp_path):
    """In a column of several types each number is judged, and texts that look like numbers stay texts."""
    values = [0.5, "0.5", 2.0**60, "17.00", None]
    settings = _sqlite(values)(dataset, tmp_path, identifier=("id",))
    with pytest.raises(DataError) as caught:
        load(settings)
    found = {(each["problem"], each["count"]) for each in caught.value.details["problems"]}
    assert found == {(FRACTION, 1), (INEXACT, 1), ("missing identifier", 1)}
    query = "select * from people where typeof(id) = 'text'"
    assert load(replace(settings, query=query)).identifiers[0].to_pylist() == ["0.5", "17.00"]


def test_a_timestamp_among_others(dataset, monkeypatch):
    """One time of day changes no other identifier, however the records fall into batches."""
    moments = [wall(f"2024-01-{day:02}") for day in range(1, 31)]
    moments[7] = wall("2024-01-08 05:00")
    expected = [each.date().isoformat() for each in moments]
    expected[7] += " 05:00:00"
    settings = dataset(None, ".parquet", identifier=("id",))
    pa.parquet.write_table(pa.table({"id": moments, "age": [1] * 30}), settings.source)
    digests = set()
    for size in (2**16, 7, 1):
        monkeypatch.setattr("owner_node.sources.parquet_files.BATCH_RECORDS", size)
        loaded = load(settings)
        assert loaded.identifiers[0].to_pylist() == expected
        digests.add(loaded.digest)
    assert len(digests) == 1


@pytest.mark.parametrize("convert", [arrow, lambda values: arrow_of_frame(pd.Series(values, dtype=object))])
def test_zones_that_are_written_as_offsets(convert):
    """A value at another offset than the first of its batch keeps the wall clock that it was written with."""
    winter, summer = (timezone(timedelta(hours=hours)) for hours in (1, 2))
    values = [datetime(2024, 1, 31, tzinfo=winter), None, datetime(2024, 7, 31, tzinfo=summer)]
    for order in (values, values[::-1]):
        assert set(person_texts(convert(order)).texts.to_pylist()) == {"2024-01-31", None, "2024-07-31"}


@pytest.mark.parametrize(
    ("column", "count"),
    [
        (["17.0", "18.00", "19"], 2),
        (["1.23457E+15", "1,5e10", "-3e5"], 3),
        (["007", "17", "17.5", "A1.0", "1.2.0", "1e", "2024-01-31"], 0),
        ([1e15, 17.0, None], 0),
    ],
)
def test_texts_that_programs_made_of_numbers(dataset, column, count):
    """They stay texts, and their owner is warned that other owners may write them otherwise."""
    settings = dataset(None, ".parquet", identifier=("id",), missing="drop")
    pa.parquet.write_table(pa.table({"id": column, "age": [1] * len(column)}), settings.source)
    loaded = load(settings)
    written = [each for each in column if isinstance(each, str)]
    assert not written or loaded.identifiers[0].to_pylist() == written
    assert loaded.counts.numerals == ({"id": count} if count else {})
    said = advice(settings, schema_of(settings, None, 3), loaded)
    assert any("as pandas and spreadsheets" in each for each in said) is bool(count)
