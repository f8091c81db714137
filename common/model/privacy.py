"""Budget arithmetic (docs/guarantee.md, "How a budget is spent"). Decimals only, rounded down.

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2 (sequential and parallel composition).
"""

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_DOWN, Context, Decimal, localcontext
from typing import Literal

from common.errors import UsageError

Accounting = Literal["joint", "per-centroid"]

SHARE_PLACES = 12
"""Decimal places that a share of a budget keeps."""
SMALLEST_K = 3
"""The smallest k of any release with a clustered mechanism."""
LARGEST_COUNT = 2**40
"""Larger than any k or number of records: what is beyond it in a document is no count of records."""
_EXACT = Context(prec=60)
LARGEST_EPSILON = Decimal(10**6)
"""Above this epsilon nothing is protected."""
LARGEST_JOINT = Decimal(10**18)
"""Joint bounds may grow with the number of clusters."""


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


def read_decimal(text: str) -> Decimal:
    """Read a number as people and documents write it: ASCII digits, point and sign, and spaces around.

    Python also takes digits of other scripts, underscores and infinity: a person who decides may see another
    number there than the program.

    Raises:
        ValueError: If it is something else.
    """
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a number")
    return Decimal(text.strip())


def read_whole_number(text: str) -> int:
    """Read a number without point and exponent; see `read_decimal`.

    Raises:
        ValueError: If it is something else.
    """
    number = read_decimal(text)
    if not text.strip().lstrip("+-").isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def parse_epsilon(text: str) -> Decimal:
    """Read an epsilon from decimal text.

    Raises:
        UsageError: If it is not a positive decimal, or is so large that nothing would be protected.
    """
    hint = "write epsilon as a positive decimal number, for example 0.5 or 1"
    try:
        epsilon = read_decimal(text)
    except ValueError:
        raise UsageError(f"epsilon {text!r} is not a decimal number", hint) from None
    if not epsilon.is_finite() or epsilon <= 0:
        raise UsageError(f"epsilon must be positive, not {text}", hint)
    if epsilon > LARGEST_EPSILON:
        raise UsageError(f"epsilon {text} protects nothing", hint)
    if round_down(epsilon) != epsilon:
        raise UsageError(f"epsilon {text} has more than {SHARE_PLACES} decimal places", hint)
    return plain(epsilon)


def parse_delta(text: str) -> Decimal:
    """Read a δ from decimal text; 0 from empty text.

    Raises:
        UsageError: If it is not a positive decimal below 1 with at most 12 decimal places.
    """
    try:
        delta = read_decimal(text or "0")
    except ValueError:
        delta = Decimal(-1)
    if delta < 0 or delta >= 1 or round_down(delta) != delta:
        raise UsageError(
            f"delta {text!r} is not a decimal from 0 to below 1, with at most {SHARE_PLACES} decimal places",
            "write delta as a small decimal number, for example 0.000001, or leave it out",
        )
    return plain(delta)


def is_share(value: Decimal, largest: Decimal = LARGEST_EPSILON) -> bool:
    """Whether a decimal from outside can be a share or a bound: positive, bounded, of at most 12 places."""
    if not value.is_finite() or not 0 < value <= largest:
        return False
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -SHARE_PLACES


NO_RANK_NOISE = Decimal(0)


def is_rank_noise(value: Decimal) -> bool:
    """Whether a decimal can be the rank noise of an attribute: from 0 to 1, of at most 12 places."""
    return value == 0 or is_share(value, Decimal(1))


def rank_loss(rank_noise: Decimal, g: int) -> Decimal:
    """Return 2g/w, the bound on the privacy loss of the record-to-rank assignment.

    It bounds 2g(n - 1)/t, with t = max(1, ceil(w n)), whatever the number of records n is. It holds for
    values in a public order only, see `common.model.mechanisms.Mechanism.rank_loss`.

    Args:
        rank_noise: w, above 0.
        g: The most records that one person has.

    Returns:
        The bound, rounded up to 12 decimal places.
    """
    bound = _EXACT.divide(Decimal(2 * g), rank_noise)
    return plain(bound.quantize(Decimal(1).scaleb(-SHARE_PLACES), rounding=ROUND_CEILING, context=_EXACT))


def plain(value: Decimal) -> Decimal:
    """Return the same decimal without trailing zeros and without an exponent (1.50 as 1.5, 1E+1 as 10)."""
    normalised = value.normalize(_EXACT)
    whole = normalised == normalised.to_integral()
    return normalised.quantize(Decimal(1), context=_EXACT) if whole else normalised


def multiply(factor: Decimal, value: Decimal) -> Decimal:
    """Multiply exactly."""
    return plain(_EXACT.multiply(factor, value))


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
            f"epsilon {epsilon} cannot be divided into {parts} shares", "choose a larger epsilon"
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
            "choose a larger epsilon, or weights that differ less",
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


def charge(accounting: Accounting, epsilon: Decimal, joint: Decimal | None) -> Decimal | None:
    """Return what a ledger takes for a task, or None if this way of accounting has no bound for it."""
    return epsilon if accounting == "per-centroid" else joint
