"""What the noise of a list discloses about one person: whether somebody has the largest possible value.

Individual differential privacy holds the scales of the noise fixed, and they depend on the data
(Soria-Comas et al. 2017, Definition 5). So a list may disclose, beyond what ε allows, whether the median
record is where it is, or at the end of the domain. A classifier is trained on lists of both data sets, and
tested on others; its lists are made for this alone.
"""

from collections.abc import Sequence

import numpy as np

from owner_node.masking.arrays import BitSource, Float64Array, Int64Array
from owner_node.masking.mechanisms import QuantileMechanism, SumMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of
from owner_node.risk.draws import released_lists
from owner_node.risk.links import chance_above
from owner_node.risk.utility import OriginalRecords

LISTS = 60
"""Default number of lists of each data set that the classifier is trained on, and as many to test it."""
_MOST_PLACES = 200
"""Places of a list that are looked at."""
_LEAST_SPREAD = 0.5
"""In resolution units: below, entries are equal but for rounding."""


def distinguished_by_scales(
    records: OriginalRecords, tasks: Sequence[AttributeTask], bits: BitSource
) -> list[float]:
    """Return, for every attribute whose noise depends on the data, how well both data sets are told apart.

    Returns:
        As `distinguish`, by attribute.
    """
    pairs = zip(records.attributes, tasks, strict=True)
    every = (
        distinguish(attribute.ascending, task, bits) for attribute, task in pairs if task.rules.individual
    )
    return [rate for rate in every if rate is not None]


def distinguish(
    ascending: Int64Array, task: AttributeTask, bits: BitSource, n_lists: int = LISTS
) -> float | None:
    """Return how well one attribute's lists tell both data sets apart.

    Args:
        ascending: Its original values in order, `(n_records,)`, from 0 to V - 1.
        n_lists: Lists of each data set that the classifier is trained on, and as many to test it.

    Returns:
        The probability that a list of the changed data looks more like one than a list of the actual data
        does: 0.5 if nothing is disclosed, 1 if everything is. None if lists are not made of noisy sums.
    """
    mechanism = mechanism_of(task)
    # A linear list says what its centroids say.
    if isinstance(mechanism, QuantileMechanism):
        mechanism = mechanism.sums
    if not isinstance(mechanism, SumMechanism):
        return None
    # The data as they are, and with the median record at the end of the domain.
    both = ascending, np.append(np.delete(ascending, ascending.size // 2), task.setting.n_values - 1)
    return _rate_of_right(*(_lists(mechanism, values, task, bits, 2 * n_lists) for values in both))


def _lists(
    mechanism: SumMechanism, ascending: Int64Array, task: AttributeTask, bits: BitSource, times: int
) -> Float64Array:
    """Return released lists, `(times, n_places)`."""
    drawn = [
        lists.values[:, np.linspace(0, lists.sizes.size - 1, _MOST_PLACES).astype(np.int64)]
        if lists.sizes.size > _MOST_PLACES
        else lists.values
        for lists in released_lists(mechanism, ascending, [task.setting], bits, times)
    ]
    return np.concatenate(drawn).astype(np.float64)


def _rate_of_right(actual: Float64Array, changed: Float64Array) -> float:
    """Train on the first half of the lists, and test on the second: Laplace noise, place by place."""

    def likely(lists: Float64Array, training: Float64Array) -> Float64Array:
        middle = np.median(training, axis=0)
        spread = np.maximum(np.abs(training - middle).mean(axis=0), _LEAST_SPREAD)
        densities: Float64Array = -(np.abs(lists - middle) / spread + np.log(spread)).sum(axis=1)
        return densities

    half = len(actual) // 2
    ratios = [
        likely(lists[half:], changed[:half]) - likely(lists[half:], actual[:half])
        for lists in (changed, actual)
    ]
    return chance_above(*ratios)
