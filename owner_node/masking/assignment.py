"""The assignment: which entry of the released list every record gets (MECHANISMS §1).

Without rank noise the record at rank q gets the q-th entry. With it, the record at rank q of the noisy
positions (`rank_noise`) does, and that needs no sorting of all records: an entry is the value of many ranks,
so it is enough to know between which ranks a noisy position lies. Noisy positions are counted in bins; their
running total is the rank at which a bin begins. If all ranks of a bin have one entry, so have its records.
Only the records of bins in which the list goes on to its next entry are sorted, by noisy position and then by
a fresh tie-breaker, which all others need not have drawn: the records get the entries that they would get if
all had one and all were sorted.
"""

import numpy as np

from owner_node.masking.arrays import EntryArray, Int64Array, NoisyPositionArray, PositionArray
from owner_node.masking.bits import BitSource
from owner_node.masking.original_order import CountedRecords, OriginalOrder
from owner_node.masking.rank_noise import in_noisy_order

BINS_PER_ENTRY = 2**8
"""Most bins of noisy positions for each entry: more of them take longer than sorting fewer records saves."""
FEWEST_PER_BIN = 2
"""Fewest records of a bin, on average: their number decides how much of the processor's caches bins take."""
POSITIONS_PER_BLOCK = 2**17
"""Positions that are done at a time: what is made of them on the way stays in the processor's caches."""
_UNDECIDED = -1


def by_rank(order: PositionArray, sizes: Int64Array) -> EntryArray:
    """Give the entries of a list to records in their order.

    Args:
        order: The record at rank q is `order[q]`, `(n_records,)`.
        sizes: How many ranks have each entry, `(n_entries,)`; they sum to the number of records.

    Returns:
        The entry of every record, `(n_records,)`.
    """
    entries, ends = np.empty(order.size, dtype=np.int32), np.cumsum(sizes)
    for first in range(0, order.size, POSITIONS_PER_BLOCK):
        last = min(first + POSITIONS_PER_BLOCK, order.size)
        lowest, highest = np.searchsorted(ends, (first, last - 1), side="right").tolist()
        some = np.arange(lowest, highest + 1, dtype=np.int32)
        behind = np.minimum(ends[lowest : highest + 1], last)
        entries[order[first:last]] = np.repeat(some, np.diff(behind, prepend=first))
    return entries


def by_noisy_position(
    original: OriginalOrder, noisy: NoisyPositionArray, sizes: Int64Array, bits: BitSource
) -> EntryArray:
    """Give the entries of a list to records in the order of their noisy positions.

    Args:
        original: The original order, ties broken at random.
        noisy: The noisy position of every record, as the original order has them, `(n_records,)`;
            overwritten.
        sizes: As in `by_rank`.
        bits: Source of random bits for ties.

    Returns:
        The entry of every record, `(n_records,)`.
    """
    ends, shift = np.cumsum(sizes), _bin_shift(noisy, sizes.size)
    entry_of_bin, ranks = _bins(noisy, shift, ends)
    # Of records as they stand entries take the place of positions: new memory takes longer to get.
    in_place = isinstance(original, CountedRecords) and noisy.dtype == np.int32
    entries: EntryArray = noisy.view(np.int32) if in_place else np.empty(noisy.size, dtype=np.int32)
    undecided, positions = [], []
    for first in range(0, noisy.size, POSITIONS_PER_BLOCK):
        block = slice(first, first + POSITIONS_PER_BLOCK)
        some = noisy[block]
        # "clip" is quicker than a check; no bin is outside.
        found = entry_of_bin.take(some >> shift, mode="clip")
        left = np.flatnonzero(found == _UNDECIDED)
        undecided.append(first + left)
        positions.append(some[left])
        entries[original.records(block)] = found
    if ranks.size:
        places = original.records(np.concatenate(undecided))
        records = in_noisy_order(places, np.concatenate(positions), bits)
        entries[records] = np.searchsorted(ends, ranks, side="right")
    return entries


def _bin_shift(noisy: NoisyPositionArray, n_entries: int) -> int:
    """Make noisy positions begin at 0, in place; return by how many bits they are to be shifted into bins."""
    noisy -= noisy.min()
    most_bins = max(1, min(noisy.size // FEWEST_PER_BIN, BINS_PER_ENTRY * n_entries))
    return (int(noisy.max()) // most_bins).bit_length()


def _bins(noisy: NoisyPositionArray, shift: int, ends: Int64Array) -> tuple[EntryArray, Int64Array]:
    """Find the entry that all records of a bin get.

    Args:
        noisy: The noisy position of every record, from 0 upwards, `(n_records,)`.
        shift: By how many bits they are to be shifted into bins.
        ends: The rank behind the last one of every entry, `(n_entries,)`.

    Returns:
        The entry of every bin, or that it is undecided, `(n_bins,)`; the ranks of all records of the
        undecided bins, ascending.
    """
    totals = np.zeros((int(noisy.max()) >> shift) + 1, dtype=np.int64)
    per_block = max(POSITIONS_PER_BLOCK, totals.size)
    for first in range(0, noisy.size, per_block):
        totals += np.bincount(noisy[first : first + per_block] >> shift, minlength=totals.size)
    np.cumsum(totals, out=totals)
    # The bin that the last rank of an entry is in: the next entry begins behind it, if not within.
    lasts = np.searchsorted(totals, ends[:-1])
    numbers = np.arange(ends.size, dtype=np.int32)
    entry_of_bin = np.repeat(numbers, np.diff(lasts + 1, prepend=0, append=totals.size))
    entry_of_bin[lasts[totals[lasts] > ends[:-1]]] = _UNDECIDED
    undecided = np.flatnonzero(entry_of_bin == _UNDECIDED)
    behind = totals[undecided]
    lengths = behind - np.where(undecided > 0, totals[undecided - 1], 0)
    return entry_of_bin, np.arange(lengths.sum()) + np.repeat(behind - np.cumsum(lengths), lengths)
