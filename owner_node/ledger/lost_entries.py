"""What the ledger writes after entries were lost: that they were, and what they had charged."""

import sqlite3
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from owner_node.ledger.book import LedgerBook
from owner_node.ledger.entry import OF_NO_CHARGE, Kind, recovered_names, text
from owner_node.state.chain import Head
from owner_node.state.database import Transaction


class LostEntries:
    """Writes them.

    Args:
        book: The ledger's lines.
    """

    def __init__(self, book: LedgerBook) -> None:
        self._book = book

    def acknowledge(self, tx: Transaction, lost: Iterable[Head], note: Mapping[str, Any]) -> Head:
        """Acknowledge that entries were lost, and go on after their numbers.

        Args:
            tx: The transaction.
            lost: Heads that this ledger does not have.
            note: What else is to be said about the loss.

        Returns:
            The new head.
        """
        heads = sorted(lost, key=lambda head: (head.sequence, head.hash))
        told = [{"sequence": str(head.sequence), "hash": head.hash} for head in heads]
        skip_to = max((head.sequence for head in heads), default=0) + 1
        return self._book.append(tx, Kind.RECOVER, {**note, "lost": told}, OF_NO_CHARGE, skip_to)

    def charge(
        self,
        tx: Transaction,
        *,
        budget: str,
        charge: Decimal,
        aggregator: str,
        release: str,
        plan_digest: str,
        note: Mapping[str, Any] | None = None,
        rank_loss: Decimal | None = None,
    ) -> None:
        """Charge what was spent before entries were lost, whether it fits or not.

        What the ledger has spent already stays as it is; of a reservation that it has, the reserved charge is
        spent. What it has returned, without knowing of the spend, is charged under a name of its own.

        Args:
            tx: The transaction.
            budget: Name of the budget.
            charge: What was spent.
            aggregator: Name of the aggregator.
            release: Release id.
            plan_digest: Digest of the plan.
            note: What a reservation records of budget and source.
            rank_loss: What was told about who got which entries; None where that is not known.
        """
        returned, other_plan, both = recovered_names(release, plan_digest)
        if any(row["plan_digest"] != plan_digest for row in self._book.of(aggregator, release)):
            # Another copy of the state directory charged the same release for another plan.
            release, returned = other_plan, both
        found = self._by_kind(aggregator, release)
        if Kind.RETURN in found and Kind.SPEND not in found:
            release = returned
            found = self._by_kind(aggregator, release)
        if Kind.SPEND in found:
            return
        if Kind.RESERVE not in found:
            values: dict[str, str | None] = {
                "budget": budget, "aggregator": aggregator, "release": release, "plan_digest": plan_digest,
                "charge": text(charge), "epsilon": text(charge), "epsilon_joint": None,
                "accounting": "recovered", "rank_loss": None if rank_loss is None else text(rank_loss),
            }  # fmt: skip
            self._book.append(tx, Kind.RESERVE, note or {}, values)
            found = self._by_kind(aggregator, release)
        self._book.settle(tx, Kind.SPEND, found[Kind.RESERVE])

    def _by_kind(self, aggregator: str, release: str) -> dict[Kind, sqlite3.Row]:
        return {Kind(row["kind"]): row for row in self._book.of(aggregator, release)}
