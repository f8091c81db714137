"""Loading against the naive way: one value after the other through Python's own `decimal` and `datetime`."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.loading import LoadedData, load
from owner_node.sources.options import CsvOptions
from owner_node.values import dates
from owner_node.values.numerals import scale_numerals

LARGEST = 2**63 - 1
DATE_FORMATS = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d%m%Y", "on %d/%m/%Y", "%d %b %Y", "%d(%m)%Y")
EPOCH = date(1970, 1, 1)
DIGITS = st.text("0123456789", max_size=25) | st.text("05", max_size=25)
TRUE, FALSE = ("true", "T", "Yes", "y", "1"), ("false", "F", "NO", "n", "0")
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)


@st.composite
def numerals(draw: st.DrawFn, digits: st.SearchStrategy[str] = DIGITS, largest_exponent: int = 400) -> str:
    """Decimal numerals in every form that is accepted."""
    whole, fraction = draw(digits), draw(digits)
    text = draw(st.sampled_from(["", "+", "-"])) + (whole or ("" if fraction else "0"))
    text += f".{fraction}" if fraction or draw(st.booleans()) else ""
    if draw(st.booleans()):
        text += draw(st.sampled_from("eE")) + str(draw(st.integers(-largest_exponent, largest_exponent)))
    return text


def naive(text: str, decimals: int) -> tuple[int, bool]:
    """Return a numeral in resolution units and whether it was rounded, without any haste."""
    with localcontext(Context(prec=2000)):
        exact = Decimal(text).scaleb(decimals)
        units = exact.to_integral_value(ROUND_HALF_EVEN)
        return int(units), units != exact


@given(st.lists(numerals(), max_size=20), st.integers(0, 18))
def test_numerals_are_read_exactly(texts: list[str], decimals: int) -> None:
    """Any numeral becomes the correctly rounded integer, or is known not to fit."""
    read = scale_numerals(pa.array(texts, pa.string()), decimals)
    assert not read.wrong.any()
    assert not read.not_finite.any()
    for text, units, beyond, inexact in zip(
        texts, read.units.tolist(), read.beyond.tolist(), read.inexact.tolist(), strict=True
    ):
        expected, rounded = naive(text, decimals)
        assert beyond == (abs(expected) > LARGEST)
        assert beyond or (units, inexact) == (expected, rounded)
        assert not beyond or units == (LARGEST if expected > 0 else -LARGEST)


@given(st.lists(st.text("+-.,eE0159 _xnaif\n٣", max_size=8), max_size=20))
def test_what_is_no_numeral_is_found(texts: list[str]) -> None:
    """The accepted numerals are Python's, without underscores, other scripts' digits, NaN and infinities."""
    read = scale_numerals(pa.array(texts, pa.string()), 3)
    for text, wrong, not_finite in zip(texts, read.wrong.tolist(), read.not_finite.tolist(), strict=True):
        try:
            value = Decimal(text) if text.isascii() and "_" not in text else None
        except ArithmeticError:
            value = None
        assert wrong == (value is None)
        assert not_finite == (value is not None and not value.is_finite())


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.integers(0, 18)
)
def test_floats_mean_their_shortest_decimal(values: list[float], decimals: int) -> None:
    """A typed column of floats is read as the decimals that people wrote."""
    attribute = Attribute("x", AttributeType.NUMBER, -LARGEST, LARGEST, decimals, "clamp")
    loaded = loaded_from(pa.table({"x": values}), (attribute,))
    expected = [max(-LARGEST, min(LARGEST, naive(repr(value), decimals)[0])) for value in values]
    assert loaded.columns["x"].tolist() == expected


@given(
    st.sampled_from(
        ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d%m%Y", "on %d/%m/%Y", "%d %b %Y", "%d(%m)%Y"]
    ),
    st.lists(st.dates() | st.text("0123456789./- ()%onJanfeb", max_size=10), max_size=20),
)
def test_dates_are_the_standard_librarys(date_format: str, written: list[date | str]) -> None:
    """Whole columns accept exactly the texts that `strptime` accepts, padded or not, and no 30 February."""
    texts = [each if isinstance(each, str) else each.strftime(date_format) for each in written]
    texts += [text.replace("0", "") for text in texts] + [re.sub("(28|27|26)", "30", text) for text in texts]
    days, known = dates.days(pa.array(texts, pa.string()), date_format)
    for text, day, found in zip(texts, days.tolist(), known.tolist(), strict=True):
        try:
            expected = datetime.strptime(text.strip(), date_format).date() - EPOCH  # noqa: DTZ007
        except ValueError:
            expected = None
        assert found == (expected is not None)
        assert day == (expected.days if expected else 0)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, list[int]], tuple[Attribute, ...]]:
    """Texts of a table, the integers they mean, and the declared attributes."""
    n_records, decimals = draw(st.integers(1, 12)), draw(st.integers(0, 6))
    labels = tuple(draw(st.lists(LABELS, min_size=1, max_size=4, unique=True)))

    def column(strategy: st.SearchStrategy) -> list:
        return draw(st.lists(strategy, min_size=n_records, max_size=n_records))

    short = st.text("0123456789", max_size=6)
    numbers = column(numerals(short, 3))
    days = column(st.integers(-700_000, 2_900_000))
    flags = column(st.booleans())
    indices = column(st.integers(0, len(labels) - 1))
    integers = column(st.integers(-LARGEST, LARGEST))
    texts = {
        "number": numbers,
        "integer": [str(value) + draw(st.sampled_from(["", ".", ".0"])) for value in integers],
        "date": [(EPOCH + timedelta(days=day)).isoformat() for day in days],
        "boolean": [draw(st.sampled_from(TRUE if flag else FALSE)) for flag in flags],
        "category": [labels[index] for index in indices],
    }
    units = {
        "number": [naive(text, decimals)[0] for text in numbers],
        "integer": integers,
        "date": days,
        "boolean": [int(flag) for flag in flags],
        "category": indices,
    }
    attributes = (
        Attribute("number", AttributeType.NUMBER, -LARGEST, LARGEST, decimals),
        Attribute("integer", AttributeType.INTEGER, -LARGEST, LARGEST),
        Attribute("date", AttributeType.DATE, -719_162, 2_932_896),
        Attribute("boolean", AttributeType.BOOLEAN, 0, 1),
        Attribute("category", AttributeType.CATEGORY, 0, len(labels) - 1, categories=labels),
    )
    return texts, units, attributes


def loaded_from(content: bytes | pa.Table, attributes: Sequence[Attribute]) -> LoadedData:
    """Write a CSV file (bytes) or a Parquet file (a table), and load it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pyarrow.parquet.write_table(content, path)
        settings = DatasetConfig(
            name="d",
            source=str(path),
            budget="d",
            total_epsilon=Decimal(1),
            attributes=tuple(attributes),
            csv=CsvOptions(na_values=()),
        )
        return load(settings)


@given(tables(), st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_any_table_survives_csv_and_parquet(table, line_end: str, quoting) -> None:
    """Whatever texts, labels, quotes and line ends: both kinds of file give the naive parser's integers."""
    texts, units, attributes = table
    if any("\r" in text for text in texts["category"]):
        quoting = csv.QUOTE_ALL  # outside quotes, RFC 4180 has no lone carriage return
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=line_end, quoting=quoting)
    writer.writerows([list(texts), *zip(*texts.values(), strict=True)])
    from_csv = loaded_from(out.getvalue().encode(), attributes)
    assert {name: column.tolist() for name, column in from_csv.columns.items()} == units
    typed = pa.table(
        texts | {"integer": units["integer"], "boolean": [bool(flag) for flag in units["boolean"]]}
    )
    typed = typed.set_column(2, "date", pa.array(units["date"], pa.int32()).cast(pa.date32()))
    assert loaded_from(typed, attributes).digest == from_csv.digest
