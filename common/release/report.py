"""`report.html`: a release described for people, in one file without script and without network.

The report shows what the manifest says and a summary of every released column. Nothing else goes into it:
anyone who has the release folder could make the report again.

A column summary is a function of the released (protected) values and of what was declared. It depends neither
on the order of the records nor on the number of threads. Its size does not grow with the number of records;
its time and memory are those of counting equal values.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.model.fragment import multiples_of
from common.model.plan import Plan
from common.model.privacy import total_or_unbounded
from common.model.schema import Attribute, AttributeType
from common.model.task import PlannedAttribute
from common.release.evidence import Evidence
from common.release.table import to_units
from common.words import charts
from common.words.charts import round_step
from common.words.linking import WRITTEN_DIFFERENTLY, compared_as, found
from common.words.pages import render


def equal_values(plan: Plan) -> tuple[str, ...]:
    """Say of all attributes what records with the same released value share, one line per kind of carrier.

    Args:
        plan: The plan; owners can mask the same attribute in different ways, and then it is in several lines.
    """
    names: dict[str, dict[str, None]] = {}
    for task in plan.tasks:
        for each in task.attributes:
            names.setdefault(each.rules.equal_values(moved=bool(each.rank_noise)), {})[each.name] = None
    return tuple(line.format(names=", ".join(of_line)) for line, of_line in names.items())


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
    bins = tuple((labels[units[i]], int(records[i])) for i in chosen)
    return ColumnSummary(
        units.size,
        bins,
        other_labels=units.size - len(bins),
        other_records=int(records.sum()) - sum(n for _, n in bins),
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
        units.size,
        tuple((label, int(count)) for label, count in zip(labels, counts, strict=True)),
        _facts(attribute, units, records, running),
        tuple(_edge(attribute, end, width) for end in ends),
        int(records[beyond].sum()),
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


LEFT_OUT = "This figure could not be drawn."
"""What the report says in the place of a figure that failed."""
_MOST_OWNERS_NAMED = 8
_MOST_LABELS_LISTED = 40
_log = logging.getLogger(__name__)
_COMPARED = "Identifiers were compared by keyed tokens ({how})"
_LINKING = {
    "disjoint": f"{_COMPARED}: no identifier is at two owners of the same attributes. {WRITTEN_DIFFERENTLY}",
    "overlapping": f"{_COMPARED}: some are at several owners. {WRITTEN_DIFFERENTLY}",
    "equal": f"{_COMPARED}: the owners of different attributes hold the same ones.",
    "intersected": f"{_COMPARED}: only persons at the owners of all attributes were masked.",
    "asserted": "Identifiers were not compared: disjointness asserted by the owners, not checked.",
}


def render_report(
    document: Mapping[str, Any], evidence: Evidence, table: "pa.Table", data_files: Sequence[str]
) -> str:
    """Return the report of a release.

    Args:
        document: The manifest, still without the digests of the files
            (`common.release.summary.manifest_document`).
        evidence: What was signed while the release was made.
        table: The released table.
        data_files: Names of the data files.

    Returns:
        HTML, with `LEFT_OUT` in the place of a figure that cannot be made. Every text from a plan (labels,
        purpose, names) is escaped. The same release gives the same bytes, and their number does not grow
        with that of the records.
    """
    return render(
        "common",
        "report.html",
        {
            "manifest": document,
            "plan": evidence.plan,
            "as_found": ", as found" if evidence.addendum.multiples else "",
            "ranked": evidence.plan.has_rank_noise,
            "linking": _linking(evidence),
            "fingerprints": _fingerprints(evidence),
            "spent": _spent(evidence),
            "attributes": [_shown(each, evidence.plan, table) for each in evidence.plan.attributes],
            "equal_values": equal_values(evidence.plan),
            "data_files": data_files,
            "left_out": LEFT_OUT,
        },
    )


def _linking(evidence: Evidence) -> str:
    """Return what linking compared, and the overlaps that it found within the plan."""
    lines = found(evidence.plan, evidence.addendum)
    more = f" Found: {'; '.join(lines)}." if lines else ""
    how = compared_as(evidence.plan.identifier)
    return _LINKING[evidence.addendum.linking].format(how=how) + more


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """One attribute as the report shows it."""

    attribute: Attribute
    domain: str
    """Its domain in words."""
    parameters: tuple[tuple[str, PlannedAttribute], ...]
    """Owners that mask it in the same way, and how they do."""
    summary: ColumnSummary | None
    """Its released values; None if they cannot be shown."""
    chart: charts.Plot | charts.Rows | None
    """The same as a drawing."""


def _shown(attribute: Attribute, plan: Plan, table: "pa.Table") -> ShownAttribute:
    summary, chart = None, None
    try:
        summary = summarise(attribute, table.column(attribute.name))
        chart = _drawn(summary)
    except Exception as fault:  # noqa: BLE001 - owners have spent for the data: no figure keeps them back
        _log.error("figure left out", extra={"attribute": attribute.name}, exc_info=fault)
    return ShownAttribute(attribute, _domain(attribute), _parameters(attribute, plan), summary, chart)


def _drawn(summary: ColumnSummary) -> charts.Plot | charts.Rows:
    labels, records = zip(*summary.bins, strict=True)
    if not summary.edges:
        return charts.rows([records], labels, [[f"{each:,}" for each in records]])
    texts = [f"{label}: {each:,} records" for label, each in summary.bins]
    return charts.columns([records], summary.edges, [texts])


def _domain(attribute: Attribute) -> str:
    if attribute.categories:
        listed = attribute.categories[:_MOST_LABELS_LISTED]
        rest = len(attribute.categories) - len(listed)
        return ", ".join(listed) + (f" and {rest:,} others, all of them in the manifest" if rest else "")
    if attribute.is_categorical:
        return "true, false"
    places = f", {attribute.decimals} decimal places" if attribute.decimals else ""
    return f"{attribute.text(attribute.lower)} to {attribute.text(attribute.upper)}{places}"


def _parameters(attribute: Attribute, plan: Plan) -> tuple[tuple[str, PlannedAttribute], ...]:
    """Return one entry for all owners that mask the attribute in the same way."""
    ways: dict[PlannedAttribute, list[str]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            if planned.name == attribute.name:
                ways.setdefault(planned, []).append(task.owner)
    return tuple((_named(owners), planned) for planned, owners in ways.items())


@dataclass(frozen=True, slots=True)
class Spent:
    """What one owner spent: its share of each group, as often as owners of that group hold one person."""

    epsilon: Decimal
    """For every released value by itself."""
    joint: Decimal | None
    """For its lists of released values; None where there is no bound."""
    table: Decimal | None
    """For who has which value, too; None where there is no bound."""


def _spent(evidence: Evidence) -> dict[str, Spent]:
    """Return what every owner spent, by owner id."""
    multiples = multiples_of(evidence.plan, evidence.addendum)
    return {
        owner: Spent(
            assignment.epsilon_at(multiples),
            assignment.epsilon_joint_at(multiples),
            total_or_unbounded(
                task.epsilon_table for task in assignment.tasks for _ in range(multiples[task.group])
            ),
        )
        for owner, assignment in evidence.plan.assignments.items()
    }


def _named(owners: Sequence[str]) -> str:
    rest = len(owners) - _MOST_OWNERS_NAMED
    if rest <= 0:
        return ", ".join(owners)
    return f"{', '.join(owners[:_MOST_OWNERS_NAMED])} and {rest} others"


def _fingerprints(evidence: Evidence) -> dict[str, str]:
    """Return the fingerprint of every owner's key, as people compare it."""
    from common.trust.identity import fingerprint, load_certificates, spoken

    chains = {
        owner: load_certificates(signed.statement_signed.certificates.encode())
        for owner, signed in evidence.owners.items()
    }
    return {owner: spoken(fingerprint(chain[0].public_key())) for owner, chain in chains.items()}
