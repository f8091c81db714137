"""Heads of the owners' ledgers, which owners sign with consents, sealed fragments and polls.

An owner that lost entries of its ledger, by a restored backup or a copy of its state directory, would spend
a budget twice without knowing. The newest head is sent to it at every connect and with every poll. Two
different heads at one sequence number prove that the ledger was forked.
"""

import logging
from dataclasses import dataclass

from aggregator.store.database import AggregatorDatabase
from aggregator.store.operator_log import Action, OperatorLog
from common.errors import IntegrityError
from common.model.fragment import LedgerHead

_MOST_PLACES = 20_000
"""Most heads kept of one owner: about as many as fit one message. Older ones are deleted."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A ledger head with its signature."""

    head: LedgerHead
    signature: bytes
    """Over tessera/v1/ledger-head."""
    certificate: bytes
    """PEM, the certificate that verifies it."""


class LedgerHeads:
    """The ledger heads of all owners."""

    def __init__(self, db: AggregatorDatabase, operators: OperatorLog) -> None:
        self._db, self._operators = db, operators
        # Every answer to a poll has the newest head; only this process writes them.
        self._newest: dict[str, StoredHead | None] = {}

    def newest(self, owner: str) -> StoredHead | None:
        """Return the newest ledger head that an owner has signed, or None."""
        if owner not in self._newest:
            self._newest[owner] = self._read_newest(owner)
        return self._newest[owner]

    def _read_newest(self, owner: str) -> StoredHead | None:
        rows = self._db.rows(
            "SELECT sequence, hash, signature, certificate FROM ledger_heads WHERE owner = ? "
            "ORDER BY sequence DESC LIMIT 1",
            (owner,),
        )
        with self._db.decoding():
            return StoredHead(LedgerHead(owner, *rows[0][:2]), *rows[0][2:]) if rows else None

    def newest_at(self, owner: str) -> int:
        """Return when the newest head of an owner arrived, in Unix seconds; 0 if it has none."""
        rows = self._db.rows(
            "SELECT at FROM ledger_heads WHERE owner = ? ORDER BY sequence DESC LIMIT 1", (owner,)
        )
        return int(rows[0][0]) if rows else 0

    def places(self, owner: str) -> list[tuple[int, str]]:
        """Return sequence number and hash of the heads that an owner signed, newest first."""
        rows = self._db.rows(
            "SELECT sequence, hash FROM ledger_heads WHERE owner = ? ORDER BY sequence DESC LIMIT ?",
            (owner, _MOST_PLACES),
        )
        with self._db.decoding():
            return [(int(sequence), str(mark)) for sequence, mark in rows]

    def compare(self, head: LedgerHead, at: int, release: str = "") -> None:
        """Compare a ledger head with the stored ones. Stores nothing, except a fork in the operators' log.

        Raises:
            IntegrityError: If this owner has signed another entry with the same sequence number.
        """
        known = self._db.rows(
            "SELECT hash FROM ledger_heads WHERE owner = ? AND sequence = ?", (head.owner, head.sequence)
        )
        if known and known[0][0] != head.hash:
            self._report_fork(head, at, release)
            raise IntegrityError(
                f"another copy of this state directory is in use: {head.owner} has signed another entry "
                f"{head.sequence} of its ledger before",
                "stop every copy but one; the one whose ledger lacks entries needs owner-node ledger recover",
                {"owner": head.owner, "sequence": head.sequence},
            )

    def keep(self, signed: StoredHead, at: int, release: str = "") -> None:
        """Store a ledger head. An older one may arrive late and changes nothing."""
        head = signed.head
        newest = self.newest(head.owner)
        if newest is not None and newest.head == head:
            return
        self.compare(head, at, release)
        self._newest.pop(head.owner, None)
        with self._db.transaction() as tx:
            tx.execute(
                "INSERT OR IGNORE INTO ledger_heads VALUES (?, ?, ?, ?, ?, ?)",
                (head.owner, head.sequence, head.hash, signed.signature, signed.certificate, at),
            )
            # Only the newest head is ever sent; the others need no certificate.
            tx.execute(
                "UPDATE ledger_heads SET certificate = x'' WHERE owner = :owner AND certificate != x'' "
                "AND sequence < (SELECT max(sequence) FROM ledger_heads WHERE owner = :owner)",
                {"owner": head.owner},
            )
            tx.execute(
                "DELETE FROM ledger_heads WHERE owner = :owner AND sequence < (SELECT sequence "
                "FROM ledger_heads WHERE owner = :owner ORDER BY sequence DESC LIMIT 1 OFFSET :others)",
                {"owner": head.owner, "others": _MOST_PLACES - 1},
            )

    def _report_fork(self, head: LedgerHead, at: int, release: str) -> None:
        """Report to the operators, once for every sequence number at which heads contradict each other."""
        _log.error(
            "ledger forked", extra={"owner": head.owner, "sequence": head.sequence, "release": release}
        )
        place = {"owner": head.owner, "sequence": head.sequence}
        said = place | {"hash": head.hash}
        if not any(
            action.name == "fork" and place.items() <= action.arguments.items()
            for _, action in self._operators.actions()
        ):
            outcome = f"refused: another copy of the state directory of {head.owner} is in use"
            self._operators.note(Action(at, "", "fork", release, said, outcome))
