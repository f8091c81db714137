"""How well match keys linked the persons of a release: counts by pass, and estimated false links.

The counts are of persons, pairs of persons and key values; none of them says who matched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from common.canonical import Document


@dataclass(frozen=True, slots=True)
class PassQuality(Document):
    """What one pass linked, over all owners."""

    name: str
    """Name of the pass."""
    sent: int
    """Persons with a token: every part of the key is there, and no other person of the owner has the same."""
    ambiguous: int
    """Persons without a token because another person of the owner has the same key value."""
    linked: int
    """Pairs of persons at different owners that the pass linked."""
    unmatched: int
    """Persons with a token who were not linked at every owner before, and whom the pass linked to nobody."""
    conflicts: int
    """Tokens that were not used, because they would have linked two persons of one owner."""
    agreeing: int
    """Linked pairs that at least one later pass links, too."""
    disagreeing: int
    """Linked pairs that later passes compare, and none of them links."""
    agreement: tuple[Decimal, ...]
    """Share of the agreeing among both, its ends (95 %, Wilson); empty where later passes compare no pair."""
    false_links: Decimal
    """Estimated number of false links among the linked pairs."""
    false_links_least: Decimal
    """Lower end of its interval (95 %)."""
    false_links_most: Decimal
    """Upper end of its interval (95 %)."""

    def __post_init__(self) -> None:
        counts = self.sent, self.ambiguous, self.linked, self.unmatched, self.conflicts
        if min(counts) < 0 or min(self.agreeing, self.disagreeing) < 0:
            raise ValueError("counts of a pass are not negative")
        if self.agreeing + self.disagreeing > self.linked:
            raise ValueError("later passes agree or disagree on linked pairs alone")
        if self.agreement != wilson_interval(self.agreeing, self.agreeing + self.disagreeing):
            raise ValueError("the agreement of later passes does not follow from its counts")
        if not 0 <= self.false_links_least <= self.false_links_most <= self.linked:
            raise ValueError("false links are a part of the linked pairs")


@dataclass(frozen=True, slots=True)
class MatchQuality(Document):
    """What all passes linked."""

    passes: tuple[PassQuality, ...]
    """In the order of the plan."""
    quality: Decimal
    """Estimated share of the links that are right; 1 where nothing is linked."""
    quality_least: Decimal
    """Lower end of its interval (95 %)."""
    quality_most: Decimal
    """Upper end of its interval (95 %)."""

    def __post_init__(self) -> None:
        if not 0 <= self.quality_least <= self.quality <= self.quality_most <= 1:
            raise ValueError("the quality of matches is a share within its interval")

    @property
    def linked(self) -> int:
        """Number of pairs that all passes linked."""
        return sum(each.linked for each in self.passes)


def wilson_interval(successes: int, trials: int) -> tuple[Decimal, ...]:
    """Return a share, and the lower and upper end of its 95 % score interval; empty without a trial.

    The ends are rounded outwards, to six decimals; decimal arithmetic gives every party the same digits.

    References:
        Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference, Journal of
        the American Statistical Association 22, 209-212.
    """
    if not trials:
        return ()
    n, share, z2 = Decimal(trials), Decimal(successes) / trials, _Z * _Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * (share * (1 - share) / n + z2 / (4 * n * n)).sqrt() / (1 + z2 / n)
    least = max(middle - half, Decimal(0)).quantize(_SHARE, ROUND_FLOOR)
    most = min(middle + half, Decimal(1)).quantize(_SHARE, ROUND_CEILING)
    return share.quantize(_SHARE), least, most


def contradictions_of(quality: MatchQuality, names: Sequence[str]) -> Iterator[str]:
    """Find statements about passes that cannot be true under a plan."""
    if tuple(each.name for each in quality.passes) != tuple(names):
        yield "it does not state what each pass of the plan linked"
        return
    linked = quality.linked
    most = sum((each.false_links_most for each in quality.passes), Decimal(0))
    if linked and quality.quality_least > least_share(linked, most) + _ROUNDING:
        yield "its quality of matches does not follow from the false links of its passes"


def least_share(linked: int, false_links: Decimal) -> Decimal:
    """Return the share of right links where so many are false; 1 where nothing is linked."""
    return Decimal(1) if not linked else max(Decimal(0), 1 - false_links / linked)


_Z = Decimal("1.96")
"""Of a normal distribution, 95 % are within so many standard deviations."""
_SHARE = Decimal("0.000001")
_ROUNDING = Decimal("0.00001")
"""Estimates are stated with six decimals."""
