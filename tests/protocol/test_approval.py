"""A person decides: nothing is reserved before, one plan is approved, and every repeat gets the same."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import BalanceError, ConflictError, IdentityError, ProtocolError, RefusedError
from common.model.plan import Plan
from owner_node.cli.requests import brief, show_request
from owner_node.config import PolicyConfig
from owner_node.release.approvals import Person
from owner_node.release.request_view import request_view
from owner_node.state.answers import RefusedBeforeError
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from owner_node.views.appraisal import appraise
from owner_node.views.verdict import verdict_of
from tests.fakes.offering import Offering

VERA = Person("vera")
DAY = timedelta(hours=24)


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node that asks a person about every plan."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    yield made
    made.records.db.close()


def session(offering: Offering, release: str = "r1") -> Session:
    """Return the stored session of a release."""
    found = offering.records.sessions.get("hub", release)
    assert found is not None
    return found


def asked(offering: Offering, release: str = "r1") -> Plan:
    """Bring a release to the question."""
    plan = offering.plan(offering.node.invitations.describe(release, "cohort"), release)
    assert offering.node.invitations.consent(release, plan.digest, offering.offer(plan)) is None
    return plan


def approve(offering: Offering, release: str = "r1", valid: timedelta = DAY) -> None:
    """Look at a plan and approve it, as the command does."""
    if not session(offering, release).source_digest:
        appraise(session(offering, release), offering.config)
    with offering.records.db.transaction() as tx:
        offering.records.approvals.approve(tx, session(offering, release), VERA, valid)


def events(offering: Offering) -> list[str]:
    """Return the events of the history."""
    return [line.event for line in offering.records.history.entries()]


@pytest.mark.parametrize("restarts", [False, True])
def test_waiting_reserves_nothing(offering: Offering, restarts: bool) -> None:
    """However often the plan comes, and whatever dies between, it waits, noted once, and reserves nothing."""
    plan = asked(offering)
    for _ in range(3):
        if restarts:
            offering.restart()
        assert not offering.node.invitations.decided("r1")
        assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is None
    assert (session(offering).state, session(offering).plan_digest) == (
        SessionState.AWAITING_APPROVAL,
        plan.digest,
    )
    assert offering.kinds() == []
    assert events(offering) == ["invited", "awaiting-approval"]
    assert offering.records.history.entries()[-1].rule == 'policy.approval = "manual"'


@pytest.mark.parametrize("restarts", [False, True])
def test_an_approved_plan_is_accepted(offering: Offering, restarts: bool) -> None:
    """After the approval the plan is accepted once, and the history names rule, person and approval."""
    plan = asked(offering)
    approve(offering)
    if restarts:
        offering.restart()
    assert offering.node.invitations.decided("r1")
    first = offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    again = offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert first is not None
    assert again is not None
    assert first.key_check == again.key_check != ""
    assert (session(offering).state, offering.kinds()) == (SessionState.RESERVED, ["reserve"])
    accepted = offering.records.history.entries()[-1]
    assert (accepted.event, accepted.rule, accepted.epsilon) == (
        "accepted",
        'policy.approval = "manual"',
        "1",
    )
    assert accepted.details["approved_by"] == "vera"
    assert accepted.details["approval"] == "3"


def test_nothing_goes_on_before_the_approval(offering: Offering) -> None:
    """An aggregator that skips the question is told that nothing was accepted."""
    plan = asked(offering)
    with pytest.raises(ProtocolError, match="no plan was accepted"):
        offering.node.production.link("r1", plan.digest)
    with pytest.raises(ProtocolError, match="no plan was accepted"):
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.kinds() == []


def test_another_plan_is_not_what_was_approved(offering: Offering) -> None:
    """While a person decides about one plan, and after, no other plan slips in under its release."""
    plan = asked(offering)
    other = replace(plan, purpose="something else")
    with pytest.raises(ConflictError):
        offering.node.invitations.consent("r1", other.digest, offering.offer(other))
    approve(offering)
    with pytest.raises(ConflictError):
        offering.node.invitations.consent("r1", other.digest, offering.offer(other))
    assert offering.kinds() == []


def test_an_expired_approval_is_none(offering: Offering) -> None:
    """An approval that ended before it was used accepts nothing; the plan goes on waiting."""
    plan = asked(offering)
    approve(offering, valid=timedelta(0))
    for _ in range(2):
        assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is None
    assert offering.kinds() == []
    assert events(offering) == ["invited", "awaiting-approval", "approved", "approval-expired"]
    approve(offering)
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None


def test_approval_is_no_way_around_the_policy(offering: Offering) -> None:
    """At the approval the plan is judged again: what changed since then can still refuse it."""
    first, second = asked(offering), asked(offering, "r2")
    approve(offering)
    approve(offering, "r2")
    offering.config = replace(offering.config, policy=PolicyConfig(approval="manual", min_k=50))
    offering.restart()
    with pytest.raises(RefusedError, match=r"policy\.min_k"):
        offering.node.invitations.consent("r1", first.digest, offering.offer(first))
    dataset = replace(offering.config.datasets[0], total_epsilon=Decimal("0.5"))
    offering.config = replace(offering.config, policy=PolicyConfig(approval="manual"), datasets=(dataset,))
    offering.restart()
    with pytest.raises(BalanceError):
        offering.node.invitations.consent("r2", second.digest, offering.offer(second))
    assert offering.kinds() == []


def test_the_policy_refuses_before_anybody_is_asked(offering: Offering) -> None:
    """Nobody is asked about what the policy refuses; the history has plan, ε and rule all the same."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"), k="4")
    offering.config = replace(offering.config, policy=PolicyConfig(approval="manual", min_k=50))
    offering.restart()
    with pytest.raises(RefusedError) as caught:
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    offering.node.fail("r1", caught.value)
    line = offering.records.history.entries()[-1]
    assert (line.event, line.plan_digest, line.epsilon) == ("refused", plan.digest, "1")
    assert line.rule.startswith("policy.min_k = 50")


def test_a_refusal_is_answered_the_same_again(offering: Offering) -> None:
    """An answer that was lost is given again: the same code and words, without another line of history."""
    plan = asked(offering)
    failure = offering.node.fail("r1", RefusedError("policy.min_k = 50"))
    lines = events(offering)
    for again in (plan, replace(plan, purpose="something else")):
        with pytest.raises(RefusedBeforeError) as caught:
            offering.node.invitations.consent("r1", again.digest, offering.offer(again))
        assert caught.value.failure == failure
    assert events(offering) == lines


def test_a_certificate_that_ends_while_a_person_decides(offering: Offering) -> None:
    """The plan was signed when the certificate held: an answer may take longer; a new plan may not use it."""
    plan = asked(offering)
    offering.later = timedelta(days=100)
    approve(offering)
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None
    late = offering.plan(offering.node.invitations.describe("r2", "cohort"), "r2")
    with pytest.raises(IdentityError, match="expired"):
        offering.node.invitations.consent("r2", late.digest, offering.offer(late))


def test_an_end_while_waiting(offering: Offering) -> None:
    """A deadline or a cancellation ends the wait; an approval afterwards has nothing to accept."""
    plan = asked(offering)
    offering.node.close("r1", "expired", "the deadline passed", "")
    assert offering.node.invitations.decided("r1")
    assert session(offering).state is SessionState.ENDED
    with pytest.raises(ProtocolError, match="no open session"):
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert offering.kinds() == []


@pytest.mark.parametrize(
    "purpose", ["study\n  charge  0.000001", "study   \x1b[8m", "wide  gap", " x", "x" * 401]
)
def test_a_purpose_is_one_short_line(offering: Offering, purpose: str) -> None:
    """No plan brings lines of its own before the person who approves it; it is not even kept."""
    plan = replace(offering.plan(offering.node.invitations.describe("r1", "cohort")), purpose=purpose)
    with pytest.raises(ProtocolError, match="purpose"):
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert session(offering).purpose == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"created": "2026-01-01\n  charge  0"}, "time"),
        ({"created": "2026-01-01" + " " * 80 + "charge  0"}, "time"),
        ({"version": "1\n"}, "version"),
        ({"version": "0.1.0" * 65}, "version"),
    ],
)
def test_other_texts_of_a_plan_are_what_they_should_be(
    offering: Offering, change: dict[str, str], told: str
) -> None:
    """Neither time nor version is a place for other words."""
    plan = replace(offering.plan(offering.node.invitations.describe("r1", "cohort")), **change)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=told):
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))


def test_names_in_a_plan_are_names(offering: Offering) -> None:
    """Owners and attributes that are none of this owner's are shown to it by names, not by pages of text."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    own, other = plan.tasks
    long = "x" * 257
    settings = (*plan.attributes, replace(plan.attributes[0], name=long))
    elsewhere = replace(other, group=1, attributes=(replace(other.attributes[0], name=long),))
    for bad, told in (
        (replace(plan, tasks=(own, replace(other, owner="b\nWhat is promised"))), "owners"),
        (replace(plan, attributes=settings, tasks=(own, elsewhere)), "attributes"),
    ):
        with pytest.raises(ProtocolError, match=told):
            offering.node.invitations.consent("r1", bad.digest, offering.offer(bad))


def test_the_reason_of_an_end_is_one_line(offering: Offering, capsys: pytest.CaptureFixture[str]) -> None:
    """What an aggregator says of an end cannot forge a line of what a person is shown."""
    plan = asked(offering)
    offering.node.close("r1", "cancelled", "because\nWhat is promised\n- all", "")
    view = request_view(session(offering), plan, offering.config, None)
    view |= {"verdict": verdict_of(view, offering.config.policy)}
    shown = {"budget": "cohort", "rule": "", "approval": None, "approvers": 1, "attacks": None}
    show_request({**view, **shown}, details=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("What is promised") == 1
    assert any("because\\nWhat is promised" in line for line in lines)


def test_a_request_is_one_page(offering):
    """What decides comes first; then purpose, charge, errors and three sentences; at most 25 lines."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"), "r1", k="5")
    plan = replace(plan, purpose="an audit of care " * 23 + "only")
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is None
    assert appraise(session(offering), offering.config) == ""
    document = request_view(session(offering), plan, offering.config, Decimal("1.999999999996"))
    document |= {"budget": "cohort", "rule": 'policy.approval = "manual"', "approval": None}
    document["balance"] = {"spent": Decimal(8)}
    alone = {"baseline": 0.01, "control": None}
    risk = {"attack": "likelihood", "knows": "any 3", "rate": {"mean": 0.25, "low": 0.2, "high": 0.3}} | alone
    earlier = risk | {"knows": "all, with 2 earlier releases", "rate": {"mean": 0.093, "low": 0, "high": 1}}
    document["attacks"] = {
        "expected": "all", "risks": [risk], "risks_with_earlier": [earlier], "distortions": [], "sampled": "",
    }  # fmt: skip
    document["verdict"] = verdict_of(document, offering.config.policy)
    lines = brief(document)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert 'policy.approval = "manual"' in " ".join(lines[:2])
    shown = " ".join(" ".join(lines).split())
    for wanted in (
        "share of your data's variance",
        "which has 2 left",
        "any 3 attributes 25 %",
        "with 2 earlier releases",
        "Not hidden",
    ):
        assert wanted in shown
    assert "999999" not in shown
