"""Synthetic releases as they are planned: from public numbers to the design that every question follows from.

The aggregator checks a plan before it asks any owner, and every owner checks it again before it consents.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal

from common.errors import UsageError
from common.model.plan import Plan
from common.model.presence import ABSENT
from common.model.schema import Attribute, rule_codes
from common.model.together import MOST_BLOCKS, Joint, fault_of_together, joint_ranges
from common.synthesis.counters import traffic
from common.synthesis.presence import presence_rules
from common.synthesis.sample import MOST_RECORDS
from common.synthesis.schedule import Design, check_design, n_numbers, next_round

_DELTA_OF = 10
"""How many times δ may be 1/n at most."""
MOST_ATTRIBUTES = 30
"""Noise of a table grows with the number of all pairs; slots of events are not among these."""
MOST_SLOTS = 60
"""Most attributes that hold events."""
MOST_NUMBERS = 2**17
"""Most numbers of a round: 1 MB of an owner's answer."""


def design_of(plan: Plan, n_records: int | None = None) -> Design:
    """Return what the questions of a release follow from, beside the answers.

    Args:
        plan: A plan with a synthesis.
        n_records: The exact number of records; None before linking: the least that owners stated.
    """
    synthesis = plan.synthesis
    if synthesis is None:
        raise ValueError("the plan is not that of a synthetic release")
    across = plan.n_groups > 1
    places = {each.name: place for place, each in enumerate(plan.modelled)}
    owner_groups = tuple(plan.group_of[each.name] for each in plan.modelled) if across else ()
    presence = tuple(places[each.name] for each in plan.presence)
    alone = [place for place, each in enumerate(plan.attributes) if presence and not each.keeps_missing]
    delta = synthesis.delta
    if n_records is None:
        n_records = stated_records(records_by_group(plan), unites=plan.linking.unites)
    elif delta:
        # Owners state rounded numbers, which can add up to half of the records: then δ is smaller.
        delta = min(delta, largest_delta(n_records))
    names = [each.name for each in plan.attributes]
    rules = [
        joint_ranges({names[place]: ranges for place, ranges in codes.items()}, plan.modelled)
        for codes in (rule_codes(each, plan.attributes) for each in plan.structural_zeros)
    ]
    return Design(
        plan.modelled,
        n_records,
        plan.epsilon,
        delta,
        owners=tuple(map(len, plan.groups)),
        colluding=synthesis.colluding,
        rules=(
            *rules,
            *(presence_rules(plan.counted, owner_groups, presence, alone) if presence else ()),
        ),
        split=synthesis.split,
        named_pairs=tuple(
            tuple(map(places.__getitem__, pair))
            for pair in (plan.counted_pairs if presence or synthesis.pairs else ())
        ),
        owner_groups=owner_groups,
        presence=presence,
        absent_alone=tuple(alone),
    )


def records_by_group(plan: Plan) -> list[list[int]]:
    """Return the rounded numbers of records that a plan states, of every owner of each group."""
    return [
        [task.records_rounded for task in plan.tasks if task.group == group] for group in range(plan.n_groups)
    ]


def stated_records(by_group: Sequence[Sequence[int]], *, unites: bool = False) -> int:
    """Return how many records there are by what owners stated, at least 1, from the numbers of each group.

    Args:
        unites: Whether they are those of everybody, which are at least those of the largest group.
    """
    totals = [*map(sum, by_group), 1]
    return max(totals) if unites else max(min(totals[:-1]), 1)


def named_pairs(pairs: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return pairs of attributes in the order of a release.

    Raises:
        UsageError: If one has an attribute that is not released.
    """
    places = {name: place for place, name in enumerate(names)}
    unknown = sorted({name for pair in pairs for name in pair if name not in places})
    if unknown:
        raise UsageError(
            f"pairs name attributes that are not counted: {', '.join(unknown)}",
            f"counted are {', '.join(names)}; attributes that follow others are derived",
            {"unknown": unknown},
        )
    numbered = sorted(tuple(sorted(map(places.__getitem__, pair))) for pair in pairs)
    return tuple(tuple(names[place] for place in pair) for pair in numbered)


def attributes_together(
    pairs: Sequence[Sequence[str]],
    attributes: Sequence[Attribute],
    group_of: Mapping[str, int],
    named: Sequence[Sequence[str]],
) -> tuple[tuple[str, ...], ...]:
    """Return which attributes are counted together, in the order of a release, those with few values second.

    Args:
        pairs: Names of two attributes each, in any order.
        attributes: All that are counted.
        group_of: The group of owners of each, by name.
        named: Names of the pairs whose tables are counted; empty for all.

    Raises:
        UsageError: If some cannot be counted together.
    """
    n_values = {each.name: each.n_values for each in attributes}
    pairs = [sorted(pair, key=lambda name: n_values.get(name, 0) <= MOST_BLOCKS) for pair in pairs]
    if fault := fault_of_together(pairs, attributes, group_of, named):
        raise UsageError(
            fault,
            "an attribute is counted together with one other of its owner, and one of both has at most "
            f'{MOST_BLOCKS} values: --together months:died, or an interaction in --for "ill ~ age*sex"',
        )
    places = {each.name: place for place, each in enumerate(attributes)}
    return tuple(sorted(map(tuple, pairs), key=lambda pair: places[pair[0]]))


def check_attributes(attributes: Sequence[Attribute]) -> None:
    """Check that not too many attributes are counted.

    Raises:
        UsageError: If there are.
    """
    n_slots = sum(each.slot > 0 for each in attributes)
    if n_slots > MOST_SLOTS:
        raise UsageError(
            f"events have {n_slots} slots in all of their columns, a release has at most {MOST_SLOTS}",
            "declare a smaller at_most or fewer columns in [dataset.person.events]",
        )
    n_attributes = len(attributes) - n_slots
    if n_attributes > MOST_ATTRIBUTES:
        raise UsageError(
            f"{n_attributes} attributes, a synthetic release has at most {MOST_ATTRIBUTES}: with the "
            "number of pairs the noise of every table grows",
            "leave out what is not analysed: --attributes a,b,c",
        )


def largest_delta(n_records: int) -> Decimal:
    """Return the largest δ of one digit that is at most 1/(10 n)."""
    return Context(prec=1, rounding=ROUND_FLOOR).divide(Decimal(1), _DELTA_OF * Decimal(max(n_records, 1)))


def check_delta(delta: Decimal, n_records: int) -> None:
    """Check that δ is small beside one record of so many.

    Raises:
        UsageError: If it is above 1/(10 n): a release could then show whole records and keep its promise.
    """
    if delta * _DELTA_OF * n_records > 1:
        most = largest_delta(n_records)
        raise UsageError(
            f"delta {delta:f} is too large for {n_records:,} records",
            f"a delta of 1/n allows showing somebody's record: choose at most 1/({_DELTA_OF} n), "
            f"such as {most:f}",
        )


def _check_union(plan: Plan) -> None:
    """Check that presence can be a value of every attribute."""
    if max(map(len, plan.groups)) > 1:
        raise UsageError(
            "a release of everybody whom any owner holds is not possible with several owners of the same "
            "attributes: each would learn which of its persons others have",
            "choose --layout vertical, or --on-mismatch intersect",
        )
    if plan.synthesis is not None and plan.synthesis.together:
        raise UsageError(
            "attributes of persons whom their owner may lack cannot be counted together",
            "leave --together out, or choose --on-mismatch intersect",
        )
    if plan.passes:
        raise UsageError(
            "a release states how many persons match keys link, and noise is to hide who is at two owners",
            "declare an identifier, or choose --on-mismatch intersect",
        )
    if labelled := [each.name for each in plan.attributes if ABSENT in each.labels]:
        raise UsageError(
            f"attribute {labelled[0]!r} has a category {ABSENT!r}, the label of persons whom an owner lacks",
            "declare another label, or leave the attribute out",
        )
    for rule in plan.structural_zeros:
        for place, ranges in rule_codes(rule, plan.attributes).items():
            attribute = plan.attributes[place]
            if attribute.keeps_missing and max(last for _, last in ranges) >= attribute.n_values - 1:
                raise UsageError(
                    f"a rule excludes missing values of {attribute.name!r}, and absent persons have no value",
                    "leave the rule or the attribute out, or choose --on-mismatch intersect",
                )


def check_countable(groups: Sequence[Sequence[str]], max_overlap: int) -> None:
    """Check that groups of owners can count the same persons together, in one order.

    Args:
        groups: Owner ids by group.
        max_overlap: The most owners of a group that may hold one person.

    Raises:
        UsageError: If they cannot.
    """
    if len(groups) == 1:
        return
    if max_overlap > 1:
        raise UsageError(
            "a synthetic release of groups of owners counts each person at one owner of a group",
            "leave --max-overlap out, or choose --product masked",
        )
    owners = [owner for group in groups for owner in group]
    if several := [owner for owner in owners if owners.count(owner) > 1]:
        raise UsageError(
            f"owner {several[0]} is in several groups, and a synthetic release counts with one of each owner",
            "name every owner in one group: --groups, or choose --product masked",
        )


def check_synthetic(plan: Plan) -> None:
    """Check that a synthetic release can be made as planned.

    Raises:
        UsageError: If it cannot.
    """
    check_countable(plan.groups, plan.linking.max_overlap)
    if plan.linking.unites:
        _check_union(plan)
    if plan.owner_column:
        raise UsageError("a synthetic record comes from no owner", "leave --owner-column out")
    if plan.max_records_per_person != 1:
        raise UsageError(
            "a synthetic release needs data in which a person has one record",
            "an owner declares max_records_per_person to be more: it has to make one record of each person",
        )
    check_attributes(plan.modelled)
    if plan.delta and plan.linking.max_overlap > 1:
        raise UsageError(
            "with a delta, no person can be at several owners: what all of its records together lose is not "
            "bounded by the sum of their epsilon and the same delta",
            "leave --delta or --max-overlap out",
        )
    design = design_of(plan)
    if design.n_records > MOST_RECORDS:
        raise UsageError(
            f"{design.n_records:,} records, a synthetic release has at most {MOST_RECORDS:,}",
            "make it of fewer owners",
        )
    if max(design.n_owners) > 1 and not design.colluding:
        raise UsageError(
            "every owner gets the sums and knows its own share of their noise, so each would meet less than "
            "the whole noise",
            "leave --colluding out, or choose at least 1",
        )
    # Of the least number that owners can have: with more, `design_of` takes a smaller one.
    check_delta(design.delta, design.n_records)
    alone = [design.attributes[place] for rule in design.rules if len(rule) == 1 for place in rule]
    if joint := next((each for each in alone if isinstance(each, Joint)), None):
        raise UsageError(
            f"a rule is about {joint.name} alone, which are counted together, and records cannot keep it",
            "leave these attributes out of --together",
        )
    check_design(design)
    if any(map(design.is_across, design.pairs)):
        traffic(design)
    asked = next_round(design, ())
    if isinstance(asked, tuple) and n_numbers(asked) > MOST_NUMBERS:
        raise UsageError(
            f"{n_numbers(asked):,} values of attributes would be counted, at most {MOST_NUMBERS:,} can be",
            "leave attributes with the most categories out: --attributes a,b,c",
        )
