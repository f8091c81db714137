"""The token lists of one owner, one list per pass, and their layout as one blob.

A blob holds for every pass, in the order of the plan: the numbers of tokens sent, of persons for whom the
pass is complete, and of key values that exactly two of them have, each as eight big-endian bytes. Then,
again for every pass: the tokens, sorted, sixteen bytes each, and the handles of their persons in the same
order, four big-endian bytes each. A handle is a position in a secret order of the owner's persons, the same
in all passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.arrays import SortableArray
from common.errors import ProtocolError

TOKEN_BYTES = 16
HANDLE_BYTES = 4
_COUNTS = 3
_HEADER_BYTES = 8 * _COUNTS
MOST_PERSONS = 2**31 - 1
"""Persons of all owners of a release that can be numbered."""


@dataclass(frozen=True, slots=True)
class PassList:
    """What an owner sends for one pass."""

    tokens: SortableArray
    """Tokens of key values that one person has, sorted, shape (n_sent,)."""
    handles: NDArray[np.uint32]
    """Handles of these persons, shape (n_sent,)."""
    complete: int
    """Number of the owner's persons that have every part of the key."""
    twice: int
    """Number of key values that exactly two of them have."""

    @property
    def ambiguous(self) -> int:
        """Number of persons whose key value another person of the owner has, too."""
        return self.complete - len(self.tokens)


def largest_blob(n_passes: int, n_records: int) -> int:
    """Return the most bytes that the lists of so many records can have."""
    return n_passes * (_HEADER_BYTES + (TOKEN_BYTES + HANDLE_BYTES) * n_records)


def encode_lists(lists: Sequence[PassList]) -> bytes:
    """Return the blob of an owner's lists."""
    counts = np.array(
        [[len(of_owner.tokens), of_owner.complete, of_owner.twice] for of_owner in lists], dtype=">u8"
    )
    pieces = [counts.tobytes()]
    for of_owner in lists:
        pieces += [of_owner.tokens.tobytes(), of_owner.handles.astype(">u4").tobytes()]
    return b"".join(pieces)


def decode_lists(blob: NDArray[np.uint8], n_passes: int, n_records: int, owner: str) -> tuple[PassList, ...]:
    """Read a blob as input from a stranger.

    Args:
        blob: Its bytes, shape (size,); may be mapped from a file, and is not copied.
        n_records: Number of records that the owner declared.

    Raises:
        ProtocolError: If its counts are impossible or do not give its size, if tokens are unsorted or
            repeat, or if handles repeat or are out of range.
    """
    start = n_passes * _HEADER_BYTES
    if len(blob) < start:
        raise _list_error(owner, "are cut off")
    counts = blob[:start].view(">u8").reshape(n_passes, _COUNTS)
    # Checked before they are summed: numbers from a stranger could overflow.
    if np.any(counts > n_records) or np.any(counts[:, 0] + 2 * counts[:, 2] > counts[:, 1]):
        raise _list_error(owner, "have impossible numbers of tokens")
    if len(blob) != start + (TOKEN_BYTES + HANDLE_BYTES) * int(counts[:, 0].sum()):
        raise _list_error(owner, "have another size than their numbers of tokens give")
    lists = []
    for n_sent, complete, twice in counts.tolist():
        end = start + TOKEN_BYTES * n_sent
        tokens = blob[start:end].view(f"S{TOKEN_BYTES}")
        start = end + HANDLE_BYTES * n_sent
        handles = blob[end:start].view(">u4").astype(np.uint32)
        if np.any(tokens[1:] <= tokens[:-1]):
            raise _list_error(owner, "are not sorted, or repeat a token")
        seen = np.zeros(n_records, dtype=np.bool_)
        if handles.max(initial=0) >= n_records:
            raise _list_error(owner, "have a handle out of range")
        seen[handles] = True
        if np.count_nonzero(seen) != n_sent:
            raise _list_error(owner, "repeat a handle within a pass")
        lists.append(PassList(tokens, handles, complete, twice))
    return tuple(lists)


def _list_error(owner: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"the token lists of {owner} {what}",
        "the owner node must run a compatible version",
        {"owner": owner},
    )
