"""What a synthetic table promises and what it does not hide, in plain words.

References:
    Dwork, McSherry, Nissim, Smith 2006 (differential privacy; here two data sets differ in one whole record).
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from common.model.plan import Plan
from common.model.structural_zeros import StructuralZero
from common.model.task import Assignment
from common.words.linking import INTERSECTED
from common.words.numbers import bound_text, cost_text, count_text, delta_text, percent_text
from common.words.product import ProductWords, derived
from common.words.worth import Worth

if TYPE_CHECKING:
    from common.synthesis.schedule import Design

_SHOWN_RULES = 10
_FROM_COUNTS = (
    "No record is that of a person: records are made of noisy counts, and of nothing else. "
    "One can be equal to a person's by chance."
)
_FACTS = (
    "Facts about many: if smokers fall ill more often, the table says so about a smoker who is not in the "
    "data, too."
)
_SUM = "Tables of the same data add up: two with ε = 1 protect like one with ε = 2. All δ add up, too."

LEFT_OUT = "Who was left out for a missing value."
PARTNERS = (
    "Which owner of another group has a person: owners of different attributes count the persons that both "
    "have, so each learns it of its own persons, from the aggregator. What is released does not show it."
)
OF_MANY = (_FACTS, _SUM)
"""What no ε covers, whatever a table is made of."""


_ANYONE = "That holds against anyone, whatever they know."


def promises(epsilon: Decimal, delta: Decimal = Decimal(0), holds: str = _ANYONE) -> tuple[str, ...]:
    """Say what is promised of a table for which one owner spent ε, perhaps δ; `holds` says against whom."""
    if delta:
        whole = (
            f"Differential privacy for whole records, ε = {bound_text(epsilon)}, δ = {delta_text(delta)}: if "
            "all attributes of one person were others, the probability of every set of possible tables would "
            f"be at most exp(ε) times as large, plus δ. {holds}"
        )
    else:
        whole = (
            f"Differential privacy for whole records, ε = {bound_text(epsilon)}: if all attributes of one "
            "person were others, every possible table would be at most exp(ε) times as probable, or as "
            f"improbable. {holds}"
        )
    return (whole, _FROM_COUNTS)


def invariants(n_records: int) -> tuple[str, ...]:
    """Say what a table shows that ε does not cover."""
    return (f"The number of records, {n_records:,}.", LEFT_OUT, *OF_MANY)


def expected_noise(design: "Design") -> str:
    """Say what to expect of relations between attributes, from public numbers; empty for one attribute."""
    from common.planning.synthetic_noise import (
        DELTA,
        epsilon_needed,
        expected_errors,
        has_enough_records,
        noise_share,
        noise_share_with_delta,
        pairs_possible,
        records_needed,
    )
    from common.synthesis.sample import MOST_RECORDS

    share, less, errors = noise_share(design), noise_share_with_delta(design), expected_errors(design)
    hidden = _hidden_attributes(errors.worthless)
    if not share:
        return hidden or f"expected total variation: {errors.one_way:.2g}"
    moved = f"noise moves about {percent_text(min(share, 1.0))} of the records in a table of 4 x 4"
    # What is certain to be worthless needs no comparison.
    if less is not None and less < 1:
        moved += f" ({percent_text(less)} with a δ of {delta_text(DELTA)}, where policies allow it)"
    moved += f"; expected total variation: {errors.one_way:.2g} of one attribute, {errors.two_way:.2g} of two"
    if hidden:
        moved = f"{moved}; {hidden}"
    if has_enough_records(design):
        return moved
    more = records_needed(design)
    would_do = [f"about {more:,} records"] if more <= MOST_RECORDS else []
    if fewer := pairs_possible(design):
        would_do.insert(0, f"at most {count_text(fewer, 'pair')} (--pairs)")
    if (needed := epsilon_needed(design)) is not None:
        would_do.insert(0, f"an epsilon of {needed:f}")
    if less is not None and has_enough_records(replace(design, delta=DELTA)):
        would_do.insert(0, f"a δ of {delta_text(DELTA)}")
    better = ", or ".join(["masked records fit better", *would_do])
    return f"{moved}: too few records; {better}"


def _hidden_attributes(names: Sequence[str]) -> str:
    """Say of which attributes noise leaves nothing, and what to do; empty for none."""
    if not names:
        return ""
    them = "it" if len(names) == 1 else "them"
    return (
        f"noise leaves nothing of {', '.join(names)}: leave {them} out, choose a larger epsilon, or declare "
        "fewer values"
    )


_HONEST = "owners follow the protocol"
"""What tables across owners rely on."""


def promises_of(plan: Plan) -> tuple[str, ...]:
    """Say what is promised of a release, for what an owner of a person's record is charged."""
    synthesis, unless = plan.synthesis, []
    if synthesis is not None and _may_collude(plan) and max(map(len, plan.groups)) - synthesis.colluding > 1:
        unless.append("unless more owners collude than the noise allows for")
    if plan.n_groups > 1:
        unless.append(f"as long as {_HONEST}")
    holds = ", ".join([_ANYONE.rstrip("."), *unless]) + "."
    promised = promises(plan.epsilon_of_person(plan.most_multiples), plan.delta, holds)
    return (*promised, *filter(None, [collusion(plan)]))


def trust(plan: Plan) -> str:
    """Say in a sentence whom the promise of several owners' release holds against."""
    synthesis = plan.synthesis
    if synthesis is None or len(plan.owners) == 1:
        return ""
    if not _may_collude(plan):
        everybody = "the aggregator and all other owners together"
        return f"It holds for an owner's part of a record against {everybody}, as long as {_HONEST}."
    others = count_text(synthesis.colluding, "other owner")
    provided = f"as long as {_HONEST}" if plan.n_groups > 1 else "who see sums of noisy counts"
    return f"It holds against the aggregator and {others} together, {provided}.{_left_if_all_collude(plan)}"


def collusion(plan: Plan) -> str:
    """Say who may work together against a person of a release, and what then remains of its promise."""
    synthesis = plan.synthesis
    if synthesis is None or len(plan.owners) == 1:
        return ""
    if not _may_collude(plan):
        return (
            "Tables of attributes of two owners are counted under encryption, and both add the whole noise. "
            "So the promise holds for an owner's part of a record against the aggregator and all other "
            f"owners together, as long as {_HONEST}."
        )
    colluding = synthesis.colluding
    shares = [
        f"the shares of any {max(n_owners - colluding, 1)} of {n_owners} owners"
        for n_owners in dict.fromkeys(len(owners) for owners in plan.groups if len(owners) > 1)
    ]
    group = " of a group" if plan.n_groups > 1 else ""
    seen = (
        "The aggregator sees sums of all owners' noisy counts, never those of fewer. "
        f"Each owner{group} adds a share of the noise, such that {' and '.join(shares)} make up all of it: "
        f"the promise holds against the aggregator and {count_text(colluding, 'other owner')} together."
    )
    if plan.n_groups > 1:
        seen += (
            " Tables of attributes of two groups are counted under encryption by every two of their owners, "
            f"of which one adds the whole noise. For them it also takes that {_HONEST}."
        )
    left = _left_if_all_collude(plan)
    # Every owner proves that it has the linkage key, where there is one.
    inventor = "the aggregator and one of the owners" if plan.linking.tokens else "the aggregator"
    invented = f" An owner that {inventor} invented counts as one that colludes." if left else ""
    return f"{seen}{left}{invented}"


def _audit(plan: Plan) -> str:
    """Say how long owners keep what an audit of their messages needs; empty if the plan asks for none."""
    if not plan.audit_days:
        return ""
    return (
        f"For {count_text(plan.audit_days, 'day')} after publication every owner keeps its messages, with "
        "the seed and keys that they follow from. Its auditor can compute them again. Then it deletes them."
    )


def _trusted(plan: Plan, owner: str) -> tuple[str, ...]:
    """Say which owners of other attributes can read what, if they do not follow the protocol.

    A holder can read what is counted with its attributes, by weights in the rows that it encrypts. An adder
    has the rows of all attributes that its holders count with anyone, and can return other sums than those
    that were asked for (docs/tables-across-owners.md).
    """
    from common.planning.synthetic import design_of

    group_of = plan.group_of
    encrypted: dict[int, set[str]] = {}
    counted: dict[tuple[int, int], set[str]] = {}
    for pair in plan.counted_pairs:
        for reading, read in (pair, pair[::-1]):
            reader, group = group_of[reading], group_of[read]
            if reader != group:
                encrypted.setdefault(group, set()).add(read)
                counted.setdefault((reader, group), set()).add(read)
    readable: dict[int, set[str]] = {}
    order = design_of(plan).order if counted else ()
    for (reader, group), names in counted.items():
        if not owner or owner in plan.owners_of(group):
            adds = order.index(group) < order.index(reader)
            readable.setdefault(reader, set()).update(encrypted[group] if adds else names)
    readers: dict[tuple[str, ...], list[str]] = {}
    for reader, read_names in sorted(readable.items()):
        listed = tuple(each.name for each in plan.modelled if each.name in read_names)
        readers.setdefault(listed, []).extend(plan.owners_of(reader))
    return tuple(
        f"This release trusts {', '.join(owners)} to follow the protocol. "
        f"If {'it' if len(owners) == 1 else 'one of them'} does not, it can read which values of "
        f"{', '.join(listed)} single persons have."
        for listed, owners in readers.items()
    )


def _left_if_all_collude(plan: Plan) -> str:
    """Say what the noise of one owner keeps, where more owners may collude than the shares allow for."""
    synthesis = plan.synthesis
    if synthesis is None or max(map(len, plan.groups)) - synthesis.colluding <= 1:
        return ""
    from common.planning.synthetic import design_of
    from common.planning.synthetic_noise import epsilon_against_all

    left = bound_text(epsilon_against_all(design_of(plan)))
    return f" If all others collude, the noise of a record's own owner keeps ε = {left}."


def _may_collude(plan: Plan) -> bool:
    """Whether several owners have the same attributes, and share the noise of their counts."""
    return max(map(len, plan.groups)) > 1


def exclusions(rules: Sequence[StructuralZero], stated: Sequence[StructuralZero] = ()) -> tuple[str, ...]:
    """Say what no record is, by rules that owners declare, and by those that the operator states."""
    return tuple(
        f"{whose} hold in every record. None has: {_rules_text(listed)}."
        for whose, listed in (("Declared rules", rules), ("Rules that the operator states", stated))
        if listed
    )


def _rules_text(rules: Sequence[StructuralZero]) -> str:
    shown = "; ".join(map(str, rules[:_SHOWN_RULES]))
    more = f"; and {len(rules) - _SHOWN_RULES} more rules" if len(rules) > _SHOWN_RULES else ""
    return f"{shown}{more}"


def rules_in(plan: Plan) -> tuple[str, ...]:
    """Say which rules hold in the records of a plan, and whose they are."""
    synthesis = plan.synthesis
    return () if synthesis is None else exclusions(synthesis.structural_zeros, synthesis.stated_zeros)


def derived_in(plan: Plan) -> tuple[str, ...]:
    """Say which attributes of a plan are derived, and by whose table."""
    stated = () if plan.synthesis is None else plan.synthesis.stated_following
    return derived(plan.following, stated)


def of_presence(plan: Plan) -> str:
    """Say that presence is a value, where the release is of everybody; else nothing."""
    if not plan.linking.unites:
        return ""
    names = ", ".join(each.name for each in plan.presence)
    return (
        "That covers a person's values and at which owners the person is: a whole record is replaced, "
        "presence included. Persons whom an owner lacks have no value of its attributes; "
        f"{names} say who is where."
    )


def of_events(plan: Plan) -> str:
    """Say that a record is a person with its events, where these are released; else nothing."""
    if plan.events is None:
        return ""
    columns = ", ".join(each.name for each in plan.events.columns)
    return (
        f"Records are persons, with at most {count_text(plan.events.at_most, 'event')} each ({columns}): the "
        "promise is for a person with all its events. Owners left further events out at random. Two tables "
        "are released: persons, and their events."
    )


def wrong_links(plan: Plan) -> str:
    """Say what holds for a person whose records are taken for those of two persons; empty if that cannot be.

    Replacing this person changes two of the persons that are counted, one at each owner. Each owner's own
    counts change as much as ever, those of a table across owners twice as much.
    """
    from common.planning.synthetic import design_of
    from common.planning.synthetic_noise import epsilon_when_split

    if not (plan.numbers_persons or plan.linking.unites):
        return ""
    cost = cost_text(epsilon_when_split(design_of(plan)), plan.delta)
    if plan.linking.unites:
        return (
            "The aggregator is trusted to give a person one place at all owners, which nobody can check. If "
            "it gives a person several, tables across owners count each: for this person the promise is "
            f"{cost}."
        )
    return (
        "Match keys can link a person's record at one owner to somebody else's at another. Tables across "
        f"owners then count this person in two records: for this person the promise is {cost}."
    )


class SyntheticWords(ProductWords):
    """The words of a synthetic release."""

    made = "counted"

    def promises(self, plan: Plan) -> tuple[str, ...]:
        """Say what is promised of whole records, and which rules hold in every record."""
        of_links = [of_presence(plan), of_events(plan), wrong_links(plan)]
        return (*promises_of(plan), *filter(None, of_links), *rules_in(plan), *derived_in(plan))

    def keeps(self, plan: Plan) -> str:
        """Say that pairs are weakened a little, and what was not counted is lost."""
        of_events = (
            "Relations of events and a person's attributes are kept for the first event, and for others as "
            "far as each depends on the one before. "
        ) * (plan.events is not None)
        return of_events + (
            "Relations of two attributes are weakened a little, those of three or more kept only as far as "
            "pairs imply them, rare combinations and extremes lost. For estimates with intervals use "
            "release.estimates, not the records."
        )

    def trusted(self, plan: Plan, owner: str = "") -> tuple[str, ...]:
        """Say which owners of other attributes can read what by deviating, and how long an audit shows it."""
        return (*_trusted(plan, owner), *filter(None, [_audit(plan)]))

    def invariants(self, plan: Plan) -> tuple[str, ...]:
        """Say what is not hidden of who was left out and of many, and what owners learn of each other."""
        shown = [INTERSECTED] if plan.linking.intersects else []
        return (LEFT_OUT, *shown, *([PARTNERS] if plan.has_partners else []), *OF_MANY)

    def composition(self, _plan: Plan) -> str:
        """Say that nothing adds up."""
        return "ε is for the whole record, whatever attributes it has: nothing adds up within a release."

    def condition(self, _plan: Plan) -> str:
        """Return nothing: the bound has no condition."""
        return ""

    def leaves(self, plan: Plan, assignment: Assignment) -> tuple[str, ...]:
        """Say which counts leave an owner, and what with other owners' attributes."""
        held = [name for name in assignment.names if plan.attribute(name).slot <= 0]
        if len(held) < len(assignment.names):
            held.append(
                f"at most {count_text(plan.events.at_most, 'event')} of each person" if plan.events else ""
            )
        counts = f"noisy counts of {', '.join(held)}, and of pairs of them, round by round"
        if plan.n_groups > 1:
            others = ", ".join(owner for owner in plan.owners if owner != assignment.owner)
            bins = (
                f"for pairs with attributes of {others}: the bins of every record under this owner's "
                "encryption, which the other owner adds up unread, or noisy counts under that of the other"
            )
            return (counts, bins)
        hidden = " under masks, of which the aggregator sees the sums of all owners" * (len(plan.owners) > 1)
        return (f"{counts}{hidden}",)

    def worth(self, plan: Plan) -> Worth:
        """Judge by the share of the records that noise moves in a small table, and by attribute."""
        from common.planning.synthetic import design_of
        from common.planning.synthetic_noise import hidden_by_noise

        design = design_of(plan)
        hidden = hidden_by_noise(design)
        return Worth((), len(plan.attributes), expected_noise(design) if hidden else "")
