"""What a ledger that lost entries has to charge: what aggregators can show, and an estimate of the rest.

Aggregators can show what this owner signed for their releases, and how far the ledger was. What no aggregator
knows are the owner's own charges, of `mask` and `query`, and changes of a budget. If more entries are lost
than releases explain, a person has to say what they were, or give up what is left of the budgets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from common.plan import Plan, Task
from common.privacy import (
    MECHANISMS,
    Accounting,
    charge,
    epsilon_joint,
    most_clusters,
    total_or_unbounded,
)
from common.schema import most_records
from owner_node.ledger.entry import CHARGES, Entry, Kind
from owner_node.state.chain_head import GENESIS, Head


@dataclass(frozen=True, slots=True)
class Recalled:
    """A release that an aggregator shows this owner took part in."""

    aggregator: str
    """Name of the aggregator."""
    plan: Plan
    """The plan that this owner accepted."""
    proved: bool
    """Whether this owner's own signature under its consent was recognised."""
    masking_asked: bool
    """Whether the aggregator asked for a fragment; only then can the charge have been spent."""
    sealed: bool
    """Whether the owner sent word of a sealed fragment: then it was spent."""
    settled: bool
    """Whether the owner had closed its session before it signed its newest head."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Under what the ledger has its charge: aggregator, release, plan digest."""
        return self.aggregator, self.plan.release, self.plan.digest

    @property
    def entries(self) -> int:
        """How many entries the ledger surely had for it: its reservation, and if settled its end."""
        return 2 if self.sealed or self.settled else 1


@dataclass(frozen=True, slots=True)
class Shown:
    """What one aggregator shows."""

    aggregator: str
    """Its name."""
    newest: Head | None
    """The newest head that it keeps; None if it has none."""
    proved: bool
    """Whether this owner's own signature under that head was recognised."""
    places: tuple[Head, ...]
    """Every head that it has of this owner."""
    releases: tuple[Recalled, ...]
    """Every release whose plan this owner accepted."""


@dataclass(frozen=True, slots=True)
class LostCharge:
    """A charge that the ledger lost."""

    dataset: str
    """Name of the data set."""
    budget: str
    """Name of its budget; empty if the data set is not declared any more."""
    charge: Decimal
    """What was spent."""
    aggregator: str
    """Name of the aggregator."""
    release: str
    """Release id."""
    plan_digest: str
    """The plan."""
    proved: bool
    """Whether this owner's own signature under its consent was recognised."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What has to be done."""

    lost: tuple[Head, ...]
    """Heads that this owner signed and the ledger lacks."""
    missing: int
    """How many entries were lost, at the most."""
    unexplained: int
    """How many of them no aggregator's release explains, at the most."""
    charges: tuple[LostCharge, ...]
    """Releases that are charged in full."""


def assess(
    entries: Sequence[Entry],
    acknowledged: Iterable[Head],
    remembered: Iterable[Head],
    shown: Sequence[Shown],
    owner: str,
    budgets: Mapping[str, str],
    accounting: Accounting,
) -> Recovery:
    """Find out what a ledger has to charge.

    Args:
        entries: The ledger as it is, every line.
        acknowledged: Heads whose loss was acknowledged before.
        remembered: Heads that owner.db knows of: the newest that was signed, the one that stopped the work.
        shown: What the aggregators show.
        owner: This owner's id.
        budgets: Budget by name of data set, for every data set that is declared.
        accounting: How releases are charged.

    Returns:
        What has to be done; nothing is lost if `lost` is empty.
    """
    own = {entry.sequence: entry.hash for entry in entries}
    known = set(acknowledged)
    heads = {each.newest for each in shown if each.newest is not None} | set(remembered)
    lost = {
        head
        for head in heads - known
        if own.get(head.sequence) != head.hash and (head.sequence or head.hash not in ("", GENESIS))
    }
    common = max(
        (
            place.sequence
            for each in shown
            for place in (*each.places, *([each.newest] if each.newest else []))
            if own.get(place.sequence) == place.hash
        ),
        default=0,
    )
    missing = max((head.sequence for head in lost), default=common) - common
    releases = [release for each in shown for release in each.releases]
    explained = sum(_explained(release, entries, common) for release in releases)
    return Recovery(
        tuple(sorted(lost, key=lambda head: (head.sequence, head.hash))),
        missing,
        max(missing - explained, 0),
        tuple(
            LostCharge(
                task.dataset,
                budgets.get(task.dataset, ""),
                _charge(release.plan, task, accounting),
                *release.key,
                release.proved,
            )
            for release in releases
            if (release.masking_asked or release.sealed) and not _settled(release, entries)
            for task in [release.plan.task_of(owner)]
        ),
    )


def _explained(release: Recalled, entries: Sequence[Entry], common: int) -> int:
    """Return how many of the lost entries a release accounts for."""
    kept = sum(1 for entry in _of(release, entries) if entry.sequence <= common)
    return max(release.entries - kept, 0)


def _settled(release: Recalled, entries: Sequence[Entry]) -> bool:
    return any(entry.kind in (Kind.SPEND, Kind.RETURN) for entry in _of(release, entries))


def _of(release: Recalled, entries: Sequence[Entry]) -> list[Entry]:
    return [
        entry
        for entry in entries
        if entry.kind in CHARGES and (entry.aggregator, entry.release, entry.plan_digest) == release.key
    ]


def _charge(plan: Plan, task: Task, accounting: Accounting) -> Decimal:
    """Return what a task was charged: the stated joint bound, or this owner's own if that is larger."""
    own = total_or_unbounded(
        epsilon_joint(
            each.mechanism, each.epsilon,
            frequency_order=plan.attribute(each.name).by_frequency,
            n_clusters=most_clusters(most_records(task.records_rounded), each.k),
        )
        if each.mechanism in MECHANISMS else each.epsilon_joint
        for each in task.attributes
    )  # fmt: skip
    bounds = [bound for bound in (own, task.epsilon_joint) if bound is not None]
    amount = charge(accounting, task.epsilon, max(bounds, default=None))
    return task.epsilon if amount is None else amount
