"""How one attribute of one owner is masked: its mechanism, k, bounds and expected error (MECHANISMS §4-5).

From public quantities only, so that an aggregator plans the same as an owner would for itself.
"""

from decimal import Context, Decimal, localcontext

from common.cluster_size import choose_k
from common.privacy import EXPONENTIAL, SMALLEST_K, epsilon_joint, most_clusters, plain
from common.schema import Attribute, TaxonomyMethod, most_records
from common.task import PlannedAttribute

_SIX_DIGITS = Context(prec=6)
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
) -> PlannedAttribute:
    """Plan one attribute.

    Args:
        attribute: Its settings.
        mechanism: The mechanism that was asked for; attributes that are declared so are drawn from their
            taxonomy instead.
        epsilon: Its share of the budget.
        k: The minimum cluster size that was asked for; None to have it chosen.
        records_rounded: The owner's number of records, rounded down to its leading digit.
        g: The most records that one person has.
        least_k: The smallest k that all policies accept.
    """
    chosen = EXPONENTIAL if attribute.method is TaxonomyMethod.EXPONENTIAL else mechanism
    size = k or choose_k(
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
        expected_error(chosen, size or 1, records_rounded, epsilon, g, n_values=attribute.n_values),
    )


def expected_error(
    mechanism: str, k: int, n_records: int, epsilon: Decimal, g: int = 1, *, n_values: int
) -> Decimal:
    """Return the expected squared error as a share of the variance of a uniform attribute (MECHANISMS §5).

    Args:
        mechanism: Mechanism id.
        k: Minimum cluster size; 1 where the mechanism makes no clusters.
        n_records: Number of records, as rounded in the schema.
        epsilon: The attribute's share of the budget.
        g: The most records that one person has.
        n_values: V, the number of values of its domain.

    Returns:
        (k/n)² + 24·(g/(k·ε))², with six significant digits. For idp-cbls n stands in the place of the second
        k: the local sensitivity of a cluster is about its own width, k/n of the domain's. For categories
        drawn from a taxonomy 1 - (1 - m)(1 - w), m = x/(x + 8), x = V·k/n, for categories that share a
        cluster, w = (V - 1)/(V - 1 + exp(0.4·k·ε/g)) for another category drawn than most of a cluster's:
        the formula is fitted to what trees with equally frequent categories come to (docs/decisions.md).
    """
    if mechanism == EXPONENTIAL:
        return _error_of_drawn_categories(k, n_records, epsilon, g, n_values)
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
