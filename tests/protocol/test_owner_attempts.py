"""How often an owner is linked without a charge is limited, and nothing before it depends on the data."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import ProtocolError, RefusedError, TesseraError, UsageError
from common.model.plan import Plan
from owner_node.config import KnownAggregator
from owner_node.masking.foreseen import Forecast
from owner_node.release.approvals import Person
from owner_node.release.attempts import PERIOD, Allowance
from owner_node.release.decisions import Decisions
from owner_node.release.invitations import LATEST_DEADLINE
from owner_node.state.answers import Failure, RefusedBeforeError
from owner_node.state.session import LONGEST_HOLD, SessionState
from tests.fakes.offered_plans import approve, consent, looked_at, offered, session, under
from tests.fakes.offering import N_RECORDS, Offering

DAY = timedelta(days=1)
POLICY = Failure.of("refused")
MOST = 10
LIMITS = ("max_unchanged_share", "max_unchanged_record_share", "max_zero_noise_share", "max_reidentified")


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def link(offering: Offering, release: str, plan: Plan | None = None) -> Plan:
    """Bring a release to its linking."""
    plan = plan or offered(offering, release, epsilon="0.01")
    assert consent(offering, plan)
    offering.node.production.link(release, plan.digest)
    return plan


def unlinked(offering: Offering, release: str) -> tuple[str, Failure]:
    """Ask for a linking that the limit refuses; return its rule and what the aggregator hears."""
    plan = offered(offering, release, epsilon="0.01")
    assert consent(offering, plan)
    with pytest.raises(RefusedError) as caught:
        offering.node.production.link(release, plan.digest)
    return caught.value.message, offering.node.fail(release, caught.value)


def allowance(offering: Offering) -> Allowance:
    """Return what is left to the first aggregator of the first budget."""
    return offering.records.attempts.allowances(offering.config)[0]


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_on_data_is_a_matter_of_a_person(offering: Offering, key: str) -> None:
    """What exceeds a limit is asked like what keeps it, and nothing of it reaches the aggregator; the person
    finds the numbers in the session, and may agree.
    """
    for number, limit in enumerate(("0", "1")):
        under(offering, approval="manual", **{key: Decimal(limit)})
        release = f"r{number}"
        plan = offered(offering, release, epsilon="1")
        assert not consent(offering, plan)
        assert looked_at(offering, release) == ""
        assert Forecast.from_text(session(offering, release).forecast).attributes
        assert session(offering, release).state is SessionState.AWAITING_APPROVAL
        approve(offering, release)
        assert consent(offering, plan)
    assert allowance(offering).used == 0


@pytest.mark.parametrize("what", ["values", "records", "gone"])
def test_consent_tells_nothing_of_the_data(offering: Offering, what: str) -> None:
    """Data that cannot be used are no matter for consent, with a person or without: linking finds them."""
    plans = []
    for number, approval in enumerate(("auto", "manual")):
        under(offering, approval=approval)
        plans.append(offered(offering, f"r{number}", epsilon="0.01", k="30"))
    if what == "gone":
        offering.source.unlink()
    else:
        value, n_records = (500, N_RECORDS) if what == "values" else (5, 20)
        offering.source.write_text("person,age\n" + "".join(f"p{i},{value}\n" for i in range(n_records)))
    under(offering, approval="auto")
    assert consent(offering, plans[0])
    under(offering, approval="manual")
    assert not consent(offering, plans[1])
    assert session(offering, "r1").forecast == ""
    approve(offering, "r1")
    assert consent(offering, plans[1])
    assert allowance(offering).used == 0
    for plan in plans:
        with pytest.raises(TesseraError) as caught:
            offering.node.production.link(plan.release, plan.digest)
        assert offering.node.fail(plan.release, caught.value) == Failure.of("unusable_data")
    assert allowance(offering).used == 2
    assert offering.kinds() == ["reserve", "reserve", "return", "return"]


@pytest.mark.parametrize("signature", [b"", b"forged", None], ids=["none", "forged", "right"])
def test_a_step_before_linking_tells_nothing_of_the_data(offering: Offering, signature: bytes | None) -> None:
    """Whether a person counted the records already is no matter for an aggregator that guesses their number:
    without a linking, which counts, the answer to every guess is the same.
    """
    under(offering, approval="manual")
    plan = offered(offering, epsilon="0.01")
    assert not consent(offering, plan)
    approve(offering)
    assert consent(offering, plan)
    assert session(offering).n_records == N_RECORDS
    answers = set()
    for guess in (N_RECORDS - 1, N_RECORDS, N_RECORDS + 1):
        addendum, right = offering.addendum(plan, guess)
        with pytest.raises(ProtocolError, match="before its data were linked") as caught:
            offering.node.production.mask(
                "r1", plan.digest, addendum, right if signature is None else signature
            )
        answers.add(offering.node.fail("r1", caught.value))
    assert answers == {Failure.of("protocol")}
    assert allowance(offering).used == 0
    offering.node.production.link("r1", plan.digest)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))


def test_uncharged_linkings_are_limited(offering: Offering) -> None:
    """Linking tells exact numbers: open releases and ended ones count, until they are charged or 30 days
    have passed; after as many as may be the data are not even looked at; a policy can allow more.
    """
    for index in range(MOST):
        offering.later += DAY / 2
        link(offering, f"r{index}")
        if index % 2:
            offering.node.close(f"r{index}", "cancelled", "", "")
    # What loading would find is not found: nothing is loaded any more.
    content = offering.source.read_text()
    offering.source.write_text("person,age\n" + "".join(f"p{i},500\n" for i in range(N_RECORDS)))
    rule, failure = unlinked(offering, "last")
    assert rule.startswith("attempts: limit of linkings without a charge reached: attempts 10 of 10")
    assert f"{MOST // 2} of these releases are open" in rule
    assert failure == POLICY
    assert session(offering, "last").state is SessionState.REFUSED
    offering.source.write_text(content)
    assert allowance(offering).next is not None
    offering.later -= timedelta(days=3000)
    assert allowance(offering).blocked
    offering.later += timedelta(days=3000)
    under(offering, max_attempts=MOST + 1)
    link(offering, "more")
    under(offering)
    assert unlinked(offering, "again")[1] == POLICY
    plan = Plan.from_bytes(offering.records.sessions.plan(session(offering, "r0")) or b"")
    for release in ("more", "r2"):
        offering.node.close(release, "cancelled", "", "")
    offering.node.production.mask("r0", plan.digest, *offering.addendum(plan))
    assert allowance(offering).used == MOST
    offering.later += PERIOD + DAY
    assert allowance(offering).used == MOST // 2 - 2
    link(offering, "next")


def test_one_aggregator_does_not_lock_out_another(offering: Offering) -> None:
    """The limit is shared evenly; the line says what is left and when."""
    other = KnownAggregator("other", "localhost:2")
    offering.config = replace(offering.config, aggregators=(*offering.config.aggregators, other))
    offering.restart()
    for index in range(MOST // 2):
        link(offering, f"r{index}")
        offering.node.close(f"r{index}", "cancelled", "", "")
    unlinked(offering, "last")
    hub, free = offering.records.attempts.allowances(offering.config)
    assert (hub.used, hub.limit, hub.blocked) == (5, 5, True)
    assert hub.next is not None
    assert abs(hub.next - offering.now() - PERIOD) < timedelta(minutes=1)
    assert str(hub).startswith(f"attempts 5 of 5, next free on {hub.next:%Y-%m-%d %H:%M} UTC")
    assert (free.used, free.limit, free.blocked, free.next) == (0, 5, False, None)
    offering.records.attempts.check(offering.config, "another budget", "hub")


@pytest.mark.parametrize("linked", [False, True])
def test_a_person_returns_a_reservation_after_its_deadline(offering: Offering, *, linked: bool) -> None:
    """What an aggregator that vanished has reserved comes back once, and it hears a refusal afterwards."""
    plan = offered(offering)
    ends = offering.now() + timedelta(hours=1)
    offer = replace(offering.offer(plan), deadline=int(ends.timestamp()))
    assert offering.node.invitations.consent("r1", plan.digest, offer)
    if linked:
        offering.node.production.link("r1", plan.digest)
    decisions = Decisions(offering.records.db, offering.now)
    with pytest.raises(UsageError, match="holds its reservation until"):
        decisions.give_back("r1", Person("vera"), "gone")
    offering.later = timedelta(hours=2)
    decisions.give_back("r1", Person("vera"), "gone")
    assert offering.kinds() == ["reserve", "return"]
    assert session(offering).state is SessionState.REFUSED
    with pytest.raises(UsageError, match="no open reservation"):
        decisions.give_back("r1", Person("vera"), "again")
    for late in (
        lambda: offering.node.invitations.consent("r1", plan.digest, offer),
        lambda: offering.node.production.mask("r1", plan.digest, *offering.addendum(plan)),
    ):
        with pytest.raises(RefusedBeforeError):
            late()
    offering.node.close("r1", "cancelled", "", "")
    assert offering.kinds() == ["reserve", "return"]
    assert allowance(offering).used == linked


def test_a_deadline_in_the_far_future_holds_nothing_for_ever(offering: Offering) -> None:
    """Whatever deadline an aggregator states, a reservation comes back after thirty days; no spend does."""
    plan = offered(offering)
    offer = replace(offering.offer(plan), deadline=LATEST_DEADLINE - 1)
    assert offering.node.invitations.consent("r1", plan.digest, offer)
    offering.later = LONGEST_HOLD + timedelta(minutes=1)
    decisions = Decisions(offering.records.db, offering.now)
    assert decisions.reserved("r1").release == "r1"
    offering.node.production.link("r1", plan.digest)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    with pytest.raises(UsageError, match="no open reservation"):
        decisions.give_back("r1", Person("vera"), "gone")
    assert offering.kinds() == ["reserve", "spend"]


def test_linkings_at_the_same_time_get_no_more_answers(offering: Offering) -> None:
    """However many releases are linked at once, no more are answered than one after another."""
    plans = [offered(offering, f"r{index}", epsilon="0.01") for index in range(MOST + 8)]
    for plan in plans:
        assert consent(offering, plan)

    def tried(plan: Plan) -> bool:
        with suppress(RefusedError):
            offering.node.production.link(plan.release, plan.digest)
            return True
        return False

    with ThreadPoolExecutor(len(plans)) as threads:
        assert sum(threads.map(tried, plans)) == MOST


def test_a_repeated_linking_is_one_answer(offering: Offering) -> None:
    """A lost answer is given again, also after a restart between its two transactions."""
    plan = offered(offering, epsilon="0.01")
    assert consent(offering, plan)
    with offering.records.db.transaction() as tx:
        offering.records.attempts.begin(tx, offering.config, session(offering))
    offering.restart()
    for _ in range(3):
        assert offering.node.production.link("r1", plan.digest).n_records == N_RECORDS
    assert allowance(offering).used == 1


def test_a_charge_of_next_to_nothing_buys_no_linking(offering: Offering) -> None:
    """Charged or not, published or not, a release with a tiny epsilon counts for 30 days after its end."""
    for index in range(MOST):
        plan = link(offering, f"r{index}", offered(offering, f"r{index}", epsilon="0.000999"))
        sealed = offering.node.production.mask(f"r{index}", plan.digest, *offering.addendum(plan))
        if index % 2:
            receipt = offering.receipt(plan, sealed.fragment_digest)
            offering.node.production.receive_receipt(f"r{index}", plan.digest, *receipt)
            offering.node.close(f"r{index}", "published", "", "0" * 64)
    found = allowance(offering)
    assert (found.used, found.n_open) == (MOST, MOST // 2)
    assert unlinked(offering, "last")[1] == POLICY
    offering.later += PERIOD + DAY
    assert allowance(offering).used == MOST // 2
    plan = link(offering, "enough", offered(offering, "enough", epsilon="0.001"))
    assert allowance(offering).used == MOST // 2 + 1
    offering.node.production.mask("enough", plan.digest, *offering.addendum(plan))
    assert allowance(offering).used == MOST // 2


@pytest.mark.parametrize("end", ["conflict", "cancelled", "failed"])
def test_linkings_that_came_to_nothing_are_counted(offering: Offering, end: str) -> None:
    """A release that ends after its linking, unspent, counts once, whatever end is told; one that ends before
    it, or after the charge was spent, does not.
    """
    consent(offering, offered(offering))
    offering.node.close("r1", end, "", "")
    assert allowance(offering).used == 0
    link(offering, "r2")
    for _ in range(2):
        offering.node.close("r2", end, "", "")
    assert allowance(offering).used == 1
    third = link(offering, "r3")
    offering.node.production.mask("r3", third.digest, *offering.addendum(third))
    offering.node.close("r3", end, "", "")
    assert allowance(offering).used == 1
