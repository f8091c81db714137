"""Check that noisy counts can be counts of n records: only a deviation that noise hides goes unnoticed.

Every question of a synthetic release is a partition of the n records. But for noise of known size, its counts
add up to n and lie between 0 and n, and the sums of a table over one attribute are the one-way counts of the
other. Distances that are allowed depend on public numbers alone.

Allowed distance. Let a number have noise of variance V, the sum of independent parts. Gaussian parts are
sub-Gaussian with their variances (Canonne, Kamath, Steinke 2020, section 2). Laplace parts, of scales of
at most t, have cumulants κ_2m = 2 r Σ_k k^(2m - 1) q^k ≤ κ_2 (2m - 1)! (1 - q)^(2 - 2m), where r is the order
of a share and 1/(1 - q) ≤ t + 1. So V λ²/(2 - 2 (t + 1) λ) bounds the logarithm of the moment generating
function: the noise is sub-gamma, whatever shares it consists of. Then its absolute value is above

    sqrt(2 V x) + (t + 1) x,  without the last term for Gaussian noise,

with a probability of at most 2 exp(-x) (Boucheron, Lugosi, Massart 2013, section 2.4). With x = ln(2 K/10^-6)
all K comparisons of a round hold at once, but with a probability of 10^-6. These are six standard deviations
for 30 comparisons, and seven and a half for a million.

References:
    Boucheron, Lugosi, Massart 2013, "Concentration inequalities".
    Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy".
"""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

import numpy as np

from common.arrays import Float64Array, Int64Array
from common.synthesis.accounting import Kind, Noise
from common.synthesis.schedule import Design, OneWay, Question, RoundSums, attributes_of, next_round, split

_FALSE_ALARMS = 1e-6
"""Most probability with which counts of honest owners in a round are refused."""


class Counted(NamedTuple):
    """A question with its noisy counts."""

    question: Question
    counts: Int64Array
    """`(n_numbers,)`."""
    variance: float
    """Variance of the noise of each."""


def allowed_distance(variance: Float64Array, scale: int, x: float) -> Float64Array:
    """Return what noise exceeds with a probability of at most 2 exp(-x); see above.

    Args:
        variance: Of the noise of some numbers.
        scale: t + 1 of Laplace noise, 0 of Gaussian noise.
    """
    allowed: Float64Array = np.sqrt(2 * x * variance) + scale * x
    return allowed


def fault_of_counts(
    design: Design,
    counted: Sequence[Counted],
    n_records: int,
    one_way: Mapping[int, Counted],
    groups: Sequence[Sequence[str]] = (),
) -> str:
    """Return what noise does not explain of noisy counts of a round; empty if it explains all.

    Args:
        counted: The questions.
        n_records: How many records were counted.
        one_way: By attribute, noisy counts of the same records, those of the finest level; empty: none are
            compared.
        groups: Ids of the owners by group, to name those that counted.
    """
    # Of a table of one cell: the count, the total and two margins.
    x = log(2 * 4 * max(sum(each.counts.size for each in counted), 1) / _FALSE_ALARMS)
    for each in counted:
        attributes = attributes_of(each.question)
        names = [design.attributes[place].name for place in attributes]
        for what, found, expected, variance, scale in _comparisons(each, names, n_records, one_way):
            allowed = allowed_distance(variance, scale, x)
            worst = int(np.argmax(np.abs(found - expected) - allowed))
            if abs(found[worst] - expected[worst]) > allowed[worst]:
                owner_groups = sorted(set(map(design.home, attributes))) if groups else ()
                owners = ", ".join(owner for group in owner_groups for owner in groups[group])
                return (
                    f"{what}{owners and f', counted by {owners},'} is {found[worst]:,.0f} for {n_records:,} "
                    f"records: noise explains a distance of at most {allowed[worst]:,.0f} from "
                    f"{expected[worst]:,.0f}"
                )
    return ""


_Comparison = tuple[str, Float64Array, Float64Array, Float64Array, int]
"""The kind of comparison; found and expected numbers, and the variance of the noise of each difference, all
of one shape; what `_scale` returns."""


def _comparisons(
    counted: Counted, names: Sequence[str], n_records: int, one_way: Mapping[int, Counted]
) -> Iterator[_Comparison]:
    question, counts, variance = counted.question, counted.counts.astype(np.float64), counted.variance
    scale, of = _scale(question.noise), f"of {' and '.join(names)}"
    total, whole = counts.sum(keepdims=True), np.full(1, float(n_records))
    yield f"the total {of}", total, whole, np.full(1, counts.size * variance), scale
    yield f"a count {of}", counts, np.clip(counts, 0, n_records), np.full(counts.size, variance), scale
    if isinstance(question, OneWay):
        return
    grid = counts.reshape([each.n_bins for each in question.binnings])
    for axis, (attribute, binning) in enumerate(zip(question.pair, question.binnings, strict=True)):
        alone = one_way.get(attribute)
        if alone is None or not isinstance(alone.question, OneWay):
            continue
        labels, starts = binning.labels, np.searchsorted(binning.histogram.edges, alone.question.edges)
        first, last = labels[starts[:-1]], labels[starts[1:] - 1]
        # Rules divide parts that were counted whole. All bins that have a piece of one are compared together.
        groups = np.arange(binning.n_bins)
        groups[labels[np.repeat(first != last, np.diff(starts))]] = binning.n_bins
        of_parts = groups[first]
        bins, pieces = (np.bincount(each, minlength=binning.n_bins + 1) for each in (groups, of_parts))
        found = np.bincount(groups, grid.sum(axis=1 - axis), bins.size).astype(np.float64)
        expected = np.bincount(of_parts, alone.counts, bins.size).astype(np.float64)
        noise = bins * (grid.shape[1 - axis] * variance) + pieces * alone.variance
        largest = max(scale, _scale(alone.question.noise))
        yield f"a sum {of} by {names[axis]}", found, expected, noise, largest


def _scale(noise: Noise) -> int:
    """Return t + 1 of Laplace noise, and 0 of Gaussian noise; see above."""
    return noise.size + 1 if noise.kind is Kind.LAPLACE else 0


def one_way_counts(counted: Sequence[Counted]) -> dict[int, Counted]:
    """Return the one-way counts among some by attribute."""
    return {each.question.attribute: each for each in counted if isinstance(each.question, OneWay)}


def counted_rounds(design: Design, sums: Sequence[Int64Array]) -> Iterator[list[Counted]]:
    """Yield the questions of every round with the noisy sums of their answers.

    Raises:
        ValueError: If the release has fewer rounds.
    """
    for number, answer in enumerate(sums):
        asked = next_round(design, sums[:number])
        if isinstance(asked, RoundSums):
            raise ValueError(f"the release has {number} rounds, {len(sums)} are answered")
        yield [
            Counted(question, counts, design.variance(question.noise, attributes_of(question)))
            for question, counts in zip(asked, split(asked, answer), strict=True)
        ]


def fault_of_sums(design: Design, sums: Sequence[Int64Array], groups: Sequence[Sequence[str]] = ()) -> str:
    """Return what noise does not explain of the sums of the rounds so far; empty if it explains all.

    Args:
        sums: Sums of the owners' answers, `(n_numbers,)` for each round.
        groups: Ids of the owners by group, to name those that counted.

    Raises:
        ValueError: If they are not sums of this release.
    """
    one_way: dict[int, Counted] = {}
    for counted in counted_rounds(design, sums):
        if fault := fault_of_counts(design, counted, design.n_records, one_way, groups):
            return fault
        one_way |= one_way_counts(counted)
    return ""
