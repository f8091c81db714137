"""Lost entries: how a ledger detects that it lacks signed entries, stops all work, and charges the loss.

A hash chain cannot show that its newest entries were cut off. The heads that this owner signed can: the
aggregators keep the newest one and show it again, and owner.db remembers it as well.

An owner whose ledger lacks entries that it once signed would spend the same budget twice. So all work stops,
for every aggregator and for this owner's own commands, until `owner-node ledger recover`. The newest signed
head and the reason of the halt are kept in owner.db, so they survive restarts and hold for every command.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.canonical import canonical
from common.errors import IntegrityError
from common.model.plan import Plan
from owner_node.ledger.book import LedgerBook
from owner_node.ledger.entry import OF_NO_CHARGE, Entry, EntryKind, read, recovered_name, text
from owner_node.state.chain import Head
from owner_node.state.database import Clock, OwnerDatabase, Transaction

_HINT = (
    "stop every other copy; put the newest owner.db back, or charge what this one lacks: "
    "owner-node ledger recover"
)


@dataclass(frozen=True, slots=True)
class LostCharge:
    """A charge that the ledger lost, or holds only as a reservation."""

    budget: str
    """Name of the budget; empty if its data set is not declared any more."""
    charge: Decimal
    """Amount that was spent."""
    aggregator: str
    release: str
    plan_digest: str
    """Of the plan that it was charged for; empty if unknown."""
    dataset: str = ""
    """Name of the data set; empty where only the budget is known."""
    proved: bool = True
    """Whether it is known by this owner's own signature under its consent, or by its reservation here."""
    rank_loss: Decimal | None = None
    """Privacy loss of the record-to-rank assignment; None where it is unbounded or unknown."""
    delta: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Recalled:
    """A release that an aggregator shows this owner took part in."""

    aggregator: str
    plan: Plan
    """The plan that this owner accepted."""
    proved: bool
    """True if this owner's own signature under its consent was recognised."""
    masking_asked: bool
    """True if the aggregator asked for a fragment; only then can the charge have been spent."""
    sealed: bool
    """True if the owner reported a sealed fragment: then it was spent."""

    @property
    def may_be_spent(self) -> bool:
        """True if the charge can have been spent."""
        return self.masking_asked or self.sealed

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of its charge in the ledger: aggregator, release, plan digest."""
        return self.aggregator, self.plan.release, self.plan.digest


@dataclass(frozen=True, slots=True)
class Shown:
    """The heads and releases that one aggregator shows."""

    aggregator: str
    newest: Head | None
    """The newest head that it keeps; None if it has none."""
    proved: bool
    """True if this owner's own signature under that head was recognised."""
    places: tuple[Head, ...]
    """Every head that it has of this owner."""
    releases: tuple[Recalled, ...]
    """Every release whose plan this owner accepted."""


def acknowledged(entries: Iterable[Entry]) -> frozenset[Head]:
    """Return the heads whose loss earlier recoveries acknowledged."""
    return frozenset(
        Head(int(lost["sequence"]), lost["hash"])
        for entry in entries
        if entry.kind is EntryKind.RECOVER
        for lost in entry.note.get("lost", [])
    )


class Losses:
    """Signed heads, the halt, and charges for lost entries of a ledger."""

    def __init__(self, db: OwnerDatabase, clock: Clock, book: LedgerBook) -> None:
        self._db, self._clock, self._book = db, clock, book

    # --- signed heads ----------------------------------------------------------------------------------

    def sign(self, tx: Transaction) -> Head:
        """Return the head of the ledger, for a signature, and remember that it was signed."""
        head = self._book.chain.head()
        tx.execute(
            "INSERT INTO ledger_signed (id, sequence, hash) VALUES (1, :sequence, :hash) ON CONFLICT (id) "
            "DO UPDATE SET sequence = :sequence, hash = :hash WHERE :sequence > sequence",
            {"sequence": head.sequence, "hash": head.hash},
        )
        return head

    def signed(self) -> Head | None:
        """Return the newest head that this owner signed, as far as owner.db knows."""
        rows = self._db.rows("SELECT sequence, hash FROM ledger_signed")
        with self._db.decoding():
            return Head(int(rows[0]["sequence"]), str(rows[0]["hash"])) if rows else None

    def remembered(self) -> frozenset[Head]:
        """Return the heads that owner.db knows: the newest signed one, and the one that stopped the work."""
        signed, reason = self.signed(), self.reason()
        heads = set() if signed is None else {signed}
        if reason is not None and "signed_hash" in reason.details:
            heads.add(Head(int(reason.details["signed"]), str(reason.details["signed_hash"])))
        return frozenset(heads)

    def misses(self, head: Head) -> bool:
        """Whether the ledger lacks entries under one of its heads that no recovery acknowledged as lost."""
        if self._book.chain.contains(head):
            return False
        return head not in acknowledged(map(read, self._book.chain.entries("kind = ?", (EntryKind.RECOVER,))))

    def check(self, head: Head) -> None:
        """Check that the ledger has the entries that one of its signed heads covered.

        Raises:
            IntegrityError: If it lacks them: a restored backup, a lost disk, or a copy that diverged.
        """
        if not self.misses(head):
            return
        own = self._book.chain.head().sequence
        fault = (
            f"the ledger ends at entry {own}, but this owner has signed entry {head.sequence}"
            if head.sequence > own
            else f"entry {head.sequence} of the ledger is not the one that this owner signed"
        )
        raise IntegrityError(
            f"{fault}: it was restored from a backup, lost entries, or another copy of this state directory "
            "is at work",
            _HINT,
            {
                "chain": "ledger", "sequence": own, "signed": head.sequence, "signed_hash": head.hash,
                "entry": min(own + 1, head.sequence),
            },
        )  # fmt: skip

    # --- the halt --------------------------------------------------------------------------------------

    def stop(self, tx: Transaction, error: IntegrityError) -> None:
        """Stop all work and store the reason; an earlier reason stays."""
        details = canonical({key: str(value) for key, value in error.details.items()}).decode()
        tx.execute(
            "INSERT OR IGNORE INTO ledger_halt (id, time, message, hint, details) VALUES (1, ?, ?, ?, ?)",
            (self._clock().isoformat(), error.message, error.hint, details),
        )

    def reason(self) -> IntegrityError | None:
        """Return why all work is stopped, or None if it is not."""
        for row in self._db.rows("SELECT message, hint, details FROM ledger_halt"):
            with self._db.decoding():
                return IntegrityError(row["message"], row["hint"], json.loads(row["details"]))
        return None

    def check_running(self) -> None:
        """Check that work is not stopped.

        Raises:
            IntegrityError: If it is, with the reason.
        """
        reason = self.reason()
        if reason is not None:
            raise reason

    # --- recovery --------------------------------------------------------------------------------------

    def acknowledge(self, tx: Transaction, lost: Iterable[Head], note: Mapping[str, Any]) -> Head:
        """Acknowledge that entries were lost, continue after their numbers, and end the halt.

        Args:
            tx: The transaction, in which everything that was lost is charged.
            lost: Heads that this ledger does not have.

        Returns:
            The new head.
        """
        heads = sorted(lost, key=lambda head: (head.sequence, head.hash))
        documents = [{"sequence": str(head.sequence), "hash": head.hash} for head in heads]
        skip_to = heads[-1].sequence + 1 if heads else 0
        tx.execute("DELETE FROM ledger_halt")
        return self._book.append(tx, EntryKind.RECOVER, {**note, "lost": documents}, OF_NO_CHARGE, skip_to)

    def charge(self, tx: Transaction, lost: LostCharge, note: Mapping[str, Any] | None = None) -> None:
        """Charge what was spent before entries were lost, even beyond the balance. Idempotent.

        A spend that the ledger holds stays as it is. If it holds a reservation, the reserved charge is spent.
        A release that it returned without knowing of the spend, or that a copy of the state directory charged
        for another plan, is charged under a separate name.

        Args:
            note: Terms of budget and source that a reservation records.
        """
        release = lost.release
        rows = self._book.of(lost.aggregator, release)
        kinds = {row["kind"] for row in rows}
        returned = EntryKind.RETURN in kinds and EntryKind.SPEND not in kinds
        if returned or any(row["plan_digest"] != lost.plan_digest for row in rows):
            release = recovered_name(release, lost.plan_digest)
            rows = self._book.of(lost.aggregator, release)
        by_kind = {row["kind"]: row for row in rows}
        if EntryKind.SPEND in by_kind:
            return
        if EntryKind.RESERVE not in by_kind:
            values = {
                "budget": lost.budget, "aggregator": lost.aggregator, "release": release,
                "plan_digest": lost.plan_digest, "charge": text(lost.charge), "epsilon": text(lost.charge),
                "epsilon_joint": None, "accounting": "recovered",
                "rank_loss": None if lost.rank_loss is None else text(lost.rank_loss),
                "delta": text(lost.delta) if lost.delta else None,
            }  # fmt: skip
            self._book.append(tx, EntryKind.RESERVE, note or {}, values)
            (by_kind[EntryKind.RESERVE],) = self._book.of(lost.aggregator, release)
        self._book.settle(tx, EntryKind.SPEND, by_kind[EntryKind.RESERVE])
