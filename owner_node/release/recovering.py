"""Carries out a recovery of the ledger: acknowledges what was lost, charges it, and lets work go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from owner_node.config import DatasetConfig
from owner_node.config.database import place_of
from owner_node.ledger.entry import text
from owner_node.ledger.ledger import Ledger
from owner_node.ledger.recovery import Recovery
from owner_node.release.records import Records
from owner_node.state.chain import Head
from owner_node.state.database import Transaction
from owner_node.state.session import FINAL, Event

LOST = "(lost)"
"""Stands where an aggregator's name would, for entries that no aggregator knows; none can be called so."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a person says about the lost entries that no aggregator knows."""

    charges: Mapping[str, Decimal]
    """What is charged, by budget; may be 0."""
    exhaust: bool = False
    """Whether all that is left of every budget is charged."""


def remembered(records: Records) -> tuple[Head, ...]:
    """Return the heads that owner.db knows of: the newest that was signed, the one that stopped the work."""
    heads = [records.ledger.heads.newest()]
    reason = records.ledger.halt.reason()
    if reason is not None and "signed_hash" in reason.details:
        heads.append(Head(int(reason.details["signed"]), str(reason.details["signed_hash"])))
    return tuple(head for head in heads if head is not None)


def carry_out(
    records: Records,
    recovery: Recovery,
    estimate: Estimate,
    datasets: Sequence[DatasetConfig],
    said: Mapping[str, Any],
) -> Head:
    """Charge what was lost, in one transaction, and lift the halt.

    Sessions that were under way end: what the lost ledger had come to is not known any more. Reservations
    that are not charged come back: their aggregator shows that it never asked for a fragment.

    Args:
        records: The owner's state.
        recovery: What has to be done.
        estimate: What a person says about the rest.
        datasets: The configured data sets, whose totals and sources are recorded anew.
        said: What else goes into ledger and history: who, which aggregators were asked.

    Returns:
        The new head.
    """
    ledger, rest = records.ledger, {name: text(value) for name, value in estimate.charges.items()}
    note = {**said, "unexplained": recovery.unexplained, "stated": rest, "exhausted": estimate.exhaust}
    with records.db.transaction() as tx:
        head = ledger.lost.acknowledge(tx, recovery.lost, note)
        by_name, totals = {each.name: each for each in datasets}, _totals(datasets)
        for each in recovery.charges:
            place = {"place": place_of(by_name[each.dataset])} if each.dataset else {}
            terms = {**place, **_unrecorded(ledger, totals, each.budget)}
            ledger.lost.charge(
                tx, budget=each.budget, charge=each.charge, aggregator=each.aggregator, release=each.release,
                plan_digest=each.plan_digest, note=terms, rank_loss=each.rank_loss,
            )  # fmt: skip
        _charge_rest(tx, ledger, estimate.charges, totals, f"rest-{head.sequence}")
        _end_sessions(tx, records)
        if estimate.exhaust:
            left = {name: ledger.balance(name, total).remaining for name, total in totals.items()}
            _charge_rest(tx, ledger, left, totals, f"all-{head.sequence}")
        records.history.record(
            tx, aggregator="", release="", event="recovered", decision="recover",
            rule=f"{recovery.missing} lost entries, {len(recovery.charges)} releases charged",
            details={**note, "charged": {each.release: each.charge for each in recovery.charges}},
        )  # fmt: skip
        ledger.halt.lift(tx)
        return ledger.head()


def _totals(datasets: Sequence[DatasetConfig]) -> dict[str, Decimal]:
    return {each.budget: each.total_epsilon for each in datasets}


def _unrecorded(ledger: Ledger, totals: Mapping[str, Decimal], budget: str) -> dict[str, str]:
    """Return what the first charge to a budget records: its total."""
    known = budget not in totals or ledger.total(budget) is not None
    return {} if known else {"total": text(totals[budget])}


def _charge_rest(
    tx: Transaction,
    ledger: Ledger,
    charges: Mapping[str, Decimal],
    totals: Mapping[str, Decimal],
    what: str,
) -> None:
    for budget, charge in charges.items():
        if charge > 0:
            ledger.lost.charge(
                tx, budget=budget, charge=charge, aggregator=LOST, release=f"{what}-{budget}",
                plan_digest="", note=_unrecorded(ledger, totals, budget),
            )  # fmt: skip


def _end_sessions(tx: Transaction, records: Records) -> None:
    for session in records.sessions.all():
        if session.state in FINAL:
            continue
        key = (session.aggregator, session.release, session.plan_digest)
        if session.plan_digest:
            records.ledger.give_back(tx, *key)
        records.sessions.advance(tx, session, Event.END, reason="the ledger was recovered")
