"""Record linkage by likelihood: for which released record does the known channel speak most?

The intruder holds the original values of everybody at an owner, and knows the mechanism: where a record's
rank in an attribute lies, how much noise is on it, and which ranks each released value stands for. The
probability of every released value given every original one follows; attributes are independent given the
original values. A person is linked to the record whose values are the most probable for them in proportion to
how probable they are for others. Whoever matches all persons at once can do somewhat better.

References:
    Fellegi and Sunter 1969, "A theory for record linkage" (ratios of likelihoods).
"""

from dataclasses import dataclass
from math import ceil, log

import numpy as np

from common.arrays import Int64Array
from owner_node.explore.attacks import Crowd, Release
from owner_node.explore.rows import codes
from owner_node.masking.arrays import Float64Array, PositionArray

_IMPOSSIBLE = 1e-15
"""What counts as the smallest probability: rounding leaves no smaller ones right."""
_ROUNDING = 1e-9
"""Logarithms that differ by no more are equal."""
_TAIL, _GRID = 40, 200_001
"""How far beyond the ranks noise is followed, in units of its scale, and at how many points."""
_PEOPLE_PER_BLOCK = 32
_PAIRS = 2**22
"""People times kinds of records by which it is seen how probable a record is for others."""
_UNSEEN = log(0.05)
"""Weight of what single attributes say about that: a record that fits none of those people fits some one."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What rank noise makes of ranks, both as shares of the number of records."""

    scale: float
    """Scale of the Laplace noise; 0 without."""

    @classmethod
    def of(cls, rank_noise: float, n_records: int) -> "Channel":
        """Return the channel of an owner's rank noise: its scale is a whole number of ranks."""
        return cls(max(1, ceil(rank_noise * n_records)) / n_records if rank_noise else 0.0)

    def probabilities(self, before: Float64Array, after: Float64Array) -> Float64Array:
        """Return the probability of every released group of ranks given every group of original ones.

        Args:
            before: First and last end of each original group of ranks, `(n_before, 2)`, within 0 to 1.
            after: Ends between consecutive released groups, from 0 to 1, `(n_after + 1,)`.

        Returns:
            `(n_before, n_after)`; the rows of groups that are not empty sum to 1.
        """
        ends = self._noisy(after)
        low, high = before[:, :1], before[:, 1:]
        below = self._area(ends[None, :] - low) - self._area(ends[None, :] - high)
        found: Float64Array = np.diff(below, axis=1) / (high - low)
        return found

    def _noisy(self, shares: Float64Array) -> Float64Array:
        """Return the noisy ranks that shares of all noisy ranks are below."""
        if not self.scale:
            return shares
        grid = np.linspace(-_TAIL * self.scale, 1 + _TAIL * self.scale, _GRID)
        inside = np.interp(shares, self._area(grid) - self._area(grid - 1), grid)
        # What is the lowest or highest group takes everything beyond.
        inside[0], inside[-1] = grid[0], grid[-1]
        return inside

    def _area(self, distances: Float64Array) -> Float64Array:
        """Return the integral of the distribution function of the noise up to some distances."""
        if not self.scale:
            return np.maximum(distances, 0.0)
        tails = self.scale / 2 * np.exp(-np.abs(distances) / self.scale)
        area: Float64Array = np.maximum(distances, 0.0) + tails
        return area


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Probabilities of every kind of released record, for some people of one owner."""

    by_attribute: tuple[Float64Array, ...]
    """Logarithms for each released value and person, `(n_values, n_people)` by attribute."""
    values: tuple[PositionArray, ...]
    """Released value of each kind of record, `(n_kinds,)` by attribute."""
    kind_of: PositionArray
    """Kind of each released record, `(n_records,)`."""
    counts: Int64Array
    """Number of records of each kind, `(n_kinds,)`."""
    shares: Float64Array
    """Logarithm of the product of its values' shares for each kind, `(n_kinds,)`."""

    @classmethod
    def of(cls, crowd: Crowd, release: Release, channel: Channel, people: PositionArray) -> "Likelihoods":
        """Compute them.

        Args:
            crowd: The people of one owner.
            release: Their masked records, in the same order.
            channel: What is on the ranks.
            people: Positions of some of them.
        """
        n_records, n_attributes = crowd.places.shape
        tables, groups, shares = [], [], []
        for number in range(n_attributes):
            _, group, sizes = np.unique(release.places[:, number], return_inverse=True, return_counts=True)
            after = np.concatenate([np.zeros(1), np.cumsum(sizes)]) / n_records
            ascending, own = crowd.ascending[:, number], crowd.places[people, number]
            ends = [np.searchsorted(ascending, own, side="left"), np.searchsorted(ascending, own, "right")]
            likely = channel.probabilities(np.column_stack(ends) / n_records, after)
            tables.append(np.log(np.maximum(likely.T, _IMPOSSIBLE, order="C")))
            groups.append(group.astype(np.int64))
            shares.append(np.log(sizes / n_records))
        _, first, kind_of, counts = np.unique(
            codes(groups), return_index=True, return_inverse=True, return_counts=True
        )
        values = tuple(group[first] for group in groups)
        independent = np.sum([share[each] for share, each in zip(shares, values, strict=True)], axis=0)
        return cls(tuple(tables), values, kind_of, counts, independent)

    def some(self, people: slice) -> Float64Array:
        """Return the logarithms for some of the people, `(n_kinds, n)`."""
        found = np.zeros((self.counts.size, people.stop - people.start))
        for table, values in zip(self.by_attribute, self.values, strict=True):
            found += table[:, people][values]
        return found

    def for_others(self, start: int) -> Float64Array:
        """Return the logarithm of the mean over the people from `start` on, `(n_kinds,)`."""
        n_people = self.by_attribute[0].shape[1]
        end = min(n_people, start + max(1, _PAIRS // self.counts.size))
        total = np.zeros(self.counts.size)
        for block in _blocks(start, end):
            total += np.exp(self.some(block)).sum(axis=1)
        seen = np.log(np.maximum(total / (end - start), np.finfo(np.float64).tiny))
        found: Float64Array = np.logaddexp(seen, self.shares + _UNSEEN)
        return found


def linked_by_likelihood(
    crowd: Crowd, release: Release, rank_noise: float, targets: PositionArray, others: PositionArray
) -> Float64Array:
    """Return the probability that each target is linked to its own record, ties by lot, `(n_targets,)`.

    Args:
        crowd: The people of one owner.
        release: Their masked records, in the same order.
        rank_noise: As a share of the ranks; public.
        targets: Positions of the records that are looked for.
        others: Positions of people in random order, of which the first are compared with.
    """
    people = np.concatenate([targets, others])
    likelihoods = Likelihoods.of(crowd, release, Channel.of(rank_noise, len(crowd.places)), people)
    for_others = likelihoods.for_others(targets.size)
    right = np.zeros(targets.size)
    for block in _blocks(0, targets.size):
        ratios = likelihoods.some(block) - for_others[:, None]
        own = ratios[likelihoods.kind_of[targets[block]], np.arange(ratios.shape[1])]
        is_best = ratios.max(axis=0) <= own + _ROUNDING
        as_likely = ratios >= own - _ROUNDING
        right[block] = is_best / (likelihoods.counts @ as_likely)
    return right


def _blocks(start: int, end: int) -> list[slice]:
    return [slice(at, min(at + _PEOPLE_PER_BLOCK, end)) for at in range(start, end, _PEOPLE_PER_BLOCK)]
