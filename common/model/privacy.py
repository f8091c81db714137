"""Budget arithmetic and what each mechanism promises (MECHANISMS §4-5). Decimals only, rounded down.

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2 (sequential and parallel composition).
    Soria-Comas et al. 2017, Proposition 5 (noise calibrated to the local sensitivity of a vector).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_DOWN, Context, Decimal, InvalidOperation, localcontext
from typing import Literal

from common.errors import UsageError

Accounting = Literal["joint", "per-centroid"]

SHARE_PLACES = 12
"""Decimal places that a share of a budget keeps."""
SMALLEST_K = 3
"""The smallest k of any release with a clustered mechanism (DESIGN §5)."""
_EXACT = Context(prec=60)
LARGEST_EPSILON = Decimal(10**6)
"""Above it nothing is protected."""
LARGEST_JOINT = Decimal(10**18)
"""Joint bounds may grow with the number of clusters."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a mechanism promises about one attribute, whatever the data."""

    id: str
    """Name in plans, policies and manifests."""
    joint_factor: Decimal | None
    """epsilon_joint of the attribute's rank-ordered list of released values, as a multiple of epsilon; None
    where the multiple is the number of clusters."""
    clustered: bool
    """Whether it releases centroids of clusters of at least k records."""
    trimmed: bool
    """Whether centroids are trimmed means, which takes k of at least 2g + 1."""
    individual: bool
    """Whether its noise is calibrated to the data, which is individual differential privacy; else to the
    domain, which is differential privacy."""
    why: str
    """Where the multiple comes from."""
    counts: bool = False
    """Whether its list is made from counts of the values."""

    @property
    def listed(self) -> bool:
        """Whether it releases a list in rank order, and apart from it who gets which entry of the list."""
        return self.clustered or self.counts


MECHANISMS = {
    mechanism.id: mechanism
    for mechanism in (
        Mechanism(
            "dp", Decimal(1), clustered=False, trimmed=False, individual=False,
            why="one record, one released value",
        ),
        Mechanism(
            "dp-ir", Decimal(1), clustered=True, trimmed=False, individual=False,
            why="the changes of all clusters telescope to the width of the domain",
        ),
        Mechanism(
            "idp", Decimal(1), clustered=False, trimmed=False, individual=True,
            why="one record, one released value",
        ),
        Mechanism(
            "idp-ls", Decimal(2), clustered=True, trimmed=False, individual=True,
            why="supremum 1 + ln 2 over all data, stated as 2",
        ),
        Mechanism(
            "idp-cbls", None, clustered=True, trimmed=True, individual=True,
            why="every cluster may change, and each is calibrated to itself alone",
        ),
        Mechanism(
            "idp-joint", Decimal(1), clustered=True, trimmed=True, individual=True,
            why="one scale for the whole list of centroids",
        ),
        Mechanism(
            "dp-hist", Decimal(1), clustered=False, trimmed=False, individual=False,
            why="one changed record moves two counts by one, and the noise is calibrated to that",
            counts=True,
        ),
        Mechanism(
            "exponential", None, clustered=True, trimmed=False, individual=False,
            why="every cluster may change",
        ),
    )
}  # fmt: skip
AUTO = "auto"
"""Stands for the mechanism that carries an attribute best (`common.planning.attributes`)."""
DEFAULT_MECHANISM = AUTO
HISTOGRAM = "dp-hist"
MOST_HISTOGRAM_VALUES = 2**22
"""Possible values of an attribute that are counted at most."""
EXPONENTIAL = "exponential"
"""The mechanism of attributes that their owners declare so; nobody asks for it in a release."""
REQUESTABLE = tuple(mechanism for mechanism in MECHANISMS if mechanism != EXPONENTIAL)
"""Mechanisms that a release may ask for."""
EVALUATION_ONLY: Mapping[str, str] = {
    "ir": "it adds no noise to the means of clusters, so there is nothing that it promises"
}
"""Mechanisms of the papers that no release may use, with the reason."""


def parse_epsilon(text: str) -> Decimal:
    """Read an epsilon from decimal text.

    Raises:
        UsageError: If it is not a positive decimal, or is so large that nothing would be protected.
    """
    hint = "write epsilon as a positive decimal number, for example 0.5 or 1"
    try:
        epsilon = Decimal(text.strip())
    except InvalidOperation:
        raise UsageError(f"epsilon {text!r} is not a decimal number", hint) from None
    if not epsilon.is_finite() or epsilon <= 0:
        raise UsageError(f"epsilon must be positive, not {text}", hint)
    if epsilon > LARGEST_EPSILON:
        raise UsageError(f"epsilon {text} protects nothing", hint)
    if round_down(epsilon) != epsilon:
        raise UsageError(f"epsilon {text} has more than {SHARE_PLACES} decimal places", hint)
    return plain(epsilon)


def is_share(value: Decimal, largest: Decimal = LARGEST_EPSILON) -> bool:
    """Whether a decimal from outside can be a share or a bound: positive, bounded, of at most 12 places."""
    if not value.is_finite() or not 0 < value <= largest:
        return False
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -SHARE_PLACES


NO_RANK_NOISE = Decimal(0)


def is_listed(mechanism: str) -> bool:
    """Whether a mechanism releases a list in rank order; one that nobody knows is taken to do so."""
    return mechanism not in MECHANISMS or MECHANISMS[mechanism].listed


def is_rank_noise(value: Decimal) -> bool:
    """Whether a decimal can be the rank noise of an attribute: from 0 to 1, of at most 12 places."""
    return value == 0 or is_share(value, Decimal(1))


def rank_loss(rank_noise: Decimal, g: int) -> Decimal:
    """Return 2g/w, which bounds what rank noise lets be told about who got which entry (MECHANISMS §8).

    It bounds 2g(n - 1)/t, with t = max(1, ceil(w n)), whatever the number of records n is. That holds for
    values in a public order only, see `planned_rank_loss`.

    Args:
        rank_noise: w, above 0.
        g: The most records that one person has.

    Returns:
        The bound, rounded up to 12 decimal places.
    """
    bound = _EXACT.divide(Decimal(2 * g), rank_noise)
    return plain(bound.quantize(Decimal(1).scaleb(-SHARE_PLACES), rounding=ROUND_CEILING, context=_EXACT))


def planned_rank_loss(
    mechanism: str, rank_noise: Decimal, g: int, *, frequency_order: bool
) -> Decimal | None:
    """Return the bound on what is told about who got which entry of an attribute's list.

    Args:
        mechanism: A mechanism id.
        rank_noise: w; 0 for none.
        g: The most records that one person has.
        frequency_order: Whether its categories are declared to be ordered by the data.

    Returns:
        2g/w; 0 without rank noise; None where one record can change the order of the categories, and so move
        any number of records by any number of ranks.
    """
    if not rank_noise:
        return NO_RANK_NOISE
    return (
        None if is_ordered_by_data(mechanism, frequency_order=frequency_order) else rank_loss(rank_noise, g)
    )


def is_ordered_by_data(mechanism: str, *, frequency_order: bool) -> bool:
    """Whether an attribute is masked in an order that comes from the data, which one record can change.

    Counts are the same in any order, so there the declared one is used and none is made from the data.

    Args:
        mechanism: A mechanism id.
        frequency_order: Whether its categories are declared to be ordered by the data.
    """
    return frequency_order and not MECHANISMS[mechanism].counts


def plain(value: Decimal) -> Decimal:
    """Return the same decimal without trailing zeros and without an exponent (1.50 as 1.5, 1E+1 as 10)."""
    normalised = value.normalize(_EXACT)
    whole = normalised == normalised.to_integral()
    return normalised.quantize(Decimal(1), context=_EXACT) if whole else normalised


def round_down(value: Decimal) -> Decimal:
    """Round a share down to 12 decimal places, so that shares never sum to more than the whole."""
    return plain(value.quantize(Decimal(1).scaleb(-SHARE_PLACES), rounding=ROUND_DOWN, context=_EXACT))


def share(epsilon: Decimal, parts: int) -> Decimal:
    """Return one of `parts` equal shares of a budget (sequential composition), rounded down.

    Raises:
        UsageError: If nothing is left of the share at 12 decimal places.
    """
    part = round_down(_EXACT.divide(epsilon, Decimal(parts)))
    if part <= 0:
        raise UsageError(
            f"epsilon {epsilon} cannot be divided into {parts} shares", "ask for a larger epsilon"
        )
    return part


def weighted_share(epsilon: Decimal, weight: Decimal, whole: Decimal) -> Decimal:
    """Return the share of a budget that a weight has among weights that sum to `whole`, rounded down.

    Raises:
        UsageError: If nothing is left of the share at 12 decimal places.
    """
    part = round_down(_EXACT.divide(_EXACT.multiply(epsilon, weight), whole))
    if part <= 0:
        raise UsageError(
            f"a weight of {weight} among {whole} leaves nothing of epsilon {epsilon}",
            "ask for a larger epsilon, or for weights that differ less",
        )
    return part


def total(values: Iterable[Decimal]) -> Decimal:
    """Add decimals exactly (sequential composition)."""
    with localcontext(_EXACT):
        return plain(sum(values, Decimal(0)))


def total_or_unbounded(values: Iterable[Decimal | None]) -> Decimal | None:
    """Add joint bounds; None, no bound, as soon as one of them is None."""
    bounds = list(values)
    return None if None in bounds else total(bound for bound in bounds if bound is not None)


def largest_or_unbounded(values: Iterable[Decimal | None]) -> Decimal | None:
    """Return the largest joint bound (parallel composition); None as soon as one of them is None."""
    bounds = list(values)
    return None if None in bounds else max(bound for bound in bounds if bound is not None)


def epsilon_joint(
    mechanism: str, epsilon: Decimal, *, frequency_order: bool, n_clusters: int
) -> Decimal | None:
    """Return the bound on an attribute's whole rank-ordered list of released values (MECHANISMS §4).

    Args:
        mechanism: A mechanism id.
        epsilon: The attribute's share of the budget.
        frequency_order: Whether its categories are declared to be ordered by the data, which one record can
            reorder.
        n_clusters: The most clusters there can be (`most_clusters`).

    Returns:
        The bound, or None where there is none.
    """
    if is_ordered_by_data(mechanism, frequency_order=frequency_order):
        return None
    factor = MECHANISMS[mechanism].joint_factor
    return plain(_EXACT.multiply(Decimal(n_clusters) if factor is None else factor, epsilon))


def most_clusters(most_records: int, k: int | None) -> int:
    """Return how many clusters there can be, from public numbers.

    Args:
        most_records: The largest number of records that a schema's rounded number can stand for.
        k: Minimum cluster size; None where every record is released by itself.
    """
    return max(most_records // (k or 1), 1)


def charge(accounting: Accounting, epsilon: Decimal, joint: Decimal | None) -> Decimal | None:
    """Return what a ledger takes for a task, or None if this way of accounting has no bound for it."""
    return epsilon if accounting == "per-centroid" else joint


def smallest_k(mechanism: str, max_records_per_person: int) -> int | None:
    """Return the smallest k of a mechanism: 3, or 2g + 1 where centroids are trimmed; None: it takes none."""
    promise = MECHANISMS[mechanism]
    if not promise.clustered:
        return None
    return max(SMALLEST_K, 2 * max_records_per_person + 1 if promise.trimmed else 0)
