"""Bounds as people read them: few digits, and never less than what holds.

Documents and `--json` carry the exact decimals.
"""

from decimal import ROUND_CEILING, Context, Decimal

from common.model.privacy import plain

_PLACES = 4
_EXACT = Context(prec=60)


def rounded_up(bound: Decimal) -> Decimal:
    """Return a bound with four decimal places at most, rounded up; below 1 with four significant digits.

    Args:
        bound: An epsilon, a joint bound, or a privacy loss of ranks.
    """
    places = _PLACES - 1 - bound.adjusted() if 0 < bound < 1 else _PLACES
    quantum = Decimal(1).scaleb(-places)
    return plain(bound.quantize(quantum, rounding=ROUND_CEILING, context=_EXACT))


def bound_text(bound: Decimal | None, without: str = "unbounded") -> str:
    """Return a bound as text.

    Args:
        bound: The bound; None where there is none.
        without: The text for None.
    """
    return without if bound is None else f"{rounded_up(bound):f}"


def bound_cell(bound: Decimal | None, without: str = "unbounded") -> Decimal | str:
    """Return a bound as a cell of a table, whose columns of numbers are aligned."""
    return without if bound is None else rounded_up(bound)
