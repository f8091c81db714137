"""One line of the ledger: its form in owner.db, its exact arithmetic, and the balance of many."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from common.errors import IntegrityError, InternalError
from common.model.privacy import Accounting, charge, plain

if TYPE_CHECKING:
    import sqlite3

COLUMNS = (
    "time", "kind", "budget", "aggregator", "release", "plan_digest",
    "charge", "epsilon", "epsilon_joint", "accounting", "rank_loss", "delta", "note",
)  # fmt: skip
"""The chained columns of the table."""
OF_A_CHARGE = COLUMNS[2:-1]
"""Columns that a reservation shares with the entry that settles it."""
OF_NO_CHARGE: dict[str, str | None] = {
    **dict.fromkeys(OF_A_CHARGE, ""), "charge": "0", "epsilon": "0",
    **dict.fromkeys(("epsilon_joint", "rank_loss", "delta")),
}  # fmt: skip
"""Their values in an entry that concerns no release."""
EXACT = Context(prec=60, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])
"""Arithmetic that raises an error instead of rounding."""


class EntryKind(StrEnum):
    """What an entry does."""

    RESERVE = "reserve"
    SPEND = "spend"
    RETURN = "return"
    BUDGET = "budget"
    """Changes the recorded total of a budget."""
    RECOVER = "recover"
    """Acknowledges that entries were lost; its number follows theirs."""
    ROUND = "round"
    """Records which document opened a round of a release, and charges nothing: the head moves with it."""


CHARGES = frozenset({EntryKind.RESERVE, EntryKind.SPEND, EntryKind.RETURN})
"""The kinds that concern a release's charge."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    sequence: int
    """Position, from 1."""
    time: str
    """ISO 8601, UTC."""
    kind: EntryKind
    budget: str
    """Name of the budget; empty where it concerns none."""
    aggregator: str
    """Name of the aggregator; empty where it concerns none."""
    release: str
    """Release id; empty where it concerns none."""
    plan_digest: str
    """Digest of the plan that it was charged for."""
    charge: Decimal
    """Amount that is reserved, spent or returned; 0 for other kinds."""
    epsilon: Decimal
    epsilon_joint: Decimal | None
    """The task's joint bound; None where it has none."""
    accounting: str
    """Which of the two was charged: "joint" or "per-centroid"."""
    hash: str
    """Hash of this entry and all before it."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Further content: recorded total, place of the source, digests, a reason, lost heads, a round."""
    rank_loss: Decimal | None = None
    """Privacy loss of the record-to-rank assignment; None where it is unbounded."""
    delta: Decimal = Decimal(0)
    """δ of an (ε, δ)-differentially private release."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What is left of a budget."""

    total: Decimal
    """Configured total for the lifetime of the data, but never more than the recorded one."""
    reserved: Decimal
    """Held by open releases."""
    spent: Decimal
    remaining: Decimal
    """Total minus the two; negative if the configured total was lowered below them."""


def read(row: "sqlite3.Row") -> Entry:
    """Decode an entry from its row."""
    try:
        joint = None if row["epsilon_joint"] is None else Decimal(row["epsilon_joint"])
        rank_loss = None if row["rank_loss"] is None else Decimal(row["rank_loss"])
        delta = Decimal(row["delta"] or 0)
        note = {} if row["note"] is None else json.loads(row["note"])
        return Entry(
            row["sequence"], row["time"], EntryKind(row["kind"]), row["budget"], row["aggregator"],
            row["release"], row["plan_digest"], Decimal(row["charge"]), Decimal(row["epsilon"]), joint,
            row["accounting"], row["hash"], dict(note), rank_loss, delta,
        )  # fmt: skip
    except (ArithmeticError, ValueError, TypeError):
        raise IntegrityError(
            f"entry {row['sequence']} of the ledger cannot be read",
            "it was changed outside this program: run owner-node ledger --verify",
            {"entry": row["sequence"]},
        ) from None


def standing_charges(lines: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return one entry for each charge that was not returned: its spend, or its reservation.

    Args:
        lines: Lines of the ledger about one budget, oldest first.
    """
    of_release: dict[tuple[str, str], dict[EntryKind, Entry]] = {}
    for line in (entry for entry in lines if entry.kind in CHARGES):
        of_release.setdefault((line.aggregator, line.release), {})[line.kind] = line
    # A return beside a spend is only the part of the reservation that was not needed. In a damaged ledger, a
    # spend or a return can be alone.
    charges = (
        kinds.get(EntryKind.SPEND) or (None if EntryKind.RETURN in kinds else kinds[EntryKind.RESERVE])
        for kinds in of_release.values()
    )
    return tuple(charge for charge in charges if charge is not None)


def recovered_name(release: str, plan_digest: str) -> str:
    """Return the name that a recovery charges where the release's own name is already in use.

    Args:
        release: Release id whose reservation was returned, or which was charged for another plan.
    """
    return f"{release}#{plan_digest[:12]}"


def exact_sum(values: Iterable[Decimal]) -> Decimal:
    """Add decimals exactly."""
    result = Decimal(0)
    for value in values:
        result = EXACT.add(result, value)
    return result


def text(value: Decimal) -> str:
    """Return a decimal as the ledger writes it: without exponent and trailing zeros."""
    return format(plain(value), "f")


Amounts = Mapping[str, str | None]
"""The amount columns of an entry, as text."""


@dataclass(frozen=True, slots=True)
class Part:
    """The needed part of a reservation, charged with the same accounting."""

    epsilon: Decimal
    """Sum of epsilon."""
    epsilon_joint: Decimal | None
    """Sum of the joint bounds; None where one has none."""
    rank_loss: Decimal | None
    """Privacy loss of the record-to-rank assignment; None where it is unbounded."""
    delta: Decimal = Decimal(0)
    """δ; a part of a reservation with a δ needs all of it."""


def split(reservation: "sqlite3.Row", part: Part) -> tuple[Amounts, Amounts | None]:
    """Split a reservation.

    Returns:
        The amounts that are spent, and those that are returned; None if nothing is left to return.
    """
    accounting: Accounting = "per-centroid" if reservation["accounting"] == "per-centroid" else "joint"
    needed, reserved = charge(accounting, part.epsilon, part.epsilon_joint), Decimal(reservation["charge"])
    if needed is None or not 0 < needed <= reserved:
        raise InternalError("a spend needs more than was reserved for it")
    amounts = {
        "charge": needed,
        "epsilon": part.epsilon,
        "epsilon_joint": part.epsilon_joint,
        "rank_loss": part.rank_loss,
    }
    if needed == reserved:
        return {}, None
    spent = {name: None if amount is None else text(amount) for name, amount in amounts.items()}
    rest = {name: _less(reservation[name], amount) for name, amount in amounts.items()}
    return spent, {**rest, "delta": None}


def _less(whole: str | None, amount: Decimal | None) -> str | None:
    if whole is None or amount is None:
        return None
    return text(EXACT.subtract(Decimal(whole), amount))
