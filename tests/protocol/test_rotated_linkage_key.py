"""A linkage key that is replaced while releases are under way: each keeps the key it was agreed with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from common.model.plan import Plan
from owner_node.linking import linkage_key
from owner_node.linking.linkage_key import LinkageKey, NoLinkageKeyError
from owner_node.linking.tokens import key_check, release_key
from owner_node.state.answers import RefusedBeforeError
from owner_node.state.sessions import Session
from tests.fakes.offering import Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def rotate(offering: Offering) -> LinkageKey:
    """Replace the linkage key."""
    return linkage_key.new(offering.config.owner.state_dir, replace=True)


def session(offering: Offering, release: str = "r1") -> Session:
    """Return a session as it is stored."""
    found = offering.records.sessions.get("hub", release)
    assert found is not None
    return found


def agreed(offering: Offering, release: str = "r1") -> Plan:
    """Bring a release to a reservation."""
    plan = offering.plan(offering.node.invitations.describe(release, "cohort"), release=release)
    assert offering.node.invitations.consent(release, plan.digest, offering.offer(plan)) is not None
    return plan


@pytest.mark.parametrize("restart", [False, True])
def test_rotated_after_consent(offering: Offering, restart: bool) -> None:
    """Consent, tokens and fragment of a release are all made with one key, whatever dies between."""
    before = linkage_key.load(offering.config.owner.state_dir)
    plan = agreed(offering)
    expected, addendum = key_check(release_key(before.key, "r1", plan.digest)), offering.addendum(plan)
    rotate(offering)
    if restart:
        offering.restart()
    again = offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert again is not None
    assert (again.key_check, again.key_generation) == (expected, 1)
    linked = offering.node.production.link("r1", plan.digest)
    rotate(offering)
    offering.restart()
    assert offering.node.production.link("r1", plan.digest).tokens == linked.tokens
    assert offering.node.production.mask("r1", plan.digest, *addendum).n_records == 60
    assert offering.kinds() == ["reserve", "spend"]


def test_the_next_release_has_the_new_key(offering: Offering) -> None:
    """A release that is agreed to after a rotation is made with the new key, and says so."""
    first = agreed(offering)
    key = rotate(offering)
    second = offering.plan(offering.node.invitations.describe("r2", "cohort"), release="r2")
    accepted = offering.node.invitations.consent("r2", second.digest, offering.offer(second))
    assert accepted is not None
    assert accepted.key_generation == key.generation == 2
    assert accepted.key_check == key_check(release_key(key.key, "r2", second.digest))
    tokens = [tokens_of(offering, *each) for each in (("r1", first.digest), ("r2", second.digest))]
    assert not {tokens[0][place : place + 16] for place in range(0, len(tokens[0]), 16)} & {
        tokens[1][place : place + 16] for place in range(0, len(tokens[1]), 16)
    }


def tokens_of(offering: Offering, release: str, plan_digest: str) -> bytes:
    """Link, and return the tokens, which are in memory."""
    found = offering.node.production.link(release, plan_digest).tokens
    assert isinstance(found, bytes)
    return found


def test_rotated_between_two_looks_at_an_undecided_plan(offering: Offering, monkeypatch) -> None:
    """Data that were loaded for a consent that came to nothing do not bring old tokens to a later one."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(offering.records.ledger), "reserve", fails)
        with pytest.raises(OSError, match="No space"):
            offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    key = rotate(offering)
    accepted = offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert accepted is not None
    assert accepted.key_check == key_check(release_key(key.key, "r1", plan.digest))
    linked = offering.node.production.link("r1", plan.digest)
    offering.restart()
    assert offering.node.production.link("r1", plan.digest).tokens == linked.tokens


@pytest.mark.parametrize("end", ["sealed", "cancelled"])
def test_a_release_key_is_kept_no_longer_than_needed(offering: Offering, end: str) -> None:
    """Once the fragment is sealed, or the release has ended, its key is gone, and it was never shown."""
    plan = agreed(offering)
    kept = session(offering).release_key
    assert kept is not None
    assert kept.hex() not in repr(session(offering))
    assert repr(kept) not in repr(session(offering))
    if end == "sealed":
        offering.node.production.link("r1", plan.digest)
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    else:
        offering.node.close("r1", end, "", "")
    assert session(offering).release_key is None
    assert session(offering).key_generation == 1
    lines = offering.records.history.entries("hub", "r1")
    assert not any(kept.hex() in str(line) for line in lines)


def test_a_release_that_an_older_version_agreed_to(offering: Offering) -> None:
    """Where no release key was kept, another linkage key ends the release before anything is spent."""
    plan = agreed(offering)
    with offering.records.db.transaction() as tx:
        tx.execute("UPDATE sessions SET release_key = NULL, key_generation = 0")
    offering.restart()
    assert len(tokens_of(offering, "r1", plan.digest)) == 16 * 60
    rotate(offering)
    offering.restart()
    with pytest.raises(ConfigurationError, match="was replaced") as caught:
        offering.node.production.link("r1", plan.digest)
    offering.node.fail("r1", caught.value)
    assert offering.kinds() == ["reserve", "return"]


def test_without_a_linkage_key_the_aggregator_hears_what_is_missing(offering: Offering) -> None:
    """An owner that has no linkage key yet says that, in a fixed sentence, and the same when asked again."""
    (offering.config.owner.state_dir / "linkage.key").unlink()
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    with pytest.raises(NoLinkageKeyError) as caught:
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    told = offering.node.fail("r1", caught.value)
    assert told.code == "configuration"
    assert told.message.startswith("the owner has no linkage key yet")
    with pytest.raises(RefusedBeforeError) as again:
        offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert again.value.failure == told
    assert offering.kinds() == []
