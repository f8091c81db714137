"""An owner in the rounds of a synthetic release: repeated messages, restarts, and an aggregator that lies."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
import pytest

from common.errors import (
    DataChangedError,
    IntegrityError,
    ProtocolError,
    SourceUnreachableError,
    TesseraError,
)
from common.model.rounds import RoundDocument, SignedKey, chained
from common.synthesis.schedule import RoundSums, n_numbers
from common.synthesis.sums import LARGEST_SUM
from common.trust.identity import fingerprint
from common.trust.signing import Domain, Signer
from owner_node.config import PolicyConfig
from owner_node.release.measuring import Opening
from owner_node.release.recovery import Recovery, StatedCharge, carry_out
from owner_node.release.synthetic import SYNTHETIC
from owner_node.state.answers import LinkAnswer, RoundAnswer, SpentError
from owner_node.state.database import CannotStoreError
from owner_node.state.session import SessionState
from owner_node.synthesis.masks import public_key
from tests.fakes.offered_plans import state
from tests.fakes.rounds import Rounds, SyntheticOffering, charged


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[SyntheticOffering]:
    """One owner node and its aggregator."""
    made = SyntheticOffering(tmp_path)
    yield made
    made.records.db.close()


@pytest.fixture
def rounds(offering: SyntheticOffering) -> Rounds:
    """A release that is linked, whose owners answered zeros."""
    return Rounds.linked_to(offering)


@pytest.fixture
def unopened(offering: SyntheticOffering) -> Rounds:
    """A release that is linked."""
    return Rounds.unopened(offering)


@pytest.mark.parametrize("between", ["nothing", "restart"])
def test_every_round_is_answered_once(offering: SyntheticOffering, between: str) -> None:
    """However often a round is opened, whatever dies between: the same bytes are sent, under one charge."""
    rounds = Rounds.unopened(offering)
    digest, answers = "", list[RoundAnswer]()
    while not rounds.is_over:
        document, attached = rounds.document()
        answers = []
        for _ in range(3):
            answers.append(rounds.ask(document, attached))
            if between == "restart":
                offering.restart()
        assert len({each.answer for each in answers}) == len({each.signature for each in answers}) == 1
        digest = chained(digest, answers[0].answer)
        rounds.counted(document, attached, answers[0])
        # Zeros cost nothing.
        assert offering.kinds() == ["reserve", "spend"][: len(rounds.documents)]
    assert rounds.next() is None
    assert answers[0].answer == b""
    assert charged(offering) == 1
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert (session.state, session.fragment_digest) == (SessionState.SEALED, digest)
    # Sums are those of the records, but for noise and for what b said.
    assert not rounds.sums[0].any()
    assert abs(int(rounds.sums[1].sum()) - 60 - rounds.sums[1].size) < 2000


def test_the_aggregator_sees_no_vector(rounds: Rounds) -> None:
    """An answer alone is a row of uniform numbers of 64 bits."""
    document, attached = rounds.document()
    numbers = np.frombuffer(rounds.ask(document, attached).answer, dtype="<i8")
    assert np.abs(numbers.astype(float)).min() > LARGEST_SUM / 2**10
    assert np.unique(np.sign(numbers)).size == 2


def test_published_and_nothing_secret_stays(offering: SyntheticOffering, rounds: Rounds) -> None:
    """After publication neither key nor answers are kept, and what opened the rounds is."""
    while rounds.next():
        pass
    offering.node.close("r1", "published", "", "ab" * 32)
    assert state(offering) is SessionState.PUBLISHED
    kept = offering.records.rounds.answered("hub", "r1")
    assert [each.number for each in kept] == [1, 2, 3, 4]
    assert not any(each.answer or each.attached for each in kept)
    assert offering.records.rounds.secrets("hub", "r1") is None


def test_no_fragment_can_be_asked_for(offering: SyntheticOffering, rounds: Rounds) -> None:
    """Owners who answer rounds are not charged for masking, whatever the aggregator asks."""
    signature = offering.hub.sign(Domain.ADDENDUM, rounds.addendum)
    with pytest.raises(ProtocolError, match="whose owners answer rounds"):
        offering.node.production.mask("r1", rounds.plan.digest, rounds.addendum, signature)
    assert offering.kinds() == ["reserve"]


def _second_question(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    document, attached = rounds.documents[0]
    return replace(document, previous=document.previous, keys=(*document.keys[::-1],)), attached


def _other_keys(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    return rounds.document(keys=rounds.keys[:1])


def _unordered_keys(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    return rounds.document(keys=rounds.keys[::-1])


def _changed_sums(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    rounds.next()
    # The sums of an earlier round cannot change: another document would have opened the round that followed.
    document, attached = rounds.documents[1]
    rounds.documents[1] = (replace(document, attached="cd" * 32), attached)
    return rounds.document()


def _fewer_sums(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    rounds.next()
    return rounds.document(sums=rounds.sums[1][:-1].astype("<i8").tobytes())


def _no_whole_numbers(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    return rounds.document(sums=rounds.sums[0].astype("<i8").tobytes()[:-1])


def _huge_sums(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    return rounds.document(sums=(rounds.sums[0] + LARGEST_SUM + 1).astype("<i8").tobytes())


def _skipped(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    return rounds.document(round=3)


def _one_more(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    while rounds.next():
        pass
    return rounds.document()


def _other_plan(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    return rounds.document(plan_digest="ab" * 32)


def _other_linking(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    rounds.next()
    return rounds.document(addendum_digest="ab" * 32)


def _false_addendum(rounds: Rounds) -> tuple[RoundDocument, bytes]:
    return rounds.document(sums=rounds.addendum.replace(b'"60"', b'"61"'))


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (_second_question, "round 1 was opened by another document before"),
        (_other_keys, "keys for sums are not those of the owners"),
        (_unordered_keys, "keys for sums are not those of the owners"),
        (_changed_sums, "follows another one than this owner answered"),
        (_fewer_sums, "the sums are not those of this release"),
        (_no_whole_numbers, "no whole numbers"),
        (_huge_sums, "out of bounds"),
        (_skipped, "round 3 was opened, 1 are answered"),
        (_one_more, "the release has 2 rounds, 3 are answered"),
        (_other_plan, "another release or plan"),
        (_other_linking, "another result of linking"),
        (_false_addendum, "number of records that this owner linked"),
    ],
)
def test_what_an_aggregator_cannot_ask(
    offering: SyntheticOffering, unopened: Rounds, lie: Callable[[Rounds], Any], said: str
) -> None:
    """Other keys, sums or rounds than those of the release get no answer, and cost nothing more."""
    document, attached = lie(unopened)
    before, answers = offering.kinds(), len(offering.records.rounds.answered("hub", "r1"))
    with pytest.raises(ProtocolError, match=said):
        unopened.ask(document, attached)
    assert offering.kinds() == before
    assert len(offering.records.rounds.answered("hub", "r1")) == answers


@pytest.mark.parametrize("stated", ["true", "false"])
def test_masks_that_do_not_cancel_cost_nothing(
    offering: SyntheticOffering, unopened: Rounds, stated: str
) -> None:
    """Answers of zeros that do not add up to zeros end a release before its charge, whatever is stated."""
    document, attached = unopened.document()
    unopened.counted(document, attached, unopened.ask(document, attached), zero=1)
    if stated == "false":
        unopened.sums[0] *= 0
    with pytest.raises(IntegrityError, match="masks of the owners do not cancel"):
        unopened.next()
    assert offering.kinds() == ["reserve"]


def _changed(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b"), b=bytes(len(rounds.answers[-1]["b"])))


def _truncated(rounds: Rounds) -> bytes:
    return rounds.shown[:-1]


def _by_another(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b", rounds.offering.other))


def _to_another_opening(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b", addendum_digest="ab" * 32))


def _of_fewer_records(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b", records=9))


def _after_others(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), replace(rounds.signed("b"), before="ab" * 32))


def _without_an_owner(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"))


def _with_an_owner_twice(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b"), rounds.signed("b"))


def _with_another_own(rounds: Rounds) -> bytes:
    return rounds.show(rounds.signed("a"), rounds.signed("b"), a=bytes(len(rounds.answers[-1]["a"])))


def _no_signature(rounds: Rounds) -> bytes:
    signed = rounds.signed("b")
    return rounds.show(rounds.signed("a"), signed).replace(signed.signature.encode(), b"none")


def _no_digest(rounds: Rounds) -> bytes:
    return _after_others(rounds).replace(b"ab" * 32, b"none")


def _no_head(rounds: Rounds) -> bytes:
    return rounds.shown.partition(b"\n")[2]


@pytest.mark.parametrize("answered", [0, 1, 2])
@pytest.mark.parametrize(
    ("false", "said"),
    [
        (_changed, "that of owner b is not its own"),
        (_truncated, "that of owner b is not its own"),
        (_by_another, "that of owner b is not its own"),
        (_to_another_opening, "that of owner b is not its own"),
        (_of_fewer_records, "that of owner b is not its own"),
        (_after_others, "that of owner b is not its own"),
        (_without_an_owner, "not those of the owners of the plan"),
        (_with_an_owner_twice, "not those of the owners of the plan"),
        (_with_another_own, "this owner gave another one"),
        (_no_signature, "malformed"),
        (_no_digest, "malformed"),
        (_no_head, "malformed"),
    ],
)
def test_answers_that_do_not_hold(
    offering: SyntheticOffering, rounds: Rounds, false: Callable[[Rounds], bytes], said: str, answered: int
) -> None:
    """An owner goes on after no round whose answers are not those that all owners signed."""
    for _ in range(answered):
        rounds.next()
    honest, rounds.shown = rounds.shown, false(rounds)
    _goes_no_further(rounds, rounds.document(), said)
    rounds.shown = honest
    assert rounds.next() is not None
    assert offering.kinds() == ["reserve", "spend"]


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_sums_that_do_not_hold(rounds: Rounds, answered: int) -> None:
    """Nor if the aggregator states other sums, or sends other answers than it names, or none."""
    for _ in range(answered):
        rounds.next()
    _goes_no_further(
        rounds, rounds.document(sums=(rounds.sums[-1] + 1).astype("<i8").tobytes()), "other sums"
    )
    honest, document = rounds.shown, rounds.document()
    for sent in (_changed(rounds), b""):
        rounds.shown = sent
        _goes_no_further(rounds, document, "other answers than those that it names")
    rounds.shown = honest
    assert rounds.next() is not None


def _goes_no_further(rounds: Rounds, opened: tuple[RoundDocument, bytes], said: str) -> None:
    """Check that a round costs nothing and gets no answer, and that no answer of others stays."""
    offering = rounds.offering
    before, answered = offering.kinds(), offering.records.rounds.answered("hub", "r1")
    with pytest.raises(IntegrityError, match=said):
        rounds.ask(*opened)
    assert offering.kinds() == before
    assert offering.records.rounds.answered("hub", "r1") == answered
    assert not list((offering.config.owner.state_dir / "outbox").glob("*.parcel"))


def _unsigned(rounds: Rounds) -> SignedKey:
    return rounds.key_of("b", public_key(token_bytes(32)), rounds.offering.other)


def _of_another_release(rounds: Rounds) -> SignedKey:
    other = replace(rounds, plan=replace(rounds.plan, release="r2"))
    return other.key_of("b", public_key(rounds.private), rounds.offering.co_owner)


def _malformed(rounds: Rounds) -> SignedKey:
    return replace(rounds.keys[1], key="no key")


def _unproved(rounds: Rounds) -> SignedKey:
    return rounds.key_of("b", public_key(token_bytes(32)), rounds.offering.co_owner)


def _weak(rounds: Rounds) -> SignedKey:
    rounds.proved = bytes(32)
    return rounds.key_of("b", rounds.proved, rounds.offering.co_owner)


def _shared(rounds: Rounds) -> SignedKey:
    rounds.proved = rounds.linked.sum_key
    return rounds.key_of("b", rounds.proved, rounds.offering.co_owner)


def _short(rounds: Rounds) -> SignedKey:
    return rounds.key_of("b", b"key", rounds.offering.co_owner)


@pytest.mark.parametrize(
    ("false", "said"),
    [
        (_unsigned, "the key of owner b for sums is not its own"),
        (_of_another_release, "the key of owner b for sums is not its own"),
        (_malformed, "the key of owner b for sums is not its own"),
        (_unproved, "the key of owner b for sums is not its own: it proved another one with the linkage key"),
        (_weak, "the key of owner b for sums is weak"),
        (_shared, "is also that of"),
        (_short, "the key of owner b for sums is not its own: it proved another one with the linkage key"),
    ],
)
def test_the_key_of_a_co_owner_is_its_own(
    offering: SyntheticOffering, unopened: Rounds, false: Callable[[Rounds], SignedKey], said: str
) -> None:
    """An aggregator that puts its own key in the place of an owner's would read the other answers."""
    document, attached = unopened.document(keys=(unopened.keys[0], false(unopened)))
    with pytest.raises(IntegrityError, match=said):
        unopened.ask(document, attached)
    assert offering.kinds() == ["reserve"]
    # It is the aggregator's fault: the owner's session waits for what is right.
    assert state(offering) is SessionState.LINKED
    unopened.proved = b""
    assert unopened.next() is not None


def test_the_own_key_is_the_own(offering: SyntheticOffering, unopened: Rounds) -> None:
    """Another key under this owner's name gets no answer, whoever signed it."""
    mine = offering.node.production._owner.signer.current_signer()
    other = unopened.key_of("a", public_key(token_bytes(32)), mine)
    document, attached = unopened.document(keys=(other, unopened.keys[1]))
    with pytest.raises(IntegrityError, match="stands for owner a is not its own"):
        unopened.ask(document, attached)
    assert offering.kinds() == ["reserve"]


def test_a_pinned_owner_signs_with_its_pinned_key(offering: SyntheticOffering) -> None:
    """An aggregator that runs the CA can issue a certificate for b, and not b's pinned key."""
    pin = fingerprint(offering.co_owner.certificate.public_key())
    offering.config = replace(offering.config, policy=PolicyConfig(co_owners=(f"b={pin}",)))
    offering.restart()
    plan = offering.synthetic()
    consents = [offering.consent_of(offering.co_owner, plan)]
    rounds = Rounds(offering, plan, offering.node.production.link("r1", plan.digest, consents))
    offering.ca.owner("b").write(offering.folder, "again")
    again = Signer.load(offering.folder / "again.key", offering.folder / "again.pem")
    # Another owner, who has the linkage key, helps it.
    rounds.proved = public_key(token_bytes(32))
    false = rounds.key_of("b", rounds.proved, again)
    with pytest.raises(IntegrityError, match="pins 'b' to another key"):
        rounds.ask(*rounds.document(keys=(rounds.keys[0], false)))
    rounds.proved = b""
    assert rounds.next() is not None


def test_rounds_are_signed_by_the_aggregator(offering: SyntheticOffering, rounds: Rounds) -> None:
    """Another party's round is none, and neither is one of other bytes."""
    document, attached = rounds.document()
    with pytest.raises(TesseraError):
        rounds.ask(document, attached, offering.other)
    signature = offering.hub.sign(Domain.ROUND, document.to_bytes())
    for opening in (document.to_bytes(), document.with_attached(attached + b" "), b"", b"\n" + attached):
        with pytest.raises(ProtocolError):
            offering.node.measuring.answer(Opening("r1", rounds.plan.digest, opening, signature))
    assert offering.kinds() == ["reserve"]


def test_nothing_is_counted_before_linking(offering: SyntheticOffering) -> None:
    """The order of steps is the owner's too."""
    plan = offering.synthetic()
    rounds = Rounds(offering, plan, _link_of_another(offering))
    with pytest.raises(ProtocolError, match="before the data of a synthetic release were linked"):
        rounds.ask(*rounds.document())
    assert offering.kinds() == ["reserve"]


def _link_of_another(offering: SyntheticOffering) -> Any:
    return LinkAnswer(60, b"", public_key(token_bytes(32)), b"", offering.co_owner.chain_pem.encode())


@pytest.mark.parametrize("answered", [0, 1])
def test_a_crash_before_an_answer_is_stored(
    offering: SyntheticOffering, rounds: Rounds, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer that was not stored is made again, the same, under the one charge."""
    for _ in range(answered):
        rounds.next()
    document, attached = rounds.document()

    def dies(*_arguments: Any) -> None:
        raise CannotStoreError("the disk is full")

    lost = []
    answer = type(SYNTHETIC).answer

    def watched(*arguments: Any) -> Any:
        lost.append(answer(*arguments))
        return lost[-1]

    with monkeypatch.context() as dying:
        dying.setattr(type(SYNTHETIC), "answer", watched)
        dying.setattr(type(offering.records.rounds), "add", dies)
        with pytest.raises(CannotStoreError):
            rounds.ask(document, attached)
    offering.restart()
    assert offering.kinds() == ["reserve", "spend"]
    assert len(offering.records.rounds.answered("hub", "r1")) == 1 + answered
    with monkeypatch.context() as watching:
        watching.setattr(type(SYNTHETIC), "answer", watched)
        rounds.counted(document, attached, rounds.ask(document, attached))
    assert lost[0].tolist() == lost[1].tolist()
    assert offering.kinds() == ["reserve", "spend"]


def test_a_state_that_was_put_back_answers_the_same(
    offering: SyntheticOffering, rounds: Rounds, tmp_path: Path
) -> None:
    """A copy of the database by hand, which no ledger head gives away, makes no second answer to a round."""
    rounds.next()
    copy = tmp_path / "copy.db"
    offering.records.db.copy_to(copy)
    document, attached = rounds.document()
    first = rounds.ask(document, attached)
    put_back(offering, copy)
    assert len(offering.records.rounds.answered("hub", "r1")) == 2
    assert rounds.ask(document, attached).answer == first.answer


def put_back(offering: SyntheticOffering, copy: Path) -> None:
    """Replace an owner's database by an older copy of it."""
    offering.records.db.close()
    for leftover in offering.config.owner.state_dir.glob("owner.db*"):
        leftover.unlink()
    shutil.copy(copy, offering.config.owner.state_dir / "owner.db")
    offering.restart()


def test_another_opening_brings_no_second_draw(
    offering: SyntheticOffering, unopened: Rounds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregator that opens a round otherwise, after a state was put back, gets the same noise: here with
    a new signature under the other owner's key. Only the masks are others.
    """
    copy, vectors, answer = tmp_path / "copy.db", list[Any](), type(SYNTHETIC).answer

    def watched(*arguments: Any) -> Any:
        vectors.append(answer(*arguments))
        return vectors[-1]

    monkeypatch.setattr(type(SYNTHETIC), "answer", watched)
    offering.records.db.copy_to(copy)
    tries = [replace(unopened, documents=[], sums=[], answers=[]) for _ in range(2)]
    for again in tries:
        again.next()
        again.next()
        put_back(offering, copy)
    assert tries[0].documents[0] != tries[1].documents[0]
    answers = [again.answers[1]["a"] for again in tries]
    assert answers[0] != answers[1]
    assert vectors[0].tolist() == vectors[1].tolist()


@pytest.mark.parametrize("answered", [1, 2])
def test_a_release_that_ended_goes_on(offering: SyntheticOffering, rounds: Rounds, answered: int) -> None:
    """For thirty days the same bytes are sent again, and the rounds that follow are answered."""
    answers = [rounds.next() for _ in range(answered)]
    offering.node.close("r1", "failed", "a partner stayed away", "")
    assert state(offering) is SessionState.ENDED
    offering.restart()
    offering.records.clean_outbox()
    assert offering.node.is_resumable("r1")
    for (document, attached), answer in zip(rounds.documents[1:], answers, strict=True):
        assert rounds.ask(document, attached) == answer
    while rounds.next():
        pass
    assert state(offering) is SessionState.SEALED
    assert offering.kinds() == ["reserve", "spend"]


def test_it_does_not_go_on_for_ever(offering: SyntheticOffering, rounds: Rounds) -> None:
    """After thirty days keys and answers are gone, and so is the way to go on."""
    rounds.next()
    offering.node.close("r1", "failed", "", "")
    offering.later = timedelta(days=31)
    offering.records.clean_outbox()
    assert not offering.node.is_resumable("r1")
    assert offering.records.rounds.secrets("hub", "r1") is None
    assert not any(each.answer for each in offering.records.rounds.answered("hub", "r1"))
    with pytest.raises(ProtocolError):
        rounds.ask(*rounds.documents[0])


def test_an_unanswered_release_keeps_no_key(offering: SyntheticOffering, rounds: Rounds) -> None:
    """Whoever answered zeros alone has nothing to send again."""
    offering.node.close("r1", "cancelled", "", "")
    assert not offering.node.is_resumable("r1")
    assert offering.records.rounds.secrets("hub", "r1") is None
    assert offering.kinds() == ["reserve", "return"]
    del rounds


def test_a_recovered_ledger_answers_no_other_round(offering: SyntheticOffering, rounds: Rounds) -> None:
    """After a loss nobody knows which rounds were answered: none is answered again."""
    rounds.next()
    carry_out(
        offering.records,
        Recovery((), 0, ()),
        {"cohort": StatedCharge(Decimal(0))},
        offering.config,
        {},
    )
    offering.restart()
    assert offering.records.rounds.secrets("hub", "r1") is None
    for document, attached in (rounds.documents[0], rounds.document()):
        with pytest.raises(ProtocolError):
            rounds.ask(document, attached)


def test_data_that_changed_are_not_counted(offering: SyntheticOffering, rounds: Rounds) -> None:
    """All rounds are about the records that were linked."""
    rounds.next()
    offering.write_source(seed=2)
    offering.restart()
    with pytest.raises(DataChangedError):
        rounds.ask(*rounds.document())


def test_a_source_that_is_away_loses_no_charge(offering: SyntheticOffering, rounds: Rounds) -> None:
    """The round is answered once the source is there again."""
    rounds.next()
    text = offering.source.read_text()
    offering.source.unlink()
    offering.restart()
    document, attached = rounds.document()
    with pytest.raises(TesseraError) as failed:
        rounds.ask(document, attached)
    assert not isinstance(failed.value, SourceUnreachableError)
    with pytest.raises(SpentError):
        offering.node.fail("r1", failed.value)
    offering.source.write_text(text)
    rounds.counted(document, attached, rounds.ask(document, attached))
    assert offering.kinds() == ["reserve", "spend"]


def test_noise_is_drawn_for_every_round(
    offering: SyntheticOffering, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked follows from the plan, whatever the aggregator says: tables, and noise of their size."""
    seen: list[Any] = []
    answer = type(SYNTHETIC).answer

    def watched(self: Any, questions: Any, *arguments: Any) -> Any:
        seen.append(questions)
        return answer(self, questions, *arguments)

    monkeypatch.setattr(type(SYNTHETIC), "answer", watched)
    asked = []
    while not isinstance(questions := rounds.asked(), RoundSums):
        asked.append(questions)
        rounds.next()
    assert rounds.next() is not None
    assert [n_numbers(each) for each in seen] == [n_numbers(each) for each in asked]
    assert [each.noise for questions in seen for each in questions] == [
        each.noise for questions in asked for each in questions
    ]
    assert offering.kinds() == ["reserve", "spend"]
