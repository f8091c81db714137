"""Summaries of released columns, made piece by piece: what a report shows of each.

A summary is a function of the released (protected) values and of what was declared. It depends neither on the
order of the records nor on the pieces that they come in, and its size does not grow with their number. Equal
values are counted in memory, as far as they fit, and then in sorted runs in the scratch folder.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import ceil
from types import TracebackType
from typing import Self

import numpy as np

from common.arrays import Int64Array
from common.model.schema import MISSING_CATEGORY, Attribute
from common.runs import ArrayRun, Records, Run, RunFile, in_ranges
from common.words.charts import round_step
from common.workspace import Workspace

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
class ColumnSummary:
    """One released column."""

    different: int
    """How many different values occur."""
    bins: tuple[tuple[str, int], ...]
    """Values as text and how many records have them, in the order in which they are drawn."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and texts of its figures; empty for labels."""
    edges: tuple[str, ...] = ()
    """Edges of the bins, one more than there are bins; empty for labels."""
    outside: int = 0
    """Records whose values lie beyond the edges and are counted in the outermost bins."""
    other_labels: int = 0
    """Labels that occur and have no bin of their own."""
    other_records: int = 0
    """Records with these labels."""


_QUARTILES = (("25 % up to", 0.25), ("median", 0.5), ("75 % up to", 0.75))
_COUNTED = np.dtype([("value", np.int64), ("records", np.int64)])
_SHARE_OF_MEMORY = 8
"""The counts of all columns take one part in so many of the memory."""
_FEWEST_VALUES = 1024
_log = logging.getLogger(__name__)


class ColumnSummaries:
    """Summaries of attributes of a release; used as a context, which closes the scratch file."""

    def __init__(self, attributes: Sequence[Attribute], workspace: Workspace) -> None:
        self._workspace = workspace
        self._stack = ExitStack()
        self._spool: RunFile | None = None
        share = workspace.memory // _SHARE_OF_MEMORY // max(len(attributes), 1)
        # While they are merged they are there twice, with the order that sorts them.
        most = max(share // (3 * _COUNTED.itemsize), _FEWEST_VALUES)
        self._counts: dict[str, _LabelCounts | _NumberCounts] = {
            attribute.name: _LabelCounts(attribute)
            if attribute.is_categorical
            else _NumberCounts(attribute, most, self._scratch)
            for attribute in attributes
        }
        self._failed: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _scratch(self) -> RunFile:
        if self._spool is None:
            self._spool = RunFile(self._stack.enter_context(self._workspace.file()))
        return self._spool

    def add(self, units: Mapping[str, Int64Array]) -> None:
        """Count the next records.

        Args:
            units: Their values by attribute, in resolution units and within the domains, each of shape
                (n_records,).
        """
        for name, counts in self._counts.items():
            with self._attempt(name):
                counts.add(units[name])

    def finish(self) -> dict[str, ColumnSummary | None]:
        """Return the summary of every attribute; None for one that could not be made."""
        summaries: dict[str, ColumnSummary | None] = dict.fromkeys(self._counts)
        for name, counts in self._counts.items():
            with self._attempt(name):
                summaries[name] = counts.summary()
        return {name: None if name in self._failed else summary for name, summary in summaries.items()}

    @contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError:
            # Not a matter of the values: another attempt can succeed.
            raise
        except Exception as fault:  # noqa: BLE001 - owners have spent for the data: no figure keeps them back
            if name not in self._failed:
                _log.error("figure left out", extra={"attribute": name}, exc_info=fault)
            self._failed.add(name)


class _LabelCounts:
    """Counts of labels."""

    def __init__(self, attribute: Attribute) -> None:
        self._attribute = attribute
        self._records = np.zeros(attribute.n_values, dtype=np.int64)

    def add(self, units: Int64Array) -> None:
        self._records += np.bincount(units, minlength=len(self._records))

    def summary(self) -> ColumnSummary:
        units = np.flatnonzero(self._records)
        return _of_labels(self._attribute, units, self._records[units])


class _NumberCounts:
    """Counts of the values of a number, integer or date."""

    def __init__(self, attribute: Attribute, most: int, scratch: Callable[[], RunFile]) -> None:
        # Edges of bins can lie where missing values have their number.
        self._attribute = replace(attribute, keeps_missing=False)
        self._keeps_missing = attribute.keeps_missing
        self._missing = 0
        self._most = most
        self._scratch = scratch
        self._recent: list[Records] = []
        self._runs: list[Run] = []
        self._n_records = 0

    def add(self, units: Int64Array) -> None:
        if self._keeps_missing:
            present = units[units <= self._attribute.upper]
            self._missing += len(units) - len(present)
            units = present
        # Sorted and not hashed: as fast for many different values as for few.
        ordered = np.sort(units)
        starts = _starts(ordered)
        counted = np.empty(len(starts), dtype=_COUNTED)
        counted["value"], counted["records"] = ordered[starts], np.diff(starts, append=len(ordered))
        self._n_records += len(units)
        self._recent.append(counted)
        if sum(map(len, self._recent)) > self._most:
            merged = _merge(self._recent)
            self._recent = [merged]
            if len(merged) > self._most // 2:
                self._runs.append(self._scratch().append([merged], _COUNTED))
                self._recent = []

    def _ranges(self) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Return all different values, ascending, and how many records have each, in pieces."""
        self._recent = [_merge(self._recent)] if self._recent else []
        runs = [ArrayRun(counts) for counts in self._recent] + self._runs
        for blocks in in_ranges(runs, self._most, "value"):
            merged = _merge(blocks)
            yield np.ascontiguousarray(merged["value"]), np.ascontiguousarray(merged["records"])

    def summary(self) -> ColumnSummary:
        if not self._n_records:
            return ColumnSummary(1, ((MISSING_CATEGORY, self._missing),))
        attribute, shares = self._attribute, [share for _, share in _QUARTILES]
        lowest, first, *quartiles, last, highest = self._at([0, _EDGE, *shares, 1 - _EDGE, 1])
        first, width, n_bins = _bins(attribute, first, last)
        # The outermost edges can lie beyond 64-bit integers, as can differences of values; the edges between
        # bins cannot, and values are only compared with them.
        ends = [first + i * width for i in range(n_bins + 1)]
        inner = np.array(ends[1:-1], dtype=np.int64)
        different = outside = total = 0
        counts = np.zeros(n_bins, dtype=np.int64)
        for units, records in self._ranges():
            different += len(units)
            total += _sum(units, records)
            outside += int(records[(units < ends[0]) | (units >= ends[-1])].sum())
            places = np.searchsorted(inner, units, side="right")
            counts += np.bincount(places, weights=records, minlength=n_bins).astype(np.int64)
        labels = [
            attribute.text(low)
            if width == 1
            else f"{attribute.text(low)} to {attribute.text(min(high - 1, attribute.upper))}"
            for low, high in pairwise(ends)
        ]
        facts = (
            ("lowest", attribute.text(lowest)),
            *((name, attribute.text(value)) for (name, _), value in zip(_QUARTILES, quartiles, strict=True)),
            ("highest", attribute.text(highest)),
            ("mean", _mean(attribute, Fraction(total, self._n_records))),
            *([("missing", f"{self._missing:,}")] if self._keeps_missing else []),
        )
        return ColumnSummary(
            different + (self._missing > 0),
            tuple((label, int(count)) for label, count in zip(labels, counts, strict=True)),
            facts,
            tuple(_edge(attribute, end, width) for end in ends),
            outside,
        )

    def _at(self, shares: Sequence[float]) -> list[int]:
        """Return, for ascending shares, the smallest value that so many of the records do not exceed."""
        needed = [max(1, ceil(share * self._n_records)) for share in shares]
        values: list[int] = []
        before = 0
        for units, records in self._ranges():
            running = before + np.cumsum(records)
            while len(values) < len(needed) and len(running) and needed[len(values)] <= running[-1]:
                values.append(int(units[np.searchsorted(running, needed[len(values)])]))
            before = int(running[-1]) if len(running) else before
        return values


def _starts(ordered: Int64Array) -> Int64Array:
    """Return the positions at which a sorted column has a new value."""
    new = np.ones(len(ordered), dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(new)


def _merge(counted: Sequence[Records]) -> Records:
    """Return counts of values as one, ascending, every value once."""
    if len(counted) == 1:
        return counted[0]
    together = np.concatenate(counted)
    # The stable sort merges sorted runs instead of sorting.
    together = together[np.argsort(together["value"], kind="stable")]
    starts = _starts(together["value"])
    merged = together[starts]
    if len(merged):
        merged["records"] = np.add.reduceat(together["records"], starts)
    return merged


def _sum(units: Int64Array, records: Int64Array) -> int:
    """Return the exact sum of the values of all records: each part of 16 bits sums up within 64 bits."""
    parts = [(units >> 48, 48), *(((units >> shift) & 0xFFFF, shift) for shift in (32, 16, 0))]
    return sum(int(np.dot(part, records)) << shift for part, shift in parts)


def _of_labels(attribute: Attribute, units: Int64Array, records: Int64Array) -> ColumnSummary:
    # Most frequent first, ties as declared; what stays is drawn as declared if that order means something.
    chosen = np.argsort(-records, kind="stable")[:MOST_LABELS]
    if attribute.ordered or not attribute.categories:
        chosen = np.sort(chosen)
    bins = tuple((attribute.text(units[i]), int(records[i])) for i in chosen)
    return ColumnSummary(
        units.size,
        bins,
        other_labels=units.size - len(bins),
        other_records=int(records.sum()) - sum(n for _, n in bins),
    )


def _bins(attribute: Attribute, lowest: int, highest: int) -> tuple[int, int, int]:
    """Return first edge, width and number of bins of a round width that hold an interval, in units."""
    least = (highest - lowest + 1) / (MOST_BINS - 1)
    if not attribute.type.is_quantity:
        width = next((days for days in _DAYS if days >= least), ceil(least))
        first = lowest
    else:
        width = 1 if least <= 1 else round(round_step(least))
        first = lowest // width * width
    return first, width, (highest - first) // width + 1


def _edge(attribute: Attribute, end: int, width: int) -> str:
    """Return an edge with the decimal places that edges of this width need."""
    if not attribute.type.is_quantity:
        return _day(attribute, end)
    places = max(0, attribute.decimals + 1 - len(str(width)))
    return f"{Decimal(end * attribute.step).scaleb(-attribute.decimals):,.{places}f}"


def _day(attribute: Attribute, end: int) -> str:
    """Return a day as text; the last edge can lie beyond the last year that dates have here, 9999."""
    if end <= _LAST_DAY:
        return attribute.text(end)
    # Calendars repeat every 400 years.
    cycles = ceil((end - _LAST_DAY) / _DAYS_OF_400_YEARS)
    year, _, rest = attribute.text(end - cycles * _DAYS_OF_400_YEARS).partition("-")
    return f"{int(year) + 400 * cycles}-{rest}"


def _mean(attribute: Attribute, mean: Fraction) -> str:
    # Exact: a float would lie beyond the highest value, or be no day.
    if not attribute.type.is_quantity:
        return attribute.text(round(mean))
    places = min(attribute.decimals + 1, 6)
    return f"{Decimal(round(mean * Fraction(attribute.unit) * 10**places)).scaleb(-places):f}"
