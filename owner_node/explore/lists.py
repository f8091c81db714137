"""Many released lists of one attribute at once: for evaluations, since a release has one.

Lists of the same clusters differ in their noise and in nothing else, whether ε differs or only the draw. So
noise is drawn, and centroids are made to ascend, for as many of them at a time as fit a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from owner_node.masking.arrays import Int64Array, PositionArray
from owner_node.masking.bits import BitSource
from owner_node.masking.calibration import Setting
from owner_node.masking.mechanisms import DRAWS_PER_BLOCK, ExactSums, SumMechanism
from owner_node.masking.noise import add_saturating


@dataclass(frozen=True, slots=True)
class Lists:
    """Released lists of the same clusters."""

    numbers: PositionArray
    """Which of the settings each is of, `(n_lists,)`."""
    values: Int64Array
    """Their values, `(n_lists, n_clusters)`, in rank order, from 0 to V - 1."""
    sizes: Int64Array
    """Number of records of each cluster, `(n_clusters,)`."""


def released_lists(
    mechanism: SumMechanism,
    sorted_values: Int64Array,
    settings: Sequence[Setting],
    bits: BitSource,
    times: int,
) -> Iterator[Lists]:
    """Draw several released lists of several settings that differ in ε alone.

    Args:
        mechanism: How they are made.
        sorted_values: `(n_records,)`, ascending, from 0 to V - 1.
        settings: The settings.
        bits: Source of random bits.
        times: How many lists of each setting.

    Yields:
        Some lists at a time; in the end as many of every setting as asked for.
    """
    exact = [mechanism.exact_sums(sorted_values, setting) for setting in settings]
    # Neighbours are of different settings, so that no block is of one scale, which tables would be made for.
    numbers = np.tile(np.arange(len(settings)), times)
    at_once = max(1, DRAWS_PER_BLOCK // exact[0].sizes.size)
    for first in range(0, numbers.size, at_once):
        counts = np.bincount(numbers[first : first + at_once], minlength=len(settings))
        some = [(each, int(count)) for each, count in zip(exact, counts, strict=True) if count]
        values = _drawn(mechanism, some, settings[0].n_values, bits)
        yield Lists(np.repeat(np.arange(len(settings)), counts), values, exact[0].sizes)


def _drawn(
    mechanism: SumMechanism, exact: Sequence[tuple[ExactSums, int]], n_values: int, bits: BitSource
) -> Int64Array:
    """Draw some lists of each of some sums, `(n_lists, n_clusters)`."""
    first, n_clusters = exact[0][0], exact[0][0].sizes.size
    scales = np.concatenate([np.tile(each.scales, count) for each, count in exact])
    noise = np.concatenate([drawn for _, drawn in replace(first, scales=scales).noise(bits)])
    ends = np.cumsum([count for _, count in exact])
    parts = np.split(noise.reshape(-1, n_clusters), ends[:-1])
    noisy = [add_saturating(each.sums, part, each.tail) for (each, _), part in zip(exact, parts, strict=True)]
    divisors = [np.broadcast_to(each.divisors, (count, n_clusters)) for each, count in exact]
    return mechanism.rounded(np.concatenate(noisy), np.concatenate(divisors), n_values)
