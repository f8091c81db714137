"""Tokens of match keys: one list per pass, with the persons under secret handles.

Every pass has its own key, derived from the key of the release: tokens of two passes cannot be matched
against each other. Only a key value that is complete, and that one person of the owner has, gets a token.
The handle of a person is its place in an order that only this owner can compute, the same for all passes and
after a restart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.arrays import Int64Array
from common.canonical import canonical
from common.matching.lists import PassList
from common.model.schema import MatchPass
from owner_node.config import DatasetConfig
from owner_node.linking.tokens import KEY_SIZE, hash_messages
from owner_node.values.match_keys import KeyColumns, MatchKey, NumberedPersons, join_keys, parse_key

if TYPE_CHECKING:
    import pyarrow as pa

_PASS = b"tessera/v1/match-pass\n"
_ORDER = b"tessera/v1/match-order\n"
_NONCE = bytes(16)
"""Every order has its own key."""


@dataclass(frozen=True, slots=True)
class PassTokens:
    """The token list of one pass, and what its owner alone may know about it."""

    sent: PassList
    same: int
    """Pairs of persons with the same key value."""

    @property
    def entropy_bits(self) -> float:
        """Collision entropy of the key values in bits; a lower bound where no two persons share one."""
        n = self.sent.complete
        return log2(n * (n - 1) / 2 / max(self.same, 1)) if n > 1 else 0.0


def pass_key(release_key: bytes, number: int, match_pass: MatchPass) -> bytes:
    """Derive the key of one pass of a release.

    Args:
        number: Place of the pass, from 0.

    References:
        RFC 5869 (HKDF), with SHA-256.
    """
    info = _PASS + canonical({"number": number, **match_pass.to_document()})
    return HKDF(hashes.SHA256(), KEY_SIZE, salt=None, info=info).derive(release_key)


def secret_order(own_key: bytes, plan_digest: str, n_records: int) -> Int64Array:
    """Return the handle of every record: a permutation that looks random to everyone else.

    The records are sorted by 64 bits each of a key stream.

    Args:
        own_key: A secret of this owner, which no other owner has.
        plan_digest: The plan: every release has another order.

    Returns:
        Shape (n_records,).
    """
    import numpy as np

    key = HKDF(hashes.SHA256(), KEY_SIZE, salt=None, info=_ORDER + bytes.fromhex(plan_digest)).derive(own_key)
    stream = Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor().update(bytes(8 * n_records))
    handles = np.empty(n_records, dtype=np.int64)
    handles[np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")] = np.arange(n_records)
    return handles


def pass_tokens(columns: KeyColumns, keys: Sequence[MatchKey], key: bytes, handles: Int64Array) -> PassTokens:
    """Return the tokens of one pass.

    Args:
        handles: Handle of every record, shape (n_records,).
    """
    import numpy as np

    from common.arrays import sortable, token_order

    joined = join_keys([columns.key(match_key) for match_key in keys])
    complete = np.flatnonzero(joined.is_valid().to_numpy(zero_copy_only=False))
    made = hash_messages(joined.drop_null().to_numpy(zero_copy_only=False), key)
    order = token_order(made)
    tokens = sortable(made)[order]
    begins = np.flatnonzero(np.concatenate([[True], tokens[1:] != tokens[:-1]])[: len(tokens)])
    sizes = np.diff(begins, append=len(tokens))
    alone = begins[sizes == 1]
    sent = PassList(
        tokens[alone],
        handles[complete[order[alone]]].astype(np.uint32),
        len(complete),
        int(np.count_nonzero(sizes == 2)),
    )
    return PassTokens(sent, int((sizes * (sizes - 1) // 2).sum()))


def key_columns(dataset: DatasetConfig, columns: Sequence["pa.Array"], n_records: int) -> KeyColumns:
    """Return what makes the match keys of a data set.

    Args:
        columns: Its columns, in the order of `DatasetConfig.person_columns`.
    """
    if dataset.simulated is not None:
        return NumberedPersons(dataset.simulated * n_records, n_records)
    by_source = dict(zip(dataset.person_columns, columns, strict=True))
    named = {name: by_source[source] for name, source in dataset.match_sources.items()}
    return KeyColumns(named, dataset.csv.date_format)


def all_passes(
    columns: KeyColumns, passes: Sequence[MatchPass], release_key: bytes, handles: Int64Array
) -> Iterator[PassTokens]:
    """Yield the tokens of every pass.

    Args:
        handles: Handle of every record, shape (n_records,).
    """
    for number, match_pass in enumerate(passes):
        keys = tuple(map(parse_key, match_pass.keys))
        yield pass_tokens(columns, keys, pass_key(release_key, number, match_pass), handles)
