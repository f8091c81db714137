"""Records that agree with noisy tables of pairs of attributes: swaps of values between records.

It starts with a column of bins for every attribute, each in a random order by itself. A step takes an
attribute and pairs half of the records with the other half. For every couple it computes by how much it would
lower the loss if both swapped their bins of that attribute, and swaps some couples. A swap leaves every
one-way count as it is. The loss is

    L = Σ_pairs w Σ_cells (T - Y)²,

T the table of the records, Y the noisy one, w the inverse of the variance of its noise.

*How many couples swap.* Let Δ_i be what couple i alone adds to L, and D what all of them together add to the
tables. A random share f of k couples with Δ_i < 0 adds, in expectation,

    f Σ Δ_i + f² (Σ_cells w D² - Σ_i q_i),

q_i the quadratic part of Δ_i. So the share that lowers the loss most is known. In half of the steps only the
best eighth of these couples take part, which is nearer in the end.

*When it ends.* Noise explains residuals, without those of the margins, of a mean square of at most σ² for
every degree of freedom: going on would fit noise. It ends when noise explains all tables together, and leaves
no table more than three times that: small tables of strong relations are the last ones. A table that is
explained weighs an eighth in the next sweep, so that the others catch up. At most `SWEEPS` sweeps are made.
Tables with an event in a slot are a second kind, of which noise has to explain all together: slots of few
persons have tables that no swap changes. An explained table then weighs an eighth of the least one of both.

*Events.* Events in a slot are swapped between persons who have one there, and numbers of events stay.

*Rules.* No swap is made by which the number of broken rules rises, and every one by which it falls. Where
swaps of these one-way counts leave a record that breaks a rule, it becomes a copy of one that breaks none.

Everything follows from whole numbers and words of a keystream, so that anyone who has the noisy counts makes
the same records.

References:
    Vaidya, Clifton, and others: records are masked by swaps since Dalenius, Reiss 1982, "Data-swapping: a
    technique for disclosure control". Zhang et al. 2021, "PrivSyn" (gradual update of records by noisy
    tables). Liu, Vietri, Steinke, Ullman, Wu 2023, "Generating private synthetic data with genetic
    algorithms". Morozov 1966 (when to stop: the discrepancy principle).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from common.arrays import BoolArray, Int64Array, order_of
from common.check import Check, unchecked
from common.errors import UsageError
from common.synthesis.binning import Attributes, Excluded, possible_record
from common.synthesis.keystream import Keystream

SWEEPS = 100
"""Most sweeps over all attributes."""
REPAIRING = 200
"""Most sweeps with which records that break a rule are repaired."""
_WEIGHTS, _EXPLAINED_WEIGHT = 2**12, 8
_BEST = 8
_BLOCK = 2**15
"""Couples for which something is computed at once: larger arrays leave the processor's cache."""
Couples = Int64Array
"""Records in pairs, `(2, n_couples)`: of the first half of all records, and of the second."""
_MOST_UNEXPLAINED = 3
"""Of a single table: noise alone leaves more than 1 in half of them."""
_LARGEST_TARGET = 2**23
"""Twice the most records, for targets; sums of squares of plausible counts fit into 63 bits."""


@dataclass(frozen=True, slots=True)
class NoisyTable:
    """The noisy table of a pair of attributes."""

    pair: Attributes
    """Positions of both."""
    counts: Int64Array
    """Noisy counts, `(n_bins, n_bins)`."""
    variance: int
    """Of the noise of each."""
    of_slots: bool = False
    """True if one of both holds an event."""


def swapped(
    columns: Sequence[Int64Array],
    sizes: Sequence[int],
    tables: Sequence[NoisyTable],
    rules: Sequence[Excluded],
    stream: Keystream,
    check: Check = unchecked,
    *,
    number: int | None = None,
    first_bins: Mapping[int, int] = MappingProxyType({}),
) -> list[Int64Array]:
    """Swap bins of records until their tables agree with noisy ones.

    Args:
        columns: Bins of the records, each column in an order of its own, `(n_records,)` by attribute.
        sizes: Number of bins by attribute.
        tables: Noisy tables of some pairs.
        rules: What no record may be.
        check: Called before every step; it may raise.
        number: The attribute with the number of events, whose values stay where they are.
        first_bins: By attribute that holds an event, the lowest bin of that number of persons who have it.

    Returns:
        Bins of the records, `(n_records,)` by attribute.
    """
    records = _Records([column.astype(np.int16) for column in columns], sizes, tables, rules)
    records.number, records.first_bins = number, first_bins
    moving = [attribute for attribute in range(len(columns)) if attribute != number]
    sweep = 0
    while sweep < SWEEPS and records.weigh_tables():
        records.shuffle(stream)
        for attribute in moving:
            check()
            records.step(attribute, stream)
        sweep += 1
    while sweep < REPAIRING and records.breaking().any():
        records.shuffle(stream)
        for attribute in sorted({attribute for rule in rules for attribute in rule}.intersection(moving)):
            check()
            records.step(attribute, stream, repairs_only=True)
        sweep += 1
    records.replace_breaking(stream)
    return [column.astype(np.int64) for column in records.columns]


class _Records:
    """Records that swap bins, and how far their tables are from the noisy ones."""

    number: int | None = None
    first_bins: Mapping[int, int] = MappingProxyType({})

    def __init__(
        self,
        columns: list[Int64Array],
        sizes: Sequence[int],
        tables: Sequence[NoisyTable],
        rules: Sequence[Excluded],
    ) -> None:
        self.columns, self._sizes, self._rules = columns, sizes, rules
        self._variance = {table.pair: max(table.variance, 1) for table in tables}
        self._of_slots = [table.pair for table in tables if table.of_slots]
        self._of_others = [table.pair for table in tables if not table.of_slots]
        self._residual = {
            table.pair: self._counted(table.pair)
            - np.clip(table.counts, -_LARGEST_TARGET, _LARGEST_TARGET).reshape(self._shape(table.pair))
            for table in tables
        }
        least = min(self._variance.values(), default=1)
        self._full_weight = {
            pair: max(_WEIGHTS * least // variance, _EXPLAINED_WEIGHT)
            for pair, variance in self._variance.items()
        }
        self._explained_weight = {
            pair: min(self._full_weight.values()) if self._of_slots else full
            for pair, full in self._full_weight.items()
        }
        self._weight = dict(self._full_weight)
        self._partners = [
            [other for pair in self._variance if place in pair for other in pair if other != place]
            for place in range(len(sizes))
        ]

    def _shape(self, pair: Attributes) -> tuple[int, int]:
        return self._sizes[pair[0]], self._sizes[pair[1]]

    def _counted(self, pair: Attributes) -> Int64Array:
        shape = self._shape(pair)
        cells = self.columns[pair[0]] * np.int64(shape[1]) + self.columns[pair[1]]
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)

    def weigh_tables(self) -> bool:
        """Give tables that noise explains less weight; return whether swaps are to go on."""
        unexplained = {pair: self._unexplained(pair) for pair in self._residual}
        for pair, full in self._full_weight.items():
            explained = self._explained_weight[pair] // _EXPLAINED_WEIGHT
            self._weight[pair] = full if unexplained[pair] > 1 else explained
        means = []
        for pairs in (self._of_others, self._of_slots):
            freedom = {pair: self._freedom(pair) for pair in pairs}
            whole = max(sum(freedom.values()), 1)
            means.append(sum(unexplained[pair] * freedom[pair] for pair in pairs) / whole)
        largest = max((unexplained[pair] for pair in self._of_others), default=Fraction(0))
        return max(means) > 1 or largest > _MOST_UNEXPLAINED

    def _freedom(self, pair: Attributes) -> int:
        n_first, n_second = self._shape(pair)
        return (n_first - 1) * (n_second - 1)

    def _unexplained(self, pair: Attributes) -> Fraction:
        """Return the mean square of residuals without their margins, by the variance of the noise."""
        residual, (n_first, n_second) = self._residual[pair], self._shape(pair)
        # n_first n_second times the sum of squares without margins: Python's integers.
        of_cells = n_first * n_second * int((residual**2).sum())
        of_first = n_first * sum(total**2 for total in residual.sum(axis=1).tolist())
        of_second = n_second * sum(total**2 for total in residual.sum(axis=0).tolist())
        squares = of_cells - of_first - of_second + int(residual.sum()) ** 2
        return Fraction(squares, max(self._freedom(pair), 1) * self._variance[pair] * n_first * n_second)

    def shuffle(self, stream: Keystream) -> None:
        """Put the records into a random order."""
        order = stream.order(self.columns[0].size)
        self.columns = [column[order] for column in self.columns]

    def breaking(self) -> BoolArray:
        """Return which records break a rule, `(n_records,)`."""
        breaking = np.zeros(self.columns[0].size, dtype=np.bool_)
        for rule in self._rules:
            breaking |= self._inside(rule, slice(None))
        return breaking

    def _inside(self, rule: Excluded, records: Int64Array | slice) -> BoolArray:
        """Return which of some records have, of all attributes of a rule, an excluded bin, `(n_chosen,)`."""
        inside = np.ones(self.columns[0][records].size, dtype=np.bool_)
        for place, excluded in rule.items():
            inside &= excluded[self.columns[place][records]]
        return inside

    def step(self, attribute: int, stream: Keystream, *, repairs_only: bool = False) -> None:
        """Swap the bins of one attribute between some records of the first and the second half."""
        column = self.columns[attribute]
        records = np.arange(column.size)
        if self.number is not None and attribute in self.first_bins:
            records = np.flatnonzero(self.columns[self.number] >= self.first_bins[attribute])
        half = records.size // 2
        if half == 0:
            return
        shift = stream.number_below(half)
        couples = np.stack([records[:half], np.roll(records[half : 2 * half], -shift)])
        differ = _in_blocks(couples, lambda block: np.not_equal(*column[block]))
        couples = couples.compress(differ, axis=1)
        repaired = _in_blocks(couples, lambda block: self._repaired(attribute, block))
        if repaired.any():
            self._swap(attribute, couples.compress(repaired > 0, axis=1))
            couples = couples.compress(repaired == 0, axis=1)
        if repairs_only or couples.size == 0:
            return
        change = _in_blocks(couples, lambda block: self._change(attribute, block))
        good = np.flatnonzero(change < 0)
        if good.size and stream.number_below(2):
            good = good[order_of(change[good])[: max(good.size // _BEST, 1)]]
        chosen = couples.take(good, axis=1)
        number = self._best_number(attribute, chosen, -int(change[good].sum()))
        if number < len(chosen[0]):
            chosen = chosen.take(stream.order(len(chosen[0]))[:number], axis=1)
        self._swap(attribute, chosen)

    def _change(self, attribute: int, couples: Couples) -> Int64Array:
        """Return what the swap of each couple alone adds to the loss, `(n_couples,)`."""
        change = np.zeros(len(couples[0]), dtype=np.int64)
        own, others = (self.columns[attribute][each].astype(np.int64) for each in couples)
        for partner in self._partners[attribute]:
            n_bins, slope, weight = self._sizes[partner], *self._slope(attribute, partner)
            first, second = (self.columns[partner][each] for each in couples)
            from_own, from_others = own * n_bins, others * n_bins
            change += slope[from_others + first] + slope[from_own + second]
            change -= slope[from_own + first] + slope[from_others + second]
            change += 4 * weight * (first != second)
        return change

    def _slope(self, attribute: int, partner: int) -> tuple[Int64Array, int]:
        """Return the derivative of the loss by the cells, the partner moving fastest, and the weight."""
        pair = (min(attribute, partner), max(attribute, partner))
        residual, weight = self._residual[pair], self._weight[pair]
        return 2 * weight * (residual if attribute < partner else residual.T).ravel(), weight

    def _moved(self, attribute: int, partner: int, couples: Couples) -> Int64Array:
        """Return what all swaps together add to a table, `(n_bins, n_bins)`, the partner's second."""
        shape = self._sizes[attribute], self._sizes[partner]
        moved = np.zeros(shape[0] * shape[1], dtype=np.int64)
        for block in _blocks(couples):
            own, others = (self.columns[attribute][each].astype(np.int64) * shape[1] for each in block)
            first, second = (self.columns[partner][each] for each in block)
            for added, removed in ((others + first, own + first), (own + second, others + second)):
                moved += np.bincount(added, minlength=moved.size)
                moved -= np.bincount(removed, minlength=moved.size)
        return moved.reshape(shape)

    def _best_number(self, attribute: int, couples: Couples, gain: int) -> int:
        """Return how many of the couples lower the loss most if they swap; all together gain Σ -Δ."""
        together = 0
        for partner in self._partners[attribute]:
            pair = (min(attribute, partner), max(attribute, partner))
            moved = self._moved(attribute, partner, couples)
            column = self.columns[partner]
            differ = sum(np.count_nonzero(np.not_equal(*column[block])) for block in _blocks(couples))
            together += self._weight[pair] * (int((moved**2).sum()) - 4 * int(differ))
        if together <= 0:
            return len(couples[0])
        return min(max(gain * len(couples[0]) // (2 * together), 1), len(couples[0]))

    def _swap(self, attribute: int, couples: Couples) -> None:
        for partner in self._partners[attribute]:
            moved = self._moved(attribute, partner, couples)
            if attribute < partner:
                self._residual[attribute, partner] += moved
            else:
                self._residual[partner, attribute] += moved.T
        column = self.columns[attribute]
        column[couples] = column[couples[::-1]]

    def _repaired(self, attribute: int, couples: Couples) -> Int64Array:
        """Return how many broken rules fewer there are after each swap; negative: more, `(n_couples,)`."""
        repaired = np.zeros(len(couples[0]), dtype=np.int64)
        for rule in self._rules:
            if attribute in rule:
                own, others = (rule[attribute][self.columns[attribute][each]] for each in couples)
                rest = {place: inside for place, inside in rule.items() if place != attribute}
                first, second = (self._inside(rest, each) for each in couples)
                repaired += (own & first).astype(np.int64) + (others & second)
                repaired -= (others & first).astype(np.int64) + (own & second)
        return repaired

    def replace_breaking(self, stream: Keystream) -> None:
        """Make records that still break a rule copies of others, or else one that is possible."""
        breaks = self.breaking()
        breaking, keeping = np.flatnonzero(breaks), np.flatnonzero(~breaks)
        if not breaking.size:
            return
        if not keeping.size:
            possible = possible_record(self._sizes, self._rules)
            if possible is None:
                raise UsageError("no record was found that keeps the structural zeros", "correct them")
            for attribute, bin_ in possible.items():
                self.columns[attribute][:] = bin_
            return
        copied = keeping[stream.below(np.full(breaking.size, keeping.size))]
        for column in self.columns:
            column[breaking] = column[copied]


def _blocks(couples: Couples) -> Iterator[Couples]:
    """Yield couples in blocks, at least one."""
    for start in range(0, max(len(couples[0]), 1), _BLOCK):
        yield couples[:, start : start + _BLOCK]


def _in_blocks(couples: Couples, function: Callable[[Couples], Any]) -> Any:
    """Return what a function returns of all couples, `(n_couples,)`."""
    return np.concatenate([function(block) for block in _blocks(couples)])
