"""What a loaded data set is: integers in resolution units, identifiers as written, counts, a digest."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from common.errors import DataError, UsageError
from common.model.schema import MISSING_CATEGORY, Attribute, AttributeType, IdentifierRules, Schema
from owner_node.loading import count_records, load, schema_of
from owner_node.sources.options import CsvOptions
from tests.unit.owner_node.sources.conftest import AGE, ALL, SEEN, SEX, SMOKER, STAGE, WEIGHT

CSV = (
    "id,age,weight,seen,sex,smoker,stage,note\n"
    "p1,34,70.5,2024-02-29,female,yes,III,x\n"
    'p2,+7,1e1,1970-01-02,male,FALSE,I,"a\n""b"", c"\n'
    "p3,81.0,.125,1970-01-01,male,0,II,\n"
)


def columns(loaded):
    """The loaded values as lists."""
    return {name: column.tolist() for name, column in loaded.columns.items()}


EXPECTED = {
    "age": [34, 7, 81],
    "weight": [7050, 1000, 12],
    "seen": [19782, 1, 0],
    "sex": [0, 1, 1],
    "smoker": [1, 0, 0],
    "stage": [2, 0, 1],
}


def test_every_type_is_read_from_csv(dataset):
    """Each declared type becomes its integers; undeclared columns, quotes and line breaks do no harm."""
    loaded = load(dataset(CSV, attributes=ALL, identifier=("id",)))
    assert columns(loaded) == EXPECTED
    assert [column.to_pylist() for column in loaded.identifiers] == [["p1", "p2", "p3"]]
    assert loaded.n_records == 3
    assert loaded.counts.rounded == {"weight": 1}
    assert all(column.dtype == np.int64 for column in loaded.columns.values())


def test_numbers_between_two_steps_are_rounded(dataset):
    """To the nearest one, half to even, and counted; the domain is that of steps."""
    quarters = Attribute("weight", AttributeType.NUMBER, -8, 8, 2, step=25)
    fives = replace(AGE, lower=0, upper=20, step=5)
    rows = ((0, "-0.13"), (5, "0.12"), (7, "0.125"), (8, "-2.00"), (100, "1.9"))
    text = "id,age,weight\n" + "".join(f"p,{age},{weight}\n" for age, weight in rows)
    loaded = load(dataset(text, attributes=(fives, quarters)))
    assert columns(loaded) == {"age": [0, 1, 1, 2, 20], "weight": [-1, 0, 0, -8, 8]}
    assert loaded.counts.rounded == {"age": 2, "weight": 4}
    with pytest.raises(DataError, match="outside the declared domain"):
        load(dataset(text + "p,103,0\n", attributes=(fives, quarters)))


def test_parquet_types_are_read_like_their_text(dataset, tmp_path):
    """Typed columns give the same values and the same digest as the CSV file, whatever the types."""
    from_csv = load(dataset(CSV, attributes=ALL, identifier=("id",)))
    table = pa.table(
        {
            "stage": pa.array(["III", "I", "II"]).dictionary_encode(),
            "age": pa.array([34, 7, 81], pa.uint8()),
            "weight": pa.array([Decimal("70.500"), Decimal(10), Decimal("0.125")]),
            "seen": pa.array([date(2024, 2, 29), date(1970, 1, 2), date(1970, 1, 1)]),
            "sex": pa.array(["female", "male", "male"], pa.large_string()),
            "smoker": [True, False, False],
            "id": ["p1", "p2", "p3"],
        }
    )
    settings = dataset(None, ".parquet", attributes=ALL, identifier=("id",))
    for variant in (
        table,
        table.set_column(2, "weight", pa.array([70.5, 10.0, 0.125])),
        table.set_column(1, "age", pa.array([34.0, 7.0, 81.0], pa.float32())),
        table.set_column(3, "seen", table["seen"].cast(pa.timestamp("us"))),
        table.set_column(3, "seen", table["seen"].cast(pa.date64())),
        table.set_column(5, "smoker", pa.array([1, 0, 0])),
    ):
        pa.parquet.write_table(variant, settings.source, row_group_size=2)
        loaded = load(settings)
        assert columns(loaded) == EXPECTED
        assert loaded.digest == from_csv.digest


def test_a_timestamp_counts_as_the_wall_of_its_time_zone_shows(dataset):
    """Midnight in Madrid is that day, not the evening before in UTC."""
    instants = pa.array([datetime(2024, 6, 1, 22, tzinfo=UTC)], pa.timestamp("s", "Europe/Madrid"))
    settings = dataset(None, ".parquet", attributes=(SEEN,))
    pa.parquet.write_table(pa.table({"seen": instants}), settings.source)
    assert load(settings).columns["seen"].tolist() == [(date(2024, 6, 2) - date(1970, 1, 1)).days]


@pytest.mark.parametrize(
    ("zone", "day", "first_hour"),
    [
        ("America/Sao_Paulo", date(2018, 11, 4), 1),
        ("Asia/Beirut", date(2024, 3, 31), 1),
        ("America/Havana", date(2023, 11, 5), 0),
    ],
)
def test_a_day_begins_at_its_first_instant(dataset, zone, day, first_hour):
    """Where clocks are put forward at midnight, the day has none; an hour later there is a time of day."""
    begin = datetime(day.year, day.month, day.day, first_hour, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    settings = dataset(None, ".parquet", attributes=(SEEN,))
    for moment in (begin, begin + timedelta(hours=2)):
        instants = pa.array([moment], pa.timestamp("us", zone))
        pa.parquet.write_table(pa.table({"seen": instants}), settings.source)
        if moment == begin:
            assert load(settings).columns["seen"].tolist() == [(day - date(1970, 1, 1)).days]
        else:
            with pytest.raises(DataError, match="a time of day"):
                load(settings)


@pytest.mark.parametrize("year", [1, 1600, 1677, 1970, 2262, 2263, 9999])
@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}], ids=["int64", "int96"])
def test_dates_of_all_years(dataset, year, options):
    """Midnights of the years 1 to 9999 are dates, also in the old type of Spark, Hive and Impala."""
    seen = Attribute("seen", AttributeType.DATE, -719_162, 2_932_896)
    settings = dataset(None, ".parquet", attributes=(seen,))
    table = pa.table({"seen": pa.array([date(year, 3, 1)]).cast(pa.timestamp("us"))})
    pa.parquet.write_table(table, settings.source, **options)
    assert load(settings).columns["seen"].tolist() == [(date(year, 3, 1) - date(1970, 1, 1)).days]


def test_floats_of_16_bits_are_their_shortest_decimals(dataset):
    """A small float is the number that a person wrote, too, and not the digits of a larger float."""
    settings = dataset(None, ".parquet", attributes=(replace(WEIGHT, decimals=8, upper=10**13),))
    floats = pa.array(np.array([0.3, 1, 1e-4, 2048, 65504], np.float16))
    pa.parquet.write_table(pa.table({"weight": floats}), settings.source)
    units = [30_000_000, 10**8, 10**4, 2048 * 10**8, 65500 * 10**8]
    assert load(settings).columns["weight"].tolist() == units


def test_numeric_identifiers_read_the_same_from_both_kinds_of_file(dataset):
    """An identifier that one owner stores as a number and another as text is the same identifier."""
    text = load(dataset("id,age\n17,1\n203,2\n", identifier=("id",)))
    settings = dataset(None, ".parquet", identifier=("id",))
    pa.parquet.write_table(pa.table({"id": [17, 203], "age": [1, 2]}), settings.source)
    assert load(settings).identifiers[0].to_pylist() == text.identifiers[0].to_pylist() == ["17", "203"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_encodings_and_byte_order_marks(dataset, encoding):
    """Names and categories read the same from every declared encoding."""
    city = Attribute("città", AttributeType.CATEGORY, 0, 1, categories=("Forlì", "Rhône"))
    content = "città,age\nRhône,1\nForlì,2\n".encode(encoding)
    loaded = load(dataset(content, attributes=(city, AGE), csv=CsvOptions(encoding=encoding)))
    assert columns(loaded) == {"città": [1, 0], "age": [1, 2]}


def test_a_byte_order_mark_is_not_part_of_the_first_name(dataset):
    """Spreadsheets write a mark at the start of UTF-8 files; nobody has to declare it."""
    assert load(dataset(b"\xef\xbb\xbfage\n3\n")).columns["age"].tolist() == [3]


def test_a_continental_csv_file(dataset):
    """Delimiter, decimal comma, date format and texts for missing values are taken as declared."""
    form = CsvOptions(";", ",", "cp1252", "%d.%m.%Y", ("", "k. A."))
    content = "weight;seen;age\n1,25;1.2.1970;4\nk. A.;03.01.1970;5\n-0,0;31.12.1969;6\n"
    attributes = (WEIGHT, replace(SEEN, lower=-10))
    loaded = load(dataset(content, attributes=attributes, csv=form, missing="drop"))
    assert columns(loaded) == {"weight": [125, 0], "seen": [31, -1]}
    assert loaded.counts.dropped == 1


@pytest.mark.parametrize(
    ("decimal", "thousands", "cells"),
    [
        (",", ".", ["1.234,56", "-12.345.678,9", "999", "1234,56", "+1.000", "0,5"]),
        (".", ",", ["1,234.56", "-12,345,678.9", "999", "1234.56", "+1,000", "0.5"]),
        (".", "'", ["1'234.56", "-12\u2019345\u2019678.9", "999", "1234.56", "+1'000.", ".5"]),
        (",", " ", ["1 234,56", "-12\u202f345\u00a0678,9", " 999 ", "1234,56", "+1\u2009000", "0,5"]),
    ],
)
def test_thousands_separators_are_read_as_declared(dataset, decimal, thousands, cells):
    """A separator after every third digit changes no value, whichever blank or apostrophe is written."""
    wide = replace(WEIGHT, lower=-(10**12), upper=10**12)
    form = CsvOptions(";", decimal, thousands=thousands)
    loaded = load(dataset("\n".join(["weight", *cells]), attributes=(wide,), csv=form))
    assert loaded.columns["weight"].tolist() == [123456, -1234567890, 99900, 123456, 100000, 50]


def test_a_parquet_float_has_a_point_whatever_the_csv_options_say(dataset):
    """`decimal = ","` is about text; typed numbers are not text."""
    settings = dataset(None, ".parquet", attributes=(WEIGHT,), csv=CsvOptions(";", ","))
    pa.parquet.write_table(pa.table({"weight": [0.5]}), settings.source)
    assert load(settings).columns["weight"].tolist() == [50]


def test_only_chosen_attributes_are_read(dataset):
    """Attributes that a release does not take cannot disturb it, and the declared order stays."""
    settings = dataset("age,weight,sex\nbad,1,male\n", attributes=(AGE, WEIGHT, SEX))
    assert columns(load(settings, ["sex", "weight"])) == {"weight": [100], "sex": [1]}
    assert list(load(settings, ["sex", "weight"]).columns) == ["weight", "sex"]
    with pytest.raises(UsageError):
        load(settings, ["height"])


def test_clamping_moves_values_to_the_domain_and_counts_them(dataset):
    """`outside = "clamp"` moves even what no 64-bit integer holds, in the right direction."""
    clamped = replace(AGE, outside="clamp")
    loaded = load(dataset("age\n-1\n7\n121\n1e30\n-1e30\n", attributes=(clamped,)))
    assert loaded.columns["age"].tolist() == [0, 7, 120, 120, 0]
    assert loaded.counts.clamped == {"age": 4}


def test_missing_values_drop_the_record(dataset):
    """`missing = "drop"` drops for any loaded attribute or identifier, and judges nothing of the record."""
    content = "id,age,sex\na,1,male\nb,,male\n ,2,male\nd,999,\ne,5,female\n"
    settings = dataset(content, attributes=(AGE, SEX), identifier=("id",), missing="drop")
    loaded = load(settings)
    assert columns(loaded) == {"age": [1, 5], "sex": [1, 0]}
    assert loaded.identifiers[0].to_pylist() == ["a", "e"]
    assert loaded.counts.dropped == 3
    assert count_records(settings) == loaded.n_records
    assert count_records(settings, ["age"]) == 3


def test_missing_values_become_a_category(dataset):
    """`missing = "category"` adds the last category, in the data and in the schema."""
    settings = dataset("sex,smoker\n,yes\nmale,no\n", attributes=(SEX, SMOKER), missing="category")
    assert columns(load(settings)) == {"sex": [2, 1], "smoker": [1, 0]}
    assert schema_of(settings, None, 2).by_name["sex"].categories == ("female", "male", MISSING_CATEGORY)


def test_a_blank_line_of_a_one_column_file_is_a_missing_value(dataset):
    """No record disappears just because its only value is missing."""
    loaded = load(dataset("age\n1\n\n3\n", missing="drop"))
    assert (loaded.n_records, loaded.counts.dropped) == (2, 1)


def test_a_file_larger_than_one_block(dataset):
    """Joining blocks loses, repeats and reorders nothing, for both kinds of file."""
    n_records = 700_000
    values = np.arange(n_records) % 120
    table = pa.table({"age": values, "id": np.arange(n_records) + 10**9})
    settings = dataset(None, identifier=("id",))
    pa.csv.write_csv(table, settings.source)
    loaded = load(settings)
    assert np.array_equal(loaded.columns["age"], values)
    assert count_records(settings) == n_records
    parquet = dataset(None, ".parquet", identifier=("id",))
    pa.parquet.write_table(table, parquet.source)
    assert load(parquet).digest == loaded.digest


def test_the_digest_names_the_data(dataset):
    """Another value, order, identifier, cut of identifiers or domain is another digest; a repeat is not."""
    base = "id,jd,age\nab,c,1\nd,ef,2\n"
    settings = dataset(base, identifier=("id", "jd"))
    seen = {load(settings).digest}
    assert load(settings).digest in seen
    for changed in (
        base.replace("1", "3"),
        "id,jd,age\nd,ef,2\nab,c,1\n",
        base.replace("ef", "eg"),
        base.replace("ab,c", "a,bc").replace("d,ef", "de,f"),
        "id,jd,age\na,c,1\nbd,ef,2\n",
    ):
        seen.add(load(dataset(changed, identifier=("id", "jd"))).digest)
    seen.add(
        load(replace(dataset(base, identifier=("id", "jd")), attributes=(replace(AGE, upper=99),))).digest
    )
    assert len(seen) == 7


def test_loaded_data_cannot_be_changed_or_shown(dataset):
    """What was pinned by a digest stays what it was, and a log line of it shows no value."""
    loaded = load(dataset("id,age\nsecret,77\n", identifier=("id",)))
    with pytest.raises(ValueError):
        loaded.columns["age"][0] = 1
    assert "77" not in repr(loaded)
    assert "secret" not in repr(loaded)


def test_the_schema_tells_settings_and_a_rounded_count(dataset):
    """An invitation gets attributes in declared order, identifier rules and a count's leading digit."""
    settings = dataset(CSV, attributes=ALL, identifier=("id",), normalise=("trim", "casefold"))
    expected = Schema((AGE, STAGE), IdentifierRules(1, ("trim", "casefold")), 1, 7000)
    assert schema_of(settings, ["stage", "age"], 7122) == expected
    assert schema_of(settings, (), 7122).attributes == ALL
    several = replace(settings, identifier=("born", "id"), normalise_also={"born": ("date",)})
    rules = schema_of(several, (), 7122).identifier
    assert rules == IdentifierRules(2, ("trim", "casefold"), also=(("date",), ()))
    assert IdentifierRules.from_document(rules.to_document()) == rules
    assert schema_of(dataset(CSV), None, 3).identifier is None


def test_an_idle_daemon_does_not_pay_for_loading():
    """What a daemon and the command line import at start brings in no array library."""
    program = (
        "import sys, owner_node.sources, owner_node.cli\n"
        "print(*sorted({'numpy', 'pyarrow', 'pandas', 'rich'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.stdout.strip(), ended.stderr) == ("", "")
