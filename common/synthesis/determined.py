"""Attributes that determine a category, as noisy tables of pairs show: rules that nobody declared.

The noise of one-way counts is independent. So swaps, which keep these counts, cannot avoid contradictions
such as a living person with a cause of death, although the noisy table shows none. Let every bin of an
attribute determine the bin of a category in which its noisy count is largest, K be the number of all other
cells, and σ² the variance of a noisy count. The attribute is taken to determine the category, if

- independence expects at least 10 sqrt(K) σ records in these cells together,
- their noisy counts sum to at most 2 sqrt(K) σ, and
- none of them is above 4 σ.

Then noise explains these cells, and together they have less than a fifth of what independence expects. Rare
exceptions are lost. Numbers are not taken to be determined: values at the ends of neighbouring bins are near.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from common.arrays import Int64Array
from common.synthesis.binning import Binning, Excluded, possible_record
from common.synthesis.histogram import GRAIN
from common.synthesis.swaps import NoisyTable

_LEAST_EXPECTED, _MOST_COUNTED, _LARGEST_COUNT = 10, 2, 4


def with_determined(
    rules: Sequence[Excluded],
    binnings: Sequence[Binning],
    categories: Sequence[bool],
    tables: Sequence[NoisyTable],
    absent: Mapping[int, int] = MappingProxyType({}),
) -> list[Excluded]:
    """Return declared rules, and those of attributes that determine a category if a record keeps all.

    Args:
        binnings: By attribute.
        categories: Which attributes are categories.
        tables: Noisy tables of some pairs.
        absent: By attribute, a bin that no rule is about.
    """
    found = list(rules)
    for table in tables:
        i, j = table.pair
        n_bins = {place: binnings[place].n_bins for place in (i, j)}
        kept = {place: np.flatnonzero(np.arange(n_bins[place]) != absent.get(place)) for place in (i, j)}
        counts = table.counts.reshape(n_bins[i], n_bins[j])[np.ix_(kept[i], kept[j])]
        for first, second, noisy in ((i, j, counts), (j, i, counts.T)):
            determined = noisy.argmax(axis=1)
            ends = binnings[first].counts[kept[first]], binnings[second].counts[kept[second]]
            if categories[second] and _is_determined(noisy, determined, *ends, table.variance):
                bins = np.arange(noisy.shape[1])
                found += [
                    {
                        first: np.isin(np.arange(n_bins[first]), kept[first][determined == bin_]),
                        second: np.isin(np.arange(n_bins[second]), kept[second][bins != bin_]),
                    }
                    for bin_ in np.unique(determined)
                ]
                break
    if len(found) > len(rules) and possible_record([each.n_bins for each in binnings], found) is None:
        return list(rules)
    return found


def _is_determined(
    noisy: Int64Array, determined: Int64Array, first: Int64Array, second: Int64Array, variance: int
) -> bool:
    """Return True if every bin of the first attribute has but one of the second; counts are in grains."""
    others = noisy[np.arange(noisy.shape[1]) != determined[:, np.newaxis]]
    if others.size == 0:
        return False
    # Python's integers: GRAIN² n times what independence expects is above 63 bits.
    whole, squared = int(first.sum()), others.size * variance
    grains = zip(first.tolist(), second[determined].tolist(), strict=True)
    expected = sum(own * (whole - other) for own, other in grains)
    counted, largest = (max(int(each), 0) for each in (others.sum(), others.max()))
    return (
        expected**2 >= _LEAST_EXPECTED**2 * squared * (GRAIN * whole) ** 2
        and counted**2 <= _MOST_COUNTED**2 * squared
        and largest**2 <= _LARGEST_COUNT**2 * variance
    )
