"""Record linkage by likelihood: a person is linked to the released record that is the most likely theirs.

The intruder knows the channel: the rank of a record in an attribute, the scale of the noise on it, and the
ranks that each released value represents. From these follows the probability of every released value given
every original one; attributes are independent given the original values. Attributes that the intruder does
not know count by their relations with known ones (`relations`).

All persons are compared at once. Every released record belongs to somebody, so the probability that record r
is person i's is L(r | i) / Σ_j L(r | j), j over everybody: the first step of Sinkhorn's iteration towards the
probabilities of a matching of all persons with all records. Sums over everybody are computed only for each
person's shortlist: the likeliest records by comparison with some other people.

Few records are matched with all persons by belief propagation, which links more of them. With more records
the gain is small, at many times the cost (docs/risk.md).

Released values disclose ranks if they ascend with them, as those of `idp-joint` and `dp-hist` do. If noise on
centroids may change their order, the attack errs; an intruder who knows that noise, too, links more records.

References:
    Fellegi and Sunter 1969, "A theory for record linkage" (ratios of likelihoods).
    Sinkhorn 1967, "Diagonal equivalence to matrices with prescribed row and column sums".
    Huang and Jebara 2009, "Approximating the permanent with belief propagation" (messages of a matching).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from owner_node.masking.arrays import Float64Array, Int64Array, PositionArray
from owner_node.risk.links import codes
from owner_node.risk.relations import Component

_IMPOSSIBLE = 1e-15
"""Smallest probability: smaller ones would be rounding errors."""
_ROUNDING = 1e-9
"""Logarithms that differ by at most this are equal."""
_TAIL, _GRID = 40, 20_001
"""Range of noise beyond the ranks, in units of its scale, and number of grid points."""
_KINDS_PER_COMBINATION = 16
"""Attributes are looked up together if there are so many times fewer combinations than kinds of records."""
_TINY = float(np.finfo(np.float64).tiny)
_PEOPLE_PER_BLOCK, _KINDS_PER_BLOCK = 2**7, 2**10
_PAIRS = 2**21
"""People times kinds of records for a first estimate of how probable a record is for others."""
_UNSEEN = 0.05
"""Weight of single attributes in that estimate: a record that fits none of these people fits somebody."""
_SHORTLIST = 4
"""Records of each person that are compared with everybody."""
MATCHED = 2**21
"""Most pairs of persons and records that are matched by belief propagation."""
_ROUNDS = 10
"""Messages in either direction; links hardly change afterwards."""
_LEAST = 1e-15
"""Smallest part of a sum that is more than rounding."""


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
        probabilities: Float64Array = np.diff(below, axis=0) / (high - low)
        return probabilities

    def _area(self, distances: Float64Array) -> Float64Array:
        """Return the integral of the distribution function of the noise up to some distances."""
        if not self.scale:
            return np.maximum(distances, 0.0)
        tails = self.scale / 2 * np.exp(-np.abs(distances) / self.scale)
        area: Float64Array = np.maximum(distances, 0.0) + tails
        return area


@dataclass(frozen=True, slots=True)
class Known:
    """One attribute as an intruder knows it, before and after."""

    original: Float64Array
    """Places of the original values, `(n_records,)`."""
    released: Float64Array
    """Places of the released values, `(n_records,)`, records in the same order."""
    rank_noise: float
    """Noise on its ranks, as a share of them; public."""
    shuffled: Int64Array | None = None
    """Sizes of the parts of the list that were handed out in random order, which are public; None if entries
    ascend with noisy ranks throughout."""
    errors: Float64Array | None = None
    """Errors of the intruder's knowledge of ranks, as shares, each at most `reach`, `(n_people,)`; None for
    exact knowledge."""
    reach: float = 0.0
    """Largest error; the intruder knows it."""
    outside: Float64Array | None = None
    """Places of people without a record, `(n_outside,)`: people after those with records."""


@dataclass(frozen=True, slots=True)
class Carried:
    """One attribute, before and after, as ranks."""

    channel: Channel
    """The noise on its ranks."""
    ends: Float64Array
    """Ends of the ranks that each person may have for all the intruder knows, `(n_people, 2)`, as shares."""
    noisy: Float64Array
    """Noisy ranks between the parts of the list that were shuffled separately, `(n_parts + 1,)`."""
    parts: Float64Array
    """Ends of these parts, as shares of the list, `(n_parts + 1,)`."""
    groups: Float64Array
    """Ends of groups of entries that are equally likely for everybody, `(n_groups + 1,)`."""
    group: PositionArray
    """Group of each record's released value, `(n_records,)`."""

    @classmethod
    def of(cls, known: Known) -> "Carried":
        """Compute the ranks of values."""
        n_records = known.original.size
        _, value, sizes = np.unique(known.released, return_inverse=True, return_counts=True)
        values = _with_zero(np.cumsum(sizes))
        parts, groups = values, values
        if known.shuffled is not None:
            parts = _with_zero(np.cumsum(known.shuffled))
            # A value with entries in two parts is likelier for some than the rest of either part.
            first = values[np.searchsorted(values, parts, side="right") - 1]
            groups = np.unique(np.concatenate([first, values[np.searchsorted(values, parts)]]))
        group = np.searchsorted(groups, values[:-1], side="right") - 1
        channel, shares = Channel.of(known.rank_noise, n_records), parts / n_records
        return cls(channel, _ends(known), channel.noisy(shares), shares, groups / n_records, group[value])

    def likely(self, people: PositionArray) -> Float64Array:
        """Return the probability of each group, `(n_groups, n_people)`."""
        probabilities = self.channel.probabilities(self.ends[people], self.noisy)
        if not np.array_equal(self.groups, self.parts):
            probabilities = self._regroup(probabilities)
        return np.maximum(probabilities, _IMPOSSIBLE, out=probabilities)

    def _regroup(self, of_parts: Float64Array) -> Float64Array:
        """Return probabilities of groups from those of parts, uniform within them; `(n_parts, n_people)`."""
        below = np.concatenate([np.zeros((1, of_parts.shape[1])), np.cumsum(of_parts, axis=0)])
        part = np.clip(np.searchsorted(self.parts, self.groups, side="right") - 1, 0, self.parts.size - 2)
        within = (self.groups - self.parts[part]) / (self.parts[part + 1] - self.parts[part])
        probabilities: Float64Array = np.diff(below[part] + within[:, None] * of_parts[part], axis=0)
        return probabilities


def _ends(known: Known) -> Float64Array:
    """Return the ends of ranks of everybody; somebody without a record takes the rank of the next record."""
    ascending = np.sort(known.original)
    people = known.original if known.outside is None else np.concatenate([known.original, known.outside])
    low, high = (np.searchsorted(ascending, people, side) for side in ("left", "right"))
    low = np.minimum(low, ascending.size - 1)
    ends = np.column_stack([low, np.maximum(high, low + 1)]) / ascending.size
    if known.errors is None:
        return ends
    around = ends + known.errors[:, None] + np.array([-known.reach, known.reach])
    clipped: Float64Array = np.clip(around, 0.0, 1.0)
    return clipped


def _with_zero(ends: Int64Array) -> Int64Array:
    return np.concatenate([np.zeros(1, dtype=np.int64), ends])


@dataclass(frozen=True, slots=True)
class Factor:
    """One attribute, or several of few values whose combinations are looked up at once."""

    attributes: tuple[int, ...]
    """Their numbers."""
    groups: tuple[PositionArray, ...]
    """Group of each combination in each of them, `(n_combinations,)`."""
    of_kind: PositionArray
    """Combination of each kind of record, `(n_kinds,)`."""

    def with_other(self, other: "Factor") -> "Factor":
        """Return the combinations of both."""
        width = other.groups[0].size
        combinations, of_kind = np.unique(self.of_kind * width + other.of_kind, return_inverse=True)
        groups = (
            *(group[combinations // width] for group in self.groups),
            *(group[combinations % width] for group in other.groups),
        )
        return Factor(self.attributes + other.attributes, groups, of_kind)

    def table(self, by_attribute: Sequence[Float64Array]) -> Float64Array:
        """Return the probability of each combination from those of groups, `(n_combinations, n_people)`."""
        pairs = zip(self.attributes, self.groups, strict=True)
        return _product(by_attribute[number][groups] for number, groups in pairs)


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Probabilities of every kind of released record, for people of one owner.

    A product that underflows is 0: such a record is nobody's.
    """

    attributes: tuple[Carried | Component, ...]
    """The known attributes, and what they say about others."""
    factors: tuple[Factor, ...]
    """The same, as few as possible."""
    independent: Float64Array
    """Share of records of each kind if attributes were independent, `(n_kinds,)`."""
    kind_of: PositionArray
    """Kind of each released record, `(n_records,)`."""
    counts: Int64Array
    """Number of records of each kind, `(n_kinds,)`."""

    @classmethod
    def of(cls, attributes: Sequence[Carried | Component]) -> "Likelihoods":
        """Put records into kinds: those of one kind are equally likely for everybody."""
        _, first, kind_of, counts = np.unique(
            codes([attribute.group for attribute in attributes]),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        shares = [np.diff(attribute.groups)[attribute.group[first]] for attribute in attributes]
        single = [
            Factor((i,), (np.arange(attribute.groups.size - 1),), attribute.group[first])
            for i, attribute in enumerate(attributes)
        ]
        factors: list[Factor] = []
        for factor in sorted(single, key=lambda factor: factor.groups[0].size):
            joined = factors[-1].with_other(factor) if factors else factor
            if factors and joined.groups[0].size * _KINDS_PER_COMBINATION <= counts.size:
                factors[-1] = joined
            else:
                factors.append(factor)
        return cls(tuple(attributes), tuple(factors), _product(shares), kind_of, counts)

    def tables(self, people: PositionArray) -> list[Float64Array]:
        """Return the probabilities of all combinations for people, `(n_combinations, n_people)` by factor."""
        by_attribute = [attribute.likely(people) for attribute in self.attributes]
        return [factor.table(by_attribute) for factor in self.factors]

    def of_kinds(self, tables: Sequence[Float64Array], kinds: slice | PositionArray) -> Float64Array:
        """Return the probabilities of kinds of records from those of combinations, `(n_kinds, n_people)`."""
        pairs = zip(tables, self.factors, strict=True)
        return _product(table[factor.of_kind[kinds]] for table, factor in pairs)

    def of_all_pairs(self) -> Float64Array:
        """Return the probability of every record for every person with a record, `(n_records, n_people)`."""
        return self.of_kinds(self.tables(np.arange(self.kind_of.size)), self.kind_of)

    def total(self, people: PositionArray, kinds: PositionArray) -> Float64Array:
        """Return the sums of the probabilities of kinds over people, `(n_kinds,)`."""
        total = np.zeros(kinds.size)
        for some in _blocks(people):
            tables = self.tables(some)
            for block in _slices(kinds.size):
                total[block] += self.of_kinds(tables, kinds[block]).sum(axis=1)
        return total

    def for_others(self, others: PositionArray) -> Float64Array:
        """Estimate the mean probability over everybody, from people in random order, `(n_kinds,)`."""
        people = others[: max(1, _PAIRS // self.counts.size)]
        total = self.total(people, np.arange(self.counts.size))
        mean: Float64Array = total / people.size + _UNSEEN * self.independent
        return np.maximum(mean, _TINY)


def _product(factors: Iterable[Float64Array]) -> Float64Array:
    first, *others = factors
    for factor in others:
        first *= factor
    return first


@dataclass(frozen=True, slots=True)
class Links:
    """Who was linked."""

    right: Float64Array
    """Probability that each target is linked to its own record, random among ties, `(n_targets,)`; 0 for
    people without a record."""
    surest: Float64Array
    """Logarithm of the probability, by Bayes' rule over everybody, that the linked record is the target's."""


def linked_by_likelihood(
    known: Sequence[Known],
    targets: PositionArray,
    others: PositionArray,
    related: Sequence[Component] = (),
) -> Links:
    """Link targets to records.

    Args:
        targets: Positions of the targets, from `n_records` on people without a record.
        others: Positions of everybody with a record, in random order; the first ones decide about shortlists.
    """
    likelihoods = Likelihoods.of([*(Carried.of(attribute) for attribute in known), *related])
    for_others = likelihoods.for_others(others)
    listed = np.concatenate(
        [_shortlist(likelihoods, for_others, people) for people in _blocks(targets)], axis=1
    )
    likely = np.zeros(listed.shape)
    for start in range(0, targets.size, _PEOPLE_PER_BLOCK):
        block = slice(start, start + _PEOPLE_PER_BLOCK)
        shortlists = listed[:, block]
        columns = np.arange(shortlists.shape[1])
        pairs = zip(likelihoods.tables(targets[block]), likelihoods.factors, strict=True)
        likely[:, block] = _product(table[factor.of_kind[shortlists], columns] for table, factor in pairs)
    kinds, of_listed = np.unique(listed, return_inverse=True)
    everybody = likelihoods.total(others, kinds)[of_listed.reshape(listed.shape)]
    outside = targets >= others.size
    everybody[:, outside] += likely[:, outside]
    likely = np.log(np.maximum(likely, _TINY)) - np.log(np.maximum(everybody, _TINY))
    surest = likely.max(axis=0)
    best = likely >= surest - _ROUNDING
    own = np.zeros(listed.shape, dtype=np.bool_)
    own[:, ~outside] = listed[:, ~outside] == likelihoods.kind_of[targets[~outside]]
    right = (best & own).any(axis=0) / (best * likelihoods.counts[listed]).sum(axis=0)
    if others.size**2 <= MATCHED:
        right[~outside] = likeliest(propagate(likelihoods.of_all_pairs()))[targets[~outside]]
    return Links(right, surest)


def likeliest(table: Float64Array) -> Float64Array:
    """Return the probability that each person is linked to its own record, random among ties, `(n_people,)`.

    Args:
        table: How likely each record is for each person, `(n_records, n_people)`, in the same order.
    """
    best = table >= table.max(axis=0) * (1 - _ROUNDING)
    linked: Float64Array = best.diagonal() / best.sum(axis=0)
    return linked


def propagate(table: Float64Array) -> Float64Array:
    """Return the odds that each record is each person's in a matching of all with all.

    Args:
        table: Probabilities of records for persons, `(n_records, n_people)`.

    Returns:
        The beliefs of belief propagation, of the same shape; approximations.
    """
    of_records = of_people = np.ones_like(table)
    for _ in range(_ROUNDS):
        of_records = _messages(table * of_people, axis=1)
        of_people = _messages(table * of_records, axis=0)
    beliefs: Float64Array = table * of_records * of_people
    return beliefs


def _messages(weights: Float64Array, axis: int) -> Float64Array:
    """Return 1 over the sum of all other weights along an axis."""
    total = weights.sum(axis=axis, keepdims=True)
    np.subtract(total, weights, out=weights)
    np.maximum(weights, _LEAST * total, out=weights)
    return np.divide(1.0, weights, out=weights)


def _shortlist(likelihoods: Likelihoods, for_others: Float64Array, people: PositionArray) -> PositionArray:
    """Return the likeliest kinds of records of a few people, `(at most _SHORTLIST, n_people)`."""
    tables = likelihoods.tables(people)
    ratios = np.empty((likelihoods.counts.size, people.size))
    for kinds in _slices(likelihoods.counts.size):
        np.divide(likelihoods.of_kinds(tables, kinds), for_others[kinds, None], out=ratios[kinds])
    n_listed = min(_SHORTLIST, len(ratios))
    return np.argpartition(ratios, len(ratios) - n_listed, axis=0)[-n_listed:]


def _blocks(people: PositionArray) -> list[PositionArray]:
    return [people[start : start + _PEOPLE_PER_BLOCK] for start in range(0, people.size, _PEOPLE_PER_BLOCK)]


def _slices(n: int) -> Iterator[slice]:
    """Return slices that are small enough for intermediate results to stay in the caches."""
    for start in range(0, n, _KINDS_PER_BLOCK):
        yield slice(start, start + _KINDS_PER_BLOCK)
