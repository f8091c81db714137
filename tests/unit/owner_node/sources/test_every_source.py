"""What holds for every kind of source: the same records are the same data, with the same problems."""

import csv
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from common.errors import DataError, SourceUnreachableError, UsageError
from common.model.schema import Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.connection.worker import PASSING
from owner_node.loading import count_records, load, schema_of
from tests.object_server import ACCESS_KEY, SECRET_KEY, ObjectStore, object_store
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server
from tests.unit.owner_node.sources.conftest import AGE, ALL, SEEN, SEX, WEIGHT

Table = Mapping[str, Sequence[object]]
Make = Callable[..., DatasetConfig]

GOOD: Table = {
    "id": ["p1", "p2", "p3"],
    "age": [34, 7, 81],
    "weight": [Decimal("70.5"), Decimal(10), Decimal("0.125")],
    "seen": [date(2024, 2, 29), date(1970, 1, 2), date(1970, 1, 1)],
    "sex": ["female", "male", "male"],
    "smoker": [True, False, False],
    "stage": ["III", "I", "II"],
    "note": ["x", None, "\n"],
}
UNITS = {
    "age": [34, 7, 81],
    "weight": [7050, 1000, 12],
    "seen": [19782, 1, 0],
    "sex": [0, 1, 1],
    "smoker": [1, 0, 0],
    "stage": [2, 0, 1],
}
_TYPES = {int: "bigint", Decimal: "numeric", date: "date", str: "text", bool: "boolean"}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kind(values: Sequence[object]) -> str:
    return next((_TYPES[type(value)] for value in values if value is not None), "text")


def _csv(folder: Path, table: Table) -> dict[str, Any]:
    path = folder / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return {"source": str(path)}


def _parquet(folder: Path, table: Table) -> dict[str, Any]:
    path = folder / "patients.parquet"
    pa.parquet.write_table(pa.table({name: pa.array(values) for name, values in table.items()}), path)
    return {"source": str(path)}


def _sqlite(folder: Path, table: Table) -> dict[str, Any]:
    path = folder / "patients.db"
    path.unlink(missing_ok=True)
    names = ", ".join(map(_quoted, table))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"create table patients ({names})")
        plain = [
            [str(value) if isinstance(value, date | Decimal) else value for value in record]
            for record in zip(*table.values(), strict=True)
        ]
        marks = ", ".join("?" * len(table))
        connection.executemany(f"insert into patients values ({marks})", plain)
    connection.close()
    return {"source": f"sqlite:///{path}", "query": "select * from patients"}


def _duckdb(folder: Path, table: Table) -> dict[str, Any]:
    path = folder / "patients.duckdb"
    path.unlink(missing_ok=True)
    types = {name: _kind(values).replace("numeric", "numeric(18, 6)") for name, values in table.items()}
    with duckdb.connect(path) as connection:
        declared = ", ".join(f"{_quoted(name)} {kind}" for name, kind in types.items())
        connection.execute(f"create table patients ({declared})")
        marks = ", ".join("?" * len(table))
        for record in zip(*table.values(), strict=True):
            connection.execute(f"insert into patients values ({marks})", list(record))
    return {"source": f"duckdb:///{path}", "query": "select * from patients"}


def _postgres(server: PostgresServer, folder: Path, table: Table) -> dict[str, Any]:
    secret = folder / "password"
    secret.touch(0o600)
    secret.write_text(f"{PASSWORD}\n")
    server.run("drop table if exists patients")
    columns = ", ".join(f"{_quoted(name)} {_kind(values)}" for name, values in table.items())
    server.run(f"create table patients ({columns})")
    marks = ", ".join(["%s"] * len(table))
    records = list(zip(*table.values(), strict=True))
    if records:
        server.run(f"insert into patients values ({marks})", *records)
    return {"source": server.url(), "query": "select * from patients", "password_file": secret}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with postgres_server() as running:
        yield running


def _object(store: ObjectStore, written: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a file that was written into a store."""
    secret = folder / "credentials"
    secret.touch(0o600)
    secret.write_text(f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    name = Path(written["source"]).name
    return {"source": store.address(f"s3://registry/{name}"), "credentials_file": secret}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An object store."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "registry").mkdir()
    with object_store(folder) as running:
        yield running


@pytest.fixture(
    params=[
        "csv", "parquet", "sqlite", "duckdb", pytest.param("postgresql", marks=pytest.mark.needs("postgres")),
        "csv in a store", "parquet in a store",
    ]
)  # fmt: skip
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a maker of data sets of one kind of source: `make(table, **settings)`."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("server")
        kept = lambda table: _postgres(server, tmp_path, table)  # noqa: E731
    elif " in a store" in request.param:
        store: ObjectStore = request.getfixturevalue("store")
        write = _csv if request.param.startswith("csv") else _parquet
        kept = lambda table: _object(store, write(store.folder / "registry", table), tmp_path)  # noqa: E731
    else:
        writers = {"csv": _csv, "parquet": _parquet, "sqlite": _sqlite, "duckdb": _duckdb}
        writer = writers[request.param]
        kept = lambda table: writer(tmp_path, table)  # noqa: E731

    def made(table: Table, **settings: Any) -> DatasetConfig:
        known: dict[str, Any] = {
            "name": "patients",
            "budget": "patients",
            "total_epsilon": Decimal(1),
            "attributes": (AGE,),
        }
        return DatasetConfig(**(known | kept(table) | settings))

    return made


def found(settings: DatasetConfig, action: Callable[[DatasetConfig], object] = load) -> list[tuple]:
    """Return what is wrong with a data set."""
    with pytest.raises(DataError) as caught:
        action(settings)
    assert caught.value.hint
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return [(each["column"], each["problem"], each["count"]) for each in caught.value.details["problems"]]


def columns(settings: DatasetConfig, names: Sequence[str] | None = None) -> dict[str, list[int]]:
    """Return the loaded values as lists."""
    return {name: column.tolist() for name, column in load(settings, names).columns.items()}


def test_the_same_records_are_the_same_values(make):
    """No kind of source changes a value, an identifier, or what is rounded; undeclared columns do no harm."""
    settings = make(GOOD, attributes=ALL, identifier=("id",))
    loaded = load(settings)
    assert {name: column.tolist() for name, column in loaded.columns.items()} == UNITS
    assert [column.to_pylist() for column in loaded.identifiers] == [["p1", "p2", "p3"]]
    assert loaded.counts.rounded == {"weight": 1}
    assert load(settings).digest == loaded.digest
    assert count_records(settings) == loaded.n_records == 3


def test_only_what_is_asked_for_is_loaded(make):
    """The attributes of a release and no others; one that is not declared cannot be asked for."""
    settings = make(GOOD, attributes=(AGE, WEIGHT, SEX))
    assert columns(settings, ["sex", "age"]) == {"age": [34, 7, 81], "sex": [0, 1, 1]}
    with pytest.raises(UsageError):
        load(settings, ["note"])


def test_missing_values_are_found_and_counted_before_anything_is_loaded(make):
    """An owner learns at the invitation that values are missing, in the words that loading has for it."""
    table = {"id": ["a", None, "c"], "age": [None, 1, None], "sex": ["male", None, "male"]}
    settings = make(table, attributes=(AGE, SEX), identifier=("id",))
    problems = [("id", "missing identifier", 1), ("age", "missing value", 2), ("sex", "missing value", 1)]
    assert found(settings) == found(settings, count_records) == problems


def test_missing_values_drop_the_record_and_the_count_knows(make):
    """What an invitation tells is the number of records that loading keeps, blank identifiers included."""
    table = {
        "id": ["a", "b", " ", "d", None],
        "age": [1, None, 3, 4, 5],
        "sex": [*["male"] * 3, None, "male"],
    }
    settings = make(table, attributes=(AGE, SEX), identifier=("id",), missing="drop")
    loaded = load(settings)
    assert (loaded.n_records, loaded.counts.dropped) == (1, 4)
    assert count_records(settings) == 1
    assert count_records(settings, ["age"]) == 2


def test_missing_categories_are_a_category_and_other_values_are_not(make):
    """`missing = "category"` means the same everywhere: categories are filled, numbers are not."""
    table = {"age": [1, 2], "sex": ["male", None]}
    settings = make(table, attributes=(AGE, SEX), missing="category")
    assert columns(settings) == {"age": [1, 2], "sex": [1, 2]}
    assert count_records(settings) == 2
    settings = make(table | {"age": [None, 2]}, attributes=(AGE, SEX), missing="category")
    assert found(settings) == found(settings, count_records) == [("age", "missing value", 1)]


def test_missing_numbers_and_dates_are_kept(make):
    """They are the value above the highest, at every kind of source, even if no value is there."""
    attributes = tuple(replace(each, keeps_missing=True) for each in (AGE, WEIGHT, SEEN))
    missing_in = dict.fromkeys(("age", "weight", "seen"), "category")
    table = {
        "age": [34, None, 81],
        "weight": [None, Decimal("10.5"), None],
        "seen": [date(1970, 1, 2), None, date(1970, 1, 1)],
    }
    settings = make(table, attributes=attributes, missing_in=missing_in, missing="drop")
    expected = {"age": [34, 121, 81], "weight": [20_001, 1050, 20_001], "seen": [1, 30_001, 0]}
    assert columns(settings) == expected
    assert (load(settings).counts.dropped, count_records(settings)) == (0, 3)
    assert schema_of(settings, None, 3).attributes == attributes
    nothing = make({"age": [None, None], "id": [1, 2]}, attributes=attributes[:1], missing_in=missing_in)
    assert columns(nothing) == {"age": [121, 121]}


def test_attributes_have_treatments_of_their_own(make):
    """One attribute drops records, one has a category, one is an error; counting agrees with loading."""
    table = {
        "age": [1, None, 3, 4],
        "sex": ["male", "male", None, "male"],
        "smoker": ["yes", None, "no", "yes"],
    }
    smoker = Attribute("smoker", AttributeType.BOOLEAN, 0, 1)
    missing_in = {"age": "drop", "sex": "category"}
    settings = make(table, attributes=(AGE, SEX, smoker), missing_in=missing_in)
    assert columns(settings) == {"age": [1, 3, 4], "sex": [1, 2, 1], "smoker": [1, 0, 1]}
    assert (load(settings).counts.dropped, count_records(settings)) == (1, 3)
    schema = schema_of(settings, None, 3)
    assert [len(each.categories) for each in schema.attributes] == [0, 3, 0]
    kept = make(table, attributes=(AGE, SEX, smoker), missing_in={**missing_in, "age": "error"})
    expected = [("age", "missing value", 1), ("smoker", "missing value", 1)]
    assert found(kept) == found(kept, count_records) == expected


def test_a_source_without_records_is_none(make):
    """No records, or none without a missing value: told, not released."""
    assert found(make({"age": []}))[0][:2] == (None, "there are no records")
    settings = make({"age": [1, None], "sex": [None, "male"]}, attributes=(AGE, SEX), missing="drop")
    nothing = [(None, "no record without a missing value", 2)]
    assert found(settings) == found(settings, count_records) == nothing


def test_a_column_that_is_not_there_is_named(make):
    """Columns are found letter by letter, and all that are absent are told together."""
    settings = make({"Age": [1], "sex": ["male"]}, attributes=(AGE, SEX), identifier=("id",))
    absent = [("age", "not in the source", None), ("id", "not in the source", None)]
    assert found(settings) == found(settings, count_records) == absent


def test_values_that_do_not_fit_are_counted_and_not_told(make):
    """Unknown categories, values outside the domain and repeated persons: columns and counts only."""
    table = {"id": ["a", "a", "c"], "age": [4711, 5, 130], "sex": ["Male", "other", "male"]}
    settings = make(table, attributes=(AGE, SEX), identifier=("id",))
    assert found(settings) == [
        ("age", "outside the declared domain", 2),
        ("sex", "differs from a declared category only in case or blanks", 1),
        ("sex", "unknown category", 1),
        ("id", "1 person has more than 1 record", 2),
    ]


def test_names_may_be_anything(make):
    """Quotes, percent signs, colons and commas in the name of a column do not reach a statement as such."""
    names = ('a"b', "50%s", "x:y", "a, b", "semi;colon", "(", "é")
    attributes = tuple(type(AGE)(name, AGE.type, 0, 120) for name in names)
    table = {name: [number, number + 1] for number, name in enumerate(names)}
    assert columns(make(table, attributes=attributes)) == table


@contextmanager
def few_files(free: int) -> Iterator[None]:
    """Let this process open only so many more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 32, before[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_few_open_files_are_no_fault_of_the_data(make):
    """Whenever they run out, the error is one after which the owner tries again."""
    settings = make(GOOD, attributes=ALL, identifier=("id",))
    expected, outcomes = load(settings).digest, set()
    for free in range(12):
        with few_files(free):
            try:
                assert load(settings).digest == expected
                outcomes.add("loaded")
            except (*PASSING, SourceUnreachableError):
                outcomes.add("tries again")
    assert outcomes == {"loaded", "tries again"}
