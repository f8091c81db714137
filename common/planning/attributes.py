"""How one attribute of one owner is masked: its mechanism, k, bounds and expected error (MECHANISMS §4-5).

From public quantities only, so that an aggregator plans the same as an owner would for itself.
"""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import isqrt

from common.errors import UsageError
from common.model.privacy import (
    AUTO,
    EXPONENTIAL,
    HISTOGRAM,
    MECHANISMS,
    MOST_HISTOGRAM_VALUES,
    NO_RANK_NOISE,
    SMALLEST_K,
    epsilon_joint,
    most_clusters,
    plain,
    planned_rank_loss,
)
from common.model.schema import Attribute, TaxonomyMethod, most_records
from common.model.task import PlannedAttribute
from common.planning.arguments import NONE, RankNoise
from common.planning.cluster_size import choose_k

_SIX_DIGITS = Context(prec=6)
CLUSTERS = "idp-joint"
"""What carries attributes of many values, if nothing else is asked for."""
_CROSSOVER = Fraction(3, 2)
_MIXED = Decimal(8)
_STEADINESS = Decimal("0.4")


def plan_attribute(
    attribute: Attribute,
    *,
    mechanism: str,
    epsilon: Decimal,
    k: int | None,
    records_rounded: int,
    g: int = 1,
    least_k: int = SMALLEST_K,
    rank_noise: RankNoise = NONE,
) -> PlannedAttribute:
    """Plan one attribute.

    Args:
        attribute: Its settings.
        mechanism: The mechanism that was asked for, or "auto"; attributes that are declared so are drawn from
            their taxonomy instead.
        epsilon: Its share of the budget.
        k: The minimum cluster size that was asked for; None to have it chosen. A mechanism without clusters
            takes none.
        records_rounded: The owner's number of records, rounded down to its leading digit.
        g: The most records that one person has.
        least_k: The smallest k that all policies accept.
        rank_noise: The rank noise that was asked for.

    Raises:
        UsageError: If it has too many possible values to be counted.
    """
    chosen = mechanism_for(attribute, mechanism, epsilon, records_rounded, g)
    noise = rank_noise.of(attribute.name, chosen)
    asked = k if MECHANISMS[chosen].clustered else None
    size = asked or choose_k(
        chosen,
        n_records=records_rounded,
        n_values=attribute.n_values,
        epsilon=epsilon,
        g=g,
        least=least_k,
    )
    n_clusters = most_clusters(most_records(records_rounded), size)
    return PlannedAttribute(
        attribute.name,
        chosen,
        epsilon,
        size,
        epsilon_joint(chosen, epsilon, frequency_order=attribute.by_frequency, n_clusters=n_clusters),
        expected_error(
            chosen, size or 1, records_rounded, epsilon, g, n_values=attribute.n_values, rank_noise=noise
        ),
        noise,
        planned_rank_loss(chosen, noise, g, frequency_order=attribute.by_frequency),
    )


def mechanism_for(attribute: Attribute, mechanism: str, epsilon: Decimal, n_records: int, g: int) -> str:
    """Return the mechanism of one attribute: the one that was asked for, or for "auto" the better carrier.

    Args:
        attribute: Its settings.
        mechanism: The mechanism that was asked for, or "auto".
        epsilon: Its share of the budget.
        n_records: The owner's number of records, as rounded in its schema.
        g: The most records that one person has.

    Raises:
        UsageError: If it has too many possible values to be counted.
    """
    if attribute.method is TaxonomyMethod.EXPONENTIAL:
        return EXPONENTIAL
    if mechanism == AUTO:
        few = attribute.n_values <= most_counted_values(n_records, epsilon, g)
        return HISTOGRAM if few else CLUSTERS
    if mechanism == HISTOGRAM and attribute.n_values > MOST_HISTOGRAM_VALUES:
        raise UsageError(
            f"attribute {attribute.name!r} has {attribute.n_values} possible values, too many for it",
            f"choose --mechanism {AUTO}, leave the attribute out, or declare fewer decimals",
            {"attribute": attribute.name, "values": attribute.n_values, "most": MOST_HISTOGRAM_VALUES},
        )
    return mechanism


def most_counted_values(n_records: int, epsilon: Decimal, g: int) -> int:
    """Return up to how many values noisy counts carry an attribute better than clusters do.

    That is 1.5·sqrt(n·ε/g): the noise of all counts together grows with V, that of clusters hardly (measured
    on normal, log-normal and uniform values, n·ε from 20 to 20,000).
    """
    # isqrt of the whole part is the whole part of the root, so no double decides about a mechanism.
    found = isqrt(int(_CROSSOVER**2 * n_records * Fraction(epsilon) / g))
    return min(found, MOST_HISTOGRAM_VALUES)


CARRIER_RULE = (
    "Noisy counts carry an attribute better than clusters up to 1.5·√(n·ε/g) possible values: n records of "
    "the owner, rounded down, ε the attribute's share, g records of a person at most."
)
"""Where the number comes from that `carrier_reason` names."""


def carrier_reason(planned: PlannedAttribute, n_values: int, n_records: int, g: int) -> str:
    """Say what carries an attribute's values, and why, from public quantities.

    Args:
        planned: How it is masked.
        n_values: V, the number of values of its domain.
        n_records: The owner's number of records, as rounded in its schema.
        g: The most records that one person has.
    """
    promise = MECHANISMS[planned.mechanism]
    if planned.mechanism == EXPONENTIAL:
        return "drawn from its taxonomy"
    if not promise.listed:
        return "every record by itself"
    most = most_counted_values(n_records, planned.epsilon, g)
    few = n_values <= most
    carrier = "counts" if promise.counts else "clusters"
    asked = "" if few == promise.counts else ", as asked for"
    return f"{carrier}{asked}: {n_values} possible values, counts are better up to {most}"


def expected_error(
    mechanism: str,
    k: int,
    n_records: int,
    epsilon: Decimal,
    g: int = 1,
    *,
    n_values: int,
    rank_noise: Decimal = NO_RANK_NOISE,
) -> Decimal:
    """Return the expected squared error as a share of the variance of a uniform attribute (MECHANISMS §5).

    Args:
        mechanism: Mechanism id.
        k: Minimum cluster size; 1 where the mechanism makes no clusters.
        n_records: Number of records, as rounded in the schema.
        epsilon: The attribute's share of the budget.
        g: The most records that one person has.
        n_values: V, the number of values of its domain.
        rank_noise: w.

    Returns:
        (k/n)² + 24·(g/(k·ε))², with six significant digits. For idp-cbls n stands in the place of the second
        k: the local sensitivity of a cluster is about its own width, k/n of the domain's. For categories
        drawn from a taxonomy 1 - (1 - m)(1 - w), m = x/(x + 8), x = V·k/n, for categories that share a
        cluster, w = (V - 1)/(V - 1 + exp(0.4·k·ε/g)) for another category drawn than most of a cluster's:
        the formula is fitted to what trees with equally frequent categories come to (docs/decisions.md).
        For counts each boundary between two values is moved by f = 2g·V^(3/2)/(√3·ε·n) values, in quadratic
        mean; where that is below one, a share of the records is moved by one: 12·max(0.8f, f²)/(V² - 1).
        Rank noise adds 24·w², twice the variance of its scale. Of these two never more than 2 comes, which is
        what a value put at random would come to: e counts as 2e/(2 + e).
    """
    if not rank_noise:
        return _error_of_list(mechanism, k, n_records, epsilon, g, n_values)
    with localcontext(_SIX_DIGITS):
        of_list = _error_of_list(mechanism, k, n_records, epsilon, g, n_values)
        return plain(of_list + _up_to_random(24 * rank_noise * rank_noise))


def _error_of_list(
    mechanism: str, k: int, n_records: int, epsilon: Decimal, g: int, n_values: int
) -> Decimal:
    if mechanism == EXPONENTIAL:
        return _error_of_drawn_categories(k, n_records, epsilon, g, n_values)
    if mechanism == HISTOGRAM:
        return _error_of_counts(n_records, epsilon, g, n_values)
    size, n = Decimal(k), Decimal(max(n_records, 1))
    within = _SIX_DIGITS.power(_SIX_DIGITS.divide(size, n), 2)
    steadiness = _SIX_DIGITS.multiply(n if mechanism == "idp-cbls" else size, epsilon)
    noise = _SIX_DIGITS.power(_SIX_DIGITS.divide(Decimal(g), steadiness), 2)
    return plain(_SIX_DIGITS.add(within, _SIX_DIGITS.multiply(Decimal(24), noise)))


def _error_of_drawn_categories(k: int, n_records: int, epsilon: Decimal, g: int, n_values: int) -> Decimal:
    with localcontext(_SIX_DIGITS):
        mixed = Decimal(n_values * k) / max(n_records, 1)
        # Beyond e^99 nothing is left of the second term in six digits.
        steadiness = min(_STEADINESS * k * epsilon / g, Decimal(99))
        apart = 1 - mixed / (mixed + _MIXED)
        drawn = 1 - Decimal(n_values - 1) / (n_values - 1 + steadiness.exp())
        return plain(1 - apart * drawn)


def _error_of_counts(n_records: int, epsilon: Decimal, g: int, n_values: int) -> Decimal:
    if n_values == 1:
        return Decimal(0)
    with localcontext(_SIX_DIGITS):
        values = Decimal(n_values)
        moved = 2 * g * values * (values / 3).sqrt() / (epsilon * max(n_records, 1))
        squared = max(Decimal("0.8") * moved, moved * moved)
        return plain(_up_to_random(12 * squared / (values * values - 1)))


def _up_to_random(error: Decimal) -> Decimal:
    return 2 * error / (2 + error)
