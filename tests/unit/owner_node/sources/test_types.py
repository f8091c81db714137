"""Every type of Arrow and Parquet is read as docs/sources.md says, or refused by its name."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import DataError
from common.model.schema import Attribute, AttributeType
from owner_node.loading import load
from owner_node.loading.reading import Reading, gather
from owner_node.sources.findings import Findings
from owner_node.sources.guessing import guess
from owner_node.sources.source import Reader
from tests.unit.owner_node.sources.conftest import AGE, SEEN, SEX, SMOKER, WEIGHT

_ID = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
_OTHER = uuid.UUID("00000000-0000-0000-0000-0000000000ff")
PERSON = Attribute("x", AttributeType.CATEGORY, 0, 1, categories=(str(_ID), str(_OTHER)))
WORDS, TEXTS = ["male", None, "female"], [b"male", None, b"female"]
SEXES, AGES, DAYS = [1, 0], [7, 120], [18_262, 0]
_DATES = [date(2020, 1, 1), None, date(1970, 1, 1)]


class ArrayReader(Reader):
    """One column that is an Arrow array."""

    def __init__(self, array: Any) -> None:
        self.names: Sequence[str] = ("x",)
        self._array = array

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Return it once."""
        yield [self._array for _ in columns]


def number(kind: Any) -> Any:
    """Return 7, null and 120 in a type of numbers."""
    return pa.array([Decimal(7), None, Decimal(120)], pa.decimal128(5, 2)).cast(pa.float64()).cast(kind)


def decimal(kind: Any) -> Any:
    """Return the same in a type of decimals."""
    return pa.array([Decimal(7), None, Decimal("120.00")], kind)


def days(kind: Any) -> Any:
    """Return two days and null in a type of dates."""
    return pa.array(_DATES, pa.date32()).cast(pa.timestamp("ms")).cast(kind)


def extended(values: Sequence[Any], kind: Any) -> Any:
    """Return values of an extension type."""
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


_UUIDS = extended([_ID.bytes, None, _OTHER.bytes], pa.uuid())
TAKEN: dict[str, tuple[Any, Attribute, list[int]]] = {
    **{
        str(kind): (number(kind), AGE, AGES)
        for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
            pa.float32(), pa.float64(),
        )
    },
    "float16": (number(pa.float32()).cast(pa.float16()), AGE, AGES),
    **{
        str(kind): (decimal(kind), WEIGHT, [700, 12_000])
        for kind in (pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(50, 2))
    },
    "bool": (pa.array([True, None, False]), SMOKER, [1, 0]),
    "bool8": (extended([5, None, 0], pa.bool8()), SMOKER, [1, 0]),
    "date32": (days(pa.date32()), SEEN, DAYS),
    "date64": (days(pa.date64()), SEEN, DAYS),
    **{
        f"timestamp of {unit}": (days(pa.timestamp(unit)), SEEN, DAYS) for unit in ("s", "ms", "us", "ns")
    },
    "timestamp with a zone": (days(pa.timestamp("us", "UTC")), SEEN, DAYS),
    **{
        str(kind): (pa.array(WORDS, kind), SEX, SEXES)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    **{
        str(kind): (pa.array(TEXTS, kind), SEX, SEXES)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    },
    "uuid": (_UUIDS, PERSON, [0, 1]),
    "uuid, a part": (pa.concat_arrays([_UUIDS, _UUIDS]).slice(2, 3), PERSON, [1, 0]),
    **{
        f"dictionary of {held.type}": (pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), held), *rest)
        for held, *rest in (
            (pa.array(["female", "male"]), SEX, SEXES),
            (pa.array(["female", "male"], pa.large_string()), SEX, SEXES),
            (pa.array(["female", "male"], pa.string_view()), SEX, SEXES),
            (pa.array([b"female", b"male"]), SEX, SEXES),
            (pa.array([b"female", b"male"], pa.large_binary()), SEX, SEXES),
            (pa.array([b"female", b"male"], pa.binary_view()), SEX, SEXES),
            (pa.array([120, 7], pa.int16()), AGE, AGES),
            (pa.array([Decimal(120), Decimal(7)]), AGE, AGES),
            (pa.array([date(1970, 1, 1), date(2020, 1, 1)]), SEEN, DAYS),
            (extended([_OTHER.bytes, _ID.bytes], pa.uuid()), PERSON, [0, 1]),
        )
    },
    "run_end_encoded": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(TEXTS)), SEX, SEXES
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[Any, str]] = {
    "fixed_size_binary": (pa.array(TEXTS[:2], pa.binary(4)), "cast it to text"),
    "time32": (pa.array([time(10), None], pa.time32("s")), "times of day as numbers"),
    "time64": (pa.array([time(10), None], pa.time64("us")), "times of day as numbers"),
    "duration": (pa.array([timedelta(1), None]), "lengths of time as numbers"),
    "month_day_nano_interval": (
        pa.array([(1, 2, 3), None], pa.month_day_nano_interval()), "lengths of time as numbers"
    ),
    "list": (pa.array([[1], None]), "one value in a column"),
    "large_list": (pa.array([[1], None], pa.large_list(pa.int64())), "one value in a column"),
    "fixed_size_list": (pa.array([[1], None], pa.list_(pa.int64(), 1)), "one value in a column"),
    "list_view": (pa.array([[1], None], pa.list_view(pa.int64())), "one value in a column"),
    "large_list_view": (pa.array([[1], None], pa.large_list_view(pa.int64())), "one value in a column"),
    "struct": (pa.array([{"a": 1}, None]), "each field as a column of its own"),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "each field as a column"),
    "sparse_union": (
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), "cast it to text"
    ),
    "dense_union": (
        pa.UnionArray.from_dense(
            pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])]
        ),
        "cast it to text",
    ),
    "arrow.json": (extended(['{"a": 1}', None], pa.json_()), "each field as a column of its own"),
    "point": (extended(["POINT(1 2)", None], pa.opaque(pa.string(), "point", "somebody")), "cast it to text"),
    "arrow.fixed_shape_tensor": (
        extended([[1.0], None], pa.fixed_shape_tensor(pa.float64(), [1])), "one value in a column"
    ),
    "timestamp": (pa.array([0, None], pa.timestamp("s", "Moon/Tranquility")), "without a time zone"),
}  # fmt: skip


def test_no_type_of_arrow_is_left_out():
    """The tables have every type that Arrow knows: a new one needs a decision."""
    listed = {taken.type.id for taken, _, _ in TAKEN.values()} | {
        refused.type.id for refused, _ in REFUSED.values()
    }
    # The null type has a test of its own below.
    listed.add(pa.lib.Type_NA)
    known = {name for name in dir(pa.lib) if name.startswith("Type_")}
    never_made = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}
    assert {name for name in known - never_made if getattr(pa.lib, name) not in listed} == set()


def writable(array: Any, path: Path) -> bool:
    """Write a column as Parquet; return whether Parquet has its type."""
    try:
        pq.write_table(pa.table({"x": array}), path)
    except pa.ArrowNotImplementedError:
        return False
    # pyarrow writes dictionaries of extension types, and does not read them.
    return not (
        pa.types.is_dictionary(array.type) and isinstance(array.type.value_type, pa.BaseExtensionType)
    )


@pytest.mark.parametrize("name", TAKEN)
def test_types_that_are_taken(dataset, tmp_path, name):
    """A type changes no value: not in memory, not in Parquet, not as an identifier."""
    array, attribute, units = TAKEN[name]
    array = array.slice(0, 3)
    declared = replace(attribute, name="x")
    settings = dataset(None, ".parquet", attributes=(declared,), missing="drop")
    findings = Findings()
    loaded = gather(Reading(settings, (declared,), ArrayReader(array), findings))
    findings.check("patients", "here")
    assert loaded.columns["x"].tolist() == units
    assert loaded.counts.dropped == 1
    if writable(array, Path(settings.source)):
        assert load(settings).columns["x"].tolist() == units
        assert load(settings).digest == loaded.digest
        assert guess(Path(settings.source)).columns[0].unreadable == ""


def refusal(action: Any) -> tuple[str, str]:
    """Return problem and hint of the one column, of which both records count."""
    with pytest.raises(DataError) as caught:
        action()
    (problem,) = caught.value.details["problems"]
    assert (problem["column"], problem["count"]) == ("x", 2)
    return problem["problem"], caught.value.hint


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_are_refused(dataset, name):
    """A type without a text is named, with what to do, and nothing of it is missing or a value."""
    array, advice = REFUSED[name]
    declared = Attribute("x", AttributeType.INTEGER, 0, 9)
    settings = dataset(None, ".parquet", attributes=(declared,), missing="drop")

    def act() -> None:
        findings = Findings()
        gather(Reading(settings, (declared,), ArrayReader(array), findings))
        findings.check("patients", "here")

    told, hint = refusal(act)
    assert told == f"values of type {name} cannot be read"
    assert advice in hint
    if writable(array, Path(settings.source)):
        stored, hint = refusal(lambda: load(settings))
        assert advice in hint
        assert stored == told
        assert guess(Path(settings.source)).columns[0].reason.startswith(stored)


def test_a_column_of_the_null_type_is_missing(dataset):
    """A column without a value has no type of its own."""
    settings = dataset(None, ".parquet", missing="drop")
    pq.write_table(pa.table({"age": pa.nulls(2)}), settings.source)
    with pytest.raises(DataError, match="no record without a missing value"):
        load(settings)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("encoded", [False, True])
def test_bytes_that_are_no_text_are_counted(dataset, kind, encoded):
    """Bytes are texts in UTF-8; others are a problem of their column, at loading and for `init`."""
    array = pa.array([b"male", "männlich".encode("latin-1"), None, b"\xff"])
    array = array.dictionary_encode() if encoded else array.cast(kind)
    settings = dataset(None, ".parquet", attributes=(SEX,), missing="drop")
    others = {"a": _UUIDS.take([0, 0, 0, 0]), "b": [[1]] * 4, "c": ["a"] * 4}
    pq.write_table(pa.table({"sex": array, **others}), settings.source)
    with pytest.raises(DataError) as caught:
        load(settings)
    assert [(each["problem"], each["count"]) for each in caught.value.details["problems"]] == [
        ("not in the encoding utf-8", 2)
    ]
    assert "not in the encoding utf-8" in guess(Path(settings.source)).columns[0].reason


_LOGICAL = {"JSON": b"\xcc", "BSON": b"\xdc", "ENUM": b"\x4c"}
_CONVERTED = {"JSON": b"\x25\x26", "BSON": b"\x25\x28", "ENUM": b"\x25\x08"}


def relabelled(path: Path, kind: str) -> None:
    """Make a JSON column of a Parquet file one of another logical type, in the file's Thrift footer."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:]
    for mark in (_LOGICAL, _CONVERTED):
        assert footer.count(mark["JSON"]) == 1
        footer = footer.replace(mark["JSON"], mark[kind])
    path.write_bytes(content[:start] + footer)


@pytest.mark.parametrize(
    ("sql", "kind", "name"),
    [
        ("interval '1 day'", "", "interval"),
        ("'{}'::json", "", "arrow.json"),
        ("'{}'::json", "BSON", "bson"),
        ("'7'::json", "ENUM", None),
        ("'7'::blob", "", None),
        ("'{}'::json::variant", "", "struct"),
        ("7::hugeint", "", None),
        ("'7'::enum('7', '8')", "", None),
    ],
)
def test_logical_types_of_other_writers(dataset, sql, kind, name):
    """What Arrow does not write: an enumeration is text, a document or an interval is refused."""
    declared = Attribute("x", AttributeType.INTEGER, 0, 9)
    settings = dataset(None, ".parquet", attributes=(declared,))
    with duckdb.connect() as connection:
        connection.execute(f"copy (select {sql} as x from range(2)) to '{settings.source}' (format parquet)")
    if kind:
        relabelled(Path(settings.source), kind)
    if name is None:
        assert load(settings).columns["x"].tolist() == [7, 7]
    else:
        assert refusal(lambda: load(settings))[0] == f"values of type {name} cannot be read"


def test_an_extension_type_that_no_library_here_knows(dataset):
    """It is refused by its name, whether or not a library that knows it was imported."""
    declared = Attribute("x", AttributeType.INTEGER, 0, 9)
    settings = dataset(None, ".parquet", attributes=(declared,))
    field = pa.field("x", pa.int64(), metadata={"ARROW:extension:name": "some.period"})
    pq.write_table(pa.table([pa.array([1, 2])], schema=pa.schema([field])), settings.source)
    assert refusal(lambda: load(settings))[0] == "values of type some.period cannot be read"


def test_uuids_are_the_same_persons_in_every_form(dataset):
    """A UUID as 16 bytes has the text that databases and pandas give it."""
    ids = [uuid.UUID(bytes=np.random.default_rng(number).bytes(16)) for number in range(300)]
    as_text = load(dataset("id,age\n" + "".join(f"{each},1\n" for each in ids), identifier=("id",)))
    settings = dataset(None, ".parquet", identifier=("id",))
    table = pa.table({"id": extended([each.bytes for each in ids], pa.uuid()), "age": [1] * 300})
    pq.write_table(table, settings.source)
    assert load(settings).digest == as_text.digest
