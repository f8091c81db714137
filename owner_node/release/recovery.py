"""Recovery of a ledger that lost entries: charge what aggregators can show.

Aggregators can show what this owner signed for their releases, and the ledger head at that time. No
aggregator knows the owner's own charges (`mask` and `query`), changes of a budget, and entries after the
newest head that it keeps. So whenever anything was lost, a person has to state what else had been charged, 0
included, or give up what is left of the budgets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from common.model.mechanisms import MECHANISMS
from common.model.plan import Plan
from common.model.privacy import total_or_unbounded
from common.model.task import Assignment
from owner_node.config import OwnerConfig
from owner_node.ledger.entry import CHARGES, EXACT, Entry, EntryKind, recovered_name, text
from owner_node.ledger.losses import LostCharge, Recalled, Shown, acknowledged
from owner_node.release.records import Records
from owner_node.state.chain import GENESIS, Head
from owner_node.state.database import Transaction
from owner_node.state.session import FINAL, SessionEvent

LOST = "(lost)"
"""Replaces the aggregator's name in charges that no aggregator knows; no aggregator can have this name."""


class StatedCharge(NamedTuple):
    """What a person says was charged to a budget in lost entries."""

    epsilon: Decimal
    """Sum of the charges."""
    delta: Decimal = Decimal(0)
    """Sum of their δ; synthetic tables can have some."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery has to charge and acknowledge."""

    lost: tuple[Head, ...]
    """Heads that this owner signed and the ledger lacks."""
    missing: int
    """How many entries were lost, as far as the heads show; later ones may be lost as well."""
    charges: tuple[LostCharge, ...]
    """Releases that are charged in full."""


def assess(
    entries: Sequence[Entry],
    remembered: Iterable[Head],
    shown: Sequence[Shown],
    owner: str,
    budgets: Mapping[str, str],
) -> Recovery:
    """Determine what a ledger has to charge.

    Args:
        entries: The ledger as it is, every line.
        remembered: Heads that owner.db knows (`owner_node.ledger.losses`).
        shown: What the aggregators show.
        budgets: Budget by name of data set, for every data set that is declared.

    Returns:
        What to charge and acknowledge; nothing is lost if `lost` is empty.
    """
    hashes = {0: GENESIS} | {entry.sequence: entry.hash for entry in entries}
    heads = {answer.newest for answer in shown if answer.newest is not None} | set(remembered)
    lost = sorted(
        (
            head
            for head in heads - acknowledged(entries)
            if hashes.get(head.sequence) != (head.hash or GENESIS)
        ),
        key=lambda head: (head.sequence, head.hash),
    )
    missing = max((head.sequence - _fork(head, shown, hashes) for head in lost), default=0)
    charges: list[LostCharge] = []
    for release in (release for answer in shown for release in answer.releases):
        own, kinds = release.plan.assignment_of(owner), _kinds_of(release, entries)
        # A return does not settle a sealed release: the ledger that returned it did not know of the spend.
        complete = EntryKind.SPEND in kinds or (EntryKind.RETURN in kinds and not release.sealed)
        if release.may_be_spent and not complete:
            rank_loss = own.rank_loss_at(release.plan.most_multiples)
            charges.append(
                LostCharge(
                    budgets.get(own.dataset, ""), _most_charged(release.plan, own), *release.key,
                    own.dataset, release.proved, rank_loss, release.plan.delta,
                )
            )  # fmt: skip
    if lost or charges:
        charges += _reservations(entries, {release.key for answer in shown for release in answer.releases})
    return Recovery(tuple(lost), missing, tuple(charges))


def _fork(head: Head, shown: Sequence[Shown], hashes: Mapping[int, str]) -> int:
    """Return the last entry before a lost head that this ledger still has, as far as that is known.

    Heads that another aggregator keeps may have been written after the loss. Only heads that are kept
    together with the lost head, and precede it, count.
    """
    places = (place for answer in shown if head == answer.newest for place in answer.places)
    return max(
        (at.sequence for at in places if at.sequence < head.sequence and hashes.get(at.sequence) == at.hash),
        default=0,
    )


def _kinds_of(release: Recalled, entries: Sequence[Entry]) -> set[EntryKind]:
    """Return the kinds of the entries that the ledger has of the charge of a release."""
    aggregator, name, plan_digest = release.key
    names = (name, recovered_name(name, plan_digest))
    return {
        entry.kind
        for entry in entries
        if entry.kind in CHARGES
        and entry.release in names
        and (entry.aggregator, entry.plan_digest) == (aggregator, plan_digest)
    }


def _reservations(entries: Sequence[Entry], shown: set[tuple[str, str, str]]) -> list[LostCharge]:
    """Return the open reservations that a lost entry may have spent.

    Reservations of releases that their aggregator shows are left out: it shows whether they were masked.
    """
    held: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        key = (entry.aggregator, entry.release, entry.plan_digest)
        if entry.kind is EntryKind.RESERVE and key not in shown:
            held[key] = entry
        elif entry.kind in CHARGES:
            held.pop(key, None)
    return [LostCharge(entry.budget, entry.charge, *key, delta=entry.delta) for key, entry in held.items()]


def _most_charged(plan: Plan, assignment: Assignment) -> Decimal:
    """Return the most that an owner can have been charged under any accounting: the policy may have changed.

    That is its epsilon or its joint bound (the stated one, or this owner's own if that is larger), times the
    multiplicity that the plan allows, since the multiplicity that linking found may be lost with the rest.
    """
    multiples = plan.most_multiples
    own = total_or_unbounded(
        planned.rules.epsilon_joint(
            planned.epsilon, planned.k, assignment.records_rounded,
            frequency_order=plan.attribute(planned.name).by_frequency,
        )
        if planned.mechanism in MECHANISMS else planned.epsilon_joint
        for task in assignment.tasks
        for planned in task.attributes
        for _ in range(multiples[task.group])
    )  # fmt: skip
    stated = assignment.epsilon_joint_at(multiples), assignment.epsilon_at(multiples)
    return max(bound for bound in (own, *stated) if bound is not None)


def carry_out(
    records: Records,
    recovery: Recovery,
    stated: Mapping[str, StatedCharge],
    owner: OwnerConfig,
    said: Mapping[str, Any],
    *,
    exhaust: bool = False,
) -> Head:
    """Charge what was lost, in one transaction, and end the halt.

    Open sessions end, because the state of the lost ledger is unknown. Reservations that are not charged are
    returned: their aggregator shows that it never asked for a fragment.

    Args:
        stated: What a person states by budget for entries that no aggregator knows; may be 0.
        owner: The configuration, whose totals and sources of data sets are recorded again.
        said: What else ledger and history record: who recovered, and which aggregators were asked.
        exhaust: Whether all ε and δ that are left of every budget are charged as well.

    Returns:
        The new head.
    """
    ledger = records.ledger
    totals = {dataset.budget: dataset.total_epsilon for dataset in owner.datasets}
    places = {dataset.name: dataset.origin.place for dataset in owner.datasets}
    deltas = {name: text(charge.delta) for name, charge in stated.items() if charge.delta}
    note = {
        **said, "exhausted": exhaust,
        "stated": {name: text(charge.epsilon) for name, charge in stated.items()},
        **({"stated_deltas": deltas} if deltas else {}),
    }  # fmt: skip

    def charge(tx: Transaction, lost: Iterable[LostCharge]) -> None:
        for release in lost:
            terms = {"place": places[release.dataset]} if release.dataset else {}
            if release.budget in totals and ledger.total(release.budget) is None:
                terms["total"] = text(totals[release.budget])
            ledger.losses.charge(tx, release, terms)

    with records.db.transaction() as tx:
        at = ledger.losses.acknowledge(tx, recovery.lost, note).sequence
        charge(tx, (*recovery.charges, *_unknown(stated, f"rest-{at}")))
        _end_sessions(tx, records)
        if exhaust:
            left = {
                name: StatedCharge(
                    max(ledger.balance(name, total).remaining, Decimal(0)),
                    max(EXACT.subtract(owner.policy.total_delta, ledger.deltas(name)), Decimal(0)),
                )
                for name, total in totals.items()
            }
            charge(tx, _unknown(left, f"all-{at}"))
        records.history.record(
            tx, aggregator="", release="", event="recovered", decision="recover",
            rule=f"{recovery.missing} lost entries, {len(recovery.charges)} releases charged",
            details={**note, "charged": {release.release: release.charge for release in recovery.charges}},
        )  # fmt: skip
        return ledger.head()


def _unknown(charges: Mapping[str, StatedCharge], name: str) -> list[LostCharge]:
    """Return charges by budget that no aggregator knows."""
    return [
        LostCharge(budget, charge.epsilon, LOST, f"{name}-{budget}", "", delta=charge.delta)
        for budget, charge in charges.items()
        if charge.epsilon or charge.delta
    ]


def _end_sessions(tx: Transaction, records: Records) -> None:
    # Answers that are not known here may have left: no synthetic release goes on. Published ones are over.
    records.rounds.forget(tx, (each for each in records.rounds.held() if not records.is_published(*each)))
    for session in records.sessions.all():
        if session.state not in FINAL:
            if session.plan_digest:
                records.ledger.give_back(tx, session.aggregator, session.release, session.plan_digest)
            records.sessions.advance(tx, session, SessionEvent.END, reason="the ledger was recovered")
