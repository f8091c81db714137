"""Records of noisy counts, the same bytes everywhere from the same seed.

Every attribute's bins are taken by their one-way counts (systematic sampling), and swapped until they agree
with the tables of pairs (`common.synthesis.swaps`). Within its bin a record gets a value by the finest
one-way counts. Everything here is made of whole numbers.

References:
    Madow 1949, "On the theory of systematic sampling, II".
"""

import numpy as np

from common.arrays import Int64Array, order_of
from common.synthesis.binning import Binning
from common.synthesis.keystream import Keystream

MOST_RECORDS = 2**22
"""Products of numbers of records and sums of weights then fit into 63 bits."""
_WEIGHT_BITS = 40


def start_bins(binning: Binning, n_records: int, stream: Keystream) -> Int64Array:
    """Return bins by their counts in random order, `(n_records,)`; at most `MOST_RECORDS`."""
    return bins_of_counts(binning.counts, n_records, stream)


def bins_of_counts(counts: Int64Array, n_records: int, stream: Keystream) -> Int64Array:
    """Return bins in proportion to counts, which are not all 0, in random order, `(n_records,)`."""
    up_to = np.cumsum(counts)
    ends = (n_records * up_to + stream.number_below(int(up_to[-1]))) // up_to[-1]
    sizes = np.diff(np.minimum(ends, n_records), prepend=0)
    return np.repeat(np.arange(counts.size), sizes)[stream.order(n_records)]


def draw_values(binning: Binning, bins: Int64Array, stream: Keystream) -> Int64Array:
    """Draw values in bins: parts of the histogram by their counts, uniform within a part.

    With whole weights w_1…w_C of the parts of a bin, of sum W, and U uniform below W, the parts up to c get
    floor((m (w_1 + … + w_c) + U)/W) of the m records of the bin, in random order.

    Args:
        bins: The bin of each record, `(n_records,)`.

    Returns:
        Codes of values, from 0 to V - 1, `(n_records,)`.
    """
    widths = np.diff(binning.histogram.edges)
    # Parts bin by bin: those of a category's bins are not next to each other.
    parts = np.argsort(binning.labels, kind="stable")
    labels = binning.labels[parts]
    firsts = np.searchsorted(labels, np.arange(binning.n_bins))
    # A bin without counts has equally many records of each value.
    scaled = np.maximum(widths >> max(int(widths.sum()).bit_length() - _WEIGHT_BITS, 0), 1)
    weights = np.where((binning.counts > 0)[labels], binning.histogram.counts[parts], scaled[parts])
    up_to = np.cumsum(weights)
    before = np.append(0, up_to)[firsts]
    whole = np.add.reduceat(weights, firsts)
    sizes = np.bincount(bins, minlength=binning.n_bins)
    start = stream.below(whole)
    ends = (sizes[labels] * (up_to - before[labels]) + start[labels]) // whole[labels]
    counts = np.diff(ends, prepend=0)
    counts[firsts] = ends[firsts]
    order = stream.order(bins.size)
    order = order[order_of(bins[order])]
    drawn = np.empty_like(bins)
    drawn[order] = np.repeat(parts, counts)
    return binning.histogram.edges[drawn] + stream.below(widths[drawn])
