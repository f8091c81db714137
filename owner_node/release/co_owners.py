"""Verification of a plan's co-owners by their signed consents, before linking.

A plan alone is only the aggregator's claim. If an owner's policy lists co-owners, each of them must have
consented to this very plan, with a certificate of its own id under the CA, with the same linkage key as this
owner, and with the pinned key where the policy pins one. An aggregator that also runs the CA can issue
certificates for any id, but it cannot forge a signature by a pinned key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from common.errors import RefusedError, TesseraError
from common.model.fragment import Consent
from common.model.plan import Plan
from common.trust.signing import Domain
from owner_node.config import PolicyConfig
from owner_node.trust import Trust


@dataclass(frozen=True, slots=True)
class CoOwner:
    """Another owner's consent as the aggregator presents it."""

    id: str
    key_check: str
    """Linkage key-check value in its consent."""
    signature: bytes
    """Of its consent statement."""
    certificate: bytes
    """PEM chain of the signer."""
    key_generation: int = 0
    """Generation of the linkage key in its consent."""


def check_co_owners(
    plan: Plan, own: str, key_check: str, policy: PolicyConfig, shown: Sequence[CoOwner], trust: Trust,
    since: datetime,
) -> Mapping[str, str]:  # fmt: skip
    """Check that every other owner of a plan consented to it, if the policy lists co-owners.

    Args:
        key_check: The linkage key-check value in its own consent.
        policy: Its policy; without `co_owners` nothing is checked.
        shown: The consents that the aggregator presents.
        since: When the release began here; a certificate must have been valid at some moment since.

    Returns:
        Fingerprints of the co-owners' keys by their ids; empty if the policy lists no co-owners.

    Raises:
        RefusedError: With every consent that is missing or invalid.
    """
    if not policy.co_owners:
        return {}
    by_id = {co_owner.id: co_owner for co_owner in shown}
    fingerprints: dict[str, str] = {}
    objections: list[str] = []
    for owner in (other for other in plan.owners if other != own):
        fingerprints[owner], objection = _examine(plan, owner, by_id.get(owner), trust, since)
        objection = (
            objection
            or unpinned(policy, owner, fingerprints[owner])
            or _objection_to_key(by_id[owner], key_check)
        )
        objections += [objection] if objection else []
    if objections:
        raise RefusedError(
            objections[0],
            "telephone these owners: ask whether they take part, and for the fingerprints of their keys",
            {"release": plan.release, "rule": objections[0], "rules": objections},
        )
    return fingerprints


def _examine(plan: Plan, owner: str, shown: CoOwner | None, trust: Trust, since: datetime) -> tuple[str, str]:
    """Return the fingerprint of the key that signed an owner's consent, and the objection; or empty texts."""
    if shown is None:
        return "", f"policy.co_owners: the aggregator presents no consent of {owner!r} to this plan"
    try:
        consent = Consent.accepting(plan, owner, shown.key_check, shown.key_generation).to_bytes()
        signed = (Domain.CONSENT, consent, shown.signature, shown.certificate)
        return trust.check_owner(owner, *signed, since), ""
    except (TesseraError, ValueError) as error:
        reason = error.message if isinstance(error, TesseraError) else "it is malformed"
        return "", f"policy.co_owners: the consent presented for {owner!r} is invalid: {reason}"


def unpinned(policy: PolicyConfig, owner: str, fingerprint: str) -> str:
    """Object to the key of another owner, if the policy lists co-owners and not this key; else empty."""
    pins = policy.pins.get(owner)
    if not policy.co_owners:
        return ""
    if pins is None:
        return f"policy.co_owners does not list {owner!r}"
    if pins and fingerprint not in pins:
        return f"policy.co_owners pins {owner!r} to another key than {fingerprint}, which signed its consent"
    return ""


def _objection_to_key(shown: CoOwner, key_check: str) -> str:
    """Object to an owner with another linkage key: tokens of different keys never match."""
    if shown.key_check == key_check:
        return ""
    which = f" (generation {shown.key_generation})" if shown.key_generation else ""
    return f"policy.co_owners: {shown.id!r} consented with another linkage key{which}"
