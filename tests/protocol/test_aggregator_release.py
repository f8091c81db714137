"""The aggregator's protocol without any I/O: every event in every state, lost and repeated messages."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.drive.endings import operator_error
from aggregator.protocol.events import (
    EVENTS,
    Acknowledged,
    Cancelled,
    Conflicted,
    Consented,
    Deleted,
    Described,
    Ending,
    Event,
    Expired,
    Failed,
    Linked,
    Measured,
    OwnerEvent,
    Passed,
    Refused,
    Resumed,
    Waiting,
    from_json,
    to_json,
)
from aggregator.protocol.release import Release, apply, begin, fold
from aggregator.protocol.states import ENDS, TRANSITIONS, State, next_state
from aggregator.protocol.work import conclusion, work_for
from common.errors import ConfigurationError, ConflictError, InternalError, ProtocolError
from common.model.compatibility import HERE
from common.model.products import Product
from tests.fakes.protocol_peers import (
    N_ROUNDS,
    aggregator_step,
    answer,
    answer_to,
    new_release,
    opened,
    started,
    synthetic,
)

OWNERS = ("a", "b", "c")
STEPS = {
    "described": "describe",
    "consented": "consent",
    "linked": "link",
    "sealed": "mask",
    "received": "collect",
    "measured": "measure",
    "acknowledged": "conclude",
}
PASSED = {name: kind for name, kind in EVENTS.items() if issubclass(kind, Passed)}
ENDINGS = {name: kind for name, kind in EVENTS.items() if issubclass(kind, Ending)}


def step(release: Release, owner: str) -> str | None:
    """Return the name of an owner's work."""
    work = work_for(release, owner)
    return work.step if work else None


def told(release: Release) -> str:
    """Return the code that the operator is told."""
    assert release.ending is not None
    return release.ending.code


def drive(release: Release, until: State, events: list[Event] | None = None) -> Release:
    """Let honest owners and the aggregator work until a state."""
    for _ in range(200):
        if release.state is until:
            return release
        event = aggregator_step(release)
        if event is None:
            due = ((owner, work_for(release, owner)) for owner in release.request.owners)
            event = next(answer_to(release, owner, work) for owner, work in due if work is not None)
        release = apply(release, event)
        if events is not None:
            events.append(event)
    raise AssertionError(f"{until} was not reached")


def at_state(state: State) -> Release:
    """Return a release in a state, with nobody having answered yet in it."""
    if state in ENDS and state is not State.PUBLISHED:
        kind = next(kind for name, kind in ENDINGS.items() if TRANSITIONS[State.INVITING].get(name) is state)
        return apply(new_release(*OWNERS), kind(at=2, code="internal", message="for the test"))
    if state is State.MEASURING:
        release = drive(synthetic(*OWNERS), state)
        return apply(release, opened(release))
    return drive(new_release(*OWNERS), state)


def counting(**changes: Any) -> Release:
    """Return a release whose owners answered zeros, in the first round that counts, opened with changes."""
    release = at_state(State.MEASURING)
    for owner in OWNERS:
        release = apply(release, answer(release, owner, "measure"))
    return apply(release, replace(opened(release), **changes))


def measured(release: Release, owner: str) -> Measured:
    """Return an owner's answer to the open round."""
    event = answer(release, owner, "measure")
    assert isinstance(event, Measured)
    return event


def sample(release: Release, name: str, owner: str) -> Event:
    """Return an event of a name that fits the release as far as it can."""
    if name == "waiting":
        return Waiting(at=9, owner=owner)
    if name == "measured":
        return answer(at_state(State.MEASURING), owner, STEPS[name])
    if name == "opened":
        return opened(drive(synthetic(*OWNERS), State.MEASURING))
    if name in PASSED:
        return PASSED[name](at=6, owner=owner, round=1, statement="{}", signature="00", certificate="PEM")
    if name in STEPS:
        full = drive(new_release(*OWNERS), State.JOINING)
        return answer(full, owner, STEPS[name])
    if name in ENDINGS:
        return ENDINGS[name](at=9, code="internal", message="for the test")
    if name == "deleted":
        return Deleted(at=9)
    moments = {"planned": State.INVITING, "confirmed": State.PLANNED, "addended": State.LINKING}
    seen: list[Event] = []
    drive(new_release(*OWNERS), State.PUBLISHED, seen)
    assert name in moments or name == "published"
    return next(event for event in seen if event.name == name)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", sorted(set(EVENTS) - {"started", "resumed"}))
def test_every_event_in_every_state(state, name):
    """An event does what the table says in each state, and what is not in the table is refused by name."""
    release = at_state(state)
    answered = name in STEPS and getattr(release.progress["a"], name) is not None
    event = sample(release, name, "a")
    late_waiting = name == "waiting" and release.progress["a"].consented is not None
    if answered or late_waiting:
        assert apply(release, event) is release
    elif name in TRANSITIONS[state] and (name not in ("acknowledged", "deleted") or release.ended):
        assert apply(release, event).state is TRANSITIONS[state][name]
    else:
        with pytest.raises(ProtocolError) as caught:
            apply(release, event)
        if name not in ("acknowledged", "deleted"):
            assert caught.value.details == {"role": "aggregator", "state": str(state), "event": name}


def test_the_last_answer_opens_the_barrier():
    """A step ends with the last owner's answer and not before: nobody uploads until all have sealed."""
    release = drive(new_release(*OWNERS), State.MASKING)
    for owner in ("b", "a"):
        release = apply(release, answer(release, owner, "mask"))
        assert release.state is State.MASKING
        assert work_for(release, owner) is None
    release = apply(release, answer(release, "c", "mask"))
    assert release.state is State.COLLECTING
    assert [step(release, owner) for owner in OWNERS] == ["collect"] * 3


@pytest.mark.parametrize("product", ["masked", "synthetic"])
@given(data=st.data())
def test_lost_and_repeated_messages(product, data):
    """Whatever is lost or repeated on the way, the release is published, and nothing counts twice."""
    release = new_release(*OWNERS) if product == "masked" else synthetic(*OWNERS)
    sent, stored = list[Event](), 0

    def deliver(event: Event) -> None:
        nonlocal release, stored
        after = apply(release, event)
        stored += after is not release
        release = after

    for _ in range(data.draw(st.integers(0, 60))):
        own = aggregator_step(release)
        if own is not None:
            deliver(own)
        owner = data.draw(st.sampled_from(OWNERS))
        fate = data.draw(st.sampled_from(["arrives", "request lost", "answer lost", "an old one again"]))
        work = work_for(release, owner)
        if fate == "an old one again" and sent:
            before = release
            deliver(data.draw(st.sampled_from(sent)))
            assert release is before
        elif work is not None and fate in ("arrives", "answer lost"):
            event = answer_to(release, owner, work)
            sent.append(event)
            deliver(event)
            if fate == "answer lost":
                deliver(event)
    release = drive_to_the_end(release, deliver, lambda: release)
    assert release.state is State.PUBLISHED
    assert not release.missing("acknowledged")
    # Described, consented, linked and acknowledged; planned, confirmed, addended and published.
    of_owners, of_rounds = (2, 0) if product == "masked" else (N_ROUNDS, N_ROUNDS)
    assert stored == len(OWNERS) * (4 + of_owners) + 4 + of_rounds


def test_the_last_answer_to_the_last_round_can_be_repeated():
    """The release joins by then; the owner whose message was answered in vain is not refused."""
    release, events = synthetic(*OWNERS), list[Event]()
    while release.state is not State.JOINING:
        own = aggregator_step(release)
        if own is None:
            owner, work = next((each, due) for each in OWNERS if (due := work_for(release, each)) is not None)
            own = answer_to(release, owner, work)
        events.append(own)
        release = apply(release, own)
    last = events[-1]
    assert isinstance(last, Measured)
    assert apply(release, last) is release
    with pytest.raises(ConflictError):
        apply(release, replace(last, statement="{}"))


def drive_to_the_end(release, deliver, current):
    """Let everybody work without any loss until all have acknowledged."""
    while current().missing("acknowledged"):
        own = aggregator_step(current())
        if own is not None:
            deliver(own)
            continue
        due = ((owner, work_for(current(), owner)) for owner in OWNERS)
        deliver(next(answer_to(current(), owner, work) for owner, work in due if work is not None))
    return current()


@pytest.mark.parametrize("settings", [{}, {"product": Product.SYNTHETIC, "k": None}])
@given(cut=st.integers(0, 24))
def test_replay_is_the_release(settings, cut):
    """The stored events, cut anywhere and read back, make exactly the release that was."""
    events: list[Event] = [started(*OWNERS, **settings)]
    live = begin(events[0])
    seen: list[Event] = []
    drive(live, State.PUBLISHED, seen)
    events += seen[:cut]
    replayed = fold(from_json(to_json(event)) for event in events)
    for event in events[1:]:
        live = apply(live, event)
    assert replayed == live


@pytest.mark.parametrize(
    "changed",
    [
        Described(at=5, owner="a", schema="{}", software=HERE),
        Consented(at=5, owner="a", key_check="cd", signature="", certificate=""),
        Linked(at=5, owner="a", records=41, tokens_digest=""),
    ],
)
def test_another_answer_is_a_conflict(changed):
    """An owner that answers a question differently later is refused, in any later state."""
    release = drive(new_release(*OWNERS), State.JOINING)
    with pytest.raises(ConflictError):
        apply(release, changed)


def test_a_new_signature_is_the_same_answer():
    """An owner that lost its memory of having answered and signs anew is not refused for it."""
    release = drive(new_release(*OWNERS), State.LINKING)
    again = Consented(at=99, owner="a", key_check="ab", signature="ff", certificate="renewed")
    assert apply(release, again) is release


def test_others_take_no_part():
    """An answer of somebody who is not in the request changes nothing and has no work."""
    release = new_release(*OWNERS)
    with pytest.raises(ProtocolError):
        apply(release, answer(release, "d", "describe"))
    assert work_for(release, "d") is None


def test_refusals_are_all_heard():
    """Of several refusals the one that is not for balance is told, whichever came first."""
    release = drive(new_release(*OWNERS), State.CONSENTING)
    release = apply(release, Refused(at=5, owner="a", code="balance", message="a"))
    assert (release.state, told(release)) == (State.REFUSED, "balance")
    release = apply(release, Refused(at=6, owner="b", code="refused", message="b"))
    assert told(release) == "refused"
    assert [release.session(owner) for owner in OWNERS] == ["refused", "refused", "ended"]


@pytest.mark.parametrize(
    ("kind", "state"),
    # Joining has no deadline.
    [
        (Failed, State.MASKING),
        (Failed, State.COLLECTING),
        (Failed, State.JOINING),
        (Expired, State.MASKING),
        (Expired, State.COLLECTING),
    ],
)
def test_a_release_goes_on_after_spending(kind: type[Ending], state: State) -> None:
    """With the fragments that are sealed, from the step that is due; every owner sends its fragment again."""
    release = drive(new_release(*OWNERS), state)
    if state is State.MASKING:
        release = apply(release, answer(release, "a", "mask"))
    statements = [release.statement(owner) for owner in OWNERS]
    release = apply(release, kind(at=7, code="internal", message="for the test"))
    release = apply(release, Acknowledged(at=8, owner="a"))
    release = apply(release, Acknowledged(at=8, owner="b", keeps=True))
    assert release.resumable
    release = apply(release, Resumed(at=9))
    assert release.state is (State.MASKING if state is State.MASKING else State.COLLECTING)
    assert (release.entered, release.ending) == (9, None)
    assert [release.statement(owner) for owner in OWNERS] == statements
    assert not any(each.received or each.acknowledged for each in release.progress.values())
    assert drive(release, State.PUBLISHED).state is State.PUBLISHED


@pytest.mark.parametrize("answers", [0, 1, 3, 4, 8])
@pytest.mark.parametrize("kind", [Failed, Expired])
def test_a_synthetic_release_goes_on_in_its_round(kind: type[Ending], answers: int) -> None:
    """The open round is answered again, by all; the rounds before are added up."""
    release = counting()
    for place in range(answers):
        release = apply(release, answer(release, OWNERS[place % len(OWNERS)], "measure"))
        if not release.missing("measured"):
            release = apply(release, opened(release))
    number = release.round
    assert number == answers // len(OWNERS) + 2
    release = apply(release, kind(at=7, code="internal", message="for the test"))
    # Whoever has answered a round that counts can go on after it was told of the end.
    told = [owner for place, owner in enumerate(OWNERS) if place < answers]
    for owner in told:
        release = apply(release, Acknowledged(at=8, owner=owner))
    assert release.resumable
    if len(told) < len(OWNERS):
        assert not apply(release, Acknowledged(at=8, owner="c")).resumable
        # Or can say that its answer was lost.
        release = apply(release, Acknowledged(at=8, owner="c", keeps=True))
        assert release.resumable
    release = apply(release, Resumed(at=9))
    assert (release.state, release.round, release.entered) == (State.MEASURING, number, 9)
    assert release.missing("measured") == OWNERS
    assert drive(release, State.PUBLISHED).state is State.PUBLISHED


def passed(release: Release, name: str, owner: str) -> Release:
    """Return a release after an owner sent others something in the open round."""
    event = PASSED[name](
        at=6, owner=owner, round=release.round, statement="{}", signature="00", certificate="PEM"
    )
    return apply(release, event)


def test_what_owners_sent_each_other_is_sent_again() -> None:
    """It was deleted at the end, and nobody could go on without; rows that were added up stay as they are."""
    release = counting(rows=("a",), sums=("b",))
    release = passed(passed(release, "passed_rows", "a"), "passed_sums", "b")
    assert [step(release, owner) for owner in OWNERS] == ["measure"] * 3

    def resumed() -> Release:
        return apply(apply(release, Expired(at=7, code="deadline", message="for the test")), Resumed(at=9))

    release = resumed()
    assert [step(release, owner) for owner in OWNERS] == ["encrypt", None, None]
    release = passed(release, "passed_rows", "a")
    assert [step(release, owner) for owner in OWNERS] == [None, "add", None]
    release = passed(release, "passed_sums", "b")
    for owner in OWNERS:
        release = apply(release, measured(release, owner))
    release = apply(release, replace(opened(release), sums=("b",)))
    release = passed(release, "passed_sums", "b")
    release = resumed()
    assert [step(release, owner) for owner in OWNERS] == [None, "add", None]
    assert release.progress["a"].passed_rows is not None


def test_a_synthetic_release_that_counted_nothing_has_spent_nothing() -> None:
    """So there is nothing to go on with, whoever answered zeros."""
    release = drive(synthetic(*OWNERS), State.MEASURING)
    stages = [release, apply(release, opened(release))]
    for owner in OWNERS:
        stages.append(apply(stages[-1], measured(stages[-1], owner)))
    for stage in stages:
        assert not apply(stage, Failed(at=7, code="internal", message="for the test")).resumable


def test_every_round_has_its_time_and_its_work() -> None:
    """The deadline counts from the round's opening; work of different rounds has different names."""
    release = drive(synthetic(*OWNERS), State.MEASURING)
    assert step(release, "a") is None
    names = []
    while release.state is State.MEASURING:
        release = apply(release, replace(opened(release), at=100 * (len(release.rounds) + 1)))
        assert release.entered == 100 * len(release.rounds)
        for owner in OWNERS:
            work = work_for(release, owner)
            assert work is not None
            names.append(work.name)
            with pytest.raises(ProtocolError, match="is not open"):
                apply(release, replace(measured(release, owner), round=release.round + 1))
            release = apply(release, answer(release, owner, "measure"))
            assert work_for(release, owner) is None
    assert names == [f"measure-{number}" for number in (1, 2, 3, 4) for _ in OWNERS]


def test_another_answer_to_a_round_is_a_conflict() -> None:
    """The first one counts; what comes late for a round that is added up changes nothing."""
    release = at_state(State.MEASURING)
    first = measured(release, "a")
    release = apply(release, first)
    assert apply(release, replace(first, at=99, signature="ff")) is release
    other = replace(first, statement=measured(release, "b").statement)
    with pytest.raises(ConflictError):
        apply(release, other)
    later = drive(release, State.JOINING)
    assert apply(later, other) is later


def test_an_owner_that_was_told_of_the_end_seals_nothing_any_more() -> None:
    """It has returned its reservation: going on would end the same way again, at the cost of the others."""
    release = drive(new_release(*OWNERS), State.MASKING)
    release = apply(release, answer(release, "a", "mask"))
    release = apply(release, Expired(at=7, code="deadline", message="for the test"))
    assert release.resumable
    assert not apply(release, Acknowledged(at=8, owner="b")).resumable


def test_an_owner_that_failed_before_it_sealed_seals_nothing_any_more() -> None:
    """So nobody is told that the release goes on; the failure of one that has sealed can be mended."""
    release = drive(new_release(*OWNERS), State.MASKING)
    release = apply(release, answer(release, "a", "mask"))
    about: Any = {"at": 7, "code": "data_changed", "message": "for the test"}
    ended = {owner: apply(release, Failed(owner=owner, **about)) for owner in OWNERS}
    assert [ended[owner].resumable for owner in OWNERS] == [True, False, False]
    error = operator_error(ended["b"], 8)
    assert error is not None
    assert "ask again under another --id" in error.hint


@pytest.mark.parametrize(("code", "resumable"), [("integrity", False), ("internal", True)])
def test_answers_that_do_not_add_up_are_not_asked_for_again(code: str, resumable: bool) -> None:
    """Owners send the same bytes again, so the round would end the same way."""
    assert apply(counting(), Failed(at=7, code=code, message="for the test")).resumable is resumable


def test_it_goes_on_while_owners_keep_what_they_sealed() -> None:
    """The hint names the day; from then on it says that the release has ended for good."""
    release = drive(new_release(*OWNERS), State.COLLECTING)
    ended = apply(release, Failed(at=7, code="internal", message="for the test"))
    until = 7 + 30 * 86_400
    assert (release.resumable_until, ended.resumable_until) == (0, until)
    hints = [error.hint for at in (until - 1, until) if (error := operator_error(ended, at)) is not None]
    assert "--id r1 before 1970-01-31 to continue: nobody is charged again" in hints[0]
    assert "r1 has ended for good" in hints[1]


def test_sums_are_let_go_when_nobody_can_ask_for_them() -> None:
    """They would stay in memory; a release that can go on still sends them."""
    release = counting()
    stopped = apply(release, Failed(at=7, code="internal", message="for the test"))
    assert all(opened.attached for opened in (*release.rounds, *stopped.rounds))
    cancelled = apply(release, Cancelled(at=7, code="cancelled", message="for the test"))
    published = drive(synthetic(*OWNERS), State.PUBLISHED)
    for over in (cancelled, published, apply(stopped, Deleted(at=8))):
        assert over.rounds
        assert not any(opened.attached for opened in over.rounds)


def test_what_spent_nothing_or_was_cancelled_does_not_go_on() -> None:
    """Before masking another release costs nothing, and an operator's word is final; so is deletion."""
    unspent = at_state(State.FAILED)
    about: Any = {"at": 7, "code": "internal", "message": "for the test"}
    spent = drive(new_release(*OWNERS), State.COLLECTING)
    cancelled = apply(spent, Cancelled(**about))
    deleted = apply(apply(spent, Failed(**about)), Deleted(at=8))
    for release in (unspent, cancelled, deleted, spent):
        assert not release.resumable
        with pytest.raises(ProtocolError):
            apply(release, Resumed(at=9))


def test_conclude_until_acknowledged():
    """After the end every owner is told until it has acknowledged; a dry run ends like that too."""
    dry = drive(new_release(*OWNERS, dry_run=True), State.PLANNED)
    assert dry.ended
    assert conclusion(dry)[0] == "cancelled"
    assert [step(dry, owner) for owner in OWNERS] == ["conclude"] * 3
    dry = apply(dry, Acknowledged(at=9, owner="a"))
    assert [work_for(dry, owner) is None for owner in OWNERS] == [True, False, False]


def test_owners_of_a_conflict_are_told_what_to_do():
    """What does not fit together lies with the owners, so they hear the hint; of other ends only why."""
    release = drive(new_release(*OWNERS), State.LINKING)
    about: Any = {"at": 5, "message": "no record matches", "hint": "compare normalise"}
    conflict = apply(release, Conflicted(code="conflict", **about))
    assert conclusion(conflict) == ("conflict", "no record matches; compare normalise", "")
    failed = apply(release, Failed(code="protocol", **about))
    assert conclusion(failed) == ("failed", "no record matches", "")


def test_deadline_belongs_to_the_step():
    """A step's deadline counts from when the step began, and a step without one has none."""
    release = new_release(*OWNERS)
    assert release.deadline == 1 + 30
    later = replace(release, state=State.PLANNED, entered=50)
    assert later.deadline is None


def test_the_table_is_whole():
    """Every state has a row, every row names states and events that exist, and ends are never left."""
    barriers = {"consented_by_all", "sealed_by_all", "received_by_all", "resumed_by_all"}
    barriers |= {"addended_to_measure", "resumed_to_measure", "measured_by_all"}
    assert set(TRANSITIONS) == set(State)
    for state, row in TRANSITIONS.items():
        assert set(row) <= set(EVENTS) | barriers
        if state in ENDS:
            assert {after for event, after in row.items() if "resumed" not in event} == {state}
    with pytest.raises(ProtocolError):
        next_state(State.PUBLISHED, "cancelled")


def test_unknown_event_in_the_journal():
    """A journal that a newer version wrote is not misread."""
    for unknown in ('{"event": "teleported", "at": 1}', "[]"):
        with pytest.raises(ConfigurationError, match="unknown to this version"):
            from_json(unknown)
    with pytest.raises(InternalError):
        begin(Acknowledged(at=1, owner="a"))
    assert issubclass(Acknowledged, OwnerEvent)
