"""The texts that persons are recognised by, for identifiers and match keys alike.

Owners store one identifier in different types. So a value has one text, which depends on the value alone: not
on its type, and not on the values beside it. Text stays as it is written. A whole number is its decimal
digits, without an exponent, a sign of zero, or the zeros of a scale. A date, and a timestamp at the beginning
of a day, is YYYY-MM-DD. Numbers whose text another owner may write differently are refused: numbers with
decimals, and floats so large that neighbouring whole numbers are one float.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import DataError
from common.model.schema import TEXTS_VERSION
from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.values.normal_forms import ISO_DATE, NormalForm, normalise

_NOT_FINITE = "NaN or infinite as an identifier"
_FRACTION = "a number with decimals as an identifier"
_INEXACT = "a float beyond the exact whole numbers as an identifier"
_OTHERWISE = "written otherwise by another version of the software in this release"
_HINTS = {
    _OTHERWISE: "upgrade the aggregator and every owner of the release, or store identifiers as texts or as "
    "integers",
    _NOT_FINITE: "leave a missing identifier empty",
    _FRACTION: "store identifiers as texts or as integers, at every owner",
    _INEXACT: "export them again as texts or as integers: floats of 64 bits hold whole numbers up to 2^53, "
    "those of 32 bits up to 2^24",
}
_EXACT_BITS = {16: 11, 32: 24, 64: 53}
"""Floats of so many bits hold all whole numbers below this power of two."""
_NUMERAL = r"^\s*[+-]?[0-9]+(?:\.0+|(?:[.,][0-9]+)?[eE][+-]?[0-9]+)\s*$"
"""What pandas and spreadsheets make of whole numbers when they write them as text."""


@dataclass(frozen=True, slots=True)
class PersonTexts:
    """A column as the texts that persons are recognised by."""

    texts: Any
    """Arrow string array, shape (n_records,); null where a value is missing."""
    faults: Any
    """Arrow string array, shape (n_records,): why a value recognises nobody; null where it does."""


def person_texts(array: Any) -> PersonTexts:
    """Return the texts of a column of a readable type, shape (n_records,)."""
    array = texts.plain(array)
    if array.type == texts.SEVERAL_TYPES:
        return PersonTexts(*(pc.struct_field(array, name) for name in ("identifying", "fault")))
    if pa.types.is_floating(array.type):
        return _floats(array)
    written = texts.as_text(array)
    if pa.types.is_decimal(array.type):
        return whole_numerals(written)
    return PersonTexts(written, pa.nulls(len(written), pa.string()))


def whole_numerals(numerals: Any) -> PersonTexts:
    """Return the texts of decimals that are given as numerals, such as 17.00 or 0E-9, shape (n_records,)."""
    trimmed = pc.replace_substring_regex(numerals, r"\.0*$|(\.[0-9]*[1-9])0+$", r"\1")
    trimmed = pc.replace_substring_regex(trimmed, r"^-?0(?:[eE].*)?$", "0")
    is_whole = pc.match_substring_regex(trimmed, "^-?[0-9]+$")
    is_finite = pc.match_substring_regex(trimmed, "^-?[0-9]")
    return PersonTexts(trimmed, _faults({_FRACTION: pc.invert(is_whole), _NOT_FINITE: pc.invert(is_finite)}))


def _floats(array: Any) -> PersonTexts:
    values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy()
    null = array.is_null().to_numpy(zero_copy_only=False)
    finite = np.isfinite(values)
    whole = finite & (np.trunc(values) == values)
    exact = whole & (np.abs(values) < 2.0 ** _EXACT_BITS[array.type.bit_width])
    digits = pa.array(np.where(exact, values, 0).astype(np.int64), mask=null).cast(pa.string())
    written = pc.if_else(pa.array(exact), digits, texts.as_text(array))
    faults = {_INEXACT: pa.array(~exact), _FRACTION: pa.array(~whole), _NOT_FINITE: pa.array(~finite)}
    return PersonTexts(written, _faults(faults))


def _faults(where: Mapping[str, Any]) -> Any:
    """Return the fault of every value, null without one; the last of several holds."""
    faults = pa.scalar(None, pa.string())
    for fault, marked in where.items():
        faults = pc.if_else(marked, fault, faults)
    return faults


def identifier_texts(
    name: str, array: Any, form: NormalForm, findings: Findings, version: int = TEXTS_VERSION
) -> Any:
    """Return identifiers as texts; null if their normal form is blank and thus identifies nobody."""
    written = _identifying_texts(name, array, findings, version)
    try:
        (normal,) = normalise([written], [form])
    except DataError as error:
        kind = "an ISO date" if form.date_format == ISO_DATE else f"a date written {form.date_format}"
        findings.add(name, f"not {kind}, which normalise asks for", error.details["count"], error.hint)
        normal = written
    present = pc.not_equal(pc.utf8_trim_whitespace(normal), "")
    return pc.if_else(pc.fill_null(present, False), written, pa.scalar(None, pa.string()))


def match_key_texts(name: str, array: Any, findings: Findings, version: int) -> Any:
    """Return a column of match keys as texts; a missing value is empty, and gives a person no key."""
    return pc.fill_null(_identifying_texts(name, array, findings, version), "")


def are_numerals(written: Any) -> Any:
    """Return which texts are such as 17.0 and 1.5E+10, which another owner may have as 17 and 15000000000."""
    return pc.match_substring_regex(written, _NUMERAL)


def count_numerals(written: Any) -> int:
    """Count them."""
    return pc.sum(are_numerals(written)).as_py() or 0


def _identifying_texts(name: str, array: Any, findings: Findings, version: int) -> Any:
    """Return the texts of a column, and report the values that recognise nobody.

    Version 1 wrote numbers as their type shows them. Where it is in force, what it wrote otherwise is
    refused, since an owner of that version may hold the same persons.
    """
    column = person_texts(array)
    for fault in pc.value_counts(column.faults.drop_null()).to_pylist():
        findings.add(name, fault["values"], fault["counts"], _HINTS[fault["values"]])
    if version < TEXTS_VERSION:
        otherwise = pc.and_(pc.is_null(column.faults), _differs_from_version_1(array, column.texts))
        findings.add(name, _OTHERWISE, pc.sum(otherwise).as_py() or 0, _HINTS[_OTHERWISE])
    return column.texts


def _differs_from_version_1(array: Any, written: Any) -> Any:
    array = texts.plain(array)
    if not pa.types.is_timestamp(array.type):
        return pc.not_equal(written, texts.as_text(array))
    # It wrote all timestamps of a batch alike, dates only if all were at midnight.
    local = pc.local_timestamp(array) if array.type.tz is not None else array
    return pc.not_equal(local, pc.floor_temporal(local, unit="day"))
