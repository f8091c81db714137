"""The drawings of the pages, as numbers that templates write into SVG: no style, no script."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from owner_node.ledger.ledger import Entry, EntryKind

WIDTH = 320.0
"""Width of a drawing in a card, in its own units."""
CHART_WIDTH, CHART_HEIGHT = 600.0, 160.0
MOST_CORNERS = 400
"""Charges that a chart distinguishes; those of one moment in the drawing are one step."""
_ENDS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_ROOM = 1.15
_LONGEST_NAME, _MOST_BESIDE = 16, 2


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar."""

    kind: str
    """What it stands for; also its class."""
    amount: Decimal
    x: float
    width: float


def cost(balance: Mapping[str, Any] | None, charge: Decimal | None, *, waits: bool) -> list[BarPart]:
    """Return the parts of a budget: spent, held, what this plan takes while it waits, and what is left.

    Args:
        charge: What the plan takes; None where that is unbounded.
        waits: Whether the plan waits: afterwards the balance includes it.

    Returns:
        The parts that are not empty, from the left; nothing without a budget or where it is overdrawn.
    """
    if balance is None or not balance["total"] or charge is None:
        return []
    left = balance["remaining"] - (charge if waits else 0)
    amounts = {
        "spent": balance["spent"],
        "held": balance["reserved"],
        "this": charge if waits else Decimal(0),
        "left": left,
    }
    if left < 0:
        return []
    parts, x = [], 0.0
    for kind, amount in amounts.items():
        width = WIDTH * float(amount / balance["total"])
        if amount:
            parts.append(BarPart(kind, amount, x, width))
        x += width
    return parts


@dataclass(frozen=True, slots=True)
class RiskScale:
    """An attack on a scale of shares of persons; places in units of the drawing."""

    end: float
    """Share at the right end."""
    mean: float
    low: float
    high: float
    without: float
    """How often the attack is right without the release."""
    limit: float | None
    exceeded: bool | None
    """Whether the mean is above the limit; None without a limit."""


def risk_scale(intruder: Mapping[str, Any] | None) -> RiskScale | None:
    """Return the scale of what the expected intruder finds; None if it was not tried.

    Args:
        intruder: As in `owner_node.views.verdict.verdict_of`.
    """
    if intruder is None:
        return None
    most, without = intruder["limit"], float(intruder["without"])
    mean, low, high = (float(intruder[key]) for key in ("share", "low", "high"))
    shown = max(high, without, float(most or 0)) * _ROOM
    end = next((tick for tick in _ENDS if tick >= shown), 1.0)

    def place(share: float) -> float:
        return WIDTH * min(share / end, 1.0)

    return RiskScale(
        end, place(mean), place(low), place(high), place(without),
        None if most is None else place(float(most)), None if most is None else not intruder["kept"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flow:
    """Who sends something, and to whom."""

    senders: tuple[tuple[str, float], ...]
    """Names, and the top of their boxes, this owner first."""
    height: float
    middle: float
    to: str


def flow(owner: str, plan: Mapping[str, Any]) -> Flow:
    """Return the drawing of who sends masked values to whom."""
    others = [co_owner["id"] for co_owner in plan["co_owners"]]
    beside = [_short(name) for name in others[:_MOST_BESIDE]]
    if len(others) > _MOST_BESIDE:
        beside.append(f"and {len(others) - _MOST_BESIDE} more")
    names = (_short(owner), *beside)
    height = 36.0 * len(names) - 8
    tops = tuple((name, 36.0 * number) for number, name in enumerate(names))
    return Flow(tops, max(height, 44.0), height / 2, _short(plan["aggregator"], 11))


def _short(name: str, longest: int = _LONGEST_NAME) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


@dataclass(frozen=True, slots=True)
class Chart:
    """What is charged to a budget over time."""

    corners: tuple[tuple[float, float], ...]
    """Corners of the line, from the left."""
    top: Decimal
    """Amount at the top."""
    limit: float | None
    """Height of the total; None if it is not configured."""
    begins: str
    ends: str
    """Times at the left and the right end, ISO 8601."""


def chart(entries: Iterable[Entry], budget: str, total: Decimal | None, now: datetime) -> Chart | None:
    """Return the line of what is charged to a budget over time; None if nothing was.

    Args:
        entries: Charges, oldest first.
        total: Its total; None if it is not configured any more.
    """
    signs = {EntryKind.RESERVE: 1, EntryKind.RETURN: -1}
    own = [entry for entry in entries if entry.budget == budget]
    if not own:
        return None
    first = datetime.fromisoformat(own[0].time)
    span = max((now - first).total_seconds(), 1.0)

    def place(entry: Entry) -> int:
        passed = (datetime.fromisoformat(entry.time) - first).total_seconds()
        return round(MOST_CORNERS * min(max(passed / span, 0.0), 1.0))

    level, steps = Decimal(0), [(0, Decimal(0))]
    for at, same in groupby(own, place):
        level += sum((signs.get(entry.kind, 0) * entry.charge for entry in same), Decimal(0))
        # A clock that was set back draws no line to the left.
        steps.append((max(at, steps[-1][0]), level))
    top = max(total or Decimal(0), *(height for _, height in steps))
    if not top:
        return None
    ends = [at for at, _ in steps[1:]] + [MOST_CORNERS]
    corners = [
        (CHART_WIDTH * at / MOST_CORNERS, CHART_HEIGHT * (1 - float(height / top)))
        for (begin, height), end in zip(steps, ends, strict=True)
        for at in (begin, end)
    ]
    limit = None if total is None else CHART_HEIGHT * (1 - float(total / top))
    return Chart(tuple(corners), top, limit, own[0].time, now.isoformat())


def charts(
    balances: Sequence[Mapping[str, Any]], entries: Sequence[Entry], now: datetime
) -> dict[str, Chart | None]:
    """Return the chart of every budget, by its name."""
    return {
        balance["budget"]: chart(entries, balance["budget"], balance["total"], now) for balance in balances
    }
