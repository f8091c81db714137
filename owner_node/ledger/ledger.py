"""The ledger: the charges of all releases to budgets, in exact decimals and append-only.

A charge is reserved at consent. It is then either returned, or spent immediately before noise is drawn; if
only a part is needed, that part is spent and the rest returned in one transaction. A spend is never returned.
Entries are never changed; a balance is computed from all of them.
All releases of a data set add up (sequential composition; Del Vasto-Terrientes et al. 2025, Theorem 1).
"""

import sqlite3
from collections.abc import Iterable, Mapping
from decimal import Decimal

from common.errors import BalanceError, ConfigurationError, ConflictError, InternalError, RefusedError
from common.model.privacy import Accounting, plain
from owner_node.ledger import deltas, rank_losses
from owner_node.ledger.book import LedgerBook
from owner_node.ledger.budget_terms import Column, check_source, check_total, new_columns, recorded_total
from owner_node.ledger.entry import (
    CHARGES,
    EXACT,
    OF_NO_CHARGE,
    Balance,
    Entry,
    EntryKind,
    Part,
    exact_sum,
    read,
    split,
    text,
)
from owner_node.ledger.losses import Losses
from owner_node.state.chain import Head
from owner_node.state.database import Clock, OwnerDatabase, Transaction

__all__ = ["Balance", "Entry", "EntryKind", "Ledger"]


class Ledger(LedgerBook):
    """The owner's ledger: its lines, and the rules by which they are written."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        super().__init__(db, clock)
        self.losses = Losses(db, clock, self)
        """Signed heads that the ledger lacks, the halt that follows, and the charges for them."""

    def check_may_charge(self, tx: Transaction) -> None:
        """Check that a charge may be written; `reserve` and `spend` begin with this.

        Raises:
            IntegrityError: If the ledger is known to lack entries, until `owner-node ledger recover`.
        """
        if not tx.in_transaction:
            raise InternalError("a charge needs a transaction")
        self.losses.check_running()

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
        place: str = "",
        rank_loss: Decimal | None = None,
        total_rank_loss: Decimal | None = None,
        delta: Decimal = Decimal(0),
        total_delta: Decimal = Decimal(0),
    ) -> None:
        """Reserve a charge under its aggregator, release and plan. Idempotent.

        The first reservation of a budget records its total.

        Args:
            epsilon: The task's epsilon, for the record; the charge if None.
            epsilon_joint: The task's joint bound, for the record.
            place: Place of the source (`Source.place`).
            rank_loss: Privacy loss of the record-to-rank assignment; None where it is unbounded.
            total_rank_loss: Limit of the sum of rank losses of the budget; None for no limit.
            total_delta: Limit of the sum of δ of the budget.

        Raises:
            IntegrityError: If the ledger is known to lack entries.
            RefusedError: If the total grew, the source was charged to another budget, or the sum of rank
                losses or of δ exceeds its limit.
            BalanceError: If the charge exceeds the remaining balance.
            ConflictError: If the release was charged for another plan, or its reservation was returned.
        """
        self.check_may_charge(tx)
        if self._is_reserved(aggregator, release, plan_digest):
            return
        if not charge.is_finite() or charge <= 0:
            raise InternalError("a charge must be positive")
        self.check_budget(budget, total_epsilon, place)
        rank_losses.check(self.lines(budget), rank_loss, total_rank_loss, budget)
        deltas.check(self.lines(budget), delta, total_delta, budget)
        remaining = self.balance(budget, total_epsilon).remaining
        if charge > remaining:
            raise BalanceError(budget, text(charge), text(remaining))
        note = {"place": place} if place else {}
        if self.total(budget) is None:
            note["total"] = text(total_epsilon)
        values = {
            "budget": budget, "aggregator": aggregator, "release": release, "plan_digest": plan_digest,
            "charge": text(charge), "epsilon": text(charge if epsilon is None else epsilon),
            "epsilon_joint": None if epsilon_joint is None else text(epsilon_joint), "accounting": accounting,
            "rank_loss": None if rank_loss is None else text(rank_loss),
            "delta": text(delta) if delta else None,
        }  # fmt: skip
        self.append(tx, EntryKind.RESERVE, note, values)

    def spend(
        self,
        tx: Transaction,
        aggregator: str,
        release: str,
        plan_digest: str,
        columns: Iterable[Column] = (),
        part: Part | None = None,
    ) -> None:
        """Turn a reservation into a spend. Idempotent.

        Args:
            columns: All declared columns, recorded as charged to this budget.
            part: The needed part of the reservation; the rest is returned in the same transaction. None: all.

        Raises:
            IntegrityError: If the ledger is known to lack entries.
            RefusedError: If the data were charged to another budget.
            ConflictError: If it was reserved for another plan.
        """
        self.check_may_charge(tx)
        rows = self._of(aggregator, release, plan_digest)
        if EntryKind.SPEND in rows:
            return
        if EntryKind.RESERVE not in rows or EntryKind.RETURN in rows:
            raise InternalError(f"nothing is reserved for release {release!r}")
        columns, budget, lines = tuple(columns), str(rows[EntryKind.RESERVE]["budget"]), self.lines()
        check_source(lines, budget, "", columns)
        marks = new_columns(lines, budget, columns)
        needed, rest = (None, None) if part is None else split(rows[EntryKind.RESERVE], part)
        if rest is not None:
            self.settle(tx, EntryKind.RETURN, rows[EntryKind.RESERVE], amounts=rest)
        note = {"columns": marks} if marks else {}
        self.settle(tx, EntryKind.SPEND, rows[EntryKind.RESERVE], note, needed)

    def is_spent(self, aggregator: str, release: str, plan_digest: str) -> bool:
        """Whether a release was charged for this plan."""
        return any(
            row["kind"] == EntryKind.SPEND and row["plan_digest"] == plan_digest
            for row in self.of(aggregator, release)
        )

    def open_round(
        self, tx: Transaction, aggregator: str, release: str, plan_digest: str, number: int, opening: str
    ) -> str:
        """Record which document opened a round of a release, before anything is sent for it. Idempotent.

        So a ledger that was set back to before a round lacks an entry, as after a lost charge.

        Args:
            number: Number of the round.
            opening: Digest of the document.

        Returns:
            The recorded digest: another one if another document opened the round before.

        Raises:
            IntegrityError: If the ledger is known to lack entries.
            ConflictError: If the release was charged for another plan.
        """
        self.check_may_charge(tx)
        reservation = self._of(aggregator, release, plan_digest)[EntryKind.RESERVE]
        if known := self.opening_of(aggregator, release, number):
            return known
        names = {name: reservation[name] for name in ("budget", "aggregator", "release", "plan_digest")}
        self.append(
            tx, EntryKind.ROUND, {"round": str(number), "opening": opening}, {**OF_NO_CHARGE, **names}
        )
        return opening

    def opening_of(self, aggregator: str, release: str, number: int) -> str:
        """Return the digest of the document that opened a round of a release; empty before."""
        for entry in self.chain.read(read, self.of(aggregator, release)):
            if entry.kind is EntryKind.ROUND and entry.note["round"] == str(number):
                return str(entry.note["opening"])
        return ""

    def give_back(self, tx: Transaction, aggregator: str, release: str, plan_digest: str) -> bool:
        """Return a reservation. Idempotent; a spend, an earlier return or no reservation stay as they are.

        Returns:
            Whether a reservation was returned now.

        Raises:
            ConflictError: If it was reserved for another plan.
        """
        rows = self._of(aggregator, release, plan_digest)
        if set(rows) != {EntryKind.RESERVE}:
            return False
        self.settle(tx, EntryKind.RETURN, rows[EntryKind.RESERVE])
        return True

    def balance(self, budget: str, total: Decimal) -> Balance:
        """Return what is left of a budget.

        Raises:
            IntegrityError: If an entry holds no decimal.
        """
        lines = self.lines(budget)
        recorded = recorded_total(lines, budget)
        total = total if recorded is None else min(total, recorded)
        reserved, spent, returned = (
            exact_sum(line.charge for line in lines if line.kind is kind)
            for kind in (EntryKind.RESERVE, EntryKind.SPEND, EntryKind.RETURN)
        )
        held = EXACT.subtract(EXACT.subtract(reserved, spent), returned)
        remaining = EXACT.subtract(EXACT.subtract(total, held), spent)
        return Balance(plain(total), plain(held), plain(spent), plain(remaining))

    def rank_losses(self, budget: str) -> rank_losses.RankLosses:
        """Return the privacy losses of record-to-rank assignments from one budget."""
        return rank_losses.rank_losses(self.lines(budget))

    def deltas(self, budget: str) -> Decimal:
        """Return the sum of δ of the charges to one budget."""
        return deltas.deltas(self.lines(budget))

    def total(self, budget: str) -> Decimal | None:
        """Return the recorded total of a budget; None before its first use."""
        return recorded_total(self.lines(budget), budget)

    def check_budget(self, budget: str, total: Decimal, place: str, columns: Iterable[Column] = ()) -> None:
        """Check a budget against what the ledger has recorded, before anything is charged to it.

        Args:
            place: Place of the source; empty if unknown.
            columns: All declared columns; empty before they are loaded.

        Raises:
            RefusedError: If the total grew, or the source was charged to another budget.
        """
        lines = self.lines()
        check_total(lines, budget, total)
        check_source(lines, budget, place, columns)

    def check_totals(self, totals: Mapping[str, Decimal]) -> None:
        """Check that no configured total is larger than the recorded one: such a budget refuses everything.

        Raises:
            ConfigurationError: With every such budget and the commands that record the changes.
        """
        lines, refusals = self.lines(), []
        for budget, total in totals.items():
            try:
                check_total(lines, budget, total)
            except RefusedError as error:
                refusals.append(error)
        if refusals:
            raise ConfigurationError(
                "\n".join(f"{refusal.message}; until then it refuses everything" for refusal in refusals),
                hint="\n  ".join(refusal.hint for refusal in refusals),
            )

    def entries(self, budget: str | None = None) -> tuple[Entry, ...]:
        """Return the charges to one budget or to all, oldest first."""
        return tuple(line for line in self.lines(budget) if line.kind in CHARGES)

    def behind(self, head: Head) -> bool:
        """Whether this ledger lacks entries under a head of its own that no recovery acknowledged as lost."""
        return self.losses.misses(head)

    def verify(self) -> None:
        """Check the whole ledger, and that it still has the newest entry that was signed.

        Raises:
            IntegrityError: Naming the first entry that is invalid, or that is missing at the end.
        """
        self.verify_chain()
        signed = self.losses.signed()
        if signed is not None:
            self.losses.check(signed)

    def change_total(self, tx: Transaction, budget: str, total: Decimal, reason: str) -> None:
        """Record another total of a budget, with the reason that a person gave."""
        self.append(
            tx,
            EntryKind.BUDGET,
            {"total": text(total), "reason": reason},
            {**OF_NO_CHARGE, "budget": budget},
        )

    def _is_reserved(self, aggregator: str, release: str, plan_digest: str) -> bool:
        rows = self._of(aggregator, release, plan_digest)
        if EntryKind.RETURN in rows and EntryKind.SPEND not in rows:
            raise ConflictError(
                f"the reservation for release {release!r} was returned",
                "start a release with another id",
                {"release": release, "plan_digest": plan_digest},
            )
        return bool(rows)

    def _of(self, aggregator: str, release: str, plan_digest: str) -> dict[EntryKind, sqlite3.Row]:
        rows = self.of(aggregator, release)
        if any(row["plan_digest"] != plan_digest for row in rows):
            raise ConflictError(
                f"release {release!r} was charged for another plan",
                "a release id stands for one plan: start the other plan under another id",
                {"release": release, "plan_digest": plan_digest},
            )
        return {EntryKind(row["kind"]): row for row in rows if row["kind"] in CHARGES}
