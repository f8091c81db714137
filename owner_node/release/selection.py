"""Which of its own records an owner is told that all groups hold: bits in the order of its sorted tokens.

Checked as if a stranger had sent them: they have to be those whose digest the signed addendum has.
"""

import numpy as np
from numpy.typing import NDArray

from common.canonical import digest
from common.errors import IntegrityError


def size_of(n_records: int) -> int:
    """Return how many bytes the selection of so many records has."""
    return (n_records + 7) // 8


def read_selection(
    selection: bytes, n_records: int, n_selected: int, expected_digest: str
) -> NDArray[np.bool_]:
    """Read a selection.

    Args:
        selection: One bit per record, the first in the highest bit of the first byte; what is left of the
            last byte is 0.
        n_records: Number of the owner's records.
        n_selected: How many of them the addendum says are selected.
        expected_digest: SHA-256 of the selection, from the addendum.

    Returns:
        Whether each record is selected, in the order of their tokens; shape (n_records,).

    Raises:
        IntegrityError: If it is another one, or does not fit these numbers.
    """
    if digest(selection) != expected_digest:
        raise _other("its digest is not the addendum's")
    if len(selection) != size_of(n_records):
        raise _other(f"it has {len(selection)} bytes for {n_records} records")
    bits = np.unpackbits(np.frombuffer(selection, dtype=np.uint8)).astype(np.bool_)
    chosen, rest = bits[:n_records], bits[n_records:]
    if rest.any() or int(chosen.sum()) != n_selected:
        raise _other(f"it does not select {n_selected} of {n_records} records")
    return chosen


def _other(what: str) -> IntegrityError:
    return IntegrityError(
        f"the selection of common records does not fit the addendum: {what}",
        "both sides must run compatible versions; nothing was spent",
    )
