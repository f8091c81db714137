"""Normalisation and tokens on any text, against one record at a time in plain Python."""

import hmac
import unicodedata
from datetime import date

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from owner_node.linking.tokens import tokens
from owner_node.values.normal_forms import STEPS, NormalForm, normalise

KEY = bytes(range(32))
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=12)


def _normal(texts: list[str], *steps: str) -> list[str | None]:
    [column] = normalise([pa.array(texts, pa.string())], [NormalForm(steps)])
    found: list[str | None] = column.to_pylist()
    return found


@given(st.lists(TEXT, max_size=8))
def test_casefold(texts: list[str]) -> None:
    """Lower case for ASCII and folding for the rest are together the standard library's folding."""
    assert _normal(texts, "casefold") == [text.casefold() or None for text in texts]


@given(st.lists(TEXT, max_size=8))
def test_nfkc(texts: list[str]) -> None:
    """Arrow's NFKC is the standard library's."""
    assert _normal(texts, "nfkc") == [unicodedata.normalize("NFKC", text) or None for text in texts]


@given(st.lists(st.text("0123456789 -x", max_size=8), max_size=8))
def test_digits(texts: list[str]) -> None:
    """Digits and leading zeros against plain Python; a number of zeros stays a number."""
    digits = ["".join(filter(str.isdigit, text)) for text in texts]
    assert _normal(texts, "digits-only") == [text or None for text in digits]
    stripped = [text.lstrip("0") or text[:1] or None for text in digits]
    assert _normal(texts, "digits-only", "strip-leading-zeros") == stripped


@example(["¯"], {"nfkc", "trim"})
@given(st.lists(TEXT, max_size=8), st.sets(st.sampled_from([s for s in STEPS if s != "date"])))
def test_normal_forms_stay(texts: list[str], chosen: set[str]) -> None:
    """Steps in the order of their table: it does not matter whether a source is normalised already.

    In another one it may: "nfkc" makes a space and an accent of a macron, and a "trim" before it sees none.
    """
    steps = [step for step in STEPS if step in chosen]
    once = _normal(texts, *steps)
    assert _normal([text or "" for text in once], *steps) == once


@given(st.lists(st.integers(0, 10**9), max_size=8))
def test_numbers_in_any_digits(numbers: list[int]) -> None:
    """Full-width digits and leading zeros are the same number as the plain one."""
    wide = ["00" + "".join(chr(0xFF10 + int(digit)) for digit in str(number)) for number in numbers]
    steps = ("nfkc", "digits-only", "strip-leading-zeros")
    assert _normal(wide, *steps) == _normal([str(number) for number in numbers], *steps)


@given(st.dates(date(1000, 1, 1)), st.sampled_from(["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d %B %Y"]))
def test_dates_in_a_declared_form(day: date, date_format: str) -> None:
    """A date in any declared form is the ISO date of the same day."""
    [found] = normalise([pa.array([day.strftime(date_format)])], [NormalForm(("date",), date_format)])
    [iso] = normalise([pa.array([day.isoformat()])], [NormalForm(("date",))])
    assert found.to_pylist() == iso.to_pylist() == [day.isoformat()]


@given(st.dates())
def test_dates(day: object) -> None:
    """Every day of the calendar is accepted in both forms of ISO 8601."""
    written = str(day)
    assert _normal([written, written.replace("-", "")], "date") == [written, written]


@given(st.lists(st.tuples(TEXT.filter(bool), TEXT.filter(bool)), min_size=1, max_size=8))
def test_tokens(identifiers: list[tuple[str, str]]) -> None:
    """Each record's token is that of the definition, so equal identifiers meet and different ones do not."""
    columns = [pa.array(column) for column in zip(*identifiers, strict=True)]
    encoded = [[part.encode() for part in parts] for parts in identifiers]
    messages = [b"".join(len(part).to_bytes(8, "big") + part for part in parts) for parts in encoded]
    expected = [hmac.new(KEY, message, "sha256").digest()[:16] for message in messages]
    assert [bytes(token) for token in tokens(columns, KEY)] == expected
