"""Linkage tokens: the keyed pseudonyms that match owners' records (docs/threat-model.md, "Tokens").

The aggregator sees tokens and never the linkage key, so it cannot test guessed identifiers. Every release has
its own key, derived from the linkage key, the release and its plan: tokens of two releases cannot be matched
against each other.
"""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.canonical import canonical
from common.errors import DataError
from common.model.fragment import KeyProof

if TYPE_CHECKING:
    import pyarrow as pa

    from common.arrays import TokenArray

KEY_SIZE = 32
"""Bytes of the linkage key and of a release key."""
TOKEN_SIZE = 16
"""Bytes of a token: among 10^9 identifiers, two share one with a probability of 10^-21."""

_MAC_SIZE = 32


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """The key of the tokens of one release."""

    key: bytes = field(repr=False)
    """32 bytes."""
    generation: int
    """Generation of the linkage key from which it was derived."""

    @property
    def check(self) -> str:
        """The value for comparing owners' release keys (`key_check`)."""
        return key_check(self.key)

    def derived(self, purpose: str, size: int = KEY_SIZE, **about: str) -> bytes:
        """Derive a key of the release for one purpose; only who has the linkage key can.

        References:
            RFC 5869 (HKDF), with SHA-256.
        """
        info = canonical({"purpose": purpose, **about})
        return HKDF(hashes.SHA256(), size, salt=None, info=info).derive(self.key)

    def proof(self, owner: str, fingerprint: str, sum_key: bytes) -> KeyProof:
        """Return what shows the other owners that an owner has the linkage key.

        Nobody without that key can make it, or use it for another owner, certificate, release or plan: the
        last two are in the key of the release.

        Args:
            fingerprint: Of the key that the owner signs with.
            sum_key: Its key for sums; empty without.
        """
        about = canonical({"owner": owner, "fingerprint": fingerprint, "sum_key": sum_key.hex()})
        made = hmac.digest(self.derived("proof of the linkage key"), about, "sha256")
        return KeyProof(owner, fingerprint, sum_key.hex(), made.hex())

    def answer_proof(self, owner: str, opening: str, answers: str) -> bytes:
        """Return what shows the other owners that an answer to a round is its owner's: 32 bytes.

        A signature alone does not: the aggregator's CA may certify another key for the same owner.

        Args:
            opening: Digest of the document that opened the round.
            answers: Digest of all answers of the owner up to this one (`common.model.rounds.chained`).
        """
        about = canonical({"owner": owner, "opening": opening, "answers": answers})
        return hmac.digest(self.derived("answers"), about, "sha256")


def release_key(linkage_key: bytes, release_id: str, plan_digest: str) -> bytes:
    """Derive the key of one release.

    Args:
        linkage_key: The owners' secret, 32 bytes.
        release_id: The release's id, the salt.
        plan_digest: SHA-256 of the plan, hexadecimal; its 32 bytes are the info.

    Returns:
        32 bytes.

    References:
        RFC 5869 (HKDF), with SHA-256.
    """
    info = bytes.fromhex(plan_digest)
    return HKDF(hashes.SHA256(), KEY_SIZE, salt=release_id.encode(), info=info).derive(linkage_key)


def key_check(key: bytes) -> str:
    """Return a value that compares owners' release keys without disclosing them.

    Its message has five bytes. The message of a token has a length prefix of eight, so no token
    equals this value.

    Returns:
        HMAC-SHA256 of "check", hexadecimal.
    """
    return hmac.digest(key, b"check", "sha256").hex()


def tokens(columns: Sequence["pa.Array"], key: bytes) -> "TokenArray":
    """Return the token of every record.

    Args:
        columns: The identifier's columns in normal form (`owner_node.values.normal_forms`), at least one,
            each of shape (n_records,), without nulls.

    Returns:
        The first 16 bytes of HMAC-SHA256(key, message), shape (n_records, 16); the message is each
        column's UTF-8 bytes after their number as eight big-endian bytes, so that no two identifiers have
        the same message.

    Raises:
        DataError: If a record has no identifier, with the count.

    References:
        RFC 2104 (HMAC).
    """
    return hash_messages(_messages(columns), key)


def hash_messages(messages: Iterable[bytes], key: bytes) -> "TokenArray":
    """Return the first 16 bytes of HMAC-SHA256(key, message) of every message, shape (n_messages, 16)."""
    import numpy as np

    # The only loop over records: HMAC has no vectorised form. The key's two blocks are hashed once, and the
    # states copied for every message; `hmac.digest` would hash them each time, which takes 2.3 times as long.
    keyed = HMAC(key, hashes.SHA256()).copy

    def mac(message: bytes) -> bytes:
        state = keyed()
        state.update(message)
        return state.finalize()

    macs = b"".join(map(mac, messages))
    return np.frombuffer(macs, np.uint8).reshape(-1, _MAC_SIZE)[:, :TOKEN_SIZE].copy()


def _messages(columns: Sequence["pa.Array"]) -> Any:
    """Return the records' messages as an object array of bytes, shape (n_records,)."""
    import numpy as np
    import pyarrow as pa

    from owner_node.values.match_keys import join_keys, prefix_lengths
    from owner_node.values.normal_forms import missing

    if n_missing := int(np.count_nonzero(missing(columns))):
        raise DataError(
            f"{n_missing} records have no identifier",
            'complete them, or set missing = "drop" for this data set',
            {"count": n_missing},
        )
    keys = [prefix_lengths(column.cast(pa.large_string())) for column in columns]
    return join_keys(keys).to_numpy(zero_copy_only=False)
