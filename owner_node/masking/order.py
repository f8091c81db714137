"""The order of the records of one attribute: by value, then by tie-breaker, then by record number.

`rank` packs value, tie-breaker and record number into one 64-bit key: the value in the highest bits, the
record number in the lowest. No two keys are equal, so that one sort without regard to stability gives the
order and the values in it; `numpy.sort` of such keys is several times faster than a stable argsort. If they
do not fit into a key, `numpy.lexsort` sorts the records.

Rank noise starts from the order with secret tie-breakers; without it there are none, as in the papers.
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import BitSource, Int64Array, PositionArray, TieArray

KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""
TIE_BITS = 8
"""Bits of a tie-breaker."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record numbers, `(n_records,)`: the record at rank q is `order[q]`; ties as they were broken."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS, ties: TieArray | None = None) -> Ranking:
    """Sort records by value, ties by tie-breakers, then by record number.

    Args:
        values: One value per record, `(n_records,)`, at least one, in resolution units; the difference of the
            largest and the smallest below 2^63.
        key_bits: Bits of a packed key; the default is what a 64-bit integer holds.
        ties: Tie-breakers, `(n_records,)`; None for record numbers alone.

    Returns:
        The order of the records and their values in it.
    """
    smallest = int(values.min())
    value_bits = (int(values.max()) - smallest).bit_length()
    record_bits = (values.size - 1).bit_length()
    tie_bits = 0 if ties is None else 8 * ties.itemsize
    if value_bits + tie_bits + record_bits > key_bits:
        order = np.lexsort((values,) if ties is None else (ties, values))
        return Ranking(order, values[order])
    keys = values - smallest
    if ties is not None:
        keys <<= tie_bits
        keys |= ties
    keys <<= record_bits
    keys |= np.arange(values.size)
    keys.sort()
    in_order = keys >> (record_bits + tie_bits)
    in_order += smallest
    keys &= (1 << record_bits) - 1
    return Ranking(keys, in_order)


def tie_breakers(n_records: int, bits: BitSource) -> TieArray:
    """Draw a secret random number for every record, `(n_records,)`; several records can draw the same one."""
    return bits.take(n_records).integers(np.uint8)
