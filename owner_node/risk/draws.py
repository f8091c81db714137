"""Attributes sorted once and masked many times, with draws that are used for evaluation only.

The order of an attribute's original values is the same for all settings; only clusters, noise and
post-processing differ.

*Many lists at once.* Lists of the same clusters differ only in their noise, whether ε differs or only the
draw. So noise is drawn, and centroids are made to ascend, for as many lists at a time as fit a block.

*Errors without records.* With z the released value of cluster C,
Σ (z - x)² = Σ_C (|C| z² - 2 z Σ_C x) + Σ x². The sums of x between any two ranks are kept, so the error of a
setting needs no record.

References:
    Del Vasto-Terrientes et al. 2025, Algorithm 1 (individual ranking), equation 5.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from owner_node.masking.arrays import BitSource, Float64Array, Int64Array, PositionArray
from owner_node.masking.clusters import Clusters, Setting
from owner_node.masking.exponential import GRID_BITS, distance_table
from owner_node.masking.lists import ReleasedList
from owner_node.masking.mechanisms import DRAWS_PER_BLOCK, ExactSums, SumMechanism
from owner_node.masking.noise import add_saturating
from owner_node.masking.order import rank, tie_breakers
from owner_node.masking.rank_noise import with_rank_noise
from owner_node.masking.tasks import AttributeTask, IndexOrder, frequency_order, mechanism_of, own_order
from owner_node.risk.measures import Scale, scale_of
from owner_node.values.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class Lists:
    """Released lists of the same clusters."""

    numbers: PositionArray
    """Number of the setting of each list, `(n_lists,)`."""
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
        sorted_values: `(n_records,)`, ascending, from 0 to V - 1.

    Yields:
        Some lists at a time; `times` lists of every setting in total.
    """
    exact = [mechanism.exact_sums(sorted_values, setting) for setting in settings]
    # Neighbouring lists have different settings: tables would be made for blocks of one scale.
    numbers = np.tile(np.arange(len(settings)), times)
    at_once = max(1, DRAWS_PER_BLOCK // exact[0].sizes.size)
    for first in range(0, numbers.size, at_once):
        counts = np.bincount(numbers[first : first + at_once], minlength=len(settings))
        some = [(of_setting, int(count)) for of_setting, count in zip(exact, counts, strict=True) if count]
        values = _draw_lists(mechanism, some, settings[0].n_values, bits)
        yield Lists(np.repeat(np.arange(len(settings)), counts), values, exact[0].sizes)


def _draw_lists(
    mechanism: SumMechanism, exact: Sequence[tuple[ExactSums, int]], n_values: int, bits: BitSource
) -> Int64Array:
    """Draw some lists of each of some sums, `(n_lists, n_clusters)`."""
    first, n_clusters = exact[0][0], exact[0][0].sizes.size
    scales = np.concatenate([np.tile(of_setting.scales, count) for of_setting, count in exact])
    noise = np.concatenate([drawn for _, drawn in replace(first, scales=scales).noise(bits)])
    ends = np.cumsum([count for _, count in exact])
    parts = np.split(noise.reshape(-1, n_clusters), ends[:-1])
    noisy = [
        add_saturating(of_setting.sums, part, of_setting.tail)
        for (of_setting, _), part in zip(exact, parts, strict=True)
    ]
    divisors = [np.broadcast_to(of_setting.divisors, (count, n_clusters)) for of_setting, count in exact]
    return mechanism.rounded(np.concatenate(noisy), np.concatenate(divisors), n_values)


@dataclass(frozen=True, slots=True)
class Draw:
    """One masking of one attribute."""

    released: ReleasedList
    """The released list, from 0 to V - 1, in the order that the attribute is masked in."""
    order: IndexOrder | None
    """That order; None for the declared one."""
    assignment: PositionArray
    """The record that gets the entry at each rank, `(n_records,)`."""
    in_place: bool
    """Whether every record got the entry at its own rank."""


@dataclass(frozen=True, slots=True)
class SortedAttribute:
    """One attribute of some records, sorted as for masking."""

    scale: Scale
    """How its values are compared."""
    original: Int64Array
    """Values by record, `(n_records,)`, in resolution units."""
    order: IndexOrder | None
    """The order of its categories; None for the declared one."""
    positions: PositionArray
    """The record at each rank, `(n_records,)`, ties by record."""
    shuffled: PositionArray
    """The record at each rank with random ties, for rank noise."""
    ascending: Int64Array
    """The values in order, `(n_records,)`, from 0 to V - 1."""
    centre: int
    """Approximately their mean: sums are of differences from it, so that they stay exact."""
    sums: Float64Array
    """Sum of the first q differences, `(n_records + 1,)`."""
    squares: float
    """Sum of all squared differences."""

    @classmethod
    def of(cls, values: Int64Array, task: AttributeTask, bits: BitSource) -> "SortedAttribute":
        """Sort an attribute.

        Args:
            values: `(n_records,)`, in resolution units.
            task: A task of any setting: the needed parts are the same for all.
        """
        order = category_order(values, task)
        distances = None if task.taxonomy is None else semantic_distances(task.taxonomy, order)
        scale = scale_of(task.attribute, values, order, distances)
        placed = values - task.attribute.lower if order is None else order.place_of[values]
        ranking = rank(placed)
        shuffled = rank(placed, ties=tie_breakers(placed.size, bits)).order
        centre = round(float(ranking.values.mean()))
        differences = (ranking.values - centre).astype(np.float64)
        sums = np.concatenate([np.zeros(1), np.cumsum(differences)])
        squares = float(np.square(differences).sum())
        return cls(scale, values, order, ranking.order, shuffled, ranking.values, centre, sums, squares)

    def draw(self, task: AttributeTask, bits: BitSource) -> Draw:
        """Mask the attribute once."""
        if own_order(self.original, task) is None and self.order is not None:
            return self._draw_as_declared(task, bits)
        return self._assign(mechanism_of(task).release(self.ascending, task.setting, bits), task, bits)

    def draws(self, task: AttributeTask, bits: BitSource, times: int) -> Iterator[Draw]:
        """Mask the attribute several times; faster than repeated `draw`."""
        mechanism = mechanism_of(task)
        if isinstance(mechanism, SumMechanism):
            for lists in released_lists(mechanism, self.ascending, [task.setting], bits, times):
                for values in lists.values:
                    yield self._assign(ReleasedList(values, lists.sizes), task, bits)
        else:
            for _ in range(times):
                yield self.draw(task, bits)

    def _assign(self, released: ReleasedList, task: AttributeTask, bits: BitSource) -> Draw:
        if not task.rank_noise:
            return Draw(released, self.order, self.positions, in_place=True)
        assignment = with_rank_noise(self.shuffled, task.rank_noise, bits)
        return Draw(released, self.order, assignment, in_place=False)

    def _draw_as_declared(self, task: AttributeTask, bits: BitSource) -> Draw:
        """Mask with a mechanism that keeps the declared order of categories, while others do not."""
        is_noisy = bool(task.rank_noise)
        ranking = rank(self.original, ties=tie_breakers(self.original.size, bits) if is_noisy else None)
        released = mechanism_of(task).release(ranking.values, task.setting, bits)
        assignment = with_rank_noise(ranking.order, task.rank_noise, bits) if is_noisy else ranking.order
        return Draw(released, None, assignment, in_place=False)

    def error(self, draw: Draw) -> float | None:
        """Return Σ d²/(n σ²) of a draw."""
        if draw.in_place and not self.scale.is_drawn:
            (error,) = self._errors_in_place(draw.released.values[None], draw.released.sizes)
            return error
        masked = self.by_record(draw)
        return self.scale.sse(float(self.scale.squared_differences(self.original, masked).sum()), masked.size)

    def errors(self, tasks: Sequence[AttributeTask], bits: BitSource, times: int) -> list[list[float | None]]:
        """Return Σ d²/(n σ²) of several draws for each task.

        Args:
            tasks: Tasks of different settings; those with the same clusters are drawn together.

        Returns:
            The errors of each task, `times` of them.
        """
        of_tasks: list[list[float | None]] = [[] for _ in tasks]
        alike = defaultdict(list)
        for number, task in enumerate(tasks):
            alike[task.mechanism, task.k, task.max_records_per_person, task.rank_noise].append(number)
        for numbers in alike.values():
            some = [tasks[number] for number in numbers]
            mechanism = mechanism_of(some[0])
            if isinstance(mechanism, SumMechanism) and not some[0].rank_noise:
                settings = [task.setting for task in some]
                for lists in released_lists(mechanism, self.ascending, settings, bits, times):
                    errors = self._errors_in_place(lists.values, lists.sizes)
                    for number, error in zip(lists.numbers.tolist(), errors, strict=True):
                        of_tasks[numbers[number]].append(error)
            else:
                for number, task in zip(numbers, some, strict=True):
                    of_tasks[number] = [self.error(draw) for draw in self.draws(task, bits, times)]
        return of_tasks

    def _errors_in_place(self, values: Int64Array, sizes: Int64Array) -> list[float | None]:
        """Return the errors of lists whose entries were all assigned to the record at the same rank.

        Args:
            values: `(n_lists, n_clusters)`, from 0 to V - 1.
            sizes: Number of records of each cluster, `(n_clusters,)`.
        """
        moved = (values - self.centre).astype(np.float64)
        ends = np.cumsum(sizes)
        within = self.sums[ends] - self.sums[ends - sizes]
        lengths = np.square(moved) @ sizes.astype(np.float64)
        squares = self.squares + lengths - 2 * (moved @ within)
        # A smaller rest, after three sums of this size have cancelled, is rounding.
        squares[squares <= 1e-12 * (self.squares + lengths)] = 0.0
        return [self.scale.sse(square, self.ascending.size) for square in squares.tolist()]

    def by_record(self, draw: Draw) -> Int64Array:
        """Return the masked value of every record, `(n_records,)`, in resolution units."""
        if draw.order is not None:
            values = draw.order.category_at[draw.released.values]
        else:
            values = draw.released.values + self.scale.attribute.lower
        masked = np.empty(draw.assignment.size, dtype=np.int64)
        masked[draw.assignment] = np.repeat(values, draw.released.sizes)
        return masked

    def without_noise(self, k: int) -> float | None:
        """Return the error of plain individual ranking: rounded means of the same clusters, without noise."""
        clusters = Clusters(self.ascending.size, k)
        sizes = clusters.sizes
        ends = np.cumsum(sizes)
        means = (self.sums[ends] - self.sums[ends - sizes]) / sizes
        released = ReleasedList(np.rint(means).astype(np.int64) + self.centre, sizes)
        return self.error(Draw(released, self.order, self.positions, in_place=True))


def category_order(values: Int64Array, task: AttributeTask) -> IndexOrder | None:
    """Return the order that categories are compared in; None for the declared one."""
    if task.taxonomy is None and task.attribute.by_frequency:
        return frequency_order(values, task.attribute.n_values)
    return own_order(values, task)


def semantic_distances(taxonomy: Taxonomy, order: IndexOrder | None) -> Float64Array:
    """Return the semantic distances of all categories by declared index, `(V, V)`."""
    table = distance_table(taxonomy) / 2.0**GRID_BITS
    return table if order is None else table[np.ix_(order.place_of, order.place_of)]
