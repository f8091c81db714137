"""Keys that are renewed in the middle of a release, at one owner node on real state."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.errors import IdentityError, IntegrityError
from common.model.plan import Plan
from common.trust.identity import load_certificates
from common.trust.signing import Domain, Signer, verify
from deploy.development_ca import DevelopmentCa, Issued
from owner_node.state.session import SessionState
from owner_node.trust import Trust
from tests.fakes.offering import Offering

DAY = timedelta(days=1)


@pytest.fixture
def offering(tmp_path: Path):
    """An owner node that has been invited to nothing yet."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def linked(offering: Offering) -> Plan:
    """Bring a release to where it can be masked."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    offering.node.production.link("r1", plan.digest)
    return plan


def signer_of(issued: Issued) -> Signer:
    """Return the signer of an issued certificate."""
    return Signer(issued.key, [issued.certificate])


def test_what_was_sealed_is_told_again_with_its_own_chain(offering: Offering) -> None:
    """After a renewal and a restart, the statement comes with the chain of the key that signed it."""
    plan = linked(offering)
    first = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    offering.ca.owner("a").write(offering.folder, "owner")
    offering.restart()
    again = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert again == first
    renewed = load_certificates((offering.folder / "owner.pem").read_bytes())[0]
    assert load_certificates(again.certificate)[0] != renewed
    head = offering.node.head()
    assert load_certificates(head.certificate)[0] == renewed
    verify(renewed, Domain.LEDGER_HEAD, head.head.to_bytes(), head.signature)


def test_an_aggregator_may_change_its_key_between_plan_and_receipt(offering: Offering) -> None:
    """Addendum and receipt are judged by the chain they come with, which must name the same aggregator."""
    plan = linked(offering)
    offering.hub = signer_of(offering.ca.aggregator("hub", ["localhost"]))
    chain = offering.hub.chain_pem.encode()
    addendum, signature = offering.addendum(plan)
    with pytest.raises(IntegrityError, match="does not hold"):
        offering.node.production.mask("r1", plan.digest, addendum, signature)
    stranger = offering.other
    with pytest.raises(IdentityError, match="comes with the certificate of"):
        offering.node.production.mask(
            "r1", plan.digest, addendum, stranger.sign(Domain.ADDENDUM, addendum), stranger.chain_pem.encode()
        )
    assert offering.kinds() == ["reserve"]
    sealed = offering.node.production.mask("r1", plan.digest, addendum, signature, chain)
    offering.hub = signer_of(offering.ca.aggregator("hub", ["localhost"]))
    receipt, signature = offering.receipt(plan, sealed.fragment_digest)
    with pytest.raises(IntegrityError, match="does not hold"):
        offering.node.production.receive_receipt("r1", plan.digest, receipt, signature, chain)
    chain = offering.hub.chain_pem.encode()
    offering.node.production.receive_receipt("r1", plan.digest, receipt, signature, chain)
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert session.state is SessionState.ACKNOWLEDGED


@pytest.mark.parametrize(("since", "holds"), [(None, False), (0.0, True), (0.9, True), (1.5, False)])
def test_a_key_that_came_to_its_end_since_it_signed(since: float | None, holds: bool) -> None:
    """A document of this release holds if its key was valid at some moment since; a new one must be now."""
    start = datetime.now(UTC)
    ca = DevelopmentCa("release.test")
    hub = signer_of(ca.aggregator("hub", ["localhost"], not_before=start - DAY, not_after=start + DAY))
    trust = Trust(lambda: (ca.certificate,), "release.test", "a", "hub", lambda: start + 2 * DAY)
    began = None if since is None else start + since * DAY
    arguments = (Domain.RECEIPT, b"{}", hub.sign(Domain.RECEIPT, b"{}"), hub.chain_pem.encode(), began)
    if holds:
        trust.check(*arguments)
    else:
        with pytest.raises(IdentityError, match="expired on"):
            trust.check(*arguments)
