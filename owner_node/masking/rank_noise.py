"""The assignment of records to the entries of the released list, without or with rank noise.

Masking has two products: the list of released values, which its mechanism protects, and the assignment of
records to the entries of the list (MECHANISMS §1). Rank noise protects the assignment (MECHANISMS §8).

*Without rank noise* the record at rank q gets the entry of rank q (`by_rank`).

*With rank noise* the record at position p of the original order (`order.OriginalOrder`) gets the noisy
position s = p + Z. Z is exact discrete Laplace noise of scale t = max(1, ceil(w n)), on the integers; if
positions can be halves, Z is on the halves: drawn in steps of a half, of scale 2t. The records are sorted by
s, and the record at rank q of this new order gets the entry of rank q (`by_noisy_position`).

Proof of the bound on the privacy loss of the assignment:

1. The original order sorts records by a key: their value; then a secret random number, which is drawn
   independently of the data and fixed here; then, in the sorted form, their place in the data. Records with
   the same key share the middle of their positions.
2. Let one record's key rise from a to b. Among all other records, let A have the key a, B the key b, and M a
   key between them. The record rises by d = A/2 + M + B/2 positions. The M records fall by one position each,
   the A and B records by a half: by d in all. All others stay. If the key falls, read this backwards.
3. So the vector of positions changes by 2d in L1-distance, and the probability of s by a factor of at most
   exp(2d/t), whatever s is. The new order is a function of s and of fresh randomness.
4. d is at most n - 1, and 2(n - 1)/t is below 2/w. For g records of one person the bound is g times as large:
   change one record after the other.
5. List and assignment are drawn independently, so the bounds of both add up to one for the whole table.

The proof requires an order of the values that does not depend on the data. If categories are masked in the
order of their frequency, one record can make two of them swap places, which moves every record that has
either: no bound is stated there (`common.model.mechanisms.Mechanism.rank_loss`).

The order of equal values is not kept: ties are broken by random numbers, and so are ties of noisy positions.
If these numbers are equal, too, the record number decides, which does not depend on the data either. Ties of
noisy positions must never be broken by the original positions: the new order would be a function of more than
s.

*Few records are sorted.* An entry belongs to many ranks, so it is enough to know between which ranks a noisy
position lies. `by_noisy_position` counts noisy positions in bins; the running total of the counts is the rank
at which a bin begins. If all ranks of a bin have the same entry, all its records get that entry. Only the
records of bins in which the list proceeds to its next entry are sorted, by noisy position and then by a fresh
tie-breaker; no other record needs one. So every record gets the entry that it would get if all records had a
tie-breaker and all were sorted.

References:
    Dwork, McSherry, Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis",
    Proposition 1 (noise on a vector of bounded L1-sensitivity); the use on positions is ours.
"""

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from owner_node.masking.arrays import BitSource, EntryArray, Int64Array, NoisyPositionArray, PositionArray
from owner_node.masking.noise import shared_laplace
from owner_node.masking.order import (
    KEY_BITS,
    TIE_BITS,
    CountedRecords,
    OriginalOrder,
    SortedRecords,
    tie_breakers,
)

DRAWS_PER_BLOCK = 2**18
"""Approximate number of draws at a time: with fewer, two threads would wait for each other more than draw."""
MOST_NARROW = 2**27
"""Largest number of records whose noisy positions fit into 32 bits, also in halves."""
LARGEST_NARROW = 2**23
"""Largest scale of noise for 32 bits, in steps: at the last position, one draw in 2e^32 is cut."""
POSITIONS_PER_BLOCK = 2**17
"""Positions processed at a time: intermediate results stay in the processor's caches."""


def noise_scale(rank_noise: Decimal, n_records: int) -> int:
    """Return t = max(1, ceil(w n)), the scale of the noise on positions.

    Args:
        rank_noise: w, above 0.
        n_records: n.
    """
    return max(1, int((rank_noise * n_records).to_integral_value(ROUND_CEILING)))


class PositionNoise:
    """The noise Z on every position, drawn block by block.

    Several threads may draw at once: an idle thread takes the next block. Every block has its own source of
    random bits, so that equal seeds give equal noise, whichever thread draws it.
    """

    def __init__(self, n_records: int, scale: int, bits: BitSource) -> None:
        """Prepare to draw.

        Args:
            n_records: n.
            scale: t, in the steps that positions are divided into.
            bits: Source of random bits, from which the sources of the blocks are spawned.
        """
        self._scale = scale
        narrow = n_records <= MOST_NARROW and scale <= LARGEST_NARROW
        self._integer: type[Any] = np.int32 if narrow else np.int64
        self._noise = np.empty(n_records, dtype=self._integer)
        self._blocks: SimpleQueue[tuple[int, int, BitSource]] = SimpleQueue()
        n_blocks = max(1, n_records // DRAWS_PER_BLOCK)
        for first, last in pairwise(n_records * index // n_blocks for index in range(n_blocks + 1)):
            self._blocks.put((first, last, bits.spawn()))

    def draw(self) -> NoisyPositionArray:
        """Draw all blocks that no thread has taken yet.

        Returns:
            Z for every position, `(n_records,)`, in steps; complete once all threads have returned.
        """
        for first, last, bits in self._untaken():
            self._noise[first:last] = shared_laplace(last - first, self._scale, bits, self._integer)
        return self._noise

    def _untaken(self) -> Iterator[tuple[int, int, BitSource]]:
        while True:
            try:
                yield self._blocks.get_nowait()
            except Empty:
                return


def add_positions(noise: NoisyPositionArray, original: OriginalOrder) -> NoisyPositionArray:
    """Turn noise into noisy positions, in place: s = p + Z, clipped far from all positions.

    Args:
        noise: Z, `(n_records,)`, in the steps of the original order.
        original: The original order.

    Returns:
        s, `(n_records,)`, by place in the original order.
    """
    # The clipping depends on the noisy position alone: the order stays a function of s.
    farthest = int(np.iinfo(noise.dtype).max) // 4
    for first in range(0, noise.size, POSITIONS_PER_BLOCK):
        block = slice(first, min(first + POSITIONS_PER_BLOCK, noise.size))
        noisy = noise[block]
        np.minimum(noisy, 2 * farthest, out=noisy)  # room for the position
        noisy += original.positions(block)
        np.clip(noisy, -farthest, farthest, out=noisy)
    return noise


def in_noisy_order(records: PositionArray, noisy: NoisyPositionArray, bits: BitSource) -> PositionArray:
    """Sort records by noisy position, ties by fresh random numbers, then by record number.

    Args:
        records: Different record positions, in any order, at least one, `(m,)`.
        noisy: Their noisy positions, `(m,)`.
        bits: Source of random bits for ties.

    Returns:
        The records in that order, `(m,)`.
    """
    ties = tie_breakers(records.size, bits)
    keys = noisy.astype(np.int64)
    keys -= keys.min()
    record_bits, noisy_bits = int(records.max()).bit_length(), int(keys.max()).bit_length()
    if noisy_bits + TIE_BITS + record_bits > KEY_BITS:
        return records[np.lexsort((records, ties, keys))]
    keys <<= TIE_BITS
    keys |= ties
    keys <<= record_bits
    keys |= records
    keys.sort()
    keys &= (1 << record_bits) - 1
    return keys


def with_rank_noise(order: PositionArray, rank_noise: Decimal, bits: BitSource) -> PositionArray:
    """Draw the noise and sort records by their noisy positions.

    Args:
        order: The original order, `(n_records,)`, ties broken at random: the record at position p is
            `order[p]`.
        rank_noise: w, above 0.
        bits: Source of random bits.

    Returns:
        The order of the assignment, `(n_records,)`: its q-th record gets the entry of rank q.
    """
    noise = PositionNoise(order.size, noise_scale(rank_noise, order.size), bits).draw()
    return in_noisy_order(order, add_positions(noise, SortedRecords(order)), bits)


BINS_PER_ENTRY = 2**8
"""Most bins of noisy positions per entry: more would cost more time than sorting fewer records saves."""
FEWEST_PER_BIN = 2
"""Fewest records per bin, on average: more bins would take too much of the processor's caches."""
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
        noisy: Noisy positions by place in the original order, `(n_records,)`; overwritten.
        sizes: As in `by_rank`.
        bits: Source of random bits for ties.

    Returns:
        The entry of every record, `(n_records,)`.
    """
    ends, shift = np.cumsum(sizes), _bin_shift(noisy, sizes.size)
    entry_of_bin, ranks = _bins(noisy, shift, ends)
    # Counted records are their own places, so entries can overwrite positions: new memory costs time.
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
    """Make noisy positions begin at 0, in place; return the number of bits that shifts them into bins."""
    noisy -= noisy.min()
    most_bins = max(1, min(noisy.size // FEWEST_PER_BIN, BINS_PER_ENTRY * n_entries))
    return (int(noisy.max()) // most_bins).bit_length()


def _bins(noisy: NoisyPositionArray, shift: int, ends: Int64Array) -> tuple[EntryArray, Int64Array]:
    """Find the entry that all records of a bin get.

    Args:
        noisy: The noisy position of every record, from 0 upwards, `(n_records,)`.
        shift: Number of bits that shifts them into bins.
        ends: The rank after the last one of every entry, `(n_entries,)`.

    Returns:
        The entry of every bin, or `_UNDECIDED`, `(n_bins,)`; and the ranks of all records of the undecided
        bins, ascending.
    """
    totals = np.zeros((int(noisy.max()) >> shift) + 1, dtype=np.int64)
    per_block = max(POSITIONS_PER_BLOCK, totals.size)
    for first in range(0, noisy.size, per_block):
        totals += np.bincount(noisy[first : first + per_block] >> shift, minlength=totals.size)
    np.cumsum(totals, out=totals)
    # The bin of the last rank of each entry: the next entry begins after this bin, or within it.
    lasts = np.searchsorted(totals, ends[:-1])
    numbers = np.arange(ends.size, dtype=np.int32)
    entry_of_bin = np.repeat(numbers, np.diff(lasts + 1, prepend=0, append=totals.size))
    entry_of_bin[lasts[totals[lasts] > ends[:-1]]] = _UNDECIDED
    undecided = np.flatnonzero(entry_of_bin == _UNDECIDED)
    behind = totals[undecided]
    lengths = behind - np.where(undecided > 0, totals[undecided - 1], 0)
    return entry_of_bin, np.arange(lengths.sum()) + np.repeat(behind - np.cumsum(lengths), lengths)
