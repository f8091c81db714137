"""What a plan allows linking to find, and what linking found, in words for operators and owners."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from common.model.fragment import Addendum
from common.model.match_quality import MatchQuality, PassQuality
from common.model.plan import Plan
from common.model.schema import IdentifierRules
from common.planning.limits import differing_counts

WRITTEN_DIFFERENTLY = (
    "A person who is written differently at two owners counts as two there, and then their ε add up."
)
"""The case that no comparison of identifiers can exclude."""
MISSED_BY_KEYS = (
    "Match keys can miss a person: one who is written differently, incompletely or like another person of "
    "the owner in every pass counts as two at two owners, and then their ε add up. A false link makes one "
    "person of two."
)
"""The case that no match key can exclude."""


INTERSECTED = (
    "That a person is in the data of every group of owners, where only such persons are released: each owner "
    "learns which of its own these are."
)
"""Not covered by any ε where groups are intersected."""


def unit_word(plan: Plan) -> str:
    """Return what is protected: a person where identifiers are compared, else a record."""
    return "person" if plan.linking.tokens else "record"


def missed_text(rules: IdentifierRules | None) -> str:
    """Say what linking can miss."""
    return MISSED_BY_KEYS if rules is not None and rules.passes else WRITTEN_DIFFERENTLY


def compared_as(rules: IdentifierRules | None) -> str:
    """Say how identifiers are normalised before they are compared; only equal ones match."""
    if rules is None:
        return "not compared"
    if rules.passes:
        return f"by match keys, pass by pass: {', '.join(key_pass.name for key_pass in rules.passes)}"
    of_columns = [f"column {n}: {', '.join(steps)}" for n, steps in enumerate(rules.also, 1) if steps]
    steps = "; ".join([*([", ".join(rules.normalise)] if rules.normalise else []), *of_columns])
    return f"as normalised: {steps}" if steps else "as they are written: no normalisation is declared"


def made_verb(plan: Plan) -> str:
    """Return what happens to records: "counted" or "masked"."""
    return "counted" if plan.product.rules.in_rounds else "masked"


def linking_result(plan: Plan, addendum: Addendum) -> tuple[str, ...]:
    """Say what linking found besides disjoint parts and equal groups."""
    lines = []
    for owners, multiple in zip(plan.groups, addendum.multiples, strict=False):
        if multiple > 1:
            lines.append(f"persons at up to {multiple} of {', '.join(owners)}")
    if addendum.multiples and not lines:
        how = "match keys" if plan.passes else "equal identifiers"
        lines.append(f"nobody at two owners of the same attributes, by {how}")
    if addendum.common is not None:
        lines.append(
            f"{addendum.common:,} persons at the owners of all attributes; only these are {made_verb(plan)}"
        )
    if addendum.linking == "united":
        everybody = next(iter(addendum.records.values()))
        lines.append(f"{everybody:,} persons at one owner or more; all of them are counted")
    if addendum.match_quality is not None:
        lines.append(quality_text(addendum.match_quality))
        lines += map(pass_text, addendum.match_quality.passes)
    return tuple(lines)


QUALITY_HEADINGS = (
    "pass", "sent", "ambiguous", "linked", "unmatched", "conflicts", "agreement of later passes",
    "estimated false links",
)  # fmt: skip
"""What is shown of every pass, by `quality_rows`."""


def quality_rows(quality: MatchQuality) -> list[tuple[str | int, ...]]:
    """Return a row for each pass under `QUALITY_HEADINGS`."""
    return [
        (
            of_pass.name, of_pass.sent, of_pass.ambiguous, of_pass.linked, of_pass.unmatched,
            of_pass.conflicts, _agreement(of_pass),
            _false_links(of_pass) if of_pass.linked else "none",
        )
        for of_pass in quality.passes
    ]  # fmt: skip


def quality_text(quality: MatchQuality) -> str:
    """Say in a sentence how good the links are."""
    if not quality.linked:
        return "no pair of persons was linked"
    return (
        f"{quality.linked:,} pairs of persons were linked; an estimated {percent(quality.quality)} of the "
        f"links are right (95 % interval: {percent(quality.quality_least)} to "
        f"{percent(quality.quality_most)})"
    )


def pass_text(of_pass: PassQuality) -> str:
    """Say in a few words what a pass linked."""
    if not of_pass.linked:
        return f"pass {of_pass.name}: none linked of {of_pass.sent:,} sent"
    return (
        f"pass {of_pass.name}: {of_pass.linked:,} linked, {of_pass.unmatched:,} unmatched, "
        f"{of_pass.ambiguous:,} ambiguous, {of_pass.conflicts:,} conflicts; "
        f"agreement of later passes {_agreement(of_pass)}, estimated false links {_false_links(of_pass)}"
    )


def _agreement(of_pass: PassQuality) -> str:
    """Say how many of the linked pairs, that later passes compare, one of them links, too."""
    if not of_pass.agreement:
        return "not compared"
    share, least, most = of_pass.agreement
    return f"{percent(share)} ({percent(least)} to {percent(most, ROUND_CEILING)})"


def _false_links(of_pass: PassQuality) -> str:
    least, most = _short(of_pass.false_links_least), _short(of_pass.false_links_most)
    return f"{_short(of_pass.false_links)} ({least} to {most})"


def percent(share: Decimal, rounding: str = ROUND_FLOOR) -> str:
    """Return a share, rounded down by default: a quality is never shown larger than it is."""
    return f"{(share * 100).quantize(Decimal('0.01'), rounding=rounding)} %"


def _short(count: Decimal) -> str:
    return f"{count.normalize():f}" if count else "0"


def allowed_findings(plan: Plan) -> tuple[str, ...]:
    """Say what links persons, and what linking may find besides disjoint parts and equal groups.

    Returns:
        Lines; empty where equal identifiers are compared in one group, and nothing else may be found.
    """
    lines = []
    if plan.passes:
        lines.append(f"Persons are compared {compared_as(plan.identifier)}.")
    if plan.linking.min_match_quality:
        lines.append(
            "The release ends before anything is spent unless at least "
            f"{percent(plan.linking.min_match_quality)} of the links are right, by the lower end of the "
            "estimate's 95 % interval."
        )
    if plan.linking.max_overlap > 1:
        most = plan.linking.max_overlap
        lines.append(
            f"A person may be at up to {most} owners of the same attributes. Every owner reserves its charge "
            "that many times, but no more often than there are owners of these attributes. It spends the "
            "charge as often as linking finds such owners, and the rest is returned."
        )
    if plan.linking.intersects:
        lines.append(
            "Where the owners of different attributes hold different persons, only those that all of them "
            f"hold are {made_verb(plan)}, at least {plan.linking.min_common}"
            f"{'' if plan.product.rules.in_rounds else '; k stays as it is'}. Every owner learns which of "
            "its own persons these are."
        )
    elif plan.linking.unites:
        lines.append(
            "The owners of different attributes may hold different persons. Everybody whom any of them holds "
            "is counted, as absent at an owner that lacks the person. The number of them all is published. "
            "Owners do not learn which of their persons others have; the aggregator sees it by tokens."
        )
    elif plan.linking.tokens and len(plan.groups) > 1:
        lines.append(
            "The owners of different attributes have to hold the same persons. If they do not, the release "
            "ends before anything is spent."
        )
        if differing := differing_counts(plan):
            lines.append(f"They do not: {differing}.")
    return tuple(lines)
