"""Recorded terms of budgets: their totals, and the sources that were charged to them.

A budget belongs to data, not to a name in `owner.toml`. The first reservation records the budget's total and
the place of its source. Every spend records digests of all declared columns, masked or not, and of the
identifiers, unless the budget has them already. A larger total is refused, and so is a source that was
charged to another budget.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from common.errors import RefusedError
from owner_node.ledger.entry import CHARGES, Entry, EntryKind, added, text

EVIDENCE = 32
"""Total weight, in about bits of evidence, from which columns of equal content count as the same data."""


@dataclass(frozen=True, slots=True)
class Column:
    """Digests that identify a column, under the owner's secret key."""

    name: str
    """Name of the attribute or identifier."""
    values: str
    """Digest of its values in any order."""
    order: str
    """Digest of its values in record order."""
    values_weight: int
    """Evidence, in about bits, of another column with the same values in any order."""
    order_weight: int
    """Evidence, in about bits, of another column with the same values in the same order."""


def recorded_total(entries: Iterable[Entry], budget: str) -> Decimal | None:
    """Return the recorded total of a budget; None before its first use."""
    found = [
        each.note["total"]
        for each in entries
        if each.budget == budget and isinstance(each.note.get("total"), str)
    ]
    return Decimal(found[-1]) if found else None


def check_total(entries: Sequence[Entry], budget: str, total: Decimal) -> None:
    """Refuse a configured total that is larger than the recorded one; a smaller one applies at once.

    Raises:
        RefusedError: If it is larger.
    """
    recorded = recorded_total(entries, budget)
    if recorded is not None and total > recorded:
        rule = (
            f"total_epsilon = {text(total)} for budget {budget!r}, the ledger has recorded {text(recorded)}: "
            "a budget does not refill by editing owner.toml"
        )
        hint = (
            f"set total_epsilon back to {text(recorded)}, or record the change: "
            f"owner-node ledger budget {budget!r} --total {text(total)} --reason TEXT"
        )
        raise _refused(rule, hint, budget)


def check_source(entries: Sequence[Entry], budget: str, place: str, columns: Iterable[Column] = ()) -> None:
    """Refuse a source that was charged to another budget, identified by its place or by its content.

    Args:
        entries: The whole ledger.
        budget: The budget that is to be charged.
        place: Place of the source; empty if unknown.
        columns: All declared columns; empty before they are loaded.

    Raises:
        RefusedError: If it was charged to another budget.
    """
    columns = tuple(columns)
    for other in sorted(_charged(entries) - {budget}):
        of_other = [each for each in entries if each.budget == other]
        if place and any(each.note.get("place") == place for each in of_other):
            why = f"its source {place} was charged to budget {other!r}"
        elif _weight(_recorded_columns(of_other), columns) >= EVIDENCE:
            why = f"the same data were charged to budget {other!r}"
        else:
            continue
        hint = (
            f'write budget = "{other}" with its total_epsilon into the data set: a new name or a copy does '
            "not refill a budget; keep data of other people in a file of their own"
        )
        raise _refused(f"budget {budget!r} cannot be charged: {why}", hint, budget)


def new_columns(
    entries: Iterable[Entry], budget: str, columns: Iterable[Column]
) -> dict[str, dict[str, str]]:
    """Return the digests that a spend has to record: those of columns that the budget does not have yet."""
    values, orders = _recorded_columns(each for each in entries if each.budget == budget)
    return {
        each.name: {"values": each.values, "order": each.order}
        for each in columns
        if each.values not in values or each.order not in orders
    }


def _charged(entries: Iterable[Entry]) -> set[str]:
    """Return the budgets that have a spend or an open reservation."""
    changes: dict[str, list[Decimal]] = {}
    for each in entries:
        if each.kind in CHARGES:
            # A spend takes the amount that its reservation already holds.
            change = {EntryKind.RESERVE: each.charge, EntryKind.RETURN: -each.charge}.get(
                each.kind, Decimal(0)
            )
            changes.setdefault(each.budget, []).append(change)
    return {budget for budget, values in changes.items() if added(values) > 0}


def _recorded_columns(entries: Iterable[Entry]) -> tuple[set[str], set[str]]:
    marks = [
        mark
        for each in entries
        if isinstance(each.note.get("columns"), Mapping)
        for mark in each.note["columns"].values()
    ]
    return {mark["values"] for mark in marks}, {mark["order"] for mark in marks}


def _weight(recorded: tuple[set[str], set[str]], columns: Iterable[Column]) -> int:
    values, orders = recorded
    return sum(
        max(
            each.values_weight if each.values in values else 0,
            each.order_weight if each.order in orders else 0,
        )
        for each in columns
    )


def _refused(rule: str, hint: str, budget: str) -> RefusedError:
    return RefusedError(rule, hint, {"budget": budget, "rule": rule, "rules": [rule]})
