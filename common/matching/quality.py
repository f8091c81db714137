"""How many links of match keys are false, estimated without knowing who is who.

Two persons of one owner are different persons. So a key value that two of them have shows how often a pass
takes different persons for the same. From the number of such values, and the numbers of pairs that could
have been linked by chance, follows the expected number of false links, as Blakely and Salmond (2002) do with
duplicate links. Persons whom an owner holds twice make the estimate larger, never smaller, and so do key
values that many persons share.

References:
    Blakely, T. and Salmond, C. (2002), Probabilistic record linkage and a method to calculate the positive
    predictive value, International Journal of Epidemiology 31, 1246-1252.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from common.arrays import Float64Array, Int64Array
from common.matching.linking import NOT_SENT, LinkedEntries, PassResult
from common.matching.lists import PassList
from common.model.match_quality import MatchQuality, PassQuality, least_share, wilson_interval

_SHARE = Decimal("0.000001")
_COUNT = Decimal("0.01")
_LEVEL = 0.95
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class FalseLinks:
    """The estimated number of false links of a pass."""

    expected: float
    least: float
    """Lower end of the prediction interval (95 %)."""
    most: float
    """Upper end of it."""


def match_quality(
    names: Sequence[str], lists: Sequence[Sequence[PassList]], linked: LinkedEntries
) -> MatchQuality:
    """Return what the passes linked and how many of the links are estimated to be false."""
    passes = tuple(
        _of_pass(name, of_owners, linked, number)
        for number, (name, of_owners) in enumerate(zip(names, zip(*lists, strict=True), strict=True))
    )
    n_linked = sum(linkage.linked for linkage in passes)
    shares = [
        least_share(n_linked, sum(counts, Decimal(0))).quantize(_SHARE)
        for counts in zip(
            *(
                (linkage.false_links_most, linkage.false_links, linkage.false_links_least)
                for linkage in passes
            ),
            strict=True,
        )
    ]
    return MatchQuality(passes, shares[1], shares[0], shares[2])


def _of_pass(name: str, lists: Sequence[PassList], linked: LinkedEntries, number: int) -> PassQuality:
    result = linked.passes[number]
    n_pairs = len(result.pairs[0])
    agreeing, disagreeing = _agreement(linked, number)
    false_links = estimate_false_links(
        np.array([len(of_owner.tokens) for of_owner in lists]),
        np.array([of_owner.twice for of_owner in lists]),
        result,
    )
    expected, least, most = (
        Decimal(min(bound, n_pairs)).quantize(_COUNT)
        for bound in (false_links.expected, false_links.least, false_links.most)
    )
    return PassQuality(
        name,
        sent=sum(len(of_owner.tokens) for of_owner in lists),
        ambiguous=sum(of_owner.ambiguous for of_owner in lists),
        linked=n_pairs,
        unmatched=int((result.open - result.joined).sum()),
        conflicts=result.conflicts,
        agreeing=agreeing,
        disagreeing=disagreeing,
        agreement=wilson_interval(agreeing, agreeing + disagreeing),
        false_links=min(max(expected, least), most),
        false_links_least=least,
        false_links_most=most,
    )


def _agreement(linked: LinkedEntries, number: int) -> tuple[int, int]:
    """Return how many pairs of a pass a later pass links as well, and how many all that compare them do not.

    Earlier passes cannot agree: they would have linked the pair.
    """
    first, second = linked.passes[number].pairs
    compared = np.zeros(len(first), dtype=np.bool_)
    agreed = np.zeros(len(first), dtype=np.bool_)
    for numbers in linked.numbers[number + 1 :]:
        one, two = numbers[first], numbers[second]
        both = (one != NOT_SENT) & (two != NOT_SENT)
        compared |= both
        agreed |= both & (one == two) & (one >= 0)
    return int(agreed.sum()), int((compared & ~agreed).sum())


def estimate_false_links(sent: Int64Array, twice: Int64Array, result: PassResult) -> FalseLinks:
    """Estimate how many of the pairs that a pass linked are different persons.

    A false link is a key value that one person has at each of two owners, and these are different persons.
    The rate of such values in pairs of persons with a token is at most that of values that exactly two
    persons of one owner have, in its pairs of persons with a token: at two owners neither may have the value
    again. The two rates are equal where few persons share a value. The second one is estimated from all
    owners together, and applied to the pairs of open persons that were not rightly linked. Both numbers are
    Poisson; with the prior of Jeffreys for the rate, the number of false links is negative binomial.

    Args:
        sent: Persons of each owner with a token, shape (n_owners,).
        twice: Key values that exactly two persons of each owner have, same shape.
        result: What the pass linked.
    """
    from scipy.stats import nbinom

    n_pairs = len(result.pairs[0])
    within = float((sent * (sent - 1.0) / 2).sum())
    if not n_pairs or within <= 0:
        # Without two tokens of any owner nothing is known about chance.
        return FalseLinks(0.0, 0.0, float(n_pairs))
    events = float(twice.sum()) + 0.5
    expected, share = 0.0, 0.0
    between = 0.0
    for _ in range(_ROUNDS):
        between = _pairs_between(result.open - result.joined * (1.0 - share))
        expected = min(events / within * between, float(n_pairs))
        share = expected / n_pairs
    if between <= 0:
        return FalseLinks(0.0, 0.0, 0.0)
    chance = within / (within + between)
    tail = (1 - _LEVEL) / 2
    least, most = (nbinom.ppf(level, events, chance) for level in (tail, 1 - tail))
    return FalseLinks(expected, float(min(least, n_pairs)), float(min(most, n_pairs)))


def _pairs_between(persons: Float64Array) -> float:
    """Return the number of pairs of persons at different owners, given the number at each."""
    return float((persons.sum() ** 2 - (persons**2).sum()) / 2)
