"""What a ledger that lost entries has to charge: what aggregators can show, and an estimate of the rest.

Aggregators can show what this owner signed for their releases, and how far the ledger was when it was signed.
What no aggregator knows are the owner's own charges, of `mask` and `query`, changes of a budget, and what was
written after the newest head that they keep. So whenever anything was lost, a person has to say what else had
been charged, 0 included, or give up what is left of the budgets; the numbers here only help to answer that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from common.model.plan import Plan
from common.model.privacy import MECHANISMS, epsilon_joint, most_clusters, total_or_unbounded
from common.model.schema import most_records
from common.model.task import Assignment
from owner_node.ledger.entry import CHARGES, Entry, Kind, recovered_names
from owner_node.state.chain import GENESIS, Head


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

    def most_entries(self, owner: str) -> int:
        """Return how many entries the ledger may have had for it.

        A spend of less than was reserved has a return beside it. What linking left of it only the addendum
        says, which aggregators do not show; where a plan allows for shared persons it may have been less.
        """
        multiples, own = self.plan.most_multiples, self.plan.assignment_of(owner)
        reserves_more = any(multiples[group] > 1 for group in own.groups)
        return 3 if reserves_more and (self.masking_asked or self.sealed) else 2


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
    """A charge that the ledger lost, or only has as a reservation."""

    dataset: str
    """Name of the data set; empty where the ledger holds the reservation and no aggregator shows more."""
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
    """Whether it is known by this owner's own signature under its consent, or by its reservation here."""
    rank_loss: Decimal | None = None
    """What was told about who got which entries; None where that is not bounded, or not known."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What has to be done."""

    lost: tuple[Head, ...]
    """Heads that this owner signed and the ledger lacks."""
    missing: int
    """How many entries were lost, as far as the heads tell: later ones no head tells of."""
    unexplained: int
    """How many of them no release explains that this owner is proved to have accepted."""
    charges: tuple[LostCharge, ...]
    """Releases that are charged in full."""
    possible: int = 0
    """How many of the unexplained ones these releases may have written all the same: an end that no
    aggregator has heard of, or the return of what linking showed not to be needed."""


def assess(
    entries: Sequence[Entry],
    acknowledged: Iterable[Head],
    remembered: Iterable[Head],
    shown: Sequence[Shown],
    owner: str,
    budgets: Mapping[str, str],
) -> Recovery:
    """Find out what a ledger has to charge.

    Args:
        entries: The ledger as it is, every line.
        acknowledged: Heads whose loss was acknowledged before.
        remembered: Heads that owner.db knows of: the newest that was signed, the one that stopped the work.
        shown: What the aggregators show.
        owner: This owner's id.
        budgets: Budget by name of data set, for every data set that is declared.

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
    missing = max((head.sequence - _fork(head, shown, own) for head in lost), default=0)
    releases = [release for each in shown for release in each.releases]
    surely, at_most = _written(releases, entries, owner)
    charges = [
        LostCharge(
            own.dataset,
            budgets.get(own.dataset, ""),
            _charge(release.plan, own),
            *release.key,
            release.proved,
            own.rank_loss_at(release.plan.most_multiples),
        )
        for release in releases
        if (release.masking_asked or release.sealed) and not _settled(release, entries)
        for own in [release.plan.assignment_of(owner)]
    ]
    return Recovery(
        tuple(sorted(lost, key=lambda head: (head.sequence, head.hash))),
        missing,
        max(missing - surely, 0),
        (*charges, *(_held(entries, releases) if lost or charges else ())),
        max(min(missing, at_most) - surely, 0),
    )


def _written(releases: Iterable[Recalled], entries: Sequence[Entry], owner: str) -> tuple[int, int]:
    """Return how many entries that the ledger lacks these releases surely wrote, and how many at most."""
    surely = at_most = 0
    for release in (each for each in releases if each.proved and not _settled(each, entries)):
        n_own = len(_of(release.key, entries))
        surely += max(release.entries - n_own, 0)
        at_most += max(release.most_entries(owner) - n_own, 0)
    return surely, at_most


def _fork(head: Head, shown: Sequence[Shown], own: Mapping[int, str]) -> int:
    """Return the last entry before a lost head that this ledger has, too, as far as that can be told.

    What another aggregator keeps of this ledger may have been written after the loss: only places that are
    kept together with the lost head, and lie before it, count.
    """
    return max(
        (
            place.sequence
            for each in shown
            if head == each.newest
            for place in each.places
            if place.sequence < head.sequence and own.get(place.sequence) == place.hash
        ),
        default=0,
    )


def _settled(release: Recalled, entries: Sequence[Entry]) -> bool:
    """Whether the ledger has the end of a release.

    A return is no end of what was sealed: it was written by a ledger that did not know of the spend.
    """
    kinds = {entry.kind for entry in _of(release.key, entries)}
    return Kind.SPEND in kinds or (Kind.RETURN in kinds and not release.sealed)


def _held(entries: Sequence[Entry], releases: Iterable[Recalled]) -> tuple[LostCharge, ...]:
    """Return the reservations that may have been spent in what was lost.

    That is, all but those of releases that their aggregator shows, and shows as not masked; those that it
    shows as masked are charged as they are shown.
    """
    shown = {release.key for release in releases}
    held = {_key(entry): entry for entry in entries if entry.kind is Kind.RESERVE}
    for entry in entries:
        if entry.kind in (Kind.SPEND, Kind.RETURN):
            held.pop(_key(entry), None)
    return tuple(
        LostCharge("", entry.budget, entry.charge, *key, proved=True)
        for key, entry in held.items()
        if key not in shown
    )


def _key(entry: Entry) -> tuple[str, str, str]:
    return entry.aggregator, entry.release, entry.plan_digest


def _of(key: tuple[str, str, str], entries: Sequence[Entry]) -> list[Entry]:
    aggregator, release, plan_digest = key
    names = {release, *recovered_names(release, plan_digest)}
    return [
        entry
        for entry in entries
        if entry.kind in CHARGES
        and entry.release in names
        and (entry.aggregator, entry.plan_digest) == (aggregator, plan_digest)
    ]


def _charge(plan: Plan, assignment: Assignment) -> Decimal:
    """Return the most that an owner was charged, under any way of accounting: the policy may have changed.

    That is its epsilon or its joint bound: the stated one, or this owner's own if that is larger; as often as
    the plan lets owners hold the same person, since what linking found of that may be lost with the rest.
    """
    multiples = plan.most_multiples
    own = total_or_unbounded(
        epsilon_joint(
            each.mechanism, each.epsilon,
            frequency_order=plan.attribute(each.name).by_frequency,
            n_clusters=most_clusters(most_records(assignment.records_rounded), each.k),
        )
        if each.mechanism in MECHANISMS else each.epsilon_joint
        for task in assignment.tasks
        for each in task.attributes
        for _ in range(multiples[task.group])
    )  # fmt: skip
    stated = assignment.epsilon_joint_at(multiples), assignment.epsilon_at(multiples)
    return max(bound for bound in (own, *stated) if bound is not None)
