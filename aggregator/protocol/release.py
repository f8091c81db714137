"""A release as the fold of its events: `apply` takes a state and an event to the next state.

A repeated answer of an owner changes nothing; another answer to the same question is refused. Everything
else is looked up in the table of `aggregator.protocol.states`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aggregator.protocol.events import (
    Acknowledged,
    Addended,
    Consented,
    Deleted,
    Described,
    Ending,
    Event,
    Linked,
    Measured,
    Opened,
    OwnerEvent,
    Passed,
    PassedRows,
    PassedSums,
    Planned,
    Published,
    Received,
    Refused,
    Resumed,
    Sealed,
    Started,
    Waiting,
)
from aggregator.protocol.states import ENDS, State, next_state
from common.errors import ConflictError, IntegrityError, InternalError, ProtocolError
from common.model.fragment import KEPT_AFTER_END, Addendum, FragmentStatement
from common.model.plan import Plan, is_trial
from common.model.rounds import FIRST_COUNTED
from common.planning.arguments import ReleaseArguments
from common.words.guarantee import worth_of


@dataclass(frozen=True, slots=True)
class OwnerAnswers:
    """What an owner has answered so far."""

    described: Described | None = None
    waiting: Waiting | None = None
    """Set when a person has to decide."""
    consented: Consented | None = None
    linked: Linked | None = None
    """Its number of records and tokens."""
    sealed: Sealed | Measured | None = None
    """What it says about its fragment, or about its answers so far."""
    statement: FragmentStatement | None = None
    """The same, read."""
    measured: Measured | None = None
    """Its answer to the open round."""
    passed_rows: PassedRows | None = None
    """The encrypted rows that it sent others."""
    passed_sums: PassedSums | None = None
    """What it sent others in the open round."""
    counted: str = ""
    """Digest of its answers to the rounds before (`common.model.rounds.chained`)."""
    received: Received | None = None
    """The receipt that it was given."""
    refused: Refused | None = None
    acknowledged: Acknowledged | None = None
    """Set once it knows how the release ended."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release after some events."""

    request: ReleaseArguments
    created: int
    """Unix time."""
    allowed: Mapping[str, int]
    """Seconds that each state may last."""
    confirmed: bool
    """Whether the operator has agreed to the plan."""
    progress: Mapping[str, OwnerAnswers]
    """Owners' answers by owner id, in the order of the request."""
    state: State = State.INVITING
    entered: int = 0
    """Unix time at which it came into this state."""
    planned: Planned | None = None
    plan: Plan | None = None
    addended: Addended | None = None
    addendum: Addendum | None = None
    """What linking found."""
    rounds: tuple[Opened, ...] = ()
    """The rounds of a synthetic release so far; the last one asks nothing: owners sign that the sums hold.

    Nothing is attached to them any more when it is published, or can go on no more."""
    published: Published | None = None
    """Where it was published."""
    ending: Ending | None = None
    """Why it ended without being published."""
    deleted: Deleted | None = None
    """Set once its data were removed."""

    @property
    def id(self) -> str:
        """Release id."""
        return self.request.release

    @property
    def ended(self) -> bool:
        """Whether only acknowledgements and deletion can follow."""
        return self.state in ENDS or (self.state is State.PLANNED and self.request.dry_run)

    @property
    def needs_anyway(self) -> bool:
        """Whether its plan is confirmed only by an operator who wants a worthless result.

        A trial charges nothing, so whatever it makes costs nothing.
        """
        if self.state is not State.PLANNED or self.ended or self.request.anyway or is_trial(self.id):
            return False
        return worth_of(self.the_plan()).worthless

    @property
    def resumable(self) -> bool:
        """Whether it ended after owners may have spent, so that their fragments can still be collected.

        Once an owner that has not sealed failed, or was told of the end, it has returned its reservation and
        seals nothing any more. It says if it had sealed something that never arrived. Answers to a round that
        do not add up never do: owners send the same again.
        """
        ending = self.ending
        if ending is None or self.state not in (State.FAILED, State.EXPIRED) or self.deleted is not None:
            return False
        if self.addendum is None or (self.measures and self.round < FIRST_COUNTED):
            return False
        if self.measures and ending.code == IntegrityError.code:
            return False
        return not any(
            owner == ending.owner or ((told := self.progress[owner].acknowledged) and not told.keeps)
            for owner in self.missing("sealed")
        )

    @property
    def resumable_until(self) -> int:
        """Until when it can go on: owners then delete what they sealed; 0 where it cannot."""
        if self.ending is None or not self.resumable:
            return 0
        return self.ending.at + int(KEPT_AFTER_END.total_seconds())

    @property
    def measures(self) -> bool:
        """Whether owners answer rounds instead of masking."""
        return self.plan is not None and self.plan.product.rules.in_rounds

    @property
    def round(self) -> int:
        """Number of the open round; 0 where none is open."""
        is_over = not self.rounds or (self.is_closing and not self.missing("measured"))
        return 0 if is_over else len(self.rounds)

    @property
    def is_closing(self) -> bool:
        """True once the last round is open, in which owners sign that the sums hold."""
        return bool(self.rounds) and not self.rounds[-1].numbers

    def is_open(self, number: int) -> bool:
        """Whether a round is the open one; none is round 0."""
        return 0 < number == self.round

    @property
    def deadline(self) -> int | None:
        """When the current step must be over; None where it need not."""
        allowed = None if self.ended else self.allowed.get(self.state)
        return None if allowed is None else self.entered + allowed

    @property
    def plan_digest(self) -> str:
        """The plan's digest; empty before there is one."""
        return self.plan.digest if self.plan else ""

    def the_plan(self) -> Plan:
        """Return the plan of a release that is past planning."""
        if self.plan is None:
            raise InternalError(f"release {self.id} has no plan in state {self.state}")
        return self.plan

    def missing(self, answer: str) -> tuple[str, ...]:
        """Return the owners that have not given an answer, named as in `OwnerAnswers`."""
        return tuple(owner for owner, progress in self.progress.items() if getattr(progress, answer) is None)

    def statement(self, owner: str) -> FragmentStatement | None:
        """Return what an owner stated about its fragment, once it has sealed."""
        return self.progress[owner].statement

    def session(self, owner: str) -> str:
        """Return the name of an owner's session state as far as the aggregator knows it."""
        progress = self.progress[owner]
        if progress.refused:
            return "refused"
        if self.ended:
            return "published" if self.state is State.PUBLISHED else "ended"
        if self.round and progress.measured is not None:
            return "answered"
        if self.round and progress.sealed is not None:
            return "spent"
        reached = (
            ("uploaded", progress.received),
            ("sealed", progress.sealed),
            ("linked", progress.linked),
            ("reserved", progress.consented),
            ("awaiting_approval", progress.waiting),
        )
        return next((name for name, answer in reached if answer is not None), "invited")


def begin(event: Event) -> Release:
    """Return the release that its first event makes."""
    if not isinstance(event, Started):
        raise InternalError(f"a release begins with 'started', not {event.name!r}")
    progress = {owner: OwnerAnswers() for owner in event.request.owners}
    return Release(
        request=event.request,
        created=event.at,
        allowed=event.allowed,
        confirmed=event.confirmed,
        progress=progress,
        entered=event.at,
    )


def fold(events: Iterable[Event]) -> Release:
    """Return the release that a sequence of events makes, the first being `Started`."""
    stream = iter(events)
    release = begin(next(stream))
    for event in stream:
        release = apply(release, event)
    return release


def apply(release: Release, event: Event) -> Release:
    """Return the release after an event; the same object if the event is a repetition.

    Raises:
        ProtocolError: If the event does not happen in the release's state, or comes from an owner that
            takes no part.
        ConflictError: If an owner answers something else than it has answered before.
    """
    if isinstance(event, OwnerEvent):
        return _answer(release, event)
    if isinstance(event, Resumed | Opened):
        return _resume(release, event) if isinstance(event, Resumed) else _open_round(release, event)
    state = next_state(release.state, event.name)
    if isinstance(event, Addended) and release.measures:
        state = next_state(release.state, f"{event.name}_to_measure")
    if isinstance(event, Planned):
        plan = Plan.from_bytes(event.plan.encode())
        return _move(replace(release, planned=event, plan=plan), state, event)
    if isinstance(event, Addended):
        addendum = Addendum.from_bytes(event.addendum.encode())
        return _move(replace(release, addended=event, addendum=addendum), state, event)
    if isinstance(event, Published):
        return _move(replace(release, published=event, rounds=_without_sums(release)), state, event)
    if isinstance(event, Ending):
        return _end(release, state, event)
    if isinstance(event, Deleted):
        return _delete(release, event)
    return _move(replace(release, confirmed=True), state, event)


def _answer(release: Release, event: OwnerEvent) -> Release:
    progress = release.progress.get(event.owner)
    if progress is None:
        raise ProtocolError(f"owner {event.owner} takes no part in release {release.id}")
    known: OwnerEvent | None = getattr(progress, event.name)
    if isinstance(event, Measured | Passed):
        if event.round < len(release.rounds):
            return release  # it was counted, and the answer to its message was lost
        is_due = known is None and bool(next_state(release.state, event.name))
        if is_due and not release.is_open(event.round):
            raise ProtocolError(f"round {event.round} of release {release.id} is not open")
    if known is not None:
        if known.content != event.content:
            raise ConflictError(
                f"owner {event.owner} gave another answer {event.name!r} for release {release.id} before",
                "an answer cannot be changed; cancel the release and start another",
                {"owner": event.owner, "release": release.id, "event": event.name},
            )
        return release
    if isinstance(event, Waiting) and progress.consented is not None:
        return release
    if isinstance(event, Acknowledged) and not release.ended:
        raise ProtocolError(f"release {release.id} has not ended, there is nothing to acknowledge")
    changes: dict[str, Any] = {event.name: event}
    if isinstance(event, Sealed | Measured):
        if isinstance(event, Sealed) or event.round >= FIRST_COUNTED:
            # Zeros are no part of the release: nothing is charged for them.
            changes["sealed"] = event
        changes["statement"] = FragmentStatement.from_bytes(event.statement.encode())
    after = replace(release, progress={**release.progress, event.owner: replace(progress, **changes)})
    barrier = f"{event.name}_by_all"
    closes = after.is_closing or not isinstance(event, Measured)
    last = closes and barrier in _BARRIERS and not after.missing(event.name)
    return _move(after, next_state(release.state, barrier if last else event.name), event)


_BARRIERS = frozenset({"consented_by_all", "sealed_by_all", "received_by_all", "measured_by_all"})


def _open_round(release: Release, event: Opened) -> Release:
    """Open the next round, whose answers are others; the time for it begins."""
    state = next_state(release.state, event.name)
    progress = {
        owner: replace(
            answers,
            measured=None,
            passed_sums=None,
            counted=answers.statement.fragment_digest if answers.statement else "",
        )
        for owner, answers in release.progress.items()
    }
    rounds = (*release.rounds, event)
    return replace(release, state=state, rounds=rounds, progress=progress, entered=event.at)


def _end(release: Release, state: State, event: Ending) -> Release:
    """End a release. Among several refusals, one that is not for balance is reported."""
    after = release
    if isinstance(event, Refused) and event.owner in release.progress:
        progress = replace(release.progress[event.owner], refused=event)
        after = replace(after, progress={**release.progress, event.owner: progress})
    reported = release.ending
    if reported is None or (reported.code == "balance" and event.code != "balance"):
        reported = event
    ended = _move(replace(after, ending=reported), state, event)
    return ended if ended.resumable else replace(ended, rounds=_without_sums(ended))


def _delete(release: Release, event: Deleted) -> Release:
    if not release.ended:
        raise ProtocolError(f"release {release.id} has not ended, nothing of it can be deleted")
    return release if release.deleted else replace(release, deleted=event, rounds=_without_sums(release))


def _without_sums(release: Release) -> tuple[Opened, ...]:
    """Return its rounds without what came with them, which nobody asks for any more: it is large."""
    return tuple(replace(opened, attached="") for opened in release.rounds)


def _resume(release: Release, event: Resumed) -> Release:
    """Go on after an end: statements about fragments stay, and whatever was deleted is sent again."""
    if release.measures:
        name = f"{event.name}_to_measure"
    else:
        name = event.name if release.missing("sealed") else f"{event.name}_by_all"
    state = next_state(release.state, name)
    if not release.resumable:
        raise ProtocolError(f"release {release.id} is {release.state} and cannot go on")
    # After the round in which rows are sent, every adder has them.
    rows_again = bool(release.rounds) and bool(release.rounds[-1].rows)
    progress = {
        owner: replace(
            answers,
            received=None,
            measured=None,
            passed_rows=None if rows_again else answers.passed_rows,
            passed_sums=None,
            acknowledged=None,
        )
        for owner, answers in release.progress.items()
    }
    allowed = event.allowed or release.allowed
    return _move(replace(release, progress=progress, ending=None, allowed=allowed), state, event)


def _move(release: Release, state: State, event: Event) -> Release:
    if state is release.state:
        return release
    return replace(release, state=state, entered=event.at)
