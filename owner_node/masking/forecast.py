"""The forecast of a fragment: the expected effects of its masking, computed by its owner before it consents.

Nothing here uses the noise of a release: a forecast draws its own. Only expectations over
the noise are reported, never anything about a fragment that was drawn: refusing some of the fragments that
were drawn would break the promise.

References:
    Del Vasto-Terrientes et al. 2025, equation 5 (mean SSE).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from threading import Lock

import numpy as np

from common.model.privacy import NO_RANK_NOISE
from owner_node.masking.arrays import BitSource, Float64Array, Int64Array, SystemBits
from owner_node.masking.clusters import Setting
from owner_node.masking.foreseen import AttributeForecast, Forecast, as_share
from owner_node.masking.lists import Expectation, ListMechanism
from owner_node.masking.mask import for_each
from owner_node.masking.order import rank
from owner_node.masking.rank_noise import with_rank_noise
from owner_node.masking.tasks import AttributeTask, mechanism_of, own_order

FEWEST_PAIRS = 2
MOST_PAIRS = 8
DRAWS = 2**16
"""Number of clusters times draws to reach: with more clusters fewer draws suffice, shares being averaged."""
FEWEST_MOVES = 2
MOST_MOVES = 8
MOVED = 2**17
"""Number of records times draws of the assignment to reach: with more records fewer draws suffice."""


@dataclass(frozen=True, slots=True)
class _Foreseen:
    """The numbers of one attribute in the forecast of the fragment."""

    name: str
    error: float | None
    unchanged: float
    deviation: float
    zero_noise: float


@dataclass(frozen=True, slots=True)
class Draws:
    """Number of draws for an expectation that needs draws."""

    n_pairs: int
    """Draws of the noise of the whole list, at least two, each used with both signs."""
    n_moves: int = 1
    """Draws of the assignment, at least two with rank noise; draws of the list are divided among them."""


def expect(
    mechanism: ListMechanism,
    sorted_values: Int64Array,
    setting: Setting,
    bits: BitSource,
    draws: Draws,
    rank_noise: Decimal = NO_RANK_NOISE,
) -> Expectation:
    """Compute or estimate the effect of a mechanism on one attribute.

    Rank noise is drawn a few times, separately from the list: given the assignment of records to entries, the
    mechanism's own forecast holds unchanged.

    Args:
        sorted_values: `(n_records,)`, ascending, from 0 to V - 1, at least k of them.
        rank_noise: w.
    """
    if not rank_noise:
        return mechanism.expect(sorted_values, sorted_values, setting, bits, draws.n_pairs)
    n_records, n_pairs = sorted_values.size, max(2, draws.n_pairs // draws.n_moves)
    squares, zero = 0.0, 0
    unchanged, shares, variance = np.zeros(n_records), np.empty(draws.n_moves), 0.0
    for move in range(draws.n_moves):
        order = with_rank_noise(np.arange(n_records), rank_noise, bits)
        expectation = mechanism.expect(sorted_values, sorted_values[order], setting, bits, n_pairs)
        unchanged[order] += expectation.unchanged
        shares[move] = expectation.unchanged.mean()
        squares, variance, zero = (
            squares + expectation.squared_error,
            variance + expectation.deviation**2,
            expectation.zero_noise,
        )
    # At least the variance of independent records, since two draws may agree by chance.
    of_moves = max(float(shares.var()) / (draws.n_moves - 1), 0.25 / (draws.n_moves * n_records))
    deviation = (of_moves + variance / draws.n_moves**2) ** 0.5
    return Expectation(squares / draws.n_moves, unchanged / draws.n_moves, deviation, zero)


def forecast(
    columns: Mapping[str, Int64Array],
    tasks: Sequence[AttributeTask],
    bits: BitSource | None = None,
) -> Forecast:
    """Forecast the effect of `mask_table`, in about two to five times its time.

    Args:
        columns: As in `check_table`, which accepts them.
        bits: Source of random bits for the draws of the forecast; None for the operating system's.
    """
    source = SystemBits() if bits is None else bits
    whole, turn = np.ones(columns[tasks[0].attribute.name].size), Lock()

    def foreseen(task: AttributeTask) -> _Foreseen:
        values = columns[task.attribute.name]
        return _foreseen(values, task, source.spawn(), _draws(values.size, task), whole, turn)

    return _combine(for_each(foreseen, tasks, whole.size), whole)


def _draws(n_records: int, task: AttributeTask) -> Draws:
    """Return how many draws to take: fewer for more clusters or records, since shares are averaged."""
    # A list without clusters has few counts, and averaging over them does not help.
    size = task.k or (n_records if task.rules.listed else 1)
    n_pairs = min(MOST_PAIRS, max(FEWEST_PAIRS, DRAWS * size // n_records))
    n_moves = min(MOST_MOVES, max(FEWEST_MOVES, MOVED // n_records))
    return Draws(n_pairs, n_moves)


def _combine(parts: Sequence[_Foreseen], whole: Float64Array) -> Forecast:
    """Combine the attributes; `whole`: probability that a record leaves unchanged, `(n_records,)`."""
    n_attributes, n_records = len(parts), whole.size
    errors = sum(part.error for part in parts if part.error is not None)
    return Forecast(
        tuple(
            AttributeForecast(
                part.name,
                None if part.error is None else as_share(part.error),
                as_share(part.unchanged),
                as_share(part.zero_noise),
            )
            for part in parts
        ),
        as_share(errors * (n_records - 1) / n_records / n_attributes**2),
        as_share(sum(part.unchanged for part in parts) / n_attributes),
        as_share(float(whole.mean())),
        as_share(sum(part.zero_noise for part in parts) / n_attributes),
        as_share(sum(part.deviation**2 for part in parts) ** 0.5 / n_attributes),
    )


def _foreseen(
    values: Int64Array, task: AttributeTask, bits: BitSource, draws: Draws, whole: Float64Array, turn: Lock
) -> _Foreseen:
    """Forecast one attribute, and multiply its probabilities into those of whole records.

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
    spread = mechanism.spread(ranking.values, setting)
    return _Foreseen(
        task.attribute.name,
        expected.squared_error / spread if spread > 0 else None,
        float(expected.unchanged.mean()),
        expected.deviation,
        expected.zero_noise / values.size,
    )
