"""Budgets of synthetic releases become noise that costs no more than them."""

from decimal import Decimal
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from common.errors import UsageError
from common.synthesis.accounting import (
    LEAST_SHARE_VARIANCE,
    Budget,
    Kind,
    Noise,
    default_colluding,
    honest_owners,
    zcdp_rho,
)

PURE = Budget.of(Decimal(1), Decimal(0))
CONCENTRATED = Budget.of(Decimal(1), Decimal("1e-6"))


def delta_of_gaussian(variance: int, epsilon: float) -> float:
    """The least δ of discrete Gaussian noise on a number that moves by 1, summed over all numbers."""
    x = np.arange(-60 * variance, 60 * variance + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    weights /= weights.sum()
    gained = weights[1:] - exp(epsilon) * weights[:-1]
    return float(gained[gained > 0].sum())


def test_rho_of_one_in_a_million():
    """The figure that Canonne, Kamath and Steinke's Corollary 13 gives."""
    assert zcdp_rho(Decimal(1), Decimal("1e-6")) == Decimal("0.024355945347")
    assert Budget(Kind.GAUSSIAN, Decimal("0.024355945347")) == CONCENTRATED


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "3", "20"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-6", "0.01"])
def test_rho_is_valid_and_better_than_the_closed_form(epsilon, delta):
    """It fulfils the condition for some α, which a search in doubles confirms, and no α allows much more."""
    rho = float(zcdp_rho(Decimal(epsilon), Decimal(delta)))
    e, d = float(epsilon), float(delta)
    assert rho > (np.sqrt(e - log(d)) - np.sqrt(-log(d))) ** 2
    a = 1 + np.exp(np.linspace(-7, 14, 200_001))

    def least_log_delta(r):
        return float(((a - 1) * (a * r - e) - np.log(a - 1) + a * np.log1p(-1 / a)).min())

    assert least_log_delta(rho) <= log(d)
    assert least_log_delta(rho * 1.001 + 2e-12) > log(d)


@pytest.mark.parametrize(("epsilon", "delta"), [("1e-6", "0.9"), ("1", "1e-6"), ("99999", "1e-12")])
def test_rho_is_that_of_the_whole_grid(monkeypatch, epsilon, delta):
    """Doubles leave out only what is not the best: owners of all versions find the same."""
    found = zcdp_rho.__wrapped__(Decimal(epsilon), Decimal(delta))
    monkeypatch.setattr("common.synthesis.accounting._NEAR", 1e9)
    assert zcdp_rho.__wrapped__(Decimal(epsilon), Decimal(delta)) == found


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, "1e-6"), (2.0, "1e-4"), (0.5, "1e-3")])
def test_discrete_gaussian_noise_keeps_delta(epsilon, delta):
    """The exact δ of the noise that ρ buys is at most the δ that it was made from."""
    rho = zcdp_rho(Decimal(epsilon), Decimal(delta))
    variance = int(1 / (2 * rho)) + 1
    assert 0 < delta_of_gaussian(variance, epsilon) <= float(delta)


@pytest.mark.parametrize("budget", [PURE, CONCENTRATED])
def test_parts_sum_to_no_more_than_the_whole(budget):
    """Budgets are divided in exact decimals and rounded down, by next to nothing."""
    parts = budget.divide([Decimal(each).sqrt() for each in range(1, 100)])
    assert budget.amount * Decimal("0.999999") < sum(part.amount for part in parts) <= budget.amount


@pytest.mark.parametrize("n_tables", [1, 21, 435])
def test_noise_costs_at_most_the_budget(n_tables):
    """The loss of all tables together, in exact fractions, is within the budget, and within 3 % of it."""
    assert Fraction(97, 100) < Fraction(2 * n_tables, PURE.noise(n_tables).size) <= 1
    gaussian = CONCENTRATED.noise(n_tables, 3)
    rho = Fraction(n_tables, 3 * gaussian.size)
    if gaussian.size > LEAST_SHARE_VARIANCE:
        assert rho > Fraction(97, 100) * Fraction(CONCENTRATED.amount)
    assert rho <= Fraction(CONCENTRATED.amount)


def test_shares_of_several_owners():
    """Gaussian shares are never too small to add up; Laplace ones come with noise of every owner's own."""
    assert Budget.of(Decimal(1000), Decimal("1e-6")).noise(1, 3).size == LEAST_SHARE_VARIANCE
    assert PURE.noise(8, 3) == Noise(Kind.LAPLACE, 16, 3, 6)
    assert PURE.noise(8) == Noise(Kind.LAPLACE, 16)
    assert Noise(Kind.LAPLACE, 16, 3).variance(4) == pytest.approx(2 * 16**2 * 4 / 3, rel=0.01)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: zcdp_rho(Decimal(1), Decimal(1)),
        lambda: zcdp_rho(Decimal("1e-9"), Decimal("1e-12")),
        lambda: Budget.of(Decimal("1e-9"), Decimal(0)).noise(10),
        lambda: honest_owners(0, 0),
    ],
)
def test_refused(refused):
    """Impossible budgets and coalitions raise a usage error."""
    with pytest.raises(UsageError):
        refused()


def test_colluding_owners():
    """One owner has nobody to collude with; several count on one that does."""
    assert [honest_owners(m, default_colluding(m)) for m in (1, 2, 4)] == [1, 1, 3]
