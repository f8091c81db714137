"""The effect of noise on a synthetic release, from public numbers alone: expected errors, and remedies."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from math import ceil, sqrt
from statistics import fmean

import numpy as np

from common.errors import UsageError
from common.model.plan import Plan, Synthesis
from common.model.privacy import plain
from common.model.task import Modelled
from common.planning.synthetic import (
    check_synthetic,
    design_of,
    largest_delta,
    records_by_group,
    stated_records,
)
from common.synthesis.accounting import FLOOR, default_colluding, zcdp_rho
from common.synthesis.binning import FEWEST_LABELS
from common.synthesis.schedule import Design, budget_split, one_way_noises

DELTA = Decimal("0.000001")
"""The δ that is recommended."""
WARNED, REFUSED = 0.05, 0.2
"""Shares of the records that noise moves in a small table: from here on relations are poor, or worthless."""
_SMALL_TABLE = 16
"""Cells."""
MEAN_DEVIATION = 0.8
"""The expected absolute error of a cell, by standard deviations of its noise."""
WORTHLESS = 0.5
"""From this expected total variation on, more records than not have another value than theirs."""


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
    split = budget_split(stated_records(records_by_group(plan)), plan.epsilon, plan.delta)
    other = replace(plan, tasks=tuple(tasks), synthesis=Synthesis(colluding, split))
    try:
        check_synthetic(other)
    except UsageError:
        return None
    design = design_of(other)
    return design if has_enough_records(design) else None


def noise_share_with_delta(design: Design) -> float | None:
    """Return `noise_share` with the recommended δ; None if one is there, not possible, or no better."""
    if design.delta or len(design.attributes) < 2 or largest_delta(design.n_records) < DELTA:
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
    """By name of the attribute."""
    pairs: Mapping[tuple[str, str], float]
    """By counted pair; never less than that of either attribute."""

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
    """Return whether a release is expected to be worthless: tables of pairs, or else every attribute."""
    errors = expected_errors(design)
    return noise_share(design) > REFUSED or len(errors.worthless) == len(errors.attributes)


def pairs_possible(design: Design) -> int:
    """Return the largest number of tables that noise leaves usable; 0 if no table is usable, or all are."""
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


def records_needed(design: Design) -> int:
    """Return with how many records noise would move few enough of them, for this ε and these attributes."""
    needed = design.n_records
    while (share := noise_share(replace(design, n_records=needed))) > WARNED:
        needed = -(-ceil(needed * share / WARNED) // 100) * 100
    return needed
