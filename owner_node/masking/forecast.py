"""The forecast of a fragment: what its masking is expected to do, computed by its owner before it consents.

Nothing here touches the noise of a release: what needs draws has its own, and only what is expected over the
noise is told, never anything about a fragment that was drawn (MECHANISMS §4).

References:
    Del Vasto-Terrientes et al. 2025, equation 5 (mean SSE).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from owner_node.masking.arrays import BitSource, Float64Array, Int64Array, SystemBits
from owner_node.masking.expectation import Draws, expect, squared_distances
from owner_node.masking.exponential import TaxonomyMechanism
from owner_node.masking.foreseen import AttributeForecast, Forecast, as_share
from owner_node.masking.mask import for_each
from owner_node.masking.mechanisms import Mechanism
from owner_node.masking.order import rank
from owner_node.masking.tasks import AttributeTask, mechanism_of, own_order

FEWEST_PAIRS = 2
MOST_PAIRS = 8
DRAWS = 2**16
"""Many clusters make up for few draws of each: their shares are averaged."""
CLOSER = 16
"""How many times as many draws a closer look takes."""
FEWEST_MOVES = 2
MOST_MOVES = 8
MOVED = 2**17
"""Many records make up for few draws of their assignment."""
CLOSER_MOVES = 4
"""How many times as many of these a closer look takes: each sorts all records."""


@dataclass(frozen=True, slots=True)
class _Foreseen:
    """Numbers of one attribute that the forecast of the fragment is made of."""

    name: str
    error: float | None
    unchanged: float
    deviation: float
    zero_noise: float


def forecast(
    columns: Mapping[str, Int64Array],
    tasks: Sequence[AttributeTask],
    bits: BitSource | None = None,
    *,
    closely: bool = False,
) -> Forecast:
    """Foresee what `mask_table` will do, in about two to three times its time.

    Args:
        columns: As in `mask_table`; `check_table` has found nothing against them.
        tasks: As in `mask_table`.
        bits: Source of random bits for the draws of the forecast; None for the operating system's.
        closely: Whether to take more draws, so that a number close to a limit falls on its right side.

    Returns:
        What is expected.
    """
    source = SystemBits() if bits is None else bits
    whole, turn = np.ones(columns[tasks[0].attribute.name].size), Lock()

    def foreseen(task: AttributeTask) -> _Foreseen:
        values = columns[task.attribute.name]
        return _foreseen(values, task, source, _draws(values.size, task, closely=closely), whole, turn)

    return _together(for_each(foreseen, tasks, whole.size), whole)


def _draws(n_records: int, task: AttributeTask, *, closely: bool) -> Draws:
    """Return how many draws to take: fewer of more, since their shares are averaged."""
    # Without clusters what has to be drawn are few counts, which make up for nothing.
    n_pairs = min(MOST_PAIRS, max(FEWEST_PAIRS, DRAWS * (task.k or n_records) // n_records))
    n_moves = min(MOST_MOVES, max(FEWEST_MOVES, MOVED // n_records))
    return Draws(n_pairs * (CLOSER if closely else 1), n_moves * (CLOSER_MOVES if closely else 1))


def _together(found: Sequence[_Foreseen], whole: Float64Array) -> Forecast:
    """Put the attributes together; `whole`: probability that a record leaves unchanged, `(n_records,)`."""
    n_attributes, n_records = len(found), whole.size
    errors = sum(each.error for each in found if each.error is not None)
    return Forecast(
        tuple(
            AttributeForecast(
                each.name,
                None if each.error is None else as_share(each.error),
                as_share(each.unchanged),
                as_share(each.zero_noise),
            )
            for each in found
        ),
        as_share(errors * (n_records - 1) / n_records / n_attributes**2),
        as_share(sum(each.unchanged for each in found) / n_attributes),
        as_share(float(whole.mean())),
        as_share(sum(each.zero_noise for each in found) / n_attributes),
        as_share(sum(each.deviation**2 for each in found) ** 0.5 / n_attributes),
    )


def _foreseen(
    values: Int64Array, task: AttributeTask, bits: BitSource, draws: Draws, whole: Float64Array, turn: Lock
) -> _Foreseen:
    """Foresee one attribute, and multiply its probabilities into those of whole records.

    The noise of different attributes is independent, given the data.
    """
    order = own_order(values, task)
    if order is not None:
        values = order.place_of[values]
    ranking = rank(values)
    np.subtract(ranking.values, task.attribute.lower, out=ranking.values)
    mechanism, setting = mechanism_of(task), task.setting
    expected = expect(mechanism, ranking.values, setting, bits, draws, task.rank_noise)
    with turn:
        whole[ranking.order] *= expected.unchanged
    spread = _spread(mechanism, ranking.values)
    return _Foreseen(
        task.attribute.name,
        expected.squared_error / spread if spread > 0 else None,
        float(expected.unchanged.mean()),
        expected.deviation,
        expected.zero_noise / values.size,
    )


def _spread(mechanism: Mechanism, sorted_values: Int64Array) -> float:
    """Return the sum of squared differences from the best single value: the mean, or a category."""
    if isinstance(mechanism, TaxonomyMechanism):
        squared = squared_distances(mechanism)
        return float((np.bincount(sorted_values, minlength=len(squared)) @ squared).min())
    return float(np.square(sorted_values - sorted_values.mean()).sum())
