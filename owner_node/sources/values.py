"""Parses one column of values to integers in resolution units, and counts problems and changes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import BoolArray, Int64Array
from common.errors import did_you_mean
from common.model.schema import Attribute, AttributeType
from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.sources.options import CsvOptions
from owner_node.values import dates
from owner_node.values.missing_codes import MissingCodes, comparable, without_zeros
from owner_node.values.numerals import Scaled, bools, by_value, ints, scale_numerals

_TRUE = ("true", "t", "yes", "y", "1")
_LONGEST_NAMED = 40
_FAR = r"(?i)^\s*(?:[+-]?infinity|[0-9]{5,}-.*|.* BC)\s*$"
"""Dates as databases write them that no date of ours can be."""
_ZERO_DATE = r"^\s*(?:0000-[0-9]{2}-[0-9]{2}|[0-9]{4}-(?:00-[0-9]{2}|[0-9]{2}-00))(?:[ T].*)?$"
"""Dates of MySQL and MariaDB of which a part is zero."""
_FALSE = ("false", "f", "no", "n", "0")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Values of one attribute; not valid if the column has findings."""

    units: Int64Array
    """Values in resolution units, within the domain; shape (n_records,)."""
    rounded: int = 0
    """Values that had more decimals than declared, or were between two steps."""
    clamped: int = 0
    """Values that were moved to the nearest end of the domain."""


def parse(attribute: Attribute, array: Any, form: CsvOptions, findings: Findings) -> Parsed:
    """Parse one column.

    Args:
        array: Arrow array of a readable, plain type, shape (n_records,); with nulls only where the attribute
            keeps missing values.
    """
    read = _READERS[attribute.type]
    if not (attribute.keeps_missing and array.null_count):
        return read(attribute, array, form, findings)
    parsed = read(attribute, array.drop_null(), form, findings)
    units = np.full(len(array), attribute.highest, dtype=np.int64)
    units[bools(array.is_valid())] = parsed.units
    return Parsed(units, parsed.rounded, parsed.clamped)


def without_codes(array: Any, codes: MissingCodes, form: CsvOptions) -> Any:
    """Return a plain, readable column with nulls instead of values that stand for missing ones.

    Args:
        codes: Numbers, compared by their value, and texts, compared without blanks around them.
    """
    is_text = pa.types.is_string(array.type)
    point, thousands = (form.decimal, form.thousands) if is_text else (".", "")
    written = texts.as_text(array)
    if codes.of_numbers:
        # A code that TOML writes as a text may be a number as the file writes it.
        known = by_value(by_value(pa.array(codes.texts, pa.string())), point, thousands)
        marked = pc.is_in(by_value(written, point, thousands), known)
    else:
        for pattern, into in without_zeros(point):
            written = pc.replace_substring_regex(pc.utf8_trim_whitespace(written), pattern, into)
        marked = pc.is_in(written, pa.array(map(comparable, codes.texts), pa.string()))
    if not pc.any(marked, min_count=0).as_py():
        return array
    return pc.if_else(marked, pa.scalar(None, array.type), array)


def _number(attribute: Attribute, array: Any, form: CsvOptions, findings: Findings) -> Parsed:
    column = attribute.name
    if pa.types.is_signed_integer(array.type) and not attribute.decimals:
        none = np.zeros(len(array), dtype=np.bool_)
        read = Scaled(ints(array), none, none, none, none)
    else:
        is_text = pa.types.is_string(array.type)
        point, thousands = (form.decimal, form.thousands) if is_text else (".", "")
        read = scale_numerals(texts.as_text(array), attribute.decimals, point, thousands)
    hint = (
        "correct them in the source, or name the text that stands for a missing value in na_values; "
        "csv.decimal and csv.thousands say how a CSV file writes numbers"
    )
    wrong, article = read.wrong, "a number"
    if "decimals" not in attribute.type.needs:
        wrong, article = wrong | read.inexact, "an integer"
    findings.add(column, f"not {article}", _count(wrong), hint, examples=partial(examples_of, array, wrong))
    findings.add(column, "NaN or infinite", _count(read.not_finite), "leave a missing value empty")
    proper = ~(wrong | read.not_finite)
    steps, between = read.units, read.inexact
    if attribute.step != 1:
        # Rounded half to even.
        steps, rest = np.divmod(read.units, attribute.step)
        rest_above = attribute.step - rest
        steps += (rest > rest_above) | ((rest == rest_above) & (steps % 2 == 1))
        between = read.inexact | (rest > 0)
    units, clamped = _within(attribute, steps, read.beyond, proper, findings)
    return Parsed(units, _count(between & proper), clamped)


def _within(
    attribute: Attribute, units: Int64Array, beyond: BoolArray, proper: BoolArray, findings: Findings
) -> tuple[Int64Array, int]:
    """Clamp values to the domain, or report those outside it, as the schema says."""
    outside = _count(proper & (beyond | (units < attribute.lower) | (units > attribute.upper)))
    if not outside:
        return units, 0
    if attribute.outside == "clamp":
        return np.clip(units, attribute.lower, attribute.upper), outside
    hint = 'correct them, declare the domain they belong to, or set outside = "clamp"'
    findings.add(attribute.name, "outside the declared domain", outside, hint)
    return units, 0


def _date(attribute: Attribute, array: Any, form: CsvOptions, findings: Findings) -> Parsed:
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        days, timed = texts.whole_days(array)
        hint = "store dates, or timestamps at midnight"
        findings.add(attribute.name, "a time of day where a date is declared", _count(timed), hint)
        proper = ~timed
    else:
        written = texts.as_text(array)
        days, proper = dates.days(written, form.date_format, attribute.lower)
        far = ~proper & bools(pc.match_substring_regex(written, _FAR))
        hint_far = "replace them by a date or a missing value, for a database in its query"
        findings.add(attribute.name, "infinite, or not in the years 1 to 9999", _count(far), hint_far)
        zero = ~proper & bools(pc.match_substring_regex(written, _ZERO_DATE))
        hint_zero = "replace them by a missing value, in a query nullif(NAME, '0000-00-00')"
        problem = "a date with a year, month or day of zero"
        findings.add(
            attribute.name, problem, _count(zero), hint_zero, examples=partial(examples_of, array, zero)
        )
        hint = f"write dates as {form.date_format}; for a CSV file, csv.date_format can say otherwise"
        wrong = ~(proper | far | zero)
        findings.add(
            attribute.name, "not a date", _count(wrong), hint, examples=partial(examples_of, array, wrong)
        )
    units, clamped = _within(attribute, days, np.zeros_like(proper), proper, findings)
    return Parsed(units, 0, clamped)


def _boolean(attribute: Attribute, array: Any, form: CsvOptions, findings: Findings) -> Parsed:
    lowered = pc.utf8_lower(pc.utf8_trim_whitespace(texts.as_text(array)))
    # Beside missing values, pandas writes 0 and 1 as 0.0 and 1.0.
    point = re.escape(form.decimal) if pa.types.is_string(array.type) else r"\."
    lowered = pc.replace_substring_regex(lowered, rf"^(?:\+?(1)|[+-]?(0))(?:{point}0*)?$", r"\1\2")
    positions = ints(pc.fill_null(pc.index_in(lowered, pa.array(_FALSE + _TRUE)), -1))
    hint = "write true or false, yes or no, t or f, y or n, 1 or 0"
    examples = partial(examples_of, array, positions < 0)
    findings.add(attribute.name, "not a boolean", _count(positions < 0), hint, examples=examples)
    return Parsed((positions >= len(_FALSE)).astype(np.int64))


def _category(attribute: Attribute, array: Any, _form: CsvOptions, findings: Findings) -> Parsed:
    labels = pa.array(attribute.categories, pa.string())
    written = texts.as_text(array)
    positions = pc.index_in(written, labels)
    if positions.null_count:
        strangers = written.filter(pc.is_null(positions))
        twins = pc.is_in(_normal(strangers), _normal(labels))
        alike = pc.and_not(pc.is_in(_alike(strangers), _alike(labels)), twins)
        unknown = pc.invert(pc.or_(twins, alike))
        for problem, kept, hint in (
            (
                "differs from a declared category only in its Unicode form",
                twins,
                "write é, ö and the like in one way, in the source and at every owner: Unicode NFC",
            ),
            (
                "differs from a declared category only in case or blanks",
                alike,
                "write categories exactly as they are declared",
            ),
            ("unknown category", unknown, "declare the category, or correct the source"),
        ):
            named = partial(_quote_labels, strangers.filter(kept), attribute)
            findings.add(attribute.name, problem, _count(bools(kept)), hint, examples=named)
    return Parsed(ints(pc.fill_null(positions, 0)))


def examples_of(array: Any, wrong: BoolArray) -> Iterator[str]:
    """Yield the different texts of wrong values."""
    for text in pc.unique(texts.as_text(array.filter(pa.array(wrong)))).to_pylist():
        yield repr(text[:_LONGEST_NAMED])


def _quote_labels(strangers: Any, attribute: Attribute) -> Iterator[str]:
    for label in pc.unique(strangers).to_pylist():
        yield f"{label[:_LONGEST_NAMED]!r} {did_you_mean(label, attribute.categories)}".rstrip()


def _normal(labels: Any) -> Any:
    """Return labels in the Unicode form in which those that look the same are the same."""
    return pc.utf8_normalize(labels, form="NFKC")


def _alike(labels: Any) -> Any:
    """Return labels without case and blanks, which people overlook."""
    return pc.utf8_lower(pc.replace_substring_regex(_normal(labels), r"[\s\p{Z}]+", ""))


def _count(marked: BoolArray) -> int:
    return int(np.count_nonzero(marked))


_READERS: Mapping[AttributeType, Callable[[Attribute, Any, CsvOptions, Findings], Parsed]] = {
    AttributeType.INTEGER: _number,
    AttributeType.NUMBER: _number,
    AttributeType.DATE: _date,
    AttributeType.CATEGORY: _category,
    AttributeType.BOOLEAN: _boolean,
}
