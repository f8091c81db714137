"""Record linkage by likelihood: a person is linked to the released record with the highest likelihood ratio.

The intruder knows the channel: the rank of a record in an attribute, the scale of the noise on it, and the
ranks that each released value represents. From these follows the probability of every released value given
every original one; attributes are independent given the original values. A person is linked to the record
whose values are the most probable for that person, relative to their probability for others.

Released values disclose ranks if they ascend with them, as those of `idp-joint` and `dp-hist` do. If noise on
centroids may change their order, the attack errs; an intruder who knows that noise, too, links more records.
An intruder who matches all persons at once can also do somewhat better.

References:
    Fellegi and Sunter 1969, "A theory for record linkage" (ratios of likelihoods).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log

import numpy as np

from owner_node.explore.links import codes
from owner_node.masking.arrays import Float64Array, Int64Array, PositionArray

_IMPOSSIBLE = 1e-15
"""Smallest probability: smaller ones would be rounding errors."""
_ROUNDING = 1e-9
"""Logarithms that differ by at most this are equal."""
_TAIL, _GRID = 40, 20_001
"""Range of noise beyond the ranks, in units of its scale, and number of grid points."""
_PEOPLE_PER_BLOCK, _KINDS_PER_BLOCK = 32, 2**12
_PAIRS = 2**22
"""People times kinds of records for estimating how probable a record is for others."""
_UNSEEN = log(0.05)
"""Weight of single attributes in that estimate: a record that fits none of these people fits somebody."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The effect of rank noise on ranks, both as shares of the number of records."""

    scale: float
    """Scale of the Laplace noise; 0 without noise."""

    @classmethod
    def of(cls, rank_noise: float, n_records: int) -> "Channel":
        """Return the channel of an owner's rank noise: its scale is a whole number of ranks."""
        return cls(max(1, ceil(rank_noise * n_records)) / n_records if rank_noise else 0.0)

    def noisy(self, shares: Float64Array) -> Float64Array:
        """Return quantiles of the noisy ranks: the rank below which each share of them lies.

        Args:
            shares: From 0 to 1, `(n,)`, ascending, both ends among them.

        Returns:
            `(n,)`, as shares of the ranks; the ends are beyond all noise.
        """
        if not self.scale:
            return shares
        grid = np.linspace(-_TAIL * self.scale, 1 + _TAIL * self.scale, _GRID)
        inside = np.interp(shares, self._area(grid) - self._area(grid - 1), grid)
        # The lowest and the highest group contain everything beyond.
        inside[0], inside[-1] = grid[0], grid[-1]
        return inside

    def probabilities(self, before: Float64Array, noisy: Float64Array) -> Float64Array:
        """Return the probability of every released group of ranks given every group of original ones.

        Args:
            before: First and last end of each original group of ranks, `(n_before, 2)`, within 0 to 1.
            noisy: Noisy ranks between consecutive released groups, with both ends, `(n_after + 1,)`.

        Returns:
            `(n_after, n_before)`; the columns of groups that are not empty sum to 1.
        """
        low, high = before.T
        below = self._area(noisy[:, None] - low) - self._area(noisy[:, None] - high)
        found: Float64Array = np.diff(below, axis=0) / (high - low)
        return found

    def _area(self, distances: Float64Array) -> Float64Array:
        """Return the integral of the distribution function of the noise up to some distances."""
        if not self.scale:
            return np.maximum(distances, 0.0)
        tails = self.scale / 2 * np.exp(-np.abs(distances) / self.scale)
        area: Float64Array = np.maximum(distances, 0.0) + tails
        return area


@dataclass(frozen=True, slots=True)
class Carried:
    """One attribute, before and after."""

    channel: Channel
    """The noise on its ranks."""
    ends: Float64Array
    """Ends of the ranks that each record's original value represents, `(n_records, 2)`, as shares."""
    noisy: Float64Array
    """Noisy ranks between released values, `(n_values + 1,)`."""
    group: PositionArray
    """Released value of each record, by its number in ascending order, `(n_records,)`."""
    shares: Float64Array
    """Logarithm of the share of records that have each released value, `(n_values,)`."""

    @classmethod
    def of(cls, original: Float64Array, released: Float64Array, rank_noise: float) -> "Carried":
        """Compute the ranks of values; arguments as in `linked_by_likelihood`, for one attribute."""
        n_records = original.size
        channel, ascending = Channel.of(rank_noise, n_records), np.sort(original)
        ends = [np.searchsorted(ascending, original, side) for side in ("left", "right")]
        _, group, sizes = np.unique(released, return_inverse=True, return_counts=True)
        after = np.concatenate([np.zeros(1), np.cumsum(sizes)]) / n_records
        shares = np.log(sizes / n_records)
        return cls(channel, np.column_stack(ends) / n_records, channel.noisy(after), group, shares)

    def likely(self, people: PositionArray) -> Float64Array:
        """Return logarithms of the probability of each released value, `(n_values, n_people)`."""
        found = self.channel.probabilities(self.ends[people], self.noisy)
        np.maximum(found, _IMPOSSIBLE, out=found)
        return np.log(found, out=found)


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Probabilities of every kind of released record, for people of one owner."""

    attributes: tuple[Carried, ...]
    """The known attributes."""
    values: tuple[PositionArray, ...]
    """Released value of each kind of record, `(n_kinds,)` by attribute."""
    kind_of: PositionArray
    """Kind of each released record, `(n_records,)`."""
    counts: Int64Array
    """Number of records of each kind, `(n_kinds,)`."""

    @classmethod
    def of(cls, attributes: Sequence[Carried]) -> "Likelihoods":
        """Group records by equal released values."""
        groups = [each.group for each in attributes]
        _, first, kind_of, counts = np.unique(
            codes(groups), return_index=True, return_inverse=True, return_counts=True
        )
        return cls(tuple(attributes), tuple(group[first] for group in groups), kind_of, counts)

    def tables(self, people: PositionArray) -> list[Float64Array]:
        """Return the logarithms of all released values for people, `(n_values, n_people)` by attribute."""
        return [each.likely(people) for each in self.attributes]

    def of_kinds(self, tables: Sequence[Float64Array], kinds: slice | PositionArray) -> Float64Array:
        """Return the logarithms of kinds of records from those of values, `(n_kinds, n_people)`."""
        found: Float64Array = tables[0][self.values[0][kinds]]
        for table, values in zip(tables[1:], self.values[1:], strict=True):
            found += table[values[kinds]]
        return found

    def blocks(self) -> Iterator[slice]:
        """Return slices of all kinds, small enough for intermediate results to stay in the caches."""
        for start in range(0, self.counts.size, _KINDS_PER_BLOCK):
            yield slice(start, start + _KINDS_PER_BLOCK)

    def for_others(self, others: PositionArray) -> Float64Array:
        """Return the logarithm of the mean over the first people of some in random order, `(n_kinds,)`."""
        people = others[: max(1, _PAIRS // self.counts.size)]
        total = np.zeros(self.counts.size)
        for some in _blocks(people):
            tables = self.tables(some)
            for kinds in self.blocks():
                total[kinds] += np.exp(self.of_kinds(tables, kinds)).sum(axis=1)
        seen = np.log(np.maximum(total / people.size, np.finfo(np.float64).tiny))
        independent = np.sum(
            [each.shares[values] for each, values in zip(self.attributes, self.values, strict=True)], axis=0
        )
        found: Float64Array = np.logaddexp(seen, independent + _UNSEEN)
        return found


def linked_by_likelihood(
    original: Sequence[Float64Array],
    released: Sequence[Float64Array],
    rank_noises: Sequence[float],
    targets: PositionArray,
    others: PositionArray,
) -> Float64Array:
    """Return the probability that each target is linked to its own record, random among ties, `(n_targets,)`.

    Args:
        original: Places of the original values of each known attribute, `(n_records,)`.
        released: Places of the released values of each, `(n_records,)`, records in the same order.
        rank_noises: Noise on the ranks of each, as a share of them; public.
        targets: Positions of the targets.
        others: Positions of people in random order; the first ones serve as comparison.
    """
    triples = zip(original, released, rank_noises, strict=True)
    likelihoods = Likelihoods.of([Carried.of(*each) for each in triples])
    for_others = likelihoods.for_others(others)
    return np.concatenate([_linked(likelihoods, for_others, people) for people in _blocks(targets)])


def _linked(likelihoods: Likelihoods, for_others: Float64Array, people: PositionArray) -> Float64Array:
    """Compare a few people with all records; `for_others`: by kind of record, `(n_kinds,)`."""
    tables, own_kinds = likelihoods.tables(people), likelihoods.kind_of[people]
    own = likelihoods.of_kinds(tables, own_kinds).diagonal() - for_others[own_kinds]
    is_best, as_likely = np.ones(people.size, dtype=np.bool_), np.zeros(people.size)
    for kinds in likelihoods.blocks():
        ratios = likelihoods.of_kinds(tables, kinds)
        ratios -= for_others[kinds, None]
        is_best &= ratios.max(axis=0) <= own + _ROUNDING
        as_likely += likelihoods.counts[kinds] @ (ratios >= own - _ROUNDING)
    right: Float64Array = is_best / as_likely
    return right


def _blocks(people: PositionArray) -> list[PositionArray]:
    return [people[start : start + _PEOPLE_PER_BLOCK] for start in range(0, people.size, _PEOPLE_PER_BLOCK)]
