"""The owner node at an aggregator whose plans, addenda and receipts are not what they say."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import (
    ConflictError,
    IdentityError,
    IntegrityError,
    ProtocolError,
    TesseraError,
)
from common.model.fragment import Addendum
from common.model.matches import Match
from common.model.plan import Plan
from common.trust.signing import Domain
from owner_node.release.invitations import Offer
from owner_node.state.session import SessionState
from tests.fakes.offered_plans import accepted, sealed, state
from tests.fakes.offering import N_RECORDS, Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def test_a_changed_plan_under_a_known_release_changes_nothing(offering: Offering) -> None:
    """An aggregator cannot swap the plan after consent: the reservation stays with the first."""
    plan = accepted(offering)
    other = replace(plan, purpose="something else")
    with pytest.raises(ConflictError) as caught:
        offering.node.invitations.consent("r1", other.digest, offering.offer(other))
    assert offering.node.fail("r1", caught.value).code == "conflict"
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert (session.state, session.plan_digest) == (SessionState.RESERVED, plan.digest)
    assert offering.kinds() == ["reserve"]


def _forged(offering: Offering, plan: Plan) -> None:
    offer = offering.offer(plan)
    offering.node.invitations.consent("r1", plan.digest, replace(offer, signature=offer.signature[:-1]))


def _by_another(offering: Offering, plan: Plan) -> None:
    offering.node.invitations.consent("r1", plan.digest, offering.offer(plan, offering.other))


def _misnamed(offering: Offering, plan: Plan) -> None:
    offering.node.invitations.consent("r1", "00" * 32, offering.offer(plan))


def _not_canonical(offering: Offering, plan: Plan) -> None:
    data = plan.to_bytes() + b" "
    offer = replace(offering.offer(plan), plan=data, signature=offering.hub.sign(Domain.PLAN, data))
    offering.node.invitations.consent("r1", plan.digest, offer)


def _for_others(offering: Offering, plan: Plan) -> None:
    tasks = tuple(replace(task, owner={"a": "c"}.get(task.owner, task.owner)) for task in plan.tasks)
    other = replace(plan, tasks=tasks)
    offering.node.invitations.consent("r1", other.digest, offering.offer(other))


def _uninvited(offering: Offering, plan: Plan) -> None:
    other = replace(plan, release="r2")
    offering.node.invitations.consent("r2", other.digest, offering.offer(other))


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (_forged, IntegrityError), (_by_another, IdentityError), (_misnamed, ProtocolError),
        (_not_canonical, ProtocolError), (_for_others, ProtocolError), (_uninvited, ProtocolError),
    ],
)  # fmt: skip
def test_a_plan_that_is_not_what_it_says(
    offering: Offering, lie: Callable[[Offering, Plan], None], error: type[TesseraError]
) -> None:
    """A plan that is forged, by another, misnamed or not for this owner reserves nothing."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    with pytest.raises(error):
        lie(offering, plan)
    assert offering.kinds() == []
    assert state(offering) is SessionState.INVITED


@pytest.mark.parametrize("number", ["1E+999999999", "NaN", "Infinity", "-1", "1" * 41])
def test_numbers_that_are_long_to_write_out(offering: Offering, number: str) -> None:
    """A short plan with a huge number is refused before anything is computed with it."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    error = format(plan.tasks[0].attributes[0].expected_error, "f")
    data = plan.to_bytes().replace(
        f'"expected_error":"{error}"'.encode(), f'"expected_error":"{number}"'.encode()
    )
    assert data != plan.to_bytes()
    offer = Offer(data, offering.hub.sign(Domain.PLAN, data), offering.hub.chain_pem.encode())
    with pytest.raises(ProtocolError, match="not a valid Plan"):
        offering.node.invitations.consent("r1", hashlib.sha256(data).hexdigest(), offer)


@pytest.mark.parametrize("lie", ["records", "linking", "signature", "garbage"])
def test_an_addendum_that_does_not_fit(offering: Offering, lie: str) -> None:
    """Nothing is spent under an addendum that is forged or speaks of other records than were linked."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    addendum, signature = offering.addendum(
        plan, N_RECORDS + (lie == "records"), "asserted" if lie == "linking" else "disjoint"
    )
    signature = b"\x30\x00" if lie == "signature" else signature
    with pytest.raises((ProtocolError, IntegrityError)):
        offering.node.production.mask("r1", plan.digest, b"{}" if lie == "garbage" else addendum, signature)
    assert (state(offering), offering.kinds()) == (SessionState.LINKED, ["reserve"])


def test_matches_between_groups_that_the_plan_has_not(offering: Offering) -> None:
    """A match report about other groups than the plan's spends nothing: with one group there is none."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    true = Addendum.from_bytes(offering.addendum(plan)[0])
    lie = replace(true, matches=(Match((("a",), ("b",)), 9, {"a": 51, "b": 0}),)).to_bytes()
    with pytest.raises(ProtocolError):
        offering.node.production.mask("r1", plan.digest, lie, offering.hub.sign(Domain.ADDENDUM, lie))
    assert (state(offering), offering.kinds()) == (SessionState.LINKED, ["reserve"])


def test_a_second_addendum_gets_no_second_fragment(offering: Offering) -> None:
    """A sealed fragment is the answer to one plan and one addendum for ever."""
    plan, digest = sealed(offering)
    other = offering.addendum(plan, linking="disjoint")[0].replace(b'"b":"9"', b'"b":"8"')
    with pytest.raises(ProtocolError):
        offering.node.production.mask("r1", plan.digest, other, offering.hub.sign(Domain.ADDENDUM, other))
    assert offering.node.production.fragment("r1", plan.digest).digest == digest
    assert offering.kinds() == ["reserve", "spend"]


def test_a_receipt_for_something_else(offering: Offering) -> None:
    """Only the aggregator's own receipt for this very fragment counts."""
    plan, digest = sealed(offering)
    receive = offering.node.production.receive_receipt
    with pytest.raises(ProtocolError, match="another fragment"):
        receive("r1", plan.digest, *offering.receipt(plan, "00" * 32))
    with pytest.raises(IntegrityError):
        receive("r1", plan.digest, offering.receipt(plan, digest)[0], b"\x30\x00")
    assert state(offering) is SessionState.SEALED
