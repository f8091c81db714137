"""Sort records by value, ties by tie-breakers if there are any, then by record position.

A value and its record's position are packed into one 64-bit key, value above, position below, and the keys
are sorted by the bits of the value (`radix`). Tie-breakers lie between the two. Values of few bits need no
position beside them.
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Int64Array, PositionArray, TieArray
from owner_node.masking.radix import counting_order, sort_keys

KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""

FEW_BITS = 16
"""Bits of values and tie-breakers up to which one counting pass is quicker; fewer of few records."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record positions, `(n_records,)`: the record at rank q is `order[q]`; ties as they were broken."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS, ties: TieArray | None = None) -> Ranking:
    """Sort records by value, ties by tie-breakers, then by record position.

    Where all that does not fit into one key, it is sorted part by part, lowest part first; each sort is
    stable, so the last one leaves the order of the whole.

    Args:
        values: One value per record, `(n_records,)`, at least one, in resolution units; the difference of the
            largest and the smallest below 2^63.
        key_bits: Bits of a packed key; the default is what a 64-bit integer holds.
        ties: Tie-breakers, `(n_records,)`; None for record position alone.

    Returns:
        The order of the records and their values in it.
    """
    smallest = int(values.min())
    value_bits = (int(values.max()) - smallest).bit_length()
    position_bits = (values.size - 1).bit_length()
    tie_bits = 0 if ties is None else 8 * ties.itemsize
    if value_bits + tie_bits <= min(FEW_BITS, position_bits - 1):
        return _rank_by_few_bits(values, smallest, ties)
    if value_bits + tie_bits + position_bits > key_bits:
        order = np.arange(values.size)
        if ties is not None:
            order = _order_of_wide_values(ties.astype(np.int64), tie_bits, key_bits - position_bits, order)
        order = _order_of_wide_values(values - smallest, value_bits, key_bits - position_bits, order)
        return Ranking(order, values[order])
    keys = values - smallest
    if ties is not None:
        keys <<= tie_bits
        keys |= ties
    keys <<= position_bits
    keys |= np.arange(values.size)
    sort_keys(keys, position_bits, tie_bits + value_bits)
    in_order = keys >> (position_bits + tie_bits)
    in_order += smallest
    keys &= (1 << position_bits) - 1
    return Ranking(keys, in_order)


def _rank_by_few_bits(values: Int64Array, smallest: int, ties: TieArray | None) -> Ranking:
    """Sort values that fit into a few bits with their tie-breakers in one counting pass."""
    digits = np.empty(values.size, dtype=np.int32)
    np.subtract(values, smallest, out=digits, casting="unsafe")
    tie_bits = 0 if ties is None else 8 * ties.itemsize
    if ties is not None:
        digits <<= tie_bits
        digits |= ties
    order, begins = counting_order(digits)
    counts = np.diff(begins[:: 1 << tie_bits], append=values.size)
    return Ranking(order, np.repeat(np.arange(counts.size) + smallest, counts))


def _order_of_wide_values(
    values: Int64Array, value_bits: int, part_bits: int, order: PositionArray
) -> PositionArray:
    """Order values that do not fit into a key beside their position, lowest part first, ties as given."""
    position_bits = (values.size - 1).bit_length()
    for shift in range(0, value_bits, part_bits):
        bits = min(part_bits, value_bits - shift)
        keys = ((values >> shift) & ((1 << bits) - 1))[order]
        keys <<= position_bits
        keys |= order
        sort_keys(keys, position_bits, bits)
        keys &= (1 << position_bits) - 1
        order = keys
    return order
