"""Whether the other owners of a plan are who it says: shown by what they signed, before anything is linked.

A plan is the aggregator's word. An owner whose policy lists co-owners wants theirs: each must have consented
to this very plan, with a certificate of its own id under the CA, with the linkage key that this owner has,
and with a pinned key where the policy pins one. An aggregator that also runs the CA can make certificates of
any id; a pinned key it cannot make.
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
    """What the aggregator shows of another owner's consent."""

    id: str
    """Owner id."""
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
    """Check that every other owner of a plan consented to it, as the policy wants to know.

    Args:
        plan: The accepted plan.
        own: This owner's id.
        key_check: The linkage key-check value in its own consent.
        policy: Its policy; without `co_owners` nothing is asked, and nothing known.
        shown: What the aggregator shows.
        trust: Checks what owners sign.
        since: When the release began here; a certificate must have been valid at some moment since.

    Returns:
        Fingerprints of the co-owners' keys by their ids; empty if the policy does not ask.

    Raises:
        RefusedError: With everything that is missing or does not hold.
    """
    if not policy.co_owners:
        return {}
    by_id = {each.id: each for each in shown}
    found: dict[str, str] = {}
    objections: list[str] = []
    for owner in (each for each in plan.owners if each != own):
        found[owner], objection = _examined(plan, owner, by_id.get(owner), trust, since)
        objection = objection or _unpinned(policy, owner, found[owner]) or _unlinked(by_id[owner], key_check)
        objections += [objection] if objection else []
    if objections:
        raise RefusedError(
            objections[0],
            "ask these owners by telephone whether they take part, and for the fingerprints of their keys",
            {"release": plan.release, "rule": objections[0], "rules": objections},
        )
    return found


def _examined(
    plan: Plan, owner: str, shown: CoOwner | None, trust: Trust, since: datetime
) -> tuple[str, str]:
    """Return the fingerprint that signed an owner's consent, and what speaks against it, or empty texts."""
    if shown is None:
        return "", f"policy.co_owners: the aggregator shows no consent of {owner!r} to this plan"
    try:
        stated = Consent(plan.release, owner, plan.digest, shown.key_check, "accept", shown.key_generation)
        consent = stated.to_bytes()
        signed = (Domain.CONSENT, consent, shown.signature, shown.certificate)
        return trust.check_owner(owner, *signed, since), ""
    except (TesseraError, ValueError) as error:
        reason = error.message if isinstance(error, TesseraError) else "it is malformed"
        return "", f"policy.co_owners: what is shown as the consent of {owner!r} does not hold: {reason}"


def _unpinned(policy: PolicyConfig, owner: str, fingerprint: str) -> str:
    pins = policy.pins.get(owner)
    if pins is None:
        return f"policy.co_owners does not list {owner!r}"
    if pins and fingerprint not in pins:
        return f"policy.co_owners pins {owner!r} to another key than {fingerprint}, which signed its consent"
    return ""


def _unlinked(shown: CoOwner, key_check: str) -> str:
    """What speaks against linking with an owner whose consent holds: tokens of other keys never match."""
    if shown.key_check == key_check:
        return ""
    which = f" (generation {shown.key_generation})" if shown.key_generation else ""
    return f"policy.co_owners: {shown.id!r} consented with another linkage key{which}"
