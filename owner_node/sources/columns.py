"""What the columns of a loaded data set are recognised by, so that a copy of them is known as one.

Every column has two digests, of its values in record order and in any order, under a key that stays in
owner.db: whoever reads a ledger learns nothing about the data from them. A number is digested without its
trailing zeros, a category by its label, so that a copy declared with more decimals or in another order of
categories is still known. An edited copy is not.
"""

import hmac
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.arrays import Int64Array
from common.schema import Attribute, AttributeType
from owner_node.ledger.budget_terms import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 2**15
"""Values that are mixed at a time, so that they stay in the processor's cache."""
_SAMPLE = 4096
"""Values that the weight of a column is taken from."""
_FALSE_AND_TRUE = ("false", "true")
_DIGITS = 32


def columns_of(
    values: Mapping[str, Int64Array], attributes: Sequence[Attribute], key: bytes
) -> tuple[Column, ...]:
    """Return what columns are recognised by.

    Args:
        values: Original values in resolution units by attribute, each of shape (n_records,).
        attributes: The attributes, at least those of `values`.
        key: The owner's secret.

    Returns:
        One for every column of `values`.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    return tuple(_column(by_name[name], column, key) for name, column in values.items())


def _column(attribute: Attribute, column: Int64Array, key: bytes) -> Column:
    exponent, plain = _plain(attribute, column, key)
    ordered = hmac.new(key, struct.pack("<qq", exponent, len(plain)), "sha256")
    ordered.update(np.ascontiguousarray(plain, dtype="<i8").data)
    sums = [_mixed(plain, seed) for seed in _seeds(key)]
    unordered = hmac.new(key, struct.pack("<qqQQ", exponent, len(plain), *sums), "sha256")
    sample = plain[:_SAMPLE]
    return Column(
        attribute.name,
        unordered.hexdigest()[:_DIGITS],
        ordered.hexdigest()[:_DIGITS],
        _changes(np.sort(sample)),
        _changes(sample),
    )


def _plain(attribute: Attribute, column: Int64Array, key: bytes) -> tuple[int, Int64Array]:
    """Return values in a form that says as little as possible of how they were declared."""
    if attribute.type in (AttributeType.CATEGORY, AttributeType.BOOLEAN):
        labels = attribute.categories or _FALSE_AND_TRUE
        codes = [hmac.digest(key, label.encode(), "sha256")[:8] for label in labels]
        return 0, np.frombuffer(b"".join(codes), dtype="<i8").astype(np.int64)[column]
    exponent = -(attribute.decimals or 0)
    while column.any() and not (column % 10).any():
        column, exponent = column // 10, exponent + 1
    return exponent, column


def _seeds(key: bytes) -> tuple[int, int]:
    first, second = struct.unpack("<QQ", hmac.digest(key, b"seeds", "sha256")[:16])
    return first, second


def _mixed(values: Int64Array, seed: int) -> int:
    """Return the sum of a hash of every value, which is the same in any order (modulo 2^64).

    References:
        Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators, figure 14: the hash.
    """
    total = 0
    for start in range(0, len(values), _BLOCK):
        block: NDArray[np.uint64] = values[start : start + _BLOCK].view(np.uint64) + np.uint64(seed)
        block ^= block >> np.uint64(30)
        block *= np.uint64(0xBF58476D1CE4E5B9)
        block ^= block >> np.uint64(27)
        block *= np.uint64(0x94D049BB133111EB)
        block ^= block >> np.uint64(31)
        total += int(block.sum(dtype=np.uint64))
    return total % 2**64


def _changes(values: Int64Array) -> int:
    """Count where a column does not go on as it did before: a constant or a serial number never does else.

    Each such place would have had to come out the same by chance, so it is evidence of about a bit.
    """
    return int(np.count_nonzero(np.diff(values, n=2)))
