"""The ledger: what every release charged to a budget, for ever, in exact decimals.

A charge is reserved at consent, and then either spent, immediately before noise is drawn, or returned. A
spend is never returned. Entries are never changed: a balance is what is left when all of them are added.
All releases of a data set add up (sequential composition; Del Vasto-Terrientes et al. 2025, Theorem 1).
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from enum import StrEnum

from common.errors import BalanceError, ConflictError, IntegrityError, InternalError
from common.privacy import Accounting, plain
from owner_node.chain import Chain, Head
from owner_node.database import Clock, Database, Transaction

_COLUMNS = (
    "time", "kind", "budget", "aggregator", "release", "plan_digest",
    "charge", "epsilon", "epsilon_joint", "accounting",
)  # fmt: skip
# A sum that would have to be rounded is an error, never a rounded sum.
_EXACT = Context(prec=60, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow])


class Kind(StrEnum):
    """What an entry does."""

    RESERVE = "reserve"
    SPEND = "spend"
    RETURN = "return"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    sequence: int
    """Position, from 1."""
    time: str
    """ISO 8601, UTC."""
    kind: Kind
    """What it does."""
    budget: str
    """Name of the budget."""
    aggregator: str
    """Name of the aggregator."""
    release: str
    """Release id."""
    plan_digest: str
    """The plan it was charged for."""
    charge: Decimal
    """What is reserved, spent or returned."""
    epsilon: Decimal
    """The task's epsilon."""
    epsilon_joint: Decimal | None
    """The task's joint bound; None where it has none."""
    accounting: str
    """Which of the two was charged: "joint" or "per-centroid"."""
    hash: str
    """Hash of this entry and all before it."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What is left of a budget."""

    total: Decimal
    """For the lifetime of the data, as configured."""
    reserved: Decimal
    """Promised to releases that are under way."""
    spent: Decimal
    """Gone."""
    remaining: Decimal
    """Total less the two; below zero if the configured total was lowered under them."""


class Ledger:
    """The owner's ledger.

    Args:
        db: The owner's database.
        clock: Tells the time.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self._clock = clock
        self._chain = Chain(db, "ledger", "ledger", _COLUMNS)

    def reserve(
        self,
        tx: Transaction,
        *,
        budget: str,
        total_epsilon: Decimal,
        charge: Decimal,
        aggregator: str,
        release: str,
        plan_digest: str,
        epsilon: Decimal | None = None,
        epsilon_joint: Decimal | None = None,
        accounting: Accounting = "joint",
    ) -> None:
        """Reserve a charge, which stands under aggregator, release and plan; the same again changes nothing.

        Args:
            tx: The transaction.
            budget: Name of the budget.
            total_epsilon: Its configured total.
            charge: What to reserve.
            aggregator: Name of the aggregator.
            release: Release id.
            plan_digest: Digest of the plan.
            epsilon: The task's epsilon, for the record; the charge if None.
            epsilon_joint: The task's joint bound, for the record.
            accounting: Which of the two is charged.

        Raises:
            BalanceError: If it does not fit.
            ConflictError: If the release was charged for another plan, or its reservation was returned.
        """
        if self._is_reserved(aggregator, release, plan_digest):
            return
        if not charge.is_finite() or charge <= 0:
            raise InternalError("a charge must be positive")
        remaining = self.balance(budget, total_epsilon).remaining
        if charge > remaining:
            raise BalanceError(budget, _text(charge), _text(remaining))
        self._append(
            tx, Kind.RESERVE, budget=budget, aggregator=aggregator, release=release, plan_digest=plan_digest,
            charge=_text(charge), epsilon=_text(charge if epsilon is None else epsilon),
            epsilon_joint=None if epsilon_joint is None else _text(epsilon_joint), accounting=accounting,
        )  # fmt: skip

    def spend(self, tx: Transaction, aggregator: str, release: str, plan_digest: str) -> None:
        """Turn a reservation into a spend; a second time changes nothing.

        Raises:
            InternalError: If nothing is reserved.
            ConflictError: If it was reserved for another plan.
        """
        found = self._of(aggregator, release, plan_digest)
        if Kind.RESERVE not in found or Kind.RETURN in found:
            raise InternalError(f"nothing is reserved for release {release!r}")
        if Kind.SPEND not in found:
            self._settle(tx, Kind.SPEND, found[Kind.RESERVE])

    def give_back(self, tx: Transaction, aggregator: str, release: str, plan_digest: str) -> bool:
        """Return a reservation. What was spent, returned before or never reserved stays as it is.

        Returns:
            Whether something was returned now.

        Raises:
            ConflictError: If it was reserved for another plan.
        """
        found = self._of(aggregator, release, plan_digest)
        if set(found) != {Kind.RESERVE}:
            return False
        self._settle(tx, Kind.RETURN, found[Kind.RESERVE])
        return True

    def balance(self, budget: str, total: Decimal) -> Balance:
        """Return what is left of a budget.

        Args:
            budget: Its name.
            total: Its configured total.

        Raises:
            IntegrityError: If an entry holds no decimal.
        """
        entries = [_entry(row) for row in self._chain.entries("budget = ?", (budget,))]
        reserved, spent, returned = (_sum(e.charge for e in entries if e.kind is kind) for kind in Kind)
        held = _EXACT.subtract(_EXACT.subtract(reserved, spent), returned)
        remaining = _EXACT.subtract(_EXACT.subtract(total, held), spent)
        return Balance(plain(total), plain(held), plain(spent), plain(remaining))

    def entries(self, budget: str | None = None) -> tuple[Entry, ...]:
        """Return the entries of one budget or of all, oldest first."""
        rows = self._chain.entries() if budget is None else self._chain.entries("budget = ?", (budget,))
        return tuple(_entry(row) for row in rows)

    def head(self) -> Head:
        """Return where the ledger is: what is signed with every consent and upload."""
        return self._chain.head()

    def behind(self, head: Head) -> bool:
        """Whether this ledger lacks what a head of its own says it had: a restored backup or a lost disk."""
        return not self._chain.contains(head)

    def verify(self) -> None:
        """Check the whole ledger.

        Raises:
            IntegrityError: Naming the first entry that does not hold.
        """
        self._chain.verify()

    def _is_reserved(self, aggregator: str, release: str, plan_digest: str) -> bool:
        found = self._of(aggregator, release, plan_digest)
        if Kind.RETURN in found:
            raise ConflictError(
                f"the reservation for release {release!r} was returned",
                "start a release with another id",
                {"release": release, "plan_digest": plan_digest},
            )
        return bool(found)

    def _of(self, aggregator: str, release: str, plan_digest: str) -> dict[Kind, sqlite3.Row]:
        rows = self._chain.entries("aggregator = ? AND release = ?", (aggregator, release))
        if any(row["plan_digest"] != plan_digest for row in rows):
            raise ConflictError(
                f"release {release!r} was charged for another plan",
                "a release id stands for one plan: start the other plan under another id",
                {"release": release, "plan_digest": plan_digest},
            )
        return {Kind(row["kind"]): row for row in rows}

    def _settle(self, tx: Transaction, kind: Kind, reservation: sqlite3.Row) -> None:
        names = (
            "budget",
            "aggregator",
            "release",
            "plan_digest",
            "charge",
            "epsilon",
            "epsilon_joint",
            "accounting",
        )
        self._append(tx, kind, **{name: reservation[name] for name in names})

    def _append(self, tx: Transaction, kind: Kind, **values: str | None) -> None:
        self._chain.append(tx, {"time": self._clock().isoformat(), "kind": str(kind), **values})


def _entry(row: sqlite3.Row) -> Entry:
    try:
        joint = None if row["epsilon_joint"] is None else Decimal(row["epsilon_joint"])
        return Entry(
            row["sequence"], row["time"], Kind(row["kind"]), row["budget"], row["aggregator"], row["release"],
            row["plan_digest"], Decimal(row["charge"]), Decimal(row["epsilon"]), joint, row["accounting"],
            row["hash"],
        )  # fmt: skip
    except (ArithmeticError, ValueError, TypeError):
        raise IntegrityError(
            f"entry {row['sequence']} of the ledger cannot be read",
            "it was changed outside this program: run owner-node ledger --verify",
            {"entry": row["sequence"]},
        ) from None


def _sum(values: Iterable[Decimal]) -> Decimal:
    result = Decimal(0)
    for value in values:
        result = _EXACT.add(result, value)
    return result


def _text(value: Decimal) -> str:
    return format(plain(value), "f")
