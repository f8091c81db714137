"""A reservation that is needed in part: what is spent of it, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from common.errors import InternalError
from common.privacy import Accounting, charge
from owner_node.ledger.entry import EXACT, text

if TYPE_CHECKING:
    import sqlite3

Amounts = Mapping[str, str | None]
"""Those columns of an entry that are amounts, as they are written."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is needed of a reservation; it is charged as the reservation was."""

    epsilon: Decimal
    """Sum of epsilon."""
    epsilon_joint: Decimal | None
    """Sum of the joint bounds; None where one has none."""
    rank_loss: Decimal | None
    """What is told about who got which entries; None where that is not bounded."""


def split(reservation: "sqlite3.Row", part: Part) -> tuple[Amounts, Amounts | None]:
    """Split a reservation.

    Args:
        reservation: Its row in the ledger.
        part: What is needed of it.

    Returns:
        The amounts that are spent, and those that are returned; None if nothing is left to be.

    Raises:
        InternalError: If more is needed than was reserved, or it cannot be charged so.
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
    return spent, rest


def _less(whole: str | None, amount: Decimal | None) -> str | None:
    if whole is None or amount is None:
        return None
    return text(EXACT.subtract(Decimal(whole), amount))
