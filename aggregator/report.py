"""`report.html`: what a release is, for people; one file without script and without network.

It shows what the manifest says and what the released columns look like. Nothing else goes into it: whoever
has the release folder could make it again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from aggregator.equal_values import equal_values
from common import charts
from common.evidence import Evidence
from common.linking_check import multiples_of
from common.linking_text import WRITTEN_DIFFERENTLY, compared_as, found
from common.pages import render
from common.plan import Plan
from common.privacy import total_or_unbounded
from common.schema import Attribute
from common.task import PlannedAttribute

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator.column_summary import ColumnSummary

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
            (`aggregator.manifest.manifest_document`).
        evidence: What was signed while the release was made.
        table: The released table.
        data_files: Names of the data files.

    Returns:
        HTML, with `LEFT_OUT` in the place of a figure that cannot be made. Every text from a plan (labels,
        purpose, names) is escaped. The same release gives the same bytes, and their number does not grow
        with that of the records.
    """
    return render(
        "aggregator",
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
    """Return what linking compared, and what it found of what the plan allows."""
    lines = found(evidence.plan, evidence.addendum)
    more = f" Found: {'; '.join(lines)}." if lines else ""
    how = compared_as(evidence.plan.identifier)
    return _LINKING[evidence.addendum.linking].format(how=how) + more


@dataclass(frozen=True, slots=True)
class Parameters:
    """How an attribute was masked by all owners that masked it in the same way."""

    owners: str
    """The owners, the first of them by name."""
    how: PlannedAttribute
    """What the plan says about it for each of these owners."""


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """One attribute as the report shows it."""

    attribute: Attribute
    """What was declared."""
    domain: str
    """Its domain in words."""
    parameters: tuple[Parameters, ...]
    """How it was masked."""
    figure: "Figure | None"
    """What the released values look like; None if that cannot be shown."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The released values of an attribute as the report shows them."""

    summary: "ColumnSummary"
    """Their numbers."""
    chart: charts.Columns | charts.Rows
    """A drawing of them."""


def _shown(attribute: Attribute, plan: Plan, table: "pa.Table") -> ShownAttribute:
    return ShownAttribute(
        attribute, _domain(attribute), _parameters(attribute, plan), _figure(attribute, table)
    )


def _figure(attribute: Attribute, table: "pa.Table") -> Figure | None:
    from aggregator.column_summary import summarise

    try:
        summary = summarise(attribute, table.column(attribute.name))
        return Figure(summary, _drawn(summary))
    except Exception as fault:  # noqa: BLE001 - owners have spent for the data: no figure keeps them back
        _log.error("figure left out", extra={"attribute": attribute.name}, exc_info=fault)
        return None


def _drawn(summary: "ColumnSummary") -> charts.Columns | charts.Rows:
    records = [each.records for each in summary.bins]
    labels = [each.label for each in summary.bins]
    counted = [f"{each:,}" for each in records]
    if not summary.edges:
        return charts.rows([records], labels, [counted])
    texts = [f"{label}: {count} records" for label, count in zip(labels, counted, strict=True)]
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


def _parameters(attribute: Attribute, plan: Plan) -> tuple[Parameters, ...]:
    """Return one entry for all owners that mask the attribute in the same way."""
    ways: dict[PlannedAttribute, list[str]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            if planned.name == attribute.name:
                ways.setdefault(planned, []).append(task.owner)
    return tuple(Parameters(_named(owners), planned) for planned, owners in ways.items())


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
    from common.identity import fingerprint, load_certificates, spoken

    chains = {
        owner: load_certificates(signed.statement_signed.certificates.encode())
        for owner, signed in evidence.owners.items()
    }
    return {owner: spoken(fingerprint(chain[0].public_key())) for owner, chain in chains.items()}
