"""What tests do with one owner node and the plans that it is offered."""

from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import (
    RefusedError,
)
from common.model.plan import Plan
from owner_node.config import PolicyConfig
from owner_node.release.approvals import Person
from owner_node.state.answers import Failure
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from owner_node.views.appraisal import appraise
from tests.fakes.offering import Offering


def offered(offering: Offering, release: str = "r1", **arguments: str) -> Plan:
    """Bring a release to the plan that is offered."""
    return offering.plan(offering.node.invitations.describe(release, "cohort"), release=release, **arguments)


def consent(offering: Offering, plan: Plan) -> bool:
    """Offer a plan; return whether it was accepted, and not waited for."""
    return offering.node.invitations.consent(plan.release, plan.digest, offering.offer(plan)) is not None


def under(offering: Offering, **policy: object) -> None:
    """Go on under another policy."""
    offering.config = replace(offering.config, policy=replace(PolicyConfig(), **policy))  # type: ignore[arg-type]
    offering.restart()


def refused(offering: Offering, plan: Plan) -> tuple[str, Failure]:
    """Offer a plan that is refused; return the rule and what the aggregator hears."""
    with pytest.raises(RefusedError) as caught:
        consent(offering, plan)
    return caught.value.message, offering.node.fail(plan.release, caught.value)


def session(offering: Offering, release: str = "r1") -> Session:
    """Return a stored session."""
    found = offering.records.sessions.get("hub", release)
    assert found is not None
    return found


def events(offering: Offering, event: str) -> list[str]:
    """Return the rules of the history's lines of one event."""
    return [line.rule for line in offering.records.history.entries(event=event)]


def looked_at(offering: Offering, release: str = "r1") -> str:
    """Let a person look at a plan; return why its data cannot be used."""
    return appraise(session(offering, release), offering.config)


def approve(offering: Offering, release: str = "r1") -> None:
    """Let a person agree to what a session says now, and look at it before if nobody has."""
    if not session(offering, release).source_digest:
        looked_at(offering, release)
    with offering.records.db.transaction() as tx:
        offering.records.approvals.approve(tx, session(offering, release), Person("vera"), timedelta(hours=1))


def accepted(offering: Offering, **arguments: str) -> Plan:
    """Bring a release to a reservation."""
    release = arguments.get("release", "r1")
    plan = offering.plan(offering.node.invitations.describe(release, "cohort"), **arguments)
    offering.node.invitations.consent(release, plan.digest, offering.offer(plan))
    return plan


def sealed(offering: Offering) -> tuple[Plan, str]:
    """Bring a release to a sealed fragment; return the plan and the fragment's digest."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    done = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    return plan, done.fragment_digest


def state(offering: Offering) -> SessionState:
    """Return the stored state of release r1."""
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    return session.state
