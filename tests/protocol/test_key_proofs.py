"""An aggregator that invents an owner: without the linkage key it cannot show that this one has it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import IntegrityError
from common.model.fragment import Addendum, KeyProof
from common.model.plan import Plan
from common.trust.signing import Domain
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey, release_key
from owner_node.state.session import SessionState
from tests.fakes.key_proofs import FINGERPRINT
from tests.fakes.offered_plans import state
from tests.fakes.offering import N_RECORDS, Offering

OTHER = "cd" * 32


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def _proof(
    offering: Offering,
    plan: Plan,
    owner: str = "b",
    linkage: bytes = b"",
    by: str = FINGERPRINT,
    key: str = "",
) -> KeyProof:
    secret = linkage or linkage_key.load(offering.config.owner.state_dir).key
    of_release = ReleaseKey(release_key(secret, plan.release, plan.digest), 1)
    return of_release.proof(owner, by, bytes.fromhex(key))


def _as(made: KeyProof, **stated: str) -> KeyProof:
    """Return a proof under what it does not prove."""
    return replace(made, **{"owner": "b", "fingerprint": FINGERPRINT, "sum_key": "", **stated})


def _check_value(offering: Offering, plan: Plan) -> KeyProof:
    """Return what the aggregator was told with the consent."""
    return KeyProof("b", FINGERPRINT, "", offering.consent_of(offering.co_owner, plan).key_check)


LIES: dict[str, Callable[[Offering, Plan], KeyProof]] = {
    "of another owner": lambda offering, plan: _as(_proof(offering, plan, "a")),
    "of another certificate": lambda offering, plan: _as(_proof(offering, plan, by=OTHER)),
    "of a key for sums": lambda offering, plan: _as(_proof(offering, plan, key=OTHER)),
    "for another key for sums": lambda offering, plan: _as(_proof(offering, plan), sum_key=OTHER),
    "of another release": lambda offering, plan: _proof(offering, replace(plan, release="r2")),
    "of another plan": lambda offering, plan: _proof(offering, replace(plan, purpose="other")),
    "with another linkage key": lambda offering, plan: _proof(offering, plan, linkage=b"o" * 32),
    "what compares linkage keys": _check_value,
}


@pytest.mark.parametrize("lie", [*LIES, "none", "none of all", "of this owner"])
def test_every_owner_has_the_linkage_key(offering: Offering, lie: str) -> None:
    """A false proof, or none, ends before the charge; the right one is taken afterwards."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None
    offering.node.production.link("r1", plan.digest)
    own, theirs = _proof(offering, plan, "a"), _proof(offering, plan)
    shown = {"none": (own,), "none of all": (), "of this owner": (replace(own, proof=OTHER), theirs)}.get(lie)
    shown = (own, LIES[lie](offering, plan)) if shown is None else shown
    addendum = Addendum("r1", plan.digest, "disjoint", {"a": N_RECORDS, "b": 9}, key_proofs=shown)
    message = addendum.to_bytes(), offering.hub.sign(Domain.ADDENDUM, addendum.to_bytes())
    named = "a" if lie in ("none of all", "of this owner") else "b"
    with pytest.raises(IntegrityError, match=f"'{named}' does not show that it has the linkage key"):
        offering.node.production.mask("r1", plan.digest, *message)
    assert (offering.kinds(), state(offering)) == (["reserve"], SessionState.LINKED)
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.kinds() == ["reserve", "spend"]
