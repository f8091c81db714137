"""The schedule of a synthetic release: what is asked next, from the sums of answers so far.

Anyone who knows the plan and the sums of the rounds so far knows the next question: aggregator, owners and
those who verify a release compute it alike. So nobody has to be asked for a question or to check one. An
owner is sent sums, never queries, and an aggregator cannot make it count anything that the plan does not.

Rounds, in this order: one-way counts, with finer levels for wide domains; then the tables of all pairs of
attributes, or of those that the plan names, in bins of the one-way counts.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from common.arrays import Int64Array
from common.errors import UsageError
from common.model.events import EventTable
from common.model.rounds import LARGEST_ANSWER, NUMBER_BYTES
from common.model.schema import Attribute
from common.model.together import Joint
from common.synthesis.accounting import Budget, Noise, honest_owners
from common.synthesis.binning import (
    FEW_VALUES,
    FEWEST_LABELS,
    MOST_BINS,
    MOST_BINS_ACROSS,
    Attributes,
    Binning,
    StructuralZero,
    all_pairs,
    binning_of,
    check_rules,
    most_bins,
    separated,
)
from common.synthesis.events import ONE_WAY_PARTS, TABLE_PARTS, balanced, slot_rules
from common.synthesis.histogram import (
    Histogram,
    attribute_weights,
    divided_histogram,
    first_edges,
    histogram_of,
    n_levels,
    next_edges,
)

METHOD = 3
"""Version of everything here that records depend on: with another one, the same sums give other records.

Owners that compute other questions would add up counts of different things. So a release of several owners
needs another feature of plans with each version (`common.model.compatibility`).
"""
MOST_COUNTS = LARGEST_ANSWER // NUMBER_BYTES
"""Most counts of the tables of pairs: an owner's answer to a round is one message."""
_MANY_RECORDS = 20_000
"""From this n ε on, tables of pairs are worth more of the budget: measured on Adult, Wine and Census."""


def budget_split(n_records: int, epsilon: Decimal, delta: Decimal) -> tuple[Decimal, Decimal]:
    """Return what one-way counts and the tables of pairs get of the budget: a rule of public numbers."""
    one_way = Decimal("0.3") if delta and n_records * epsilon >= _MANY_RECORDS else Decimal("0.4")
    return one_way, 1 - one_way


@dataclass(frozen=True)
class Design:
    """The public numbers that a synthetic release follows from."""

    attributes: tuple[Attribute, ...]
    """What is modelled, in the order of the table."""
    n_records: int
    """Number of records, of all owners together."""
    epsilon: Decimal
    """ε for the whole record of a person."""
    delta: Decimal = Decimal(0)
    """δ; 0 for ε-differential privacy."""
    owners: tuple[int, ...] = ()
    """How many owners each group has, who hold different records; empty: one each."""
    colluding: int = 0
    """The most owners that may collude with the aggregator."""
    rules: tuple[StructuralZero, ...] = ()
    """What no record is."""
    split: tuple[Decimal, ...] = ()
    """What one-way counts and tables get of the budget; empty: `budget_split`."""
    named_pairs: tuple[Attributes, ...] = ()
    """The pairs whose tables are counted, ascending; empty: all."""
    owner_groups: tuple[int, ...] = ()
    """Which group of owners has each attribute, of the same persons; empty where there is one group."""
    presence: tuple[int, ...] = ()
    """By group, the attribute that says who is present, where a release is of everybody whom any group holds
    (`common.synthesis.presence`); else empty."""
    absent_alone: tuple[int, ...] = ()
    """Attributes whose last code stands for absent persons alone, and not for missing values, too."""

    def __post_init__(self) -> None:
        if self.owner_groups and len(self.owner_groups) != len(self.attributes):
            raise ValueError("every attribute has a group of owners")
        if self.owners and len(self.owners) != self.n_groups:
            raise ValueError("every group has a number of owners")
        # Noise and counters of a table are laid out for ascending pairs: another order must not be counted.
        named = set(self.named_pairs)
        if named and self.named_pairs != tuple(p for p in all_pairs(len(self.attributes)) if p in named):
            raise ValueError("pairs are ascending, and each is named once")

    @cached_property
    def n_groups(self) -> int:
        """How many groups of owners hold different attributes."""
        return 1 + max(self.owner_groups, default=0)

    @cached_property
    def n_owners(self) -> tuple[int, ...]:
        """How many owners each group has."""
        return self.owners or (1,) * self.n_groups

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(self.n_owners, initial=0))

    def members(self, group: int) -> range:
        """Return the owners of a group; owners are numbered group by group."""
        return range(self._starts[group], self._starts[group + 1])

    def group_of(self, owner: int) -> int:
        """Return the group of an owner."""
        return bisect_right(self._starts, owner) - 1

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The groups: of two, owners of the earlier one are holders of tables across both.

        Those that can have fewer bins come first, since holders encrypt all of theirs.
        """
        n_bins = dict.fromkeys(range(self.n_groups), 0)
        for place, attribute in enumerate(self.attributes):
            n_bins[self.home(place)] += min(attribute.n_values, MOST_BINS)
        return tuple(sorted(n_bins, key=lambda group: (n_bins[group], group)))

    def home(self, attribute: int) -> int:
        """Return which group of owners has an attribute."""
        return self.owner_groups[attribute] if self.owner_groups else 0

    def is_across(self, attributes: Attributes) -> bool:
        """Whether two groups of owners hold a pair of attributes."""
        return len({self.home(place) for place in attributes}) > 1

    def counts_across(self, asked: "Round") -> bool:
        """Whether a round counts tables of attributes of two groups of owners."""
        return any(self.is_across(attributes_of(question)) for question in asked)

    def n_honest(self, group: int) -> int:
        """Return h, how many owners' shares make up the whole noise of what a group counts alone.

        Raises:
            UsageError: If nobody would be left, or there are too many owners.
        """
        n_owners = self.n_owners[group]
        # A group that has no more owners than may collude has at least the one that holds a person's record.
        most = n_owners - 1 if self.n_groups > 1 else self.colluding
        return honest_owners(n_owners, min(self.colluding, most))

    @cached_property
    def events(self) -> EventTable | None:
        """The events of persons that some attributes hold; None if none does."""
        return EventTable.of(self.attributes)

    @cached_property
    def zeros(self) -> tuple[StructuralZero, ...]:
        """All rules: `rules`, and those of events."""
        return self.rules if self.events is None else (*self.rules, *slot_rules(self.events))

    @cached_property
    def pairs(self) -> tuple[Attributes, ...]:
        """The pairs whose tables are counted, ascending."""
        if self.events is not None and not self.named_pairs:
            return self.events.pairs
        return self.named_pairs or tuple(all_pairs(len(self.attributes)))

    def is_of_slots(self, attributes: Attributes) -> bool:
        """Return whether any of some attributes holds an event."""
        return any(self.attributes[place].slot > 0 for place in attributes)

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """Of one-way counts and of tables; without tables, one-way counts have all of it."""
        whole = Budget.of(self.epsilon, self.delta)
        if not self.pairs:
            return (whole,)
        return whole.divide(self.split or budget_split(self.n_records, self.epsilon, self.delta))

    def noise(self, budget: Budget, n_tables: int, attributes: Attributes) -> Noise:
        """Return the noise that an owner adds where some attributes are counted.

        Across groups that is the whole noise of an adder; a holder adds `held_noise`.

        Args:
            n_tables: How many tables the budget pays for.

        Raises:
            UsageError: If the noise is too large to be drawn.
        """
        n_honest = 1 if self.is_across(attributes) else self.n_honest(self.home(attributes[0]))
        return budget.noise(n_tables, n_honest)

    def held_noise(self, noise: Noise, attributes: Attributes) -> Noise:
        """Return a holder's share of the noise of a table across groups, of which adders add the whole."""
        return noise.shared(self.n_honest(min(map(self.home, attributes), key=self.order.index)))

    def variance(self, noise: Noise, attributes: Attributes) -> float:
        """Return the variance of all noise in the counts of some attributes.

        Args:
            attributes: One attribute, or two.
        """
        groups = sorted({self.home(place) for place in attributes}, key=self.order.index)
        if len(groups) == 1:
            return noise.variance(self.n_owners[groups[0]])
        holders, adders = (self.n_owners[group] for group in groups)
        # Every adder adds noise for every holder, and every holder adds a share.
        return noise.variance(holders * adders) + self.held_noise(noise, attributes).variance(holders)

    def table_noise(self, pair: Attributes) -> Noise:
        """Return the noise of the table of a pair.

        Raises:
            UsageError: If it is too large to be drawn.
        """
        if self.events is None:
            return self.noise(self.budgets[1], len(self.pairs), pair)
        return self.noise(self._pair_budgets[pair], 1, pair)

    @cached_property
    def _pair_budgets(self) -> Mapping[Attributes, Budget]:
        slots = [self.is_of_slots(pair) for pair in self.pairs]
        weights = balanced([Decimal(1)] * len(slots), slots, TABLE_PARTS)
        return dict(zip(self.pairs, self.budgets[1].divide(weights), strict=True))

    @cached_property
    def pair_variances(self) -> Mapping[Attributes, float]:
        """Variance of the noise of each pair's table."""
        return {pair: self.variance(self.table_noise(pair), pair) for pair in self.pairs}

    @cached_property
    def pair_variance(self) -> float:
        """The largest of them; of one attribute, which has no pairs, as if it had one."""
        alone = self.variance(self.noise(self.budgets[-1], 1, (0,)), (0,))
        return max(self.pair_variances.values(), default=alone)

    def variance_at(self, place: int) -> float:
        """Return the variance that an attribute's bins are for: the largest of tables of its kind."""
        if self.events is None:
            return self.pair_variance
        own = self.is_of_slots((place,))
        alike = [each for pair, each in self.pair_variances.items() if self.is_of_slots(pair) is own]
        return max(alike, default=self.pair_variance)

    def most_bins(self, place: int) -> int:
        """Return the most bins of an attribute if it is a number."""
        most = most_bins(self.n_records, self.variance_at(place), len(self.pairs))
        return min(most, MOST_BINS_ACROSS) if self.owner_groups else most

    def largest_binning(self, place: int) -> int:
        """Return how many bins an attribute can have: values alone, ranges of rules, and blocks cut them."""
        attribute = self.attributes[place]
        fewest = FEWEST_LABELS if attribute.is_categorical else FEW_VALUES
        ranges = sum(len(rule.get(place, ())) for rule in self.zeros)
        # Values counted by themselves cut twice, but for one above the domain, which ends with it.
        cuts = 2 * (len(attribute.alone) + ranges) - (attribute.highest - attribute.upper)
        cuts += attribute.second.n_values if isinstance(attribute, Joint) else 0
        return min(attribute.n_values, max(self.most_bins(place), fewest) + cuts)


# --- questions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OneWay:
    """How many records are in every part of an attribute's codes?"""

    attribute: int
    """Number of the attribute."""
    edges: Int64Array
    """The first code of every part, and V, `(n_parts + 1,)`."""
    noise: Noise

    @property
    def n_numbers(self) -> int:
        """How many numbers the answer has."""
        return self.edges.size - 1


@dataclass(frozen=True, slots=True)
class Table:
    """How many records are in every cell of two attributes' bins?"""

    pair: tuple[int, int]
    """Numbers of the attributes."""
    binnings: tuple[Binning, Binning]
    """Their bins."""
    noise: Noise

    @property
    def n_numbers(self) -> int:
        """How many numbers the answer has."""
        return self.binnings[0].n_bins * self.binnings[1].n_bins


Question: TypeAlias = OneWay | Table
Round: TypeAlias = tuple[Question, ...]
"""Questions that are asked together; the numbers of their answers follow each other."""


def question_digest(question: Question) -> str:
    """Return the SHA-256 of all that the exact answer to a question and its noise depend on, hexadecimal."""
    about: tuple[object, ...]
    arrays: list[Int64Array]
    if isinstance(question, OneWay):
        about, arrays = (question.attribute,), [question.edges]
    else:
        about = (*question.pair, *(binning.n_bins for binning in question.binnings))
        arrays = [part for each in question.binnings for part in (each.histogram.edges, each.labels)]
    noise = question.noise
    about += (str(noise.kind), noise.size, noise.n_honest, noise.floor, [array.size for array in arrays])
    content = sha256(f"{type(question).__name__}|{about}\n".encode())
    for array in arrays:
        content.update(array.astype("<i8").tobytes())
    return content.hexdigest()


def attributes_of(question: Question) -> Attributes:
    """Return the attribute that a question is about, or both."""
    return (question.attribute,) if isinstance(question, OneWay) else question.pair


def n_numbers(questions: Sequence[Question]) -> int:
    """Return how many numbers the answer to a round has."""
    return sum(question.n_numbers for question in questions)


@dataclass(frozen=True, slots=True)
class RoundSums:
    """What all rounds together measured."""

    design: Design
    """All that was to be measured."""
    rounds: tuple[Round, ...]
    """What was asked."""
    sums: tuple[Int64Array, ...]
    """The sums of the owners' answers, by round."""
    binnings: tuple[Binning, ...]
    """Of each attribute."""

    @property
    def tables(self) -> list[tuple[Table, Int64Array]]:
        """The counted tables of pairs with their noisy counts, `(n_numbers,)` each."""
        asked, counts = self.rounds[-1], self.sums[-1]
        answered = zip(asked, split(asked, counts), strict=True)
        return [(question, noisy) for question, noisy in answered if isinstance(question, Table)]

    @property
    def seed(self) -> bytes:
        """What the records are drawn with, 32 bytes."""
        return seed_of(self.sums)


def seed_of(sums: Sequence[Int64Array]) -> bytes:
    """Return the seed of a release, a function of noisy counts as everything else that is released.

    It is the SHA-256 of the sums of all rounds one after the other, each as a signed integer of eight bytes,
    the lowest first.
    """
    return sha256(b"".join(numbers.astype("<i8").tobytes() for numbers in sums)).digest()


def next_round(design: Design, sums: Sequence[Int64Array]) -> Round | RoundSums:
    """Return what is asked after some rounds, or what all of them measured.

    Args:
        sums: Sums of the owners' answers to the rounds so far.

    Raises:
        ValueError: If there are more rounds than the release has, or one has another number of numbers.
    """
    schedule = _schedule(design)
    asked = next(schedule)
    rounds = [asked]
    for number, answer in enumerate(sums, start=1):
        if answer.shape != (n_numbers(asked),):
            raise ValueError(f"round {number} has {n_numbers(asked)} numbers, {answer.size} are given")
        try:
            asked = schedule.send(answer)
        except StopIteration as end:
            if number < len(sums):
                raise ValueError(f"the release has {number} rounds, {len(sums)} are answered") from None
            return RoundSums(design, tuple(rounds), tuple(sums), end.value)
        rounds.append(asked)
    return asked


def run_rounds(design: Design, answer: Callable[[Round], Int64Array]) -> RoundSums:
    """Ask all rounds of a release.

    Args:
        answer: Returns the sums of the owners' answers to a round.
    """
    sums: list[Int64Array] = []
    while not isinstance(asked := next_round(design, sums), RoundSums):
        sums.append(answer(asked))
    return asked


def n_rounds(design: Design) -> int:
    """Return how many rounds the release has."""
    return max(number for number, *_ in _levels(design)) + bool(design.pairs)


_MOST_VALUES = 2**62
"""Most values of an attribute: the sum of two of its codes fits into 64 bits."""


def check_design(design: Design) -> None:
    """Check, before anything is charged, that every round can be answered and records be drawn.

    Raises:
        UsageError: If the budget is too small for the noise, an attribute has too many values, structural
            zeros leave no possible record, or tables of pairs have too many cells.
    """
    wide = [attribute.name for attribute in design.attributes if attribute.n_values > _MOST_VALUES]
    if wide:
        raise UsageError(
            f"attribute {wide[0]!r} has more values than can be counted",
            "declare a narrower domain or fewer decimals, or leave it out",
        )
    _levels(design)
    for pair in design.pairs:
        design.table_noise(pair)
    largest = [design.largest_binning(place) for place in range(len(design.attributes))]
    n_counts = sum(largest[i] * largest[j] for i, j in design.pairs)
    if n_counts > MOST_COUNTS:
        raise UsageError(
            f"the tables of pairs could have {n_counts:,} counts, at most {MOST_COUNTS:,} are possible",
            "name fewer pairs, or declare fewer ranges in rules, or fewer spikes",
        )
    # Many ranges take long, so their number comes first.
    if design.zeros:
        check_rules(design.attributes, design.zeros)


def one_way_noises(design: Design) -> list[Noise]:
    """Return the noise of the one-way counts of each attribute."""
    return [noise for _, noise, _ in _levels(design)]


def _levels(design: Design) -> list[tuple[int, Noise, float]]:
    """Return in how many levels each attribute is counted, and their noise with the variance of all of it."""
    by_attribute = []
    weights = attribute_weights(design.attributes)
    if design.events is not None:
        slots = [design.is_of_slots((place,)) for place in range(len(weights))]
        weights = balanced(weights, slots, ONE_WAY_PARTS)
    budgets = design.budgets[0].divide(weights)
    for place, (attribute, budget) in enumerate(zip(design.attributes, budgets, strict=True)):
        alone = design.variance(design.noise(budget, 1, (place,)), (place,))
        levels = n_levels(attribute, design.n_records, alone)
        noise = design.noise(budget, levels, (place,))
        by_attribute.append((levels, noise, design.variance(noise, (place,))))
    return by_attribute


def _schedule(design: Design) -> Generator[Round, Int64Array, tuple[Binning, ...]]:
    """Yield the rounds of a release; takes the sums of the answers to each."""
    binnings = yield from _binnings(design)
    if design.pairs:
        yield tuple(
            Table((i, j), (binnings[i], binnings[j]), design.table_noise((i, j))) for i, j in design.pairs
        )
    return binnings


def _binnings(design: Design) -> Generator[Round, Int64Array, tuple[Binning, ...]]:
    """Ask for the one-way counts of all attributes, level by level, and make bins of them."""
    levels = _levels(design)
    histograms: list[Histogram | None] = [None] * len(levels)
    for level in range(max(number for number, *_ in levels)):
        asked = []
        for place, (attribute, of_levels) in enumerate(zip(design.attributes, levels, strict=True)):
            number, noise, variance = of_levels
            known = histograms[place]
            if known is None:
                edges = first_edges(attribute, design.n_records, variance, number)
                asked.append(OneWay(place, edges, noise))
            elif level < number:
                asked.append(OneWay(place, next_edges(attribute, known), noise))
        answer = yield tuple(asked)
        for question, counts in zip(asked, split(asked, answer), strict=True):
            place, edges = question.attribute, question.edges
            _, _, variance = levels[place]
            known, attribute = histograms[place], design.attributes[place]
            histograms[place] = (
                histogram_of(attribute, edges, counts, design.n_records, variance)
                if known is None
                else divided_histogram(known, edges, counts, variance)
            )
    binnings = []
    for place, (attribute, histogram) in enumerate(zip(design.attributes, histograms, strict=True)):
        if histogram is not None:
            parts, sides = separated(histogram, place, design.zeros)
            most, variance = design.most_bins(place), design.variance_at(place)
            binnings.append(binning_of(attribute, parts, most, variance, sides))
    return tuple(binnings)


def split(questions: Sequence[Question], answer: Int64Array) -> list[Int64Array]:
    """Divide the numbers of a round among its questions."""
    ends = np.cumsum([question.n_numbers for question in questions])
    return list(np.split(answer, ends[:-1]))
