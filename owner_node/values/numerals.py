"""Parses decimal text to integers in resolution units, exactly, without binary fractions.

A numeral is split into its significant digits and a power of ten. The first 19 digits fit an unsigned 64-bit
integer. Later digits can only decide a rounding, so only their comparison with one half matters. All
operations work on whole columns.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import BoolArray, Int64Array

_HEAD = 19
"""Number of digits that always fit an unsigned 64-bit integer."""
_POWERS = np.array([10**power for power in range(_HEAD + 1)], dtype=np.uint64)
_LARGEST = np.uint64(2**63 - 1)
_EXPONENT_DIGITS = 9
"""Longer exponents are treated as infinite: no mantissa is long enough to compensate for them."""
_NOT_FINITE = r"(?i)^[+-]?(?:s?nan|inf|infinity)$"
_SEPARATORS = {" ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
"""Characters that look like a thousands separator and are written for it."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A column of numerals in resolution units. All arrays have shape (n_records,)."""

    units: Int64Array
    """Values, rounded half to even; 0 without a value, the nearest 64-bit integer where `beyond`."""
    wrong: BoolArray
    """Where the text is no numeral."""
    not_finite: BoolArray
    """Where the text is NaN or an infinity."""
    beyond: BoolArray
    """Where the value does not fit 64 bits, and so lies outside every domain."""
    inexact: BoolArray
    """Where the text has more decimals than the resolution, and the value was rounded."""


def ungroup(numerals: Any, point: str, thousands: str) -> Any:
    """Remove thousands separators from numerals that have one after every third digit; leave other texts.

    Args:
        numerals: Arrow string array without nulls, shape (n_records,).
        thousands: The separator; empty for none.

    Returns:
        The array itself if nothing was removed.
    """
    if not thousands:
        return numerals
    mark = _SEPARATORS.get(thousands, re.escape(thousands))
    # A leading zero, as in "0.125", shows that the mark is no thousands separator.
    grouped = pc.match_substring_regex(
        numerals, rf"^[+-]?[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{re.escape(point)}[0-9]*)?$"
    )
    if not pc.any(grouped, min_count=0).as_py():
        return numerals
    return pc.if_else(grouped, pc.replace_substring_regex(numerals, mark, ""), numerals)


def scale_numerals(texts: Any, decimals: int, point: str = ".", thousands: str = "") -> Scaled:
    """Read numerals as integers in units of 10^-decimals.

    Args:
        texts: Arrow string array without nulls, shape (n_records,).
        point: The decimal point, "." or ",".
        thousands: The thousands separator that a numeral may have, as in `ungroup`.

    Returns:
        Values, and the problems of the other texts.
    """
    trimmed = ungroup(pc.utf8_trim_whitespace(texts), point, thousands)
    is_numeral = _is_numeral(trimmed, point)
    odd = ~bools(is_numeral)
    not_finite = np.zeros_like(odd)
    if odd.any():
        not_finite = odd & bools(pc.match_substring_regex(trimmed, _NOT_FINITE))
        trimmed = pc.if_else(is_numeral, trimmed, "0")
    digits, powers = _digits(trimmed, point)
    units, beyond, inexact = _round(digits, decimals + powers)
    negative = bools(pc.starts_with(trimmed, "-"))
    return Scaled(np.where(negative, -units, units), odd & ~not_finite, not_finite, beyond, inexact)


def by_value(texts: Any, point: str = ".", thousands: str = "") -> Any:
    """Write every numeral in one way for its value, such as 1e3 for 1,000; trim other texts.

    Args:
        texts: Arrow string array, shape (n_records,); a null becomes the empty text.
        point: The decimal point, "." or ",".
        thousands: The thousands separator that a numeral may have, as in `ungroup`.
    """
    trimmed = ungroup(pc.fill_null(pc.utf8_trim_whitespace(texts), ""), point, thousands)
    is_numeral = _is_numeral(trimmed, point)
    numerals = pc.if_else(is_numeral, trimmed, "0")
    digits, powers = _digits(numerals, point)
    significant = pc.ascii_rtrim(digits, "0")
    powers = powers + ints(pc.subtract(pc.binary_length(digits), pc.binary_length(significant)))
    signs = pc.if_else(pc.starts_with(numerals, "-"), "-", "")
    written = pc.binary_join_element_wise(signs, significant, "e", pa.array(powers).cast(pa.string()), "")
    return pc.if_else(is_numeral, pc.if_else(pc.equal(significant, ""), "0", written), trimmed)


def _is_numeral(texts: Any, point: str) -> Any:
    dot = re.escape(point)
    return pc.match_substring_regex(texts, rf"^[+-]?(?:[0-9]+{dot}?[0-9]*|{dot}[0-9]+)(?:[eE][+-]?[0-9]+)?$")


def _digits(numerals: Any, point: str) -> tuple[Any, Int64Array]:
    """Split numerals into digits without leading zeros or a point, and their power of ten."""
    mantissas, exponents = _without_exponents(numerals)
    unsigned = pc.ascii_ltrim(mantissas, "+-")
    dots = ints(pc.find_substring(unsigned, point))
    places = np.where(dots < 0, 0, ints(pc.binary_length(unsigned)) - dots - 1)
    return pc.ascii_ltrim(pc.replace_substring(unsigned, point, ""), "0"), exponents - places


def _without_exponents(numerals: Any) -> tuple[Any, Int64Array]:
    """Split numerals into mantissas and the integer after the "e" (0 without one)."""
    if not pc.any(pc.match_substring_regex(numerals, "[eE]"), min_count=0).as_py():
        return numerals, np.zeros(len(numerals), dtype=np.int64)
    pattern = r"^(?P<mantissa>[^eE]*)(?:[eE](?P<sign>[+-]?)0*(?P<power>[0-9]*))?$"
    mantissas, signs, powers = pc.extract_regex(numerals, pattern).flatten()
    lengths = pc.binary_length(powers)
    powers = pc.if_else(pc.greater(lengths, _EXPONENT_DIGITS), "9" * _EXPONENT_DIGITS, powers)
    powers = ints(pc.if_else(pc.equal(lengths, 0), "0", powers))
    return mantissas, np.where(bools(pc.equal(signs, "-")), -powers, powers)


def _round(digits: Any, shifts: Int64Array) -> tuple[Int64Array, BoolArray, BoolArray]:
    """Return digits × 10^shifts, rounded half to even; where it exceeds 64 bits; where it was rounded."""
    lengths = ints(pc.binary_length(digits))
    above, tie, some = (np.zeros(len(digits), dtype=np.bool_) for _ in range(3))
    if lengths.max(initial=0) > _HEAD:
        tails = pc.utf8_slice_codeunits(digits, _HEAD)
        above = bools(pc.match_substring_regex(tails, "^(?:[6-9]|5[0-9]*[1-9])"))
        tie = bools(pc.match_substring_regex(tails, "^50*$"))
        some = bools(pc.match_substring_regex(tails, "[1-9]"))
        digits = pc.utf8_slice_codeunits(digits, 0, _HEAD)
        shifts = shifts + np.maximum(lengths - _HEAD, 0)
        lengths = np.minimum(lengths, _HEAD)
    heads = pc.if_else(pc.equal(pc.binary_length(digits), 0), "0", digits).cast(pa.uint64()).to_numpy()
    beyond = (lengths > 0) & (lengths + shifts > _HEAD)
    raised = heads * _POWERS[np.where(beyond, 0, np.clip(shifts, 0, _HEAD))]
    cut = np.clip(-shifts, 0, _HEAD + 1)
    whole, rest = np.divmod(raised, _POWERS[np.minimum(cut, _HEAD)])
    # 19 digits, shifted by 20 digits or more, are less than a tenth of a unit.
    whole, rest = np.where(cut > _HEAD, np.uint64(0), whole), np.where(cut > _HEAD, raised, rest)
    half = _POWERS[np.minimum(cut, _HEAD)] >> np.uint64(1)
    inside = (cut > 0) & (cut <= _HEAD)
    up = np.where(cut == 0, above, inside & ((rest > half) | ((rest == half) & some)))
    even = np.where(cut == 0, tie, inside & (rest == half) & ~some)
    whole = whole + (up | (even & (whole % np.uint64(2) == 1)))
    beyond = beyond | (whole > _LARGEST)
    units = np.where(beyond, _LARGEST, whole).astype(np.int64)
    return units, beyond, ((rest > 0) | some) & ~beyond


def bools(array: Any) -> BoolArray:
    """Return an Arrow boolean array as a numpy one; null counts as false."""
    values: BoolArray = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return values


def ints(array: Any) -> Int64Array:
    """Return an Arrow array of integers, or of texts of integers, without nulls as a numpy one."""
    values: Int64Array = array.cast(pa.int64()).to_numpy()
    return values
