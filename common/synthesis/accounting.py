"""How the budget of a synthetic release becomes noise.

Neighbours: one person's whole record is replaced, all its attributes, at all owners. The owners stay the
same. The number of records, of all, of every owner, and of every two owners of different groups, is public.

There are two accountings. Without δ the release is ε-differentially private, every answer gets discrete
Laplace noise, and budgets are parts of ε. With δ it is (ε, δ)-differentially private by way of
ρ-zero-concentrated differential privacy, every answer gets discrete Gaussian noise, and budgets are parts of
ρ. In both the parts of answers add up, also where an answer decides how the next tables are cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import ceil, log, log1p

from common.errors import UsageError
from common.model.privacy import SHARE_PLACES, plain, weighted_share

# Sensitivities. One record r is replaced by s. In whole counts:
#
# Table. Its cells are a partition of the records. r leaves a cell and s enters one: two cells move by 1, or
# none if it is the same cell. L1 = 2, L2² = 2. k tables: L1 = 2k, L2² = 2k. A table of sums over owners moves
# like the table of the one owner that has the record.
#
# Noise. Discrete Laplace noise of scale t on every number of an answer of sensitivity L1: the privacy loss is
# at most L1/t (Σ ||x| - |x - d||/t <= Σ |d|/t), so k tables cost 2k/t. Discrete Gaussian noise of parameter
# σ²: ρ = L2²/(2 σ²) (Canonne, Kamath, Steinke 2020, Theorem 4), so k tables cost k/σ². Scales are rounded up
# to whole numbers, so the loss is at most the budget.
#
# Shares. Each of m owners adds a share, such that the shares of any h = m - c make up the whole noise, for at
# most c owners that collude with the aggregator. The remaining shares are independent of these:
# post-processing.
# Laplace: a share is X - Y, X and Y negative binomial of order 1/h with q = exp(-1/t). The sum of h is
# exactly discrete Laplace: orders add up, order 1 is geometric. Gaussian: σ² is divided by h and rounded up.
# A sum of h discrete Gaussians of parameter v each is no discrete Gaussian, but its probabilities differ from
# those of one by factors within exp(±τ), τ = 10 Σ_{j<h} exp(-2π² v j/(j + 1)) (Kairouz, Liu, Steinke 2021).
# From v = 25 on τ < 10^-104 for up to 40 owners, so that all τ of 10^12 numbers together change ρ by less
# than the 10^-12 by which `zcdp_rho` stays below what it could be.
#
# Tables of two attributes that different groups of owners hold. Owner i of the first group, a holder, and
# owner j of the second, an adder, count the persons that both have: T_ij. Adder j adds the whole noise N_ij,
# and holder i alone sees T_ij + N_ij. It sums these over j and adds S_i, its share of the noise, as to a
# table that its group counts alone. Everybody else sees the sum over all i and j.
# Against a person that i and j have, c other owners with the aggregator see this:
# - i is among them, j is not: T_ij + N_ij, with the whole noise, which nothing else that they see depends on
#   but the sum, and of this they know the rest: post-processing.
# - i is not among them: the sum over the holders that are not, of which T_ij is a part, less at most all N.
#   What is left are the shares S of at least h of these holders: the whole noise.
# So a table across groups costs what a table costs. With one owner in each group both add the whole noise,
# either knows its own and meets the other's, and it holds whoever colludes.
#
# Beyond c colluders Gaussian noise degrades evenly: ρ grows by h/(h - 1), h/(h - 2) and so on. Laplace noise
# collapses: with half of the shares missing the loss of one unit is 13 times the planned one at scale 30, and
# 63 times at scale 200. So with h > 1 every owner also adds discrete Laplace noise of a third of the scale, a
# floor: each owner's records keep 3 times the planned ε whoever colludes.
#
# References:
#   Bun, Steinke 2016 (zero-concentrated differential privacy).
#   Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Theorem 4, Corollary 13.
#   Kairouz, Liu, Steinke 2021, "The distributed discrete Gaussian mechanism".


LEAST_SHARE_VARIANCE = 25
"""Of Gaussian shares; see above."""
MOST_SIZE = 2**30
"""Of noise: the samplers' integers have room for it."""
MOST_OWNERS = 40
FLOOR = 3
"""An owner's own noise has a scale of one in so many of the whole."""

_SLACK = Decimal("1e-12")
_STEPS, _NEAR = range(-400, 1400), 1e-8
_EXACT = Context(prec=60)


class Kind(StrEnum):
    """The distribution of the noise."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of every number of an answer."""

    kind: Kind
    """Its distribution."""
    size: int
    """Laplace: the scale t of the whole noise. Gaussian: the variance parameter of one share."""
    n_honest: int = 1
    """h: how many shares make up the whole noise."""
    floor: int = 0
    """Scale of the discrete Laplace noise that each owner adds to its share; 0 for none."""

    def shared(self, n_honest: int) -> "Noise":
        """Return what each of several owners adds, where so many shares, h, make up this whole noise."""
        if n_honest == 1:
            return self
        if self.kind is Kind.LAPLACE:
            return Noise(self.kind, self.size, n_honest, -(-self.size // FLOOR))
        return Noise(self.kind, max(-(-self.size // n_honest), LEAST_SHARE_VARIANCE), n_honest)

    def variance(self, n_shares: int) -> float:
        """Return the variance of the sum of all shares that are added.

        It is rounded to the nearest double from exact decimals: the same everywhere.
        """
        if self.kind is Kind.GAUSSIAN:
            return float(self.size * n_shares)
        with localcontext(_EXACT):
            own = _laplace_variance(self.floor) * n_shares if self.floor else 0
            return float(_laplace_variance(self.size) * n_shares / self.n_honest + own)


def _laplace_variance(scale: int) -> Decimal:
    """Return 2q/(1 - q)², q = exp(-1/t)."""
    q = (Decimal(-1) / scale).exp()
    return 2 * q / ((1 - q) * (1 - q))


@dataclass(frozen=True, slots=True)
class Budget:
    """What an answer, or several, may cost: a part of ε or of ρ."""

    kind: Kind
    """Which noise it buys."""
    amount: Decimal
    """ε for Laplace noise, ρ for Gaussian noise."""

    @classmethod
    def of(cls, epsilon: Decimal, delta: Decimal) -> "Budget":
        """Return the whole budget of a release.

        Args:
            delta: δ; 0 for ε-differential privacy.

        Raises:
            UsageError: If δ is not from 0 to below 1, or too small beside ε.
        """
        return cls(Kind.GAUSSIAN, zcdp_rho(epsilon, delta)) if delta else cls(Kind.LAPLACE, epsilon)

    def divide(self, weights: Sequence[Decimal]) -> tuple["Budget", ...]:
        """Divide the budget by weights; parts are rounded down, so they sum to at most the whole.

        Raises:
            UsageError: If nothing is left of a part.
        """
        whole = sum(weights, Decimal(0))
        return tuple(Budget(self.kind, weighted_share(self.amount, weight, whole)) for weight in weights)

    def noise(self, n_tables: int, n_honest: int = 1) -> Noise:
        """Return the noise with which a number of tables costs the budget.

        Args:
            n_tables: How many tables the budget pays for.
            honest: h, how many owners' shares make up the noise.

        Raises:
            UsageError: If the noise is too large to be drawn.
        """
        whole = Fraction(2 * n_tables if self.kind is Kind.LAPLACE else n_tables) / Fraction(self.amount)
        noise = Noise(self.kind, ceil(whole)).shared(n_honest)
        if noise.size > MOST_SIZE:
            raise UsageError(
                f"the noise of this budget would have a size of {noise.size}, more than {MOST_SIZE}",
                "choose a larger epsilon or fewer attributes",
            )
        return noise


def honest_owners(owners: int, colluding: int) -> int:
    """Return h, how many shares of the noise make up the whole.

    Args:
        owners: m, the owners whose answers are added.
        colluding: The most of them that may collude with the aggregator.

    Raises:
        UsageError: If nobody would be left, or there are too many owners.
    """
    if not 1 <= owners <= MOST_OWNERS:
        raise UsageError(f"{owners} owners of the same attributes", f"from 1 to {MOST_OWNERS} are possible")
    if not 0 <= colluding < owners:
        least, most = default_colluding(owners), owners - 1
        raise UsageError(
            f"{colluding} of {owners} owners cannot collude against another one",
            f"choose {most}" if least == most else f"choose from {least} to {most}",
        )
    return owners - colluding


def default_colluding(owners: int) -> int:
    """Return how many owners the noise allows for unless the plan says otherwise."""
    return 0 if owners == 1 else 1


@lru_cache(16)
def zcdp_rho(epsilon: Decimal, delta: Decimal) -> Decimal:
    """Return the largest ρ, to 12 decimal places, that is known to imply (ε, δ)-differential privacy.

    ρ-zCDP implies (ε, δ) if for any α > 1: δ >= exp((α - 1)(α ρ - ε))/(α - 1) · (1 - 1/α)^α. For a given α
    the largest such ρ is

        (ε + (ln δ + ln(α - 1) - α ln(1 - 1/α))/(α - 1))/α

    and as every α yields a valid ρ, the best of a grid of them is taken. It is computed with 60 digits and
    lowered by 10^-12, which is more than all rounding errors and than what sums of discrete Gaussians lack.
    Doubles only tell which α are near the best.

    Raises:
        UsageError: If δ is not between 0 and 1, or if no ρ of 12 decimal places is left.

    References:
        Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    if not 0 < delta < 1:
        raise UsageError(f"delta {delta} is not between 0 and 1", "choose, for example, 0.000001")
    near = [_nearly_rho(step, float(epsilon), float(delta)) for step in _STEPS]
    least = max(near) - _NEAR * (1 + abs(max(near)))
    best = max(_rho(step, epsilon, delta) for step, rho in zip(_STEPS, near, strict=True) if rho > least)
    rho = (best - _SLACK).quantize(Decimal(1).scaleb(-SHARE_PLACES), rounding=ROUND_FLOOR, context=_EXACT)
    if rho <= 0:
        raise UsageError(
            f"delta {delta} is too small for epsilon {epsilon}", "choose a larger epsilon or delta"
        )
    return plain(rho)


def _nearly_rho(step: int, epsilon: float, delta: float) -> float:
    """Return `_rho` in doubles."""
    beyond = 1.01**step
    alpha = 1 + beyond
    return (epsilon + (log(delta) + log(beyond) - alpha * log1p(-1 / alpha)) / beyond) / alpha


def _rho(step: int, epsilon: Decimal, delta: Decimal) -> Decimal:
    """Return ρ for α = 1 + 1.01^step."""
    with localcontext(_EXACT):
        beyond = Decimal("1.01") ** step
        alpha = beyond + 1
        held = delta.ln() + beyond.ln() - alpha * (beyond / alpha).ln()
        return (epsilon + held / beyond) / alpha
