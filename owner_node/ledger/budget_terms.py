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
from owner_node.ledger.entry import CHARGES, Entry, EntryKind, exact_sum, text

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
    totals = [
        entry.note["total"]
        for entry in entries
        if entry.budget == budget and isinstance(entry.note.get("total"), str)
    ]
    return Decimal(totals[-1]) if totals else None


def check_total(entries: Sequence[Entry], budget: str, total: Decimal) -> None:
    """Refuse a configured total that is larger than the recorded one; a smaller one applies at once."""
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
        raise _refusal(rule, hint, budget)


def check_source(entries: Sequence[Entry], budget: str, place: str, columns: Iterable[Column] = ()) -> None:
    """Refuse a source that was charged to another budget, identified by its place or by its content.

    Args:
        entries: The whole ledger.
        place: Place of the source; empty if unknown.
        columns: All declared columns; empty before they are loaded.
    """
    columns = tuple(columns)
    for other in sorted(_charged_budgets(entries) - {budget}):
        of_other = [entry for entry in entries if entry.budget == other]
        if place and any(entry.note.get("place") == place for entry in of_other):
            why = f"its source {place} was charged to budget {other!r}"
        elif _weight(_recorded_columns(of_other), columns) >= EVIDENCE:
            why = f"the same data were charged to budget {other!r}"
        else:
            continue
        hint = (
            f'write budget = "{other}" with its total_epsilon into the data set: a new name or a copy does '
            "not refill a budget; keep data of other people in a file of their own"
        )
        raise _refusal(f"budget {budget!r} cannot be charged: {why}", hint, budget)


def new_columns(
    entries: Iterable[Entry], budget: str, columns: Iterable[Column]
) -> dict[str, dict[str, str]]:
    """Return the digests that a spend has to record: those of columns that the budget does not have yet."""
    values, orders = _recorded_columns(entry for entry in entries if entry.budget == budget)
    return {
        column.name: {"values": column.values, "order": column.order}
        for column in columns
        if column.values not in values or column.order not in orders
    }


def _charged_budgets(entries: Iterable[Entry]) -> set[str]:
    """Return the budgets that have a spend or an open reservation."""
    changes: dict[str, list[Decimal]] = {}
    for entry in entries:
        if entry.kind in CHARGES:
            # A spend takes the amount that its reservation already holds.
            change = {EntryKind.RESERVE: entry.charge, EntryKind.RETURN: -entry.charge}.get(
                entry.kind, Decimal(0)
            )
            changes.setdefault(entry.budget, []).append(change)
    return {budget for budget, values in changes.items() if exact_sum(values) > 0}


def _recorded_columns(entries: Iterable[Entry]) -> tuple[set[str], set[str]]:
    marks = [
        mark
        for entry in entries
        if isinstance(entry.note.get("columns"), Mapping)
        for mark in entry.note["columns"].values()
    ]
    return {mark["values"] for mark in marks}, {mark["order"] for mark in marks}


def _weight(recorded: tuple[set[str], set[str]], columns: Iterable[Column]) -> int:
    values, orders = recorded
    return sum(
        max(
            column.values_weight if column.values in values else 0,
            column.order_weight if column.order in orders else 0,
        )
        for column in columns
    )


def _refusal(rule: str, hint: str, budget: str) -> RefusedError:
    return RefusedError(rule, hint, {"budget": budget, "rule": rule, "rules": [rule]})
