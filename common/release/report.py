"""`report.html`: a release described for people, in one file without script and without network.

The report shows what the manifest says and a summary of every released column. Nothing else goes into it:
anyone who has the release folder could make the report again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from common.model.fragment import multiples_of
from common.model.permit import condition_texts
from common.model.plan import Plan
from common.model.privacy import total_or_unbounded
from common.model.schema import Attribute
from common.model.task import PlannedAttribute
from common.release.column_summary import ColumnSummary
from common.release.evidence import Evidence
from common.release.table import span
from common.words import charts
from common.words.guarantee import words_of
from common.words.linking import compared_as, linking_result, missed_text
from common.words.numbers import percent_text, rounded_up
from common.words.pages import render

if TYPE_CHECKING:
    import pyarrow as pa


def equal_values(plan: Plan) -> tuple[str, ...]:
    """Say of all attributes what records with the same released value share, one line per kind of carrier."""
    names: dict[str, dict[str, None]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            names.setdefault(planned.rules.equal_values(moved=bool(planned.rank_noise)), {})[planned.name] = (
                None
            )
    return tuple(line.format(names=", ".join(of_line)) for line, of_line in names.items())


LEFT_OUT = "This figure could not be drawn."
"""What the report says in the place of a figure that failed."""
_MOST_OWNERS_NAMED = 8
_MOST_LABELS_LISTED = 40
_MOST_LABELS_DRAWN = 10
_WORST_SHOWN = 0.2
"""Expected error of a pair from which on it has the strongest colour."""
_log = logging.getLogger(__name__)
_COMPARED = "{what} were compared by keyed tokens ({how})"
_LINKING = {
    "disjoint": f"{_COMPARED}: no {{one}} is at two owners of the same attributes. {{missed}}",
    "overlapping": f"{_COMPARED}: some are at several owners. {{missed}}",
    "equal": f"{_COMPARED}: the owners of different attributes hold the same ones.",
    "intersected": f"{_COMPARED}: only persons at the owners of all attributes were {{made}}.",
    "united": f"{_COMPARED}: persons whom any owner has were counted, who is where with noise. {{missed}}",
    "asserted": "Identifiers were not compared: disjointness asserted by the owners, not checked.",
}


def render_report(
    document: Mapping[str, Any],
    evidence: Evidence,
    summaries: Mapping[str, ColumnSummary | None],
    data_files: Sequence[str],
    counts: "pa.Table | None" = None,
) -> str:
    """Return the report of a release.

    Args:
        document: The manifest, still without the digests of the files
            (`common.release.summary.manifest_document`).
        summaries: The summary of every released attribute; None for one that could not be made.

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
            "conditions": condition_texts(evidence.plan.duo),
            "as_found": ", as found" if evidence.addendum.multiples else "",
            "ranked": evidence.plan.has_rank_noise,
            "drawn": document.get("synthesis"),
            "keeps": words_of(evidence.plan).keeps(evidence.plan),
            "relations": () if counts is None else _relations(document, evidence.plan, counts),
            "linking": _linking(evidence) + _presence(document, evidence.plan, counts),
            "fingerprints": _fingerprints(evidence),
            "spent": _spent(evidence),
            "attributes": [
                _attribute_view(each, evidence.plan, summaries[each.name]) for each in evidence.plan.released
            ],
            "equal_values": equal_values(evidence.plan),
            "data_files": data_files,
            "left_out": LEFT_OUT,
        },
    )


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A counted pair of attributes in the picture of all pairs."""

    error: str
    """Expected total variation of its noisy table."""
    colour: str
    text: str
    """What it stands for, in words."""


def _relations(
    document: Mapping[str, Any], plan: Plan, counts: "pa.Table"
) -> tuple[tuple[str, tuple[ShownPair | None, ...]], ...]:
    """Return of every attribute its pairs with those before it; None for pairs that were not counted."""
    from common.release.counts import pair_errors

    errors = {
        frozenset(pair): error for pair, error in pair_errors(counts, document["totals"]["records"]).items()
    }
    names = [attribute.name for attribute in plan.modelled]

    def pair_cell(one: str, other: str) -> ShownPair | None:
        error = errors.get(frozenset((one, other)))
        if error is None:
            return None
        share = percent_text(error)
        text = f"{one} and {other}: noise is expected to move {share} of the records"
        return ShownPair(share, charts.heat(error / _WORST_SHOWN), text)

    return tuple(
        (name, tuple(pair_cell(name, other) for other in names[:place])) for place, name in enumerate(names)
    )


def _linking(evidence: Evidence) -> str:
    """Return what linking compared, and the overlaps that it found within the plan."""
    lines = linking_result(evidence.plan, evidence.addendum)
    more = f" Found: {'; '.join(lines)}." if lines else ""
    rules = evidence.plan.identifier
    what, one = ("Match keys", "person") if evidence.plan.passes else ("Identifiers", "identifier")
    said = _LINKING[evidence.addendum.linking]
    made = "counted" if evidence.plan.product.rules.in_rounds else "masked"
    return (
        said.format(what=what, one=one, made=made, how=compared_as(rules), missed=missed_text(rules)) + more
    )


def _presence(document: Mapping[str, Any], plan: Plan, counts: "pa.Table | None") -> str:
    """Return how many persons are estimated to be where, where a release is of everybody."""
    from common.release.counts import presence_in, presence_text

    found = () if counts is None else presence_in(plan, document["totals"]["records"], counts)
    text = presence_text(found)
    return text and f" {text[0].upper()}{text[1:]}."


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
    masking: str
    """How it was masked, in a line."""
    undrawn: int
    """Labels that occur and are not drawn."""
    undrawn_records: int
    """Records with these labels."""


def _attribute_view(attribute: Attribute, plan: Plan, summary: ColumnSummary | None) -> ShownAttribute:
    chart, undrawn, undrawn_records = None, 0, 0
    try:
        if summary is not None:
            drawn = _most_frequent(summary)
            chart = _draw(drawn, summary.edges)
            undrawn = len(summary.bins) - len(drawn) + summary.other_labels
            undrawn_records = (
                sum(n for _, n in summary.bins) - sum(n for _, n in drawn) + summary.other_records
            )
    except Exception as fault:  # noqa: BLE001 - owners have spent for the data: no figure keeps them back
        _log.error("figure left out", extra={"attribute": attribute.name}, exc_info=fault)
        summary = None
    ways = _parameters(attribute, plan)
    masking = attribute.origin or _masking([planned for _, planned in ways])
    return ShownAttribute(
        attribute, _domain(attribute), ways, summary, chart, masking, undrawn, undrawn_records
    )


def _most_frequent(summary: ColumnSummary) -> tuple[tuple[str, int], ...]:
    """Return the bins that are drawn: all of a number, the most frequent labels in their order."""
    if summary.edges:
        return summary.bins
    by_records = sorted(summary.bins, key=lambda labelled: -labelled[1])[:_MOST_LABELS_DRAWN]
    return tuple(labelled for labelled in summary.bins if labelled in by_records)


def _draw(bins: Sequence[tuple[str, int]], edges: Sequence[str]) -> charts.Plot | charts.Rows:
    labels, records = zip(*bins, strict=True)
    if not edges:
        return charts.rows([records], labels, [[f"{count:,}" for count in records]])
    texts = [f"{label}: {count:,} records" for label, count in bins]
    return charts.columns([records], edges, [texts])


def _masking(ways: Sequence[PlannedAttribute]) -> str:
    """Return how owners masked an attribute, in a line."""
    settings = (
        ("ε", [rounded_up(way.epsilon) for way in ways]),
        ("k", [way.k for way in ways if way.k is not None]),
        ("rank noise", [way.rank_noise for way in ways if way.rank_noise]),
    )
    return ", ".join(
        [*sorted({way.mechanism for way in ways}), *(f"{name} {span(of)}" for name, of in settings if of)]
    )


def _domain(attribute: Attribute) -> str:
    if attribute.categories:
        listed = attribute.categories[:_MOST_LABELS_LISTED]
        rest = len(attribute.categories) - len(listed)
        return ", ".join(listed) + (f" and {rest:,} others, all of them in the manifest" if rest else "")
    places = f", {attribute.decimals} decimal places" if attribute.decimals else ""
    if attribute.step > 1:
        places = f", steps of {attribute.resolution}"
    return attribute.domain + places


def _parameters(attribute: Attribute, plan: Plan) -> tuple[tuple[str, PlannedAttribute], ...]:
    """Return one entry for all owners that mask the attribute in the same way."""
    ways: dict[PlannedAttribute, list[str]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            if planned.name == attribute.name:
                ways.setdefault(planned, []).append(task.owner)
    return tuple((_names_of(owners), planned) for planned, owners in ways.items())


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


def _names_of(owners: Sequence[str]) -> str:
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
