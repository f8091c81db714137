"""Sort records by value, ties by record position.

A value and its record's position are packed into one 64-bit key, value above, position below, and the keys
are sorted by the bits of the value (`radix`).
"""

from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Int64Array, PositionArray
from owner_node.masking.radix import sort_keys

KEY_BITS = 63
"""Bits of a packed key; the sign bit stays clear, so that shifting right keeps the order."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The records of one attribute in the order of their values."""

    order: PositionArray
    """Record positions, `(n_records,)`: the record at rank q is `order[q]`; ties by record position."""
    values: Int64Array
    """The values in that order, `(n_records,)`, in the units they came in."""


def rank(values: Int64Array, key_bits: int = KEY_BITS) -> Ranking:
    """Sort records by value, ties by record position.

    Where value and position bits do not fit into one key, the value is sorted part by part, lowest part
    first; each sort is stable, so the last one leaves the order of the whole value.

    Args:
        values: One value per record, `(n_records,)`, at least one, in resolution units; the difference of the
            largest and the smallest below 2^63.
        key_bits: Bits of a packed key; the default is what a 64-bit integer holds.

    Returns:
        The order of the records and their values in it.
    """
    smallest = int(values.min())
    value_bits = (int(values.max()) - smallest).bit_length()
    position_bits = (values.size - 1).bit_length()
    if value_bits + position_bits > key_bits:
        order = _order_of_wide_values(values - smallest, value_bits, key_bits - position_bits)
        return Ranking(order, values[order])
    keys = values - smallest
    keys <<= position_bits
    keys |= np.arange(values.size)
    sort_keys(keys, position_bits, value_bits)
    in_order = keys >> position_bits
    in_order += smallest
    keys &= (1 << position_bits) - 1
    return Ranking(keys, in_order)


def _order_of_wide_values(values: Int64Array, value_bits: int, part_bits: int) -> PositionArray:
    """Order values that do not fit into a key beside their position, lowest part first."""
    position_bits = (values.size - 1).bit_length()
    order = np.arange(values.size)
    for shift in range(0, value_bits, part_bits):
        bits = min(part_bits, value_bits - shift)
        keys = ((values >> shift) & ((1 << bits) - 1))[order]
        keys <<= position_bits
        keys |= order
        sort_keys(keys, position_bits, bits)
        keys &= (1 << position_bits) - 1
        order = keys
    return order
