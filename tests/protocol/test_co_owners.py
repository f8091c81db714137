"""An aggregator that invents co-owners, or swaps a key, links nothing at an owner that asks who they are."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import RefusedError
from common.model.plan import Plan
from common.trust.identity import fingerprint
from common.trust.signing import Domain, Signer
from deploy.development_ca import DevelopmentCa
from owner_node.config import PolicyConfig
from owner_node.release.co_owners import CoOwner
from owner_node.state.session import SessionState
from tests.fakes.offering import DOMAIN, Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node and its aggregator; owner b takes part, too."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def key_of(offering: Offering) -> str:
    """Return the fingerprint of owner b's key."""
    return fingerprint(offering.co_owner.certificate.public_key())


def accepted(offering: Offering, *co_owners: str) -> Plan:
    """Bring a release to a reservation under a policy on co-owners."""
    offering.config = replace(offering.config, policy=PolicyConfig(co_owners=co_owners))
    offering.restart()
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None
    return plan


def signer(offering: Offering, ca: DevelopmentCa, owner: str) -> Signer:
    """Return a key that a CA certifies for an owner."""
    ca.owner(owner).write(offering.folder, "made-up")
    return Signer.load(offering.folder / "made-up.key", offering.folder / "made-up.pem")


@pytest.mark.parametrize("pinned", [False, True])
def test_a_co_owner_that_consented_is_known(offering: Offering, pinned: bool) -> None:
    """With the consent of the listed or pinned owner linking goes on, and the history names its key."""
    key = key_of(offering)
    plan = accepted(offering, f"b={key}" if pinned else "b")
    offering.node.production.link("r1", plan.digest, [offering.consent_of(offering.co_owner, plan)])
    linked = [line for line in offering.records.history.entries() if line.event == "linked"]
    assert linked[0].details["co_owners"] == {"b": key}


def test_one_of_several_pins(offering: Offering) -> None:
    """Before and after a co-owner renews its key, an owner that knows both takes either."""
    plan = accepted(offering, f"b={'0' * 64}", f"b={key_of(offering)}")
    offering.node.production.link("r1", plan.digest, [offering.consent_of(offering.co_owner, plan)])


def test_without_a_policy_nothing_is_asked(offering: Offering) -> None:
    """Without co_owners they are as the aggregator states, and the history claims to know nothing of them."""
    plan = accepted(offering)
    offering.node.production.link("r1", plan.digest)
    linked = [line for line in offering.records.history.entries() if line.event == "linked"]
    assert linked[0].details["co_owners"] == {}


def test_a_co_owner_with_another_linkage_key(offering: Offering) -> None:
    """An aggregator that goes on although linkage keys differ gets no tokens: nobody would ever match."""
    plan = accepted(offering, "b")
    other = offering.consent_of(offering.co_owner, plan, linkage=bytes(32))
    with pytest.raises(RefusedError, match="'b' consented with another linkage key"):
        offering.node.production.link("r1", plan.digest, [other])
    assert offering.kinds() == ["reserve"]


def _nothing(_: Offering, __: Plan) -> list[CoOwner]:
    return []


def _of_another_id(offering: Offering, plan: Plan) -> list[CoOwner]:
    return [offering.consent_of(signer(offering, offering.ca, "c"), plan)]


def _of_another_ca(offering: Offering, plan: Plan) -> list[CoOwner]:
    return [offering.consent_of(signer(offering, DevelopmentCa(DOMAIN), "b"), plan)]


def _of_the_aggregator(offering: Offering, plan: Plan) -> list[CoOwner]:
    return [offering.consent_of(offering.hub, plan)]


def _to_another_plan(offering: Offering, plan: Plan) -> list[CoOwner]:
    return [offering.consent_of(offering.co_owner, replace(plan, purpose="something else"))]


def _for_another_use(offering: Offering, plan: Plan) -> list[CoOwner]:
    shown = offering.consent_of(offering.co_owner, plan)
    return [replace(shown, signature=offering.co_owner.sign(Domain.LEDGER_HEAD, b"x"))]


def _garbage(_: Offering, __: Plan) -> list[CoOwner]:
    return [CoOwner("b", "not hexadecimal", b"", b"\xff")]


@pytest.mark.parametrize(
    "lie",
    [
        _nothing, _of_another_id, _of_another_ca, _of_the_aggregator, _to_another_plan, _for_another_use,
        _garbage,
    ],
)  # fmt: skip
@pytest.mark.parametrize("pinned", [False, True])
def test_an_invented_co_owner_links_nothing(
    offering: Offering, pinned: bool, lie: Callable[[Offering, Plan], Sequence[CoOwner]]
) -> None:
    """Whoever did not consent to this plan with a certificate of its own stops it; the charge comes back."""
    plan = accepted(offering, f"b={key_of(offering)}" if pinned else "b")
    with pytest.raises(RefusedError, match=r"policy\.co_owners") as caught:
        offering.node.production.link("r1", plan.digest, lie(offering, plan))
    failure = offering.node.fail("r1", caught.value)
    assert (failure.code, failure.message) == ("refused", "refused by owner policy")
    assert offering.kinds() == ["reserve", "return"]
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert session.state is SessionState.REFUSED
    lines = offering.records.history.entries()
    assert "linked" not in [line.event for line in lines]
    refused = [line for line in lines if line.event == "refused"]
    assert refused[0].rule.startswith("policy.co_owners")


def test_a_swapped_key_is_not_the_pinned_one(offering: Offering) -> None:
    """An aggregator whose CA certifies a key of its own for a pinned owner is refused, and the key named."""
    plan = accepted(offering, f"b={key_of(offering)}")
    forged = signer(offering, offering.ca, "b")
    with pytest.raises(RefusedError, match="pins 'b' to another key") as caught:
        offering.node.production.link("r1", plan.digest, [offering.consent_of(forged, plan)])
    assert fingerprint(forged.certificate.public_key()) in caught.value.message


def test_an_unlisted_co_owner_is_refused_at_once(offering: Offering) -> None:
    """A plan with somebody else in it is refused before anything is reserved."""
    with pytest.raises(RefusedError, match=r"policy\.co_owners does not list 'b'"):
        accepted(offering, "south")
    assert offering.kinds() == []
