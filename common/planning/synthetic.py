"""Synthetic releases as they are planned: from public numbers to the design that every question follows from.

The aggregator checks a plan before it asks any owner, and every owner checks it again before it consents.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import ceil, sqrt
from statistics import fmean

import numpy as np

from common.errors import UnusableDataError, UsageError
from common.model.plan import Plan, Synthesis
from common.model.presence import ABSENT
from common.model.privacy import plain
from common.model.schema import Attribute, Schema, rule_codes
from common.model.task import Modelled
from common.model.together import MOST_BLOCKS, Joint, fault_of_together, joint_ranges
from common.planning.arguments import check_countable
from common.synthesis.accounting import FLOOR, default_colluding, zcdp_rho
from common.synthesis.binning import FEWEST_LABELS
from common.synthesis.counters import traffic
from common.synthesis.presence import presence_rules
from common.synthesis.sample import MOST_RECORDS
from common.synthesis.schedule import (
    Design,
    budget_split,
    check_design,
    n_numbers,
    next_round,
    one_way_noises,
)

DELTA, _DELTA_OF = Decimal("0.000001"), 10
"""The δ that is recommended, and how many times it may be 1/n at most."""
WARNED, REFUSED = 0.05, 0.2
"""Shares of the records that noise moves in a small table: from here on relations are poor, or worthless."""
_SMALL_TABLE = 16
"""Cells."""
MEAN_DEVIATION = 0.8
"""The expected absolute error of a cell, by standard deviations of its noise."""
MOST_ATTRIBUTES = 30
"""Noise of a table grows with the number of all pairs; slots of events are not among these."""
MOST_SLOTS = 60
"""Most attributes that hold events."""
WORTHLESS = 0.5
"""From this expected total variation on, more records than not have another value than theirs."""
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
        n_records = stated_records(_stated_records(plan), unites=plan.linking.unites)
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


def _stated_records(plan: Plan) -> list[list[int]]:
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
            "name two attributes of one owner, of which one has few values: --together months:died",
        )
    places = {each.name: place for place, each in enumerate(attributes)}
    return tuple(sorted(map(tuple, pairs), key=lambda pair: places[pair[0]]))


def own_design(
    schema: Schema,
    n_records: int,
    epsilon: Decimal,
    delta: Decimal,
    pairs: Sequence[Sequence[str]] = (),
) -> Design:
    """Return what a synthetic table of one owner's data follows from, once it is checked that it can be made.

    Raises:
        UsageError: If a setting is not possible.
        UnusableDataError: If there are too many records.
    """
    if any(each.slot > 0 for each in schema.attributes):
        raise UsageError(
            "a table of one owner's data alone has no table of events",
            "leave the slots of events out: --attributes, or make a release: aggregator release",
        )
    _check_attributes(schema.attributes)
    if n_records > MOST_RECORDS:
        raise UnusableDataError(
            f"{n_records:,} records, a synthetic table has at most {MOST_RECORDS:,}",
            "make it of a part of the records",
        )
    check_delta(delta, n_records)
    rules = tuple(rule_codes(rule, schema.attributes) for rule in schema.structural_zeros)
    places = {name: place for place, name in enumerate(schema.names)}
    named = [tuple(map(places.__getitem__, pair)) for pair in named_pairs(pairs, schema.names)]
    design = Design(schema.attributes, n_records, epsilon, delta, rules=rules, named_pairs=tuple(named))
    check_design(design)
    return design


def _check_attributes(attributes: Sequence[Attribute]) -> None:
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


def noise_share(design: Design) -> float:
    """Return what noise is expected to move of the records in a table of 4 x 4 cells, from public numbers.

    That is half of the sum of all absolute errors, divided by the number of records; 0 for one attribute,
    which has no tables.
    """
    if len(design.attributes) < 2:
        return 0.0
    deviation = sqrt(design.pair_variance)
    return _SMALL_TABLE * MEAN_DEVIATION / 2 * deviation / design.n_records


def has_enough_records(design: Design) -> bool:
    """Return whether there are enough records: a table of 4 x 4 shows relations despite noise."""
    return noise_share(design) <= WARNED


def alternative_design(plan: Plan) -> Design | None:
    """Return the design of a synthetic release of what a plan masks, with its ε; None if it would not fit.

    Whether policies allow it, and what rules owners declare, a plan of a masked release does not say.
    """
    if len(plan.attributes) < 2:
        return None
    tasks = [replace(each, attributes=(), modelled=Modelled(each.names, plan.epsilon)) for each in plan.tasks]
    colluding = default_colluding(max(map(len, plan.groups)))
    split = budget_split(stated_records(_stated_records(plan)), plan.epsilon, plan.delta)
    other = replace(plan, tasks=tuple(tasks), synthesis=Synthesis(colluding, split))
    try:
        check_synthetic(other)
    except UsageError:
        return None
    design = design_of(other)
    return design if has_enough_records(design) else None


def noise_share_with_delta(design: Design) -> float | None:
    """Return `noise_share` with the recommended δ; None if one is there, not possible, or no better."""
    if design.delta or len(design.attributes) < 2 or DELTA * _DELTA_OF * design.n_records > 1:
        return None
    try:
        share = noise_share(replace(design, delta=DELTA))
    except UsageError:
        return None
    return share if share < noise_share(design) else None


@dataclass(frozen=True, slots=True)
class ExpectedErrors:
    """Total variations to expect between the original and the synthetic records."""

    attributes: Mapping[str, float]
    """Of every attribute, by name."""
    pairs: Mapping[tuple[str, str], float]
    """Of every counted pair; never less than of either attribute."""

    @property
    def one_way(self) -> float:
        """The mean over the attributes."""
        return fmean(self.attributes.values())

    @property
    def two_way(self) -> float:
        """The mean over the pairs; 0 for one attribute."""
        return fmean(self.pairs.values()) if self.pairs else 0.0

    @property
    def worthless(self) -> tuple[str, ...]:
        """Names of the attributes of which noise leaves nothing."""
        return tuple(name for name, error in self.attributes.items() if error >= WORTHLESS)


def expected_errors(design: Design) -> ExpectedErrors:
    """Return the errors to expect, from public numbers alone.

    What data look like is not known, so it is assumed: numbers are spread over their domain and bins have
    equal counts; the k-th of the categories has a share in proportion to 1/k. With s the standard deviation
    of a count as a share of the records, a value of share p contributes 0.4 s, since what one value gains
    another one loses, and at most p: lost, and found at a value that nobody has. A number of many values is
    counted in parts, the finer the less noise there is: then √s. In tables of pairs a number of more values
    than bins adds an eighth of the width of a bin.
    """
    attributes, ones, shares, widths = design.attributes, [], [], []
    of_pairs = {pair: sqrt(each) / design.n_records for pair, each in design.pair_variances.items()}
    largest = max(of_pairs.values(), default=0.0)
    for place, (attribute, noise) in enumerate(zip(attributes, one_way_noises(design), strict=True)):
        deviation = sqrt(design.variance(noise, (place,))) / design.n_records
        off, most = MEAN_DEVIATION / 2 * deviation, design.most_bins(place)
        if attribute.is_categorical:
            whole = 1 / np.arange(1, attribute.n_values + 1)
            whole /= whole.sum()
            ones.append(min(float(np.minimum(off, whole).sum()), 1.0))
            # Categories below three standard deviations share a bin.
            own = whole[whole >= 3 * largest][: max(most, FEWEST_LABELS) - 1]
            shares.append(whole if whole.size <= own.size + 1 else np.append(own, 1 - own.sum()))
            widths.append(0.0)
        else:
            ones.append(min(off * attribute.n_values, sqrt(deviation), 1.0))
            bins = min(attribute.n_values, most)
            shares.append(np.full(bins, 1 / bins))
            widths.append(1 / (8 * bins) if attribute.n_values > bins else 0.0)
    twos = {}
    for (i, j), deviation in of_pairs.items():
        cells = np.minimum(MEAN_DEVIATION * deviation, np.outer(shares[i], shares[j]))
        within = float(cells.sum()) / 2 + widths[i] + widths[j]
        twos[attributes[i].name, attributes[j].name] = min(max(within, ones[i], ones[j]), 1.0)
    return ExpectedErrors({each.name: one for each, one in zip(attributes, ones, strict=True)}, twos)


def hidden_by_noise(design: Design) -> bool:
    """Whether a release is expected to be worthless: tables of pairs, or else every attribute."""
    errors = expected_errors(design)
    return noise_share(design) > REFUSED or len(errors.worthless) == len(errors.attributes)


def pairs_possible(design: Design) -> int:
    """Return the largest number of tables that noise leaves usable; 0 if there is none, or if all are."""
    fewer = [design.pairs[:number] for number in range(1, len(design.pairs))]
    number = bisect_left(
        fewer, True, key=lambda pairs: noise_share(replace(design, named_pairs=pairs)) > WARNED
    )
    return number if noise_share(design) > WARNED else 0


def epsilon_against_all(design: Design) -> Decimal:
    """Return the ε that an owner's own noise keeps if all others collude, to two digits and rounded up.

    That is the largest one, of the group with the most owners.

    δ stays as it is. Of Gaussian noise one of h shares is left: ρ is h times as large, and its ε at most that
    of Bun and Steinke 2016, Proposition 1.3. Of Laplace noise the owner's own part is left (`FLOOR`).
    """
    n_honest = max(map(design.n_honest, range(design.n_groups)))
    if n_honest == 1:
        return design.epsilon
    if not design.delta:
        return design.epsilon * FLOOR
    rho = zcdp_rho(design.epsilon, design.delta) * n_honest
    return plain(Context(prec=2, rounding=ROUND_CEILING).plus(_epsilon_of(rho, design.delta)))


def epsilon_when_split(design: Design) -> Decimal:
    """Return the ε of a person whose records at two owners are taken for those of two persons.

    To two digits and rounded up. A table across owners counts both: its L1 and L2 sensitivities double.
    """
    if not design.delta:
        return 2 * design.epsilon
    rho = 4 * zcdp_rho(design.epsilon, design.delta)
    return plain(Context(prec=2, rounding=ROUND_CEILING).plus(_epsilon_of(rho, design.delta)))


def _epsilon_of(rho: Decimal, delta: Decimal) -> Decimal:
    """Return an ε of a ρ (Bun and Steinke 2016, Proposition 1.3)."""
    return rho + 2 * (rho * -delta.ln()).sqrt()


def epsilon_needed(design: Design) -> Decimal | None:
    """Return with which ε noise would move few enough of the records, to two digits and rounded up.

    None if no ε would do: the scale of noise is a whole number.
    """
    more = Decimal(noise_share(design) / WARNED)
    needed = design.epsilon * more
    if design.delta:
        # Variances fall with ρ.
        needed = _epsilon_of(zcdp_rho(design.epsilon, design.delta) * more**2, design.delta)
    two_digits = Context(prec=2, rounding=ROUND_CEILING)
    # Scales of noise are rounded up, so it may take more; more of it never means more noise.
    steps = [two_digits.plus(needed)]
    while len(steps) < 100:
        steps.append(two_digits.next_plus(steps[-1]))

    def would_do(epsilon: Decimal) -> bool:
        return noise_share(replace(design, epsilon=plain(epsilon))) <= WARNED

    return plain(steps[bisect_left(steps, True, key=would_do)]) if would_do(steps[-1]) else None


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


def records_needed(design: Design) -> int:
    """Return with how many records noise would move few enough of them, for this ε and these attributes."""
    needed = design.n_records
    while (share := noise_share(replace(design, n_records=needed))) > WARNED:
        needed = -(-ceil(needed * share / WARNED) // 100) * 100
    return needed


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
    _check_attributes(plan.modelled)
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
