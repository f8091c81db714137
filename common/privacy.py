"""Budget arithmetic and what each mechanism promises (MECHANISMS §4-5). Decimals only, rounded down.

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2 (sequential and parallel composition).
    Soria-Comas et al. 2017, Proposition 5 (noise calibrated to the local sensitivity of a vector).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal, InvalidOperation, localcontext
from typing import Literal

from common.errors import UsageError

Accounting = Literal["joint", "per-centroid"]

SHARE_PLACES = 12
"""Decimal places that a share of a budget keeps."""
SMALLEST_K = 3
"""The smallest k of any release with a clustered mechanism (DESIGN §5)."""
_EXACT = Context(prec=60)
_LARGEST_EPSILON = Decimal(10**6)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a mechanism promises about one attribute, whatever the data."""

    id: str
    """Name in plans, policies and manifests."""
    joint_factor: Decimal
    """epsilon_joint of the attribute's rank-ordered list of released values, as a multiple of epsilon."""
    trimmed: bool
    """Whether centroids are trimmed means, which takes k of at least 2g + 1."""
    why: str
    """Where the multiple comes from."""


MECHANISMS = {
    mechanism.id: mechanism
    for mechanism in (
        Mechanism("idp-ls", Decimal(2), trimmed=False, why="supremum 1 + ln 2 over all data, stated as 2"),
        Mechanism("idp-joint", Decimal(1), trimmed=True, why="one scale for the whole list of centroids"),
    )
}
DEFAULT_MECHANISM = "idp-joint"


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
    if epsilon > _LARGEST_EPSILON:
        raise UsageError(f"epsilon {text} protects nothing", hint)
    if round_down(epsilon) != epsilon:
        raise UsageError(f"epsilon {text} has more than {SHARE_PLACES} decimal places", hint)
    return plain(epsilon)


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


def epsilon_joint(mechanism: str, epsilon: Decimal, *, frequency_order: bool) -> Decimal | None:
    """Return the bound on an attribute's whole rank-ordered list of released values (MECHANISMS §4).

    Args:
        mechanism: A mechanism id.
        epsilon: The attribute's share of the budget.
        frequency_order: Whether its categories are ordered by the data, which one record can reorder.

    Returns:
        The bound, or None where there is none.
    """
    if frequency_order:
        return None
    return plain(_EXACT.multiply(MECHANISMS[mechanism].joint_factor, epsilon))


def charge(accounting: Accounting, epsilon: Decimal, joint: Decimal | None) -> Decimal | None:
    """Return what a ledger takes for a task, or None if this way of accounting has no bound for it."""
    return epsilon if accounting == "per-centroid" else joint


def smallest_k(mechanism: str, max_records_per_person: int) -> int:
    """Return the smallest k that a mechanism takes: 3, or 2g + 1 where centroids are trimmed."""
    trimmed = MECHANISMS[mechanism].trimmed
    return max(SMALLEST_K, 2 * max_records_per_person + 1 if trimmed else 0)
