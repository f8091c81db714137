"""What a released column looks like, in numbers that fit a page: for the report, of protected values alone.

A summary is a function of the column's values and of what was declared; neither the order of the records nor
the number of threads changes it. Its size does not grow with the number of records, and its time and memory
are those of counting equal values.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.charts import round_step
from common.release_table import to_units
from common.schema import Attribute, AttributeType

MOST_BINS = 30
"""Bins of a histogram."""
MOST_LABELS = 20
"""Categories that are shown one by one."""
_EDGE = 0.005
"""Share of the records on either side that the outermost bins take in, however far away they are."""
_LAST_DAY = date.max.toordinal() - date(1970, 1, 1).toordinal()
"""The last date there is, in resolution units."""
_DAYS_OF_400_YEARS = 146_097
_DAYS = (1, 2, 7, 14, 28, 91, 182, 365, 730, 1826, 3652, 9131, 18262, 36525)
"""Widths of bins of dates: weeks, months, quarters, years."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Some values and how many records have them."""

    label: str
    """The values as text."""
    records: int
    """How many records."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """One released column."""

    attribute: Attribute
    """What was declared about it."""
    different: int
    """How many different values occur."""
    facts: tuple[tuple[str, str], ...]
    """Names and texts of its figures; empty for labels."""
    bins: tuple[Bin, ...]
    """Records by value, in the order in which they are drawn."""
    edges: tuple[str, ...]
    """Edges of the bins, one more than there are bins; empty for labels."""
    outside: int
    """Records whose values lie beyond the edges and are counted in the outermost bins."""
    other_labels: int
    """Labels that occur and have no bin of their own."""
    other_records: int
    """Records with these labels."""


def summarise(attribute: Attribute, column: pa.ChunkedArray) -> ColumnSummary:
    """Summarise a released column.

    Args:
        attribute: What was declared about it.
        column: Its values, in the release's type, at least one.
    """
    units, records = _counted(attribute, column)
    return (
        _of_labels(attribute, units, records)
        if attribute.is_categorical
        else _of_numbers(attribute, units, records)
    )


def _counted(attribute: Attribute, column: pa.ChunkedArray) -> tuple[Int64Array, Int64Array]:
    """Return the values that occur, ascending in resolution units, and how many records have each."""
    if attribute.is_categorical:
        found = pc.value_counts(column)
        units = _units(attribute, pa.chunked_array([found.field("values")]))
        order = np.argsort(units)
        return units[order], found.field("counts").to_numpy()[order].astype(np.int64, copy=False)
    # Sorted and not hashed: as fast for ten million different values as for ten.
    ordered = np.sort(_units(attribute, column))
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.diff(starts, append=ordered.size)


def _units(attribute: Attribute, column: pa.ChunkedArray) -> Int64Array:
    return np.asarray(to_units(attribute, column).to_numpy(), dtype=np.int64)


def _of_labels(attribute: Attribute, units: Int64Array, records: Int64Array) -> ColumnSummary:
    # Most frequent first, ties as declared; what stays is drawn as declared if that order means something.
    chosen = np.argsort(-records, kind="stable")[:MOST_LABELS]
    if attribute.ordered or attribute.type is AttributeType.BOOLEAN:
        chosen = np.sort(chosen)
    labels = attribute.categories or ("false", "true")
    bins = tuple(Bin(labels[units[i]], int(records[i])) for i in chosen)
    return ColumnSummary(
        attribute,
        units.size,
        (),
        bins,
        (),
        0,
        units.size - len(bins),
        int(records.sum()) - sum(each.records for each in bins),
    )


def _of_numbers(attribute: Attribute, units: Int64Array, records: Int64Array) -> ColumnSummary:
    running = np.cumsum(records)
    first, width, n_bins = _bins(attribute, _at(units, running, _EDGE), _at(units, running, 1 - _EDGE))
    # The outermost edges can lie beyond 64-bit integers, as can differences of values; the edges between bins
    # cannot, and values are only compared with them.
    ends = [first + i * width for i in range(n_bins + 1)]
    inside = np.searchsorted(np.array(ends[1:-1], dtype=np.int64), units, side="right")
    counts = np.bincount(inside, weights=records, minlength=n_bins).astype(np.int64)
    beyond = (units < ends[0]) | (units >= ends[-1])
    one_by_one = width == 1
    labels = [
        attribute.text(low)
        if one_by_one
        else f"{attribute.text(low)} to {attribute.text(min(high - 1, attribute.upper))}"
        for low, high in pairwise(ends)
    ]
    return ColumnSummary(
        attribute,
        units.size,
        _facts(attribute, units, records, running),
        tuple(Bin(label, int(count)) for label, count in zip(labels, counts, strict=True)),
        tuple(_edge(attribute, end, width) for end in ends),
        int(records[beyond].sum()),
        0,
        0,
    )


def _at(units: Int64Array, running: Int64Array, share: float) -> int:
    """Return the smallest value that at least this share of the records does not exceed."""
    needed = max(1, ceil(share * int(running[-1])))
    return int(units[np.searchsorted(running, needed)])


def _bins(attribute: Attribute, lowest: int, highest: int) -> tuple[int, int, int]:
    """Return first edge, width and number of bins of a round width that hold an interval, in units."""
    least = (highest - lowest + 1) / (MOST_BINS - 1)
    if attribute.type is AttributeType.DATE:
        width = next((days for days in _DAYS if days >= least), ceil(least))
        first = lowest
    else:
        width = 1 if least <= 1 else round(round_step(least))
        first = lowest // width * width
    return first, width, (highest - first) // width + 1


def _edge(attribute: Attribute, end: int, width: int) -> str:
    """Return an edge with the decimal places that edges of this width need."""
    if attribute.type is AttributeType.DATE:
        return _day(attribute, end)
    places = max(0, attribute.decimals + 1 - len(str(width)))
    return f"{Decimal(end).scaleb(-attribute.decimals):,.{places}f}"


def _day(attribute: Attribute, end: int) -> str:
    """Return a day as text; the last edge can lie beyond the last year that dates have here, 9999."""
    if end <= _LAST_DAY:
        return attribute.text(end)
    # Calendars repeat every 400 years.
    cycles = ceil((end - _LAST_DAY) / _DAYS_OF_400_YEARS)
    year, _, rest = attribute.text(end - cycles * _DAYS_OF_400_YEARS).partition("-")
    return f"{int(year) + 400 * cycles}-{rest}"


def _facts(
    attribute: Attribute, units: Int64Array, records: Int64Array, running: Int64Array
) -> tuple[tuple[str, str], ...]:
    quantiles = [
        (name, attribute.text(_at(units, running, share)))
        for name, share in (("25 % up to", 0.25), ("median", 0.5), ("75 % up to", 0.75))
    ]
    return (
        ("lowest", attribute.text(int(units[0]))),
        *quantiles,
        ("highest", attribute.text(int(units[-1]))),
        ("mean", _mean(attribute, units, records)),
    )


def _mean(attribute: Attribute, units: Int64Array, records: Int64Array) -> str:
    # Exact: sums of 64-bit values pass 64 bits, sums of their halves do not below 2^31 records, and a float
    # would lie beyond the highest value, or be no day.
    high, low = (int(np.dot(half, records)) for half in (units >> 32, units & 0xFFFFFFFF))
    mean = Fraction((high << 32) + low, int(records.sum()))
    if attribute.type is AttributeType.DATE:
        return attribute.text(round(mean))
    places = min(attribute.decimals + 1, 6)
    return f"{Decimal(round(mean / 10**attribute.decimals * 10**places)).scaleb(-places):f}"
