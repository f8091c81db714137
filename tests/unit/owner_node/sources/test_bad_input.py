"""Every kind of bad input ends in one error with columns and counts, and without any value of the file."""

import csv
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from common.errors import DataError, ExitCode
from common.workspace import Workspace
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import pin
from owner_node.loading import count_records, load
from owner_node.sources.options import CsvOptions
from tests.unit.owner_node.sources.conftest import AGE, ALL, SEEN, SEX, SMOKER, WEIGHT


def failure(settings, cells=()) -> DataError:
    """Load and return the error, after checking that none of the cells appears anywhere in it."""
    with pytest.raises(DataError) as caught:
        load(settings)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.exit_code is ExitCode.USAGE
    assert error.hint
    told = "\n".join([str(error), error.hint, json.dumps(error.to_document())]).replace(settings.source, "")
    for cell in cells:
        assert not re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", told), "a value of the file is told"
    return error


def problems(settings, cells=None) -> list[tuple]:
    """Load a file whose cells are all odd enough to be recognised, and return what was found."""
    if cells is None:
        path = Path(settings.source)
        with path.open(encoding=settings.csv.encoding, errors="replace", newline="") as file:
            cells = [cell for record in list(csv.reader(file))[1:] for cell in record if len(cell) > 2]
    found = failure(settings, cells).details["problems"]
    return [(each["column"], each["problem"], each["count"]) for each in found]


@pytest.mark.parametrize(
    ("attribute", "cells", "problem"),
    [
        (AGE, ["4711x", "1,234", "12.5", "0x1F", "1_000", "--3", "."], "not an integer"),
        (WEIGHT, ["7e", "one", "1.2.3", "e5", "+"], "not a number"),
        (WEIGHT, ["NaN", "-inf", "Infinity", "+nan"], "NaN or infinite"),
        (AGE, ["nan", "INF"], "NaN or infinite"),
        (AGE, ["-17", "1234", "123456789012345678901234567890"], "outside the declared domain"),
        (WEIGHT, ["-0.01", "200.006", "9e99"], "outside the declared domain"),
        (SEEN, ["2023-02-29", "29/02/2024", "2024-13-01", "20240101", "tomorrow"], "not a date"),
        (SEEN, ["2199-01-01", "1066-10-14"], "outside the declared domain"),
        (SEX, ["other", "unknown"], "unknown category"),
        (SEX, ["Female", " male", "MALE "], "differs from a declared category only in case or blanks"),
        (SMOKER, ["maybe", "2", "10"], "not a boolean"),
    ],
)
def test_wrong_values_are_counted(dataset, attribute, cells, problem):
    """Each kind of wrong value is a problem of its own, counted, none of them shown."""
    good = {"age": "5", "weight": "5", "seen": "1999-01-01", "sex": "male", "smoker": "no"}[attribute.name]
    out = io.StringIO()
    csv.writer(out).writerows([[attribute.name], [good], *([cell] for cell in cells)])
    settings = dataset(out.getvalue(), attributes=(attribute,))
    shown = [cell for cell in cells if cell not in problem.split() and len(cell) > 1]
    assert problems(settings, shown) == [(attribute.name, problem, len(cells))]


def test_labels_that_look_the_same(dataset):
    """Composed and decomposed accents are found apart, and an owner at a terminal sees the code points."""
    city = replace(SEX, name="city", categories=("Forl\u00ec", "Rh\u00f4ne"))
    content = "city\nForli\u0300\nRho\u0302ne\nForl\u00ec\nROMA\n"
    settings = dataset(content, attributes=(city,))
    twins = "differs from a declared category only in its Unicode form"
    assert problems(settings) == [("city", twins, 2), ("city", "unknown category", 1)]
    with pytest.raises(DataError, match=r"did you mean 'Forl\\xec', which is 'Forli\\u0300' here\?"):
        load(settings, examples=True)


def test_a_decimal_point_where_a_comma_is_declared(dataset):
    """A number that would mean another thing under the declared form is an error, not a guess."""
    settings = dataset("weight\n12.75\n", attributes=(WEIGHT,), csv=CsvOptions(delimiter=";", decimal=","))
    assert problems(settings) == [("weight", "not a number", 1)]


@pytest.mark.parametrize(
    "cell", ["1.23", "12.34.567", "0.125", "1..234", ".123", "1234.567", "1.2345", "1,234.5"]
)
def test_a_mark_in_another_place_is_no_thousands_separator(dataset, cell):
    """A point that does not stand before three digits is not removed: 1.23 must not become 123."""
    wide = replace(WEIGHT, upper=10**12)
    settings = dataset(f"weight\n{cell}\n", attributes=(wide,), csv=CsvOptions(";", ",", thousands="."))
    assert problems(settings, []) == [("weight", "not a number", 1)]


@pytest.mark.parametrize(
    ("attribute", "cells", "problem", "named"),
    [
        (WEIGHT, ["1.234,56", "12x", "12x"], "not a number", ["'1.234,56'", "'12x'"]),
        (AGE, ["12.5", "x" * 99], "not an integer", ["'12.5'", repr("x" * 40)]),
        (SEEN, ["31.12.2020"], "not a date", ["'31.12.2020'"]),
        (SMOKER, ["ja", "nein"], "not a boolean", ["'ja'", "'nein'"]),
        (SEX, ["femal"], "unknown category", ["'femal' did you mean 'female'?"]),
    ],
)
def test_an_owner_who_asks_sees_examples(dataset, attribute, cells, problem, named):
    """At the owner's own terminal every kind of wrong text is named, as a category is."""
    settings = dataset("\n".join([attribute.name, *map('"{}"'.format, cells)]), attributes=(attribute,))
    with pytest.raises(DataError) as caught:
        load(settings, examples=True)
    (found,) = caught.value.details["problems"]
    assert (found["problem"], found["count"]) == (problem, len(cells))
    assert found["examples"] == named


def test_everything_is_told_at_once(dataset):
    """A file with many faults takes one round of correcting, not one per fault."""
    content = (
        "id,age,weight,sex,smoker,smoker\n"
        "qq1,sixty,nan,martian,y,y\n"
        "qq1,300,5,Male,y,y\n"
        "qq2,,5,male,y,y\n"
        "qq3,33,5,male,y\n"
    )
    attributes = tuple(each for each in ALL if each.name != "stage")
    assert problems(dataset(content, attributes=attributes, identifier=("id",))) == [
        ("seen", "not in the source", None),
        ("smoker", "occurs more than once", 2),
        ("age", "missing value", 1),
        ("age", "not an integer", 1),
        ("age", "outside the declared domain", 1),
        ("weight", "NaN or infinite", 1),
        ("sex", "differs from a declared category only in case or blanks", 1),
        ("sex", "unknown category", 1),
        (None, "wrong number of fields, first in record 4", 1),
        ("id", "1 person has more than 1 record", 2),
    ]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_that_are_not_there_or_not_readable(dataset, tmp_path, suffix):
    """An absent file, a folder and an empty file are told apart."""
    absent = dataset(None, suffix)
    assert problems(absent, []) == [(None, "there is no such file", None)]
    assert problems(replace(absent, source=str(tmp_path)), []) == [
        (None, "this is a folder without Parquet files", None)
    ]
    assert problems(dataset("", suffix), []) == [(None, "the file is empty", None)]


@pytest.mark.parametrize("source", ["{}/pipe.csv", "{}/pipe.parquet", "/dev/zero", "sqlite:///{}/pipe", "{}"])
def test_what_is_no_file_is_not_waited_for(dataset, tmp_path, source):
    """A pipe into which nobody writes, and a device that never ends, keep no daemon waiting."""
    os.mkfifo(tmp_path / Path(source).name.replace("{}", "pipe.parquet"))
    query = {"query": "select age from people"} if source.startswith("sqlite") else {}
    found = problems(dataset(None, source=source.format(tmp_path), **query), [])
    if source == "{}":
        assert found == [(None, "not readable as Parquet", 1)]
    else:
        assert found == [(None, "this is a pipe or a device, not a file", None)]


@pytest.mark.parametrize("content", ["age", "age\n", "age,sex\r\n", "age,x\n\n\n"])
def test_a_header_without_records(dataset, content):
    """A file with a header only has no records, which is a problem of the data and not of the program."""
    assert problems(dataset(content), []) == [(None, "there are no records", None)]


def test_a_file_that_starts_with_a_blank_line(dataset):
    """A header is needed; a record must never be taken for one."""
    assert problems(dataset("\nage\n3\n")) == [(None, "there is no header", None)]


def test_no_record_without_a_missing_value(dataset):
    """Dropping everything is told as such."""
    settings = dataset("age,sex\n,male\n44,\n", attributes=(AGE, SEX), missing="drop")
    assert problems(settings) == [(None, "no record without a missing value", 2)]
    with pytest.raises(DataError):
        count_records(settings)


def test_missing_values_and_identifiers(dataset):
    """Missing values are counted per column; a blank identifier is a missing one."""
    content = 'id,age,sex\n,11,\n"  ",,male\nppp,,\n'
    settings = dataset(content, attributes=(AGE, SEX), identifier=("id",))
    expected = [("id", "missing identifier", 2), ("age", "missing value", 2), ("sex", "missing value", 2)]
    assert problems(settings) == expected
    as_category = replace(settings, missing="category")
    assert problems(as_category) == expected[:2]
    assert "missing = \"category\" at 'age' itself" in failure(as_category).hint


def test_identifiers_are_compared_in_their_normal_form(dataset):
    """What linking would take for one person is one person here, and an empty normal form is nobody."""
    content = "id,age\nID-007,1\nid 07,2\nid-7 ,3\nid-8,4\n"
    settings = dataset(content, identifier=("id",), normalise=("digits-only", "strip-leading-zeros"))
    assert problems(settings) == [("id", "1 person has more than 1 record", 3)]
    # The hint names what helps: the number with which the same file loads.
    assert "max_records_per_person = 3" in failure(settings, []).hint
    assert load(replace(settings, max_records_per_person=3)).n_records == 4
    nobody = dataset("id,age\nnone,1\n12,2\n", identifier=("id",), normalise=("digits-only",))
    assert problems(nobody, ["none"]) == [("id", "missing identifier", 1)]


def test_identifiers_that_are_no_dates(dataset):
    """A normalisation step that cannot be applied is counted like any other problem, together with them."""
    content = "id,age\n1999-12-31,1\n1999-99-99,2\nXX,zzz\n"
    assert problems(dataset(content, identifier=("id",), normalise=("date",))) == [
        ("id", "not an ISO date, which normalise asks for", 2),
        ("age", "not an integer", 1),
    ]


def test_identifiers_with_steps_of_their_own(dataset):
    """Only the column that is declared as a date is read as one, in the form that the source declares."""
    content = "name,born,age\nXyz,31.01.1980,1\nxyz,31.1.1980,2\n"
    settings = dataset(
        content, identifier=("name", "born"), normalise=("casefold",), normalise_also={"born": ("date",)},
        csv=CsvOptions(date_format="%d.%m.%Y"),
    )  # fmt: skip
    assert problems(settings) == [("name, born", "1 person has more than 1 record", 2)]
    Path(settings.source).write_text(f"{content}Qwe,1980-01-31,3\n")
    assert problems(settings) == [("born", "not a date written %d.%m.%Y, which normalise asks for", 1)]


def test_several_identifier_columns_together_name_a_person(dataset):
    """Two records of one name are two persons if their birthdays differ; two pairs are counted as two."""
    content = "a,b,age\nann,x,1\nann,y,2\nbob,x,3\nbob,x,4\nann,x,5\n"
    expected = [("a, b", "2 persons have more than 1 record", 4)]
    assert problems(dataset(content, identifier=("a", "b")), ["ann", "bob"]) == expected


def test_bytes_that_are_not_in_the_declared_encoding(dataset):
    """Wrong encodings are found per value, only in columns that are read, together with other problems."""
    content = "age,sex,note\n12,m\xe4nnlich,\xe9\n999,male,\xe9\n13,\xfc,\xe9\n".encode("latin-1")
    expected = [("sex", "not in the encoding utf-8", 2), ("age", "outside the declared domain", 1)]
    assert problems(dataset(content, attributes=(AGE, SEX)), ["999", "männlich"]) == expected
    as_ascii = dataset(content, attributes=(AGE, SEX), csv=CsvOptions(encoding="ascii"))
    assert problems(as_ascii, ["999"])[0] == ("sex", "not in the encoding ascii", 2)
    utf16 = dataset("age\n12\n".encode("utf-16"))
    assert problems(utf16, []) == [
        (None, "the file is in utf-16, as its byte order mark says, and not in utf-8", None)
    ]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
@pytest.mark.parametrize(
    "settings", [{"attributes": (SEX,)}, {"identifier": ("sex",), "normalise": ("trim",)}]
)
def test_bytes_of_parquet_that_are_no_text(dataset, kind, settings):
    """Arrow reads them without looking; they are found where texts are read, and never shown."""
    written = pa.array([b"male", "männlich".encode("latin-1"), b"female"])
    text = pa.string()
    if kind == "large_string":
        written, text = written.cast(pa.large_binary()), pa.large_string()
    values = pa.Array.from_buffers(text, len(written), written.buffers())
    if kind == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    made = dataset(None, ".parquet", **({"missing": "drop"} | settings))
    pa.parquet.write_table(pa.table({"age": [1, 2, 3], "sex": values}), made.source)
    expected = [("sex", "not in the encoding utf-8", 1)]
    assert problems(made, ["nnlich"]) == expected
    with pytest.raises(DataError) as caught:
        count_records(made)
    assert [
        (each["column"], each["problem"], each["count"]) for each in caught.value.details["problems"]
    ] == expected


@pytest.mark.parametrize("content", ['age,sex\n12,male\n13,"male\n14,male\n', 'sex,age\nmale,12\n"male,13\n'])
def test_a_quote_that_is_never_closed(dataset, content):
    """An open quote swallows every later record; such a file must not load as a shorter one."""
    assert (None, "a quote that is never closed", None) in problems(
        dataset(content, attributes=(AGE,)), ["male"]
    )


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("patient;age\np-1;12\n", "not in the source"),
        ("patient,age\np-1,12,7\n", "wrong number of fields, first in record 1"),
        ("patient,age\np-1,12\np-2\n", "wrong number of fields, first in record 2"),
        ('patient,age\n"p-1,12\n', "a quote that is never closed"),
        ("patient,age\n", "there are no records"),
    ],
    ids=["delimiter", "field-too-many", "ragged-line", "quote", "header-only"],
)
@pytest.mark.parametrize("kind", [EngineKind.MEMORY, EngineKind.DISK])
def test_a_file_that_gives_no_batch_for_persons(dataset, tmp_path, content, found, kind):
    """Nothing to look for repeated persons in is not a fault, whoever reads the file."""
    settings = dataset(content, identifier=("patient",), normalise=("trim",))
    workspace = Workspace(2 * 10**9, tmp_path / "scratch", 2)
    for read in (load, lambda each: pin(each, None, kind, workspace)):
        with pytest.raises(DataError) as caught:
            read(settings)
        assert found in [each["problem"] for each in caught.value.details["problems"]]


def test_a_literal_quote_in_a_value_is_not_an_open_one(dataset):
    """Inches in an undeclared column do not make a file unreadable."""
    assert load(dataset('age,height\n12,5 ft 3"\n13,6 ft\n')).n_records == 2


def test_a_wrong_delimiter(dataset):
    """A file with another delimiter lacks the declared columns, and the hint says where to look."""
    error = failure(dataset("age;sex\n12;male\n", attributes=(AGE, SEX)))
    assert [each["problem"] for each in error.details["problems"]] == ["not in the source"] * 2
    assert "csv.delimiter" in error.hint


def test_damaged_parquet(dataset):
    """A file that is not or no longer Parquet is told as such."""
    assert problems(dataset("age\n3\n", ".parquet"), []) == [(None, "not readable as Parquet", None)]
    settings = dataset(None, ".parquet")
    pa.parquet.write_table(pa.table({"age": list(range(100))}), settings.source)
    with Path(settings.source).open("r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 60)
    assert problems(settings, [])[0] == (None, "not readable as Parquet", None)


def test_parquet_columns_of_unusable_types(dataset):
    """Lists, times of day, duplicate names and NaN in typed columns are the same kind of problems."""
    table = pa.table(
        [
            pa.array([[41], [42]]),
            pa.array([86_400_001, 0], pa.timestamp("ms")),
            pa.array([float("nan"), float("inf")]),
            pa.array([1, 2]),
            pa.array([1, 2]),
        ],
        ["age", "seen", "weight", "sex", "sex"],
    )
    settings = dataset(None, ".parquet", attributes=(AGE, SEEN, WEIGHT, SEX))
    pa.parquet.write_table(table, settings.source)
    assert problems(settings, ["41", "86400001"]) == [
        ("sex", "occurs more than once", 2),
        ("age", "values of type list cannot be read", 2),
        ("seen", "a time of day where a date is declared", 1),
        ("weight", "NaN or infinite", 2),
    ]


@pytest.mark.parametrize("encoding", ["klingon", "hex"])
def test_an_unknown_encoding(dataset, encoding):
    """A name that is no text encoding is told like any other problem."""
    settings = dataset("age\n12\n", csv=CsvOptions(encoding=encoding))
    assert problems(settings, []) == [(None, f"unknown encoding {encoding!r}", None)]


def test_a_record_longer_than_a_block(dataset):
    """A record that no parser block holds ends in words, not in a library's error."""
    content = "age,note\n12," + "word" * 2**21 + "\n13,\n"
    assert problems(dataset(content), ["word"]) == [(None, "not readable as CSV", None)]


def test_unsigned_integers_beyond_the_domain(dataset):
    """The largest unsigned integers do not turn negative."""
    settings = dataset(None, ".parquet")
    pa.parquet.write_table(pa.table({"age": pa.array([2**64 - 1, 3], pa.uint64())}), settings.source)
    assert problems(settings, [str(2**64 - 1)]) == [("age", "outside the declared domain", 1)]


def test_a_header_that_never_ends(dataset):
    """A quote left open in the header swallows the file; that is told, and nothing of the file with it."""
    # As scipy does when it is imported.
    csv.field_size_limit(2**40)
    assert problems(dataset('"age\n' + "word\n" * 40_000), ["word"]) == [
        (None, "the header cannot be read", None)
    ]
    assert problems(dataset('"age\nword\n'), ["word"]) == [("age", "not in the source", None)]


def test_counting_finds_a_column_once(dataset):
    """What is wrong with the header is told the same by counting and by loading."""
    settings = dataset("age,age,sex\n1,2,male\n", attributes=(AGE, SEX))
    with pytest.raises(DataError) as caught:
        count_records(settings)
    assert "occurs more than once (2 columns)" in caught.value.message
