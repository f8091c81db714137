"""How often an owner answers about its data uncharged: limits of its policy, attempts that are counted."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from common.errors import RefusedError, UsageError
from owner_node.config import KnownAggregator, PolicyConfig
from owner_node.consent.policy_rules import is_close
from owner_node.masking.forecast import forecast
from owner_node.masking.tasks import AttributeTask
from owner_node.release import attempts
from owner_node.release.approvals import Person
from owner_node.release.attempts import Attempts
from owner_node.release.decisions import LONGEST_HOLD, Decisions
from owner_node.release.invitations import LATEST_DEADLINE
from owner_node.state.answers import Failure, RefusedBeforeError
from owner_node.state.session import SessionState
from tests.fakes.offered_plans import consent, events, offered, refused, session, under
from tests.fakes.offering import N_RECORDS, Offering

DAY = timedelta(days=1)
POLICY = Failure.of("refused")


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


LIMITS = {
    "max_unchanged_share": {"epsilon": "3"},
    "max_unchanged_record_share": {"epsilon": "3"},
    "max_reidentified": {"epsilon": "3"},
}


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_on_what_leaves_unchanged(offering: Offering, key: str) -> None:
    """Above its limit nothing is reserved; the owner reads rule and share, the aggregator only that a policy
    refused; a limit that is not reached refuses nothing.
    """
    plan = offered(offering, **LIMITS[key])
    under(offering, **{key: Decimal("0.001")})
    rule, failure = refused(offering, plan)
    assert rule.startswith(f"policy.{key} = 0.001: 0.")
    assert events(offering, "refused") == [rule]
    assert failure == POLICY
    assert (offering.kinds(), session(offering).state) == ([], SessionState.REFUSED)
    under(offering, **{key: Decimal(1)})
    assert consent(offering, offered(offering, "r2"))


def test_a_limit_on_values_without_noise(offering: Offering) -> None:
    """Clusters of equal values get no noise from idp-cbls: their share is exact, and limited as such."""
    lines = "".join(f"p{i},{5 if i < 30 else 40 + i}\n" for i in range(N_RECORDS))
    offering.source.write_text("person,age\n" + lines)
    plan = offered(offering, mechanism="idp-cbls")
    under(offering, accounting="per-centroid", max_zero_noise_share=Decimal("0.49"))
    rule, failure = refused(offering, plan)
    assert (rule, failure) == (
        "policy.max_zero_noise_share = 0.49: 0.5 of the values would get no noise", POLICY,
    )  # fmt: skip
    under(offering, accounting="per-centroid", max_zero_noise_share=Decimal("0.5"))
    assert consent(offering, offered(offering, "r2", mechanism="idp-cbls"))


def test_decisions_are_no_toss_of_a_coin(offering: Offering) -> None:
    """The same data and plan are decided alike again and again, a few hundredths of a share from the limit,
    where a forecast of few draws would not be: it says so of itself, and is drawn more closely.
    """
    column = np.array([int(line.split(",")[1]) for line in offering.source.read_text().split()[1:]])
    (attribute,) = offering.config.datasets[0].attributes
    task = AttributeTask(attribute, Decimal(3), 5, "idp-joint")
    several = [forecast({"age": column}, [task], closely=True) for _ in range(8)]
    near = sum((each.unchanged_values for each in several), Decimal(0)) / 8
    limits = [near + Decimal("0.015"), near - Decimal("0.015")]
    few = forecast({"age": column}, [task])
    assert all(is_close(few, PolicyConfig(max_unchanged_share=limit)) for limit in limits)
    for index in range(attempts.MOST // 2):
        offering.later += DAY
        under(offering, max_unchanged_share=limits[0])
        assert consent(offering, offered(offering, f"above-{index}", epsilon="3"))
        offering.node.conclude(f"above-{index}", "failed", "", "")
        under(offering, max_unchanged_share=limits[1])
        refused(offering, offered(offering, f"below-{index}", epsilon="3"))


def test_attempts_are_limited_over_all_aggregators(offering: Offering) -> None:
    """Refusals by what is foreseen are answers about the data: after as many as may be, the data are not even
    looked at; the aggregator sees no difference; other budgets and later days are not concerned.
    """
    under(offering, max_unchanged_share=Decimal(0))
    for index in range(attempts.MOST):
        offering.later += DAY / 2
        rule, failure = refused(offering, offered(offering, f"r{index}"))
        assert rule.startswith("policy.max_unchanged_share")
    plan = offered(offering, "last")
    # What loading would find is not found: nothing is loaded any more.
    offering.source.write_text("person,age\n" + "".join(f"p{i},500\n" for i in range(N_RECORDS)))
    rule, failure = refused(offering, plan)
    assert rule.startswith("attempts: limit of uncharged answers about the data reached: attempts 10 of 10")
    assert failure == POLICY
    assert len(events(offering, "attempt")) == attempts.MOST
    records, config = offering.records, offering.config

    def later(days: int) -> Attempts:
        now = offering.now() + timedelta(days=days)
        return Attempts(records.history, records.sessions, lambda: now)

    for days, budget in ((1, "another budget"), (31, "cohort")):
        with later(days).holding_answer(config, budget, "hub"):
            pass
    for days in (24, -3000):
        with (
            pytest.raises(RefusedError, match="attempts"),
            later(days).holding_answer(config, "cohort", "hub"),
        ):
            pytest.fail("looked at")


def test_one_aggregator_does_not_lock_out_another(offering: Offering) -> None:
    """Each aggregator has a share, and uses half of it a day at most; the line says what is left and when."""
    other = KnownAggregator("other", "localhost:2")
    offering.config = replace(offering.config, aggregators=(*offering.config.aggregators, other))
    under(offering, max_unchanged_share=Decimal(0))
    allowances = offering.records.attempts.allowances
    for day in range(2):
        offering.later += DAY
        for index in range(attempts.MOST):
            plan = offered(offering, f"r{day}-{index}")
            rule, _ = refused(offering, plan)
            assert rule.startswith("attempts" if index >= (3, 2)[day] else "policy.max_unchanged_share")
        hub, free = allowances(offering.config)
        assert (hub.used, hub.limit, hub.blocked) == ((3, 5)[day], 5, True)
        assert hub.next is not None
        wait = (DAY, attempts.PERIOD - DAY)[day]
        assert abs(hub.next - offering.now() - wait) < timedelta(minutes=1)
        line = f"attempts {(3, 5)[day]} of 5, next free on {hub.next:%Y-%m-%d %H:%M} UTC"
        assert str(hub).startswith(line)
        assert (free.used, free.limit, free.blocked, free.next) == (0, 5, False, None)
    with offering.records.attempts.holding_answer(offering.config, "cohort", "other"):
        pass


def test_a_person_allows_attempts_again(offering: Offering) -> None:
    """A recorded decision forgets earlier answers, refusals by people among them, but no open release."""
    under(offering, approval="manual", max_unchanged_share=Decimal("0.99"))
    decisions = Decisions(offering.records.db, offering.now)
    for index in range(attempts.MOST // 2):
        assert not consent(offering, offered(offering, f"r{index}", epsilon="0.01"))
        if index:
            decisions.refuse(f"r{index}", "", Person("vera"), "no")
    last = offered(offering, "last", epsilon="0.01")
    assert refused(offering, last)[0].startswith("attempts: ")
    decisions.reset_attempts("cohort", Person("vera"), "all of these were tests of ours")
    (hub,) = offering.records.attempts.allowances(offering.config)
    assert (hub.used, hub.blocked) == (1, False)
    assert not consent(offering, offered(offering, "next", epsilon="0.01"))
    (line,) = offering.records.history.entries(event=attempts.RESET)
    assert (line.rule, line.details["by"]) == ("all of these were tests of ours", "vera")


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
    offering.node.conclude("r1", "cancelled", "", "")
    assert offering.kinds() == ["reserve", "return"]
    assert offering.records.attempts.allowances(offering.config)[0].used == linked


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


def test_attempts_at_the_same_time_get_no_more_answers(offering: Offering) -> None:
    """However many releases ask at once, no more answers are given than one after another."""
    under(offering, max_unchanged_share=Decimal(0))
    plans = [offered(offering, f"r{index}") for index in range(attempts.MOST + 8)]
    with ThreadPoolExecutor(len(plans)) as threads:
        rules = [rule for rule, _ in threads.map(lambda plan: refused(offering, plan), plans)]
    assert sum(rule.startswith("policy.max_unchanged_share") for rule in rules) == attempts.MOST // 2
    assert len(events(offering, "attempt")) == attempts.MOST // 2


@pytest.mark.parametrize("end", ["conflict", "cancelled", "failed"])
def test_linkings_that_came_to_nothing_are_counted(offering: Offering, end: str) -> None:
    """Linking tells exact numbers: a release that ends after it, unspent, counts once, whatever end is told;
    one that ends before it, or after the charge was spent, does not.
    """
    first = offered(offering)
    consent(offering, first)
    offering.node.conclude("r1", end, "", "")
    assert events(offering, "attempt") == []
    second = offered(offering, "r2")
    consent(offering, second)
    offering.node.production.link("r2", second.digest)
    for _ in range(2):
        offering.node.conclude("r2", end, "", "")
    assert events(offering, "attempt") == [f"the release ended after linking: {end}"]
    third = offered(offering, "r3")
    consent(offering, third)
    offering.node.production.link("r3", third.digest)
    offering.node.production.mask("r3", third.digest, *offering.addendum(third))
    offering.node.conclude("r3", end, "", "")
    assert len(events(offering, "attempt")) == 1


def test_an_acceptance_under_a_limit_is_an_answer(offering: Offering) -> None:
    """Where a limit could have refused, going on says something of the data, too: accepting releases and
    cancelling them tells no more than being refused, while they live and after their end.
    """
    under(offering, max_unchanged_share=Decimal("0.99"))
    for index in range(attempts.MOST):
        offering.later += DAY / 2
        assert consent(offering, offered(offering, f"r{index}", epsilon="0.05"))
        if index % 2:
            offering.node.conclude(f"r{index}", "cancelled", "", "")
    assert events(offering, "attempt") == ["the release ended after its data were examined: cancelled"] * 5
    rule, failure = refused(offering, offered(offering, "last", epsilon="0.05"))
    assert (failure, f"{attempts.MOST // 2} of its releases are open" in rule) == (POLICY, True)
    for index in range(attempts.MOST):
        offering.node.conclude(f"r{index}", "cancelled", "", "")
    assert len(events(offering, "attempt")) == attempts.MOST
    refused(offering, offered(offering, "after", epsilon="0.05"))


def test_an_answer_that_is_paid_for_does_not_count(offering: Offering) -> None:
    """Under a limit, releases that are charged can be as many as the budget has room for."""
    under(offering, max_unchanged_share=Decimal("0.99"))
    for index in range(attempts.MOST + 2):
        plan = offered(offering, f"r{index}", epsilon="0.05")
        assert consent(offering, plan)
        offering.node.production.link(plan.release, plan.digest)
        offering.node.production.mask(plan.release, plan.digest, *offering.addendum(plan))
    assert events(offering, "attempt") == []


def test_a_k_that_only_the_exact_number_allows_is_a_question(offering: Offering) -> None:
    """As many records as the rounded number guarantees are no secret; whether there are more is an answer."""
    offering.source.write_text("person,age\n" + "".join(f"p{i},{i % 90}\n" for i in range(67)))
    for index, k in enumerate(("60", "61", "67")):
        assert consent(offering, offered(offering, f"r{index}", epsilon="0.01", k=k))
        offering.node.conclude(f"r{index}", "cancelled", "", "")
        assert len(events(offering, "attempt")) == index


def test_open_releases_are_linked_no_more_often_than_answers_are_given(offering: Offering) -> None:
    """Linking tells exact numbers: releases that are kept open after it count like those that ended."""
    plans = [offered(offering, f"r{index}", epsilon="0.01") for index in range(attempts.MOST + 1)]
    for plan in plans:
        assert consent(offering, plan)
    offering.later += DAY
    for plan in plans[:-1]:
        offering.node.production.link(plan.release, plan.digest)
    last = plans[-1]
    with pytest.raises(RefusedError, match=f"{attempts.MOST} of its releases are open") as caught:
        offering.node.production.link(last.release, last.digest)
    assert offering.node.fail(last.release, caught.value) == POLICY
    assert session(offering, last.release).state is SessionState.REFUSED
    first = plans[0]
    offering.node.production.mask(first.release, first.digest, *offering.addendum(first))
    assert consent(offering, offered(offering, "next", epsilon="0.01"))


def test_being_asked_is_an_answer_too(offering: Offering) -> None:
    """A person is only asked about data that pass: what waited for one counts, refused by one or not."""
    under(offering, approval="manual", max_unchanged_share=Decimal("0.99"))
    decisions = Decisions(offering.records.db, offering.now)
    for index in range(attempts.MOST):
        offering.later += DAY / 2
        assert not consent(offering, offered(offering, f"r{index}", epsilon="0.01"))
        if index < attempts.MOST // 2:
            decisions.refuse(f"r{index}", "", Person("vera"), "no")
        else:
            offering.node.conclude(f"r{index}", "cancelled", "", "")
    assert len(events(offering, "attempt")) == attempts.MOST // 2
    refused(offering, offered(offering, "last", epsilon="0.01"))
