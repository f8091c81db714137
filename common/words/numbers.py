"""Numbers, sizes and times as people read them: few digits, and of a bound never less than what holds.

Documents and `--json` carry the exact decimals.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from common.model.privacy import plain

_PLACES = 4
_EXACT = Context(prec=60)


def span_text(values: Iterable[int | None]) -> str:
    """Return the least and the largest of some numbers as text; a dash if all of them are None."""
    known = {each for each in values if each is not None}
    if not known:
        return "–"
    return str(min(known)) if len(known) == 1 else f"{min(known)} to {max(known)}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


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


def left_text(amount: Decimal) -> str:
    """Return what is left of a budget as text, with four decimal places at most, rounded down."""
    return f"{plain(amount.quantize(Decimal(1).scaleb(-_PLACES), rounding=ROUND_FLOOR, context=_EXACT)):f}"


OF_UNIFORM = "share of a uniform attribute's variance"
"""Unit of an expected error that follows from public numbers."""
OF_YOUR_DATA = "share of your data's variance"
"""Unit of an expected error that an owner computes from its own data."""
_SMALL, _MODERATE, _AS_ITS_MEAN = Decimal("0.01"), Decimal("0.1"), Decimal(1)


def error_text(error: Decimal) -> str:
    """Return an expected error, a share of a variance, as one word and a number."""
    words = ((_SMALL, "small"), (_MODERATE, "moderate"), (_AS_ITS_MEAN, "large"))
    word = next((word for limit, word in words if error < limit), "its mean is as good")
    return f"{word} {error:.2g}" if error < _AS_ITS_MEAN else word


def size_text(n_bytes: float) -> str:
    """Return an amount of memory or disk, in the decimal units that `memory_limit` is written in."""
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def moment_text(moment: datetime | str, *, seconds: bool = False) -> str:
    """Return a moment, or its ISO 8601 text, in UTC.

    Args:
        moment: The moment.
        seconds: To the second, as where several lines are of one minute; otherwise to the minute.
    """
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC")
