"""The owner node against lost and repeated messages, restarts at every point, and refusals."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from common.errors import (
    BalanceError,
    DataChangedError,
    ProtocolError,
    RefusedError,
    TesseraError,
    UnusableDataError,
    UsageError,
)
from common.trust.signing import Domain, Signer, load_chain
from common.wire.decoding import decode
from owner_node.config import KnownAggregator, PolicyConfig
from owner_node.release.node import Node
from owner_node.state.session import SessionState
from owner_node.trust import Trust
from tests.fakes.offered_plans import accepted, sealed, state
from tests.fakes.offering import DOMAIN, N_RECORDS, Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


@pytest.mark.parametrize("between", ["nothing", "restart"])
@pytest.mark.parametrize("repeats", [1, 3])
def test_every_message_repeated(offering: Offering, between: str, repeats: int) -> None:
    """However often a message comes, and whatever dies between, there is one charge and one fragment."""

    def again(step: Callable[[], object]) -> object:
        answers = []
        for _ in range(repeats):
            answers.append(step())
            if between == "restart":
                offering.restart()
        return answers[-1] if len({repr(answer) for answer in answers}) == 1 else pytest.fail("other answer")

    schema = again(lambda: offering.node.invitations.describe("r1", "cohort"))
    assert isinstance(schema, bytes)
    plan = offering.plan(schema)

    def accept() -> str:
        accepted = offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
        assert accepted is not None
        return accepted.key_check

    again(accept)
    again(lambda: offering.node.production.link("r1", plan.digest))
    addendum = offering.addendum(plan)
    digest = again(lambda: offering.node.production.mask("r1", plan.digest, *addendum).fragment_digest)
    assert isinstance(digest, str)
    fragment = offering.node.production.fragment("r1", plan.digest)
    assert hashlib.sha256(fragment.path.read_bytes()).hexdigest() == digest == fragment.digest
    receipt = offering.receipt(plan, digest)
    again(lambda: offering.node.production.receive_receipt("r1", plan.digest, *receipt))
    again(lambda: offering.node.close("r1", "published", "", "ab" * 32))
    assert offering.kinds() == ["reserve", "spend"]
    assert state(offering) is SessionState.PUBLISHED
    assert offering.records.ledger.balance("cohort", Decimal(3)).remaining == 2
    offering.records.ledger.verify()
    offering.records.history.verify()


@pytest.mark.parametrize("after", ["describe", "consent", "link", "mask", "receipt"])
@pytest.mark.parametrize("end", ["failed", "refused", "cancelled", "expired", "conflict"])
def test_an_end_at_every_step(offering: Offering, after: str, end: str) -> None:
    """A release that ends returns what was not spent, never what was; only paid fragments stay."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    if after != "describe":
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    if after in ("link", "mask", "receipt"):
        offering.node.production.link("r1", plan.digest)
    if after in ("mask", "receipt"):
        done = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
        if after == "receipt":
            receipt = offering.receipt(plan, done.fragment_digest)
            offering.node.production.receive_receipt("r1", plan.digest, *receipt)
    offering.restart()
    for _ in range(2):
        offering.node.close("r1", end, "another owner", "")
    expected = {"describe": [], "consent": ["reserve", "return"], "link": ["reserve", "return"]}
    assert offering.kinds() == expected.get(after, ["reserve", "spend"])
    assert state(offering) is SessionState.ENDED
    spent = after in ("mask", "receipt")
    assert offering.node.is_resumable("r1") is spent
    assert offering.records.outbox.sealed() == ((("hub", "r1"),) if spent else ())
    if spent:
        # A month later nobody can go on with it.
        offering.later = timedelta(days=31)
        offering.records.clean_outbox()
        assert offering.records.outbox.sealed() == ()
    with pytest.raises(ProtocolError, match="no open session"):
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))


def test_a_release_goes_on_with_the_same_fragment(offering: Offering) -> None:
    """After an end that followed the seal, the same fragment is sent: nothing is drawn or charged again."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    found = offering.addendum(plan)
    first = offering.node.production.mask("r1", plan.digest, *found)
    content = offering.records.outbox.path("hub", "r1").read_bytes()
    receipt = offering.receipt(plan, first.fragment_digest)
    offering.node.production.receive_receipt("r1", plan.digest, *receipt)
    offering.node.close("r1", "expired", "b did not upload", "")
    assert state(offering) is SessionState.ENDED
    offering.restart()
    offering.records.clean_outbox()
    again = offering.node.production.mask("r1", plan.digest, *found)
    fragment = offering.node.production.fragment("r1", plan.digest)
    assert (again, fragment.path.read_bytes()) == (first, content)
    receipt = offering.receipt(plan, again.fragment_digest)
    offering.node.production.receive_receipt("r1", plan.digest, *receipt)
    offering.node.close("r1", "published", "", "ab" * 32)
    assert (state(offering), offering.kinds()) == (SessionState.PUBLISHED, ["reserve", "spend"])
    assert offering.records.history.entries(event="resumed")


def test_what_was_spent_and_not_sealed_is_never_drawn_after_the_end(
    offering: Offering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an older state was put back, another fragment may have left under the same charge."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    with monkeypatch.context() as patched:
        patched.setattr("owner_node.engines.pinned.encode", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    offering.node.close("r1", "expired", "b did not upload", "")
    assert (state(offering), offering.kinds()) == (SessionState.ENDED, ["reserve", "spend"])
    assert not offering.node.is_resumable("r1")
    offering.restart()
    with pytest.raises(ProtocolError, match="no open session"):
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))


def test_another_aggregator_with_the_same_plan_deletes_nothing(offering: Offering) -> None:
    """Published manifests hold the plan: who presents it as its own is refused, and no release suffers."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    config = replace(
        offering.config, aggregators=(*offering.config.aggregators, KnownAggregator("other", "localhost:2"))
    )
    authorities = load_chain(config.tls.ca)
    signer = Signer.load(config.tls.key, config.tls.cert)
    trust = Trust(lambda: authorities, DOMAIN, "a", "other", offering.now)
    other = Node(config, "other", offering.records, signer, trust, offering.now)
    other.invitations.describe("r1", "cohort")
    with pytest.raises(TesseraError) as caught:
        other.invitations.consent("r1", plan.digest, offering.offer(plan, offering.other))
    other.fail("r1", caught.value)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.kinds() == ["reserve", "spend"]


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_crash_between_spending_and_sealing_draws_anew_under_one_charge(
    offering: Offering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies after the spend masks again under the same charge; half a fragment never stays."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("owner_node.engines.pinned.encode", full_disk)
        with pytest.raises(OSError, match="No space left"):
            offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert (state(offering), offering.kinds()) == (SessionState.SPENT, ["reserve", "spend"])
    assert not offering.records.outbox.sealed()
    assert not offering.records.outbox.leftovers()
    # Died between the rename and the transaction: a whole file that no session speaks of.
    leftover = offering.records.outbox.path("hub", "r1")
    leftover.write_bytes(b"never sealed")
    offering.restart()
    done = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert hashlib.sha256(leftover.read_bytes()).hexdigest() == done.fragment_digest
    assert offering.kinds() == ["reserve", "spend"]


def test_a_start_deletes_what_no_session_will_send(offering: Offering) -> None:
    """What a crash left between the end of a release and deleting its fragment goes at the next start."""
    sealed(offering)
    kept = offering.records.outbox.path("hub", "r1")
    ended = offering.records.outbox.path("hub", "r2")
    accepted(offering, release="r2")
    offering.node.close("r2", "failed", "", "")
    ended.write_bytes(b"left over")
    partial = ended.with_name(f".{ended.name}.x.partial")
    partial.write_bytes(b"half")
    offering.restart()
    offering.records.clean_outbox()
    assert (kept.exists(), ended.exists(), partial.exists()) == (True, False, False)


def test_a_source_that_changed_after_linking_is_not_masked(offering: Offering) -> None:
    """What was linked is what is masked: a changed file stops the release before the charge is spent."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    offering.write_source(seed=2)
    offering.restart()
    with pytest.raises(DataChangedError) as caught:
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.node.fail("r1", caught.value).code == "data_changed"
    assert offering.kinds() == ["reserve", "return"]
    assert state(offering) is SessionState.REFUSED


def test_a_running_node_masks_what_it_linked(offering: Offering) -> None:
    """The source is loaded once, to be linked: changes while the node runs make no difference."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    offering.source.unlink()
    done = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert done.n_records == N_RECORDS


def test_nothing_destroys_the_fragment_of_a_published_release(offering: Offering) -> None:
    """Whatever an aggregator asks after publication, the owner keeps the proof of what it sealed."""
    plan, digest = sealed(offering)
    offering.node.close("r1", "published", "", "ab" * 32)
    with pytest.raises(UsageError) as caught:
        offering.node.invitations.describe("r1", "nonesuch")
    offering.node.fail("r1", caught.value)
    offering.node.close("r1", "failed", "", "")
    path = offering.records.outbox.path("hub", plan.release)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert state(offering) is SessionState.PUBLISHED


def test_steps_out_of_order(offering: Offering) -> None:
    """No masking before linking, no fragment before sealing, and nothing under another plan's digest."""
    plan = accepted(offering)
    production = offering.node.production
    with pytest.raises(ProtocolError):
        production.mask("r1", plan.digest, *offering.addendum(plan))
    with pytest.raises(ProtocolError, match="before it was sealed"):
        production.fragment("r1", plan.digest)
    with pytest.raises(ProtocolError, match="another plan"):
        production.link("r1", "00" * 32)
    with pytest.raises(ProtocolError, match="no open session"):
        production.link("r9", plan.digest)
    assert offering.kinds() == ["reserve"]


def test_a_fragment_does_not_show_the_order_of_the_records(offering: Offering) -> None:
    """Where no tokens are sorted by, records are shuffled: masked almost without noise, in no order."""
    (cohort,) = offering.config.datasets
    offering.config = replace(offering.config, datasets=(replace(cohort, total_epsilon=Decimal(10**5)),))
    offering.restart()
    lines = [f"p{position},{position}" for position in range(N_RECORDS)]
    offering.source.write_text("\n".join(["person,age", *lines, ""]))
    plan = accepted(offering, epsilon="100000")
    offering.node.production.link("r1", plan.digest)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    path = offering.node.production.fragment("r1", plan.digest).path
    ages = decode(path, plan, plan.assignment_of("a"), N_RECORDS).column("age").to_numpy()
    positions = np.arange(N_RECORDS)
    # Sorted, they would be the positions themselves, but for clusters of five and rank noise.
    assert np.corrcoef(np.sort(ages), positions)[0, 1] > 0.99
    assert np.corrcoef(ages, positions)[0, 1] < 0.8


def test_published_before_sealing_is_an_end(offering: Offering) -> None:
    """A release cannot have been published without this owner's fragment: the reservation comes back."""
    accepted(offering)
    offering.node.close("r1", "published", "", "ab" * 32)
    assert (state(offering), offering.kinds()) == (SessionState.ENDED, ["reserve", "return"])


@pytest.mark.parametrize(
    ("policy", "arguments", "error", "heard"),
    [
        (PolicyConfig(min_k=6), {}, RefusedError, "refused by owner policy"),
        (PolicyConfig(max_epsilon_per_release=Decimal("0.5")), {}, RefusedError, "refused by owner policy"),
        (PolicyConfig(), {"epsilon": "4"}, BalanceError, "the budget does not cover the charge"),
    ],
)
def test_a_refusal_tells_the_owner_all_and_the_aggregator_little(
    tmp_path: Path, policy: PolicyConfig, arguments: dict[str, str], error: type[TesseraError], heard: str
) -> None:
    """The deciding rule stays in the owner's history; the aggregator hears a code and a fixed sentence."""
    offering = Offering(tmp_path, policy)
    with pytest.raises(error) as caught:
        accepted(offering, **arguments)
    failure = offering.node.fail("r1", caught.value)
    assert (failure.code, failure.message) == (error.code, heard)
    assert (state(offering), offering.kinds()) == (SessionState.REFUSED, [])
    line = offering.records.history.entries()[-1]
    assert (line.decision, line.rule) == ("refuse", caught.value.message)
    offering.records.db.close()


def test_unusable_data_return_the_reservation(offering: Offering) -> None:
    """Data that cannot be used cost nothing, and no count reaches the aggregator."""
    plan = accepted(offering)
    offering.restart()
    offering.source.write_text("person,age\n" + "".join(f"p{i},500\n" for i in range(N_RECORDS)))
    with pytest.raises(UnusableDataError) as caught:
        offering.node.production.link("r1", plan.digest)
    failure = offering.node.fail("r1", caught.value)
    assert str(N_RECORDS) not in failure.message
    assert "500" not in caught.value.message
    assert (state(offering), offering.kinds()) == (SessionState.REFUSED, ["reserve", "return"])


def test_fewer_than_k_records_at_linking(offering: Offering) -> None:
    """A file that shrank below k after consent stops before anything is spent."""
    plan = accepted(offering)
    offering.restart()
    offering.source.write_text("person,age\np1,5\np2,6\n")
    with pytest.raises(UnusableDataError) as caught:
        offering.node.production.link("r1", plan.digest)
    assert offering.node.fail("r1", caught.value).code == "unusable_data"
    assert offering.kinds() == ["reserve", "return"]


def test_records_that_were_left_out_are_counted(offering: Offering) -> None:
    """How many records `missing = "drop"` left out of a release is in its owner's history alone."""
    offering.config = replace(
        offering.config, datasets=(replace(offering.config.datasets[0], missing="drop"),)
    )
    with offering.source.open("a") as file:
        file.write("p-1,\n,7\n")
    offering.restart()
    plan = accepted(offering)
    assert offering.node.production.link("r1", plan.digest).n_records == N_RECORDS
    (linked,) = (line for line in offering.records.history.entries() if line.event == "linked")
    assert (linked.details["records"], linked.details["left_out"]["dropped"]) == (str(N_RECORDS), "2")


def test_identifiers_that_look_like_numbers_are_counted(offering: Offering, caplog) -> None:
    """Texts such as 17.0 are found at no owner who has 17: every release says so, at home."""
    path = offering.source
    heading, *lines = path.read_text().splitlines()
    path.write_text("\n".join([heading, *(f"{n}.0,{line.split(',', 1)[1]}" for n, line in enumerate(lines))]))
    offering.restart()
    plan = accepted(offering)
    assert offering.node.production.link("r1", plan.digest).n_records == N_RECORDS
    (linked,) = (line for line in offering.records.history.entries() if line.event == "linked")
    assert linked.details["numerals"] == str(N_RECORDS)
    (said,) = (each for each in caplog.records if "texts such as 17.0" in each.message)
    assert (said.levelname, said.count) == ("WARNING", N_RECORDS)


def test_own_head_is_believed_and_no_other(offering: Offering) -> None:
    """Only a ledger head that this owner signed can make it refuse work."""
    accepted(offering)
    signed = offering.node.head()
    trust = offering.trust
    head = signed.head
    payload, other = head.to_bytes(), replace(head, sequence=head.sequence + 1).to_bytes()
    assert trust.is_own(Domain.LEDGER_HEAD, payload, signed.signature, signed.certificate)
    assert not trust.is_own(Domain.LEDGER_HEAD, other, signed.signature, signed.certificate)
    assert not trust.is_own(Domain.LEDGER_HEAD, payload, signed.signature, offering.hub.chain_pem.encode())
    assert not trust.is_own(Domain.LEDGER_HEAD, payload, signed.signature, b"no certificate")


@pytest.mark.parametrize("end", ["sealed", "cancelled"])
def test_the_key_of_a_release_is_gone_from_the_disk(offering: Offering, end: str) -> None:
    """Once a fragment is sealed, or the release has ended, no file of the state directory has its key."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    key = session.release_key
    assert key is not None
    files = [offering.records.db.path, offering.records.db.path.with_name("owner.db-wal")]
    assert any(key in path.read_bytes() for path in files)
    if end == "sealed":
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    else:
        offering.node.close("r1", end, "", "")
    assert not any(key in path.read_bytes() for path in files)
