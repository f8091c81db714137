"""Numbers, sizes and times as people read them: few digits, and of a bound never less than what holds.

Documents and `--json` carry the exact decimals. A sum of rounded shares can miss a short number by less than
a billionth; it is that number here: 0.999999999996 is 1.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from math import isfinite

from common.model.privacy import plain

_PLACES = 4
_EXACT = Context(prec=60)
_BILLIONTH = Decimal("1e-9")


def span_text(values: Iterable[int | None]) -> str:
    """Return the least and the largest of some numbers as text; a dash if all of them are None."""
    known = {value for value in values if value is not None}
    if not known:
        return "–"
    return str(min(known)) if len(known) == 1 else f"{min(known)} to {max(known)}"


def count_text(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def rounded_up(bound: Decimal) -> Decimal:
    """Return a bound with four decimal places at most, rounded up; below 1 with four significant digits."""
    bound = _as_written(bound)
    places = _PLACES - 1 - bound.adjusted() if 0 < bound < 1 else _PLACES
    quantum = Decimal(1).scaleb(-places)
    return plain(bound.quantize(quantum, rounding=ROUND_CEILING, context=_EXACT))


def bound_text(bound: Decimal | None, without: str = "unbounded") -> str:
    """Return a bound as text, `without` where there is none."""
    return without if bound is None else f"{rounded_up(bound):f}"


def bound_cell(bound: Decimal | None, without: str = "unbounded") -> Decimal | str:
    """Return a bound as a cell of a table, whose columns of numbers are aligned."""
    return without if bound is None else rounded_up(bound)


def delta_text(delta: Decimal) -> str:
    """Return δ with all its decimal places: rounded like an ε it would be hundreds of times larger."""
    return f"{plain(delta):f}"


def cost_text(epsilon: Decimal, delta: Decimal) -> str:
    """Return ε, and δ where there is one: neither is ever told without the other."""
    return f"ε {bound_text(epsilon)}" + (f", δ {delta_text(delta)}" if delta else "")


def left_text(amount: Decimal) -> str:
    """Return what is left of a budget as text, with four decimal places at most, rounded down."""
    return f"{left_cell(amount):f}"


def left_cell(amount: Decimal) -> Decimal:
    """Return the same as a cell of a table."""
    quantum = Decimal(1).scaleb(-_PLACES)
    return plain(_as_written(amount).quantize(quantum, rounding=ROUND_FLOOR, context=_EXACT))


def _as_written(amount: Decimal) -> Decimal:
    """Return the number with four decimal places that is less than a billionth away, else the amount."""
    quantum = Decimal(1).scaleb(-_PLACES)
    nearest = amount.quantize(quantum, rounding=ROUND_HALF_EVEN, context=_EXACT)
    return nearest if nearest and abs(nearest - amount) < _BILLIONTH else amount


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


def first_text(texts: Iterable[str], most: int) -> str:
    """Return the first texts, separated by commas, and how many more there are."""
    listed = list(texts)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


_SMALLEST_PERCENT = 0.001


def number_text(number: float | Decimal | None) -> str:
    """Return a number with its first three digits; a dash if it is unknown."""
    if number is None or not isfinite(number):
        return "–"
    return f"{number:.3g}" if abs(float(number)) < 1000 else f"{number:,.0f}"


def percent_text(share: float | Decimal | str | None) -> str:
    """Return a share in per cent with three digits, tiny ones only as such; a dash if it is unknown."""
    if share is None:
        return "–"
    percent = 100 * float(share)
    tiny = 0 < percent < _SMALLEST_PERCENT
    return f"< {_SMALLEST_PERCENT} %" if tiny else f"{number_text(percent)} %"


def number_of(share: float | Decimal | str, whole: int) -> int:
    """Return how many a share of a number is, with three digits: it is an estimate."""
    return round(float(f"{float(share) * whole:.3g}"))


def about_text(share: float | Decimal | str, whole: int) -> str:
    """Return how many a share of a number is, beside the number."""
    if not float(share):
        return f"none of {whole:,}"
    count = number_of(share, whole)
    return f"about {count:,} of {whole:,}" if count else f"fewer than 1 of {whole:,}"


def size_text(n_bytes: float) -> str:
    """Return an amount of memory or disk, in the decimal units that `memory_limit` is written in."""
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def moment_text(moment: datetime | str, *, seconds: bool = False) -> str:
    """Return a moment, or its ISO 8601 text, in UTC.

    Args:
        seconds: To the second, as where several lines are of one minute; otherwise to the minute.
    """
    time = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC")
