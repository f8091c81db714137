"""Results of linking in which every owner has proved that it has the linkage key."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from common.model.fragment import Addendum
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey, release_key

FINGERPRINT = "ab" * 32


def proved(
    addendum: Addendum,
    state_dir: Path,
    fingerprints: Mapping[str, str] = MappingProxyType({}),
    **sum_keys: bytes,
) -> Addendum:
    """Return what linking found with the proofs of all its owners, who have the key in a state directory.

    Args:
        fingerprints: Of the keys that owners sign with, by owner id, for synthetic releases.
        sum_keys: By owner id, for synthetic releases.
    """
    linkage = linkage_key.load(state_dir)
    key = ReleaseKey(release_key(linkage.key, addendum.release, addendum.plan_digest), linkage.generation)
    proofs = tuple(
        key.proof(owner, fingerprints.get(owner, FINGERPRINT), sum_keys.get(owner, b""))
        for owner in addendum.records
    )
    return replace(addendum, key_proofs=proofs)
