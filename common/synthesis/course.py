"""The course of a synthetic release: what is asked next, and in the end the records, from sums of answers.

Whoever knows the plan and the sums of the rounds so far knows the next question: aggregator, owners and those
who verify a release compute it alike. So nobody has to be asked for a question or to check one. An owner
is sent sums, never queries, and an aggregator cannot make it count anything that the plan does not.

Rounds, in this order: one-way counts, and their finer levels for wide domains; then, with several
attributes, the scores of all pairs, or coarse tables in their place where two groups of owners hold a pair;
then the tables of the chosen pairs.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from common.arrays import Int64Array
from common.errors import UsageError
from common.model.schema import Attribute
from common.synthesis.accounting import (
    ACROSS,
    ROUNDS,
    SCORE,
    TABLE,
    Budget,
    Noise,
    Sensitivity,
    honest_owners,
)
from common.synthesis.model import Attributes, Measurement, Model, fit
from common.synthesis.rounds import (
    MOST_BINS,
    UNIT,
    Coding,
    Leaves,
    StructuralZero,
    all_pairs,
    attribute_weights,
    check_rules,
    choose_pairs,
    coarse,
    coarse_groups,
    coarse_score,
    coding_of,
    divided_leaves,
    expected_table,
    first_edges,
    impossible_cells,
    leaves_of,
    most_bins,
    most_pairs,
    n_levels,
    next_edges,
    separated,
)
from common.synthesis.sample import Keystream, draw_records

METHOD = 1
"""Version of everything here that records depend on: with another one, the same sums give other records.

Owners that compute other questions would add up counts of different things. So a release of several owners
needs another feature of plans with each version (`common.model.compatibility`).
"""


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
    split: tuple[Decimal, ...] = ROUNDS
    """What one-way counts, scores and tables get of the budget."""
    homes: tuple[int, ...] = ()
    """Which group of owners has each attribute, of the same persons; empty where there is one group."""

    def __post_init__(self) -> None:
        if self.homes and len(self.homes) != len(self.attributes):
            raise ValueError("every attribute has a group of owners")
        if self.owners and len(self.owners) != self.n_groups:
            raise ValueError("every group has a number of owners")

    @cached_property
    def n_groups(self) -> int:
        """How many groups of owners hold different attributes."""
        return 1 + max(self.homes, default=0)

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
        return self.homes[attribute] if self.homes else 0

    def is_across(self, attributes: Attributes) -> bool:
        """Whether two groups of owners hold a pair of attributes."""
        return len({self.home(place) for place in attributes}) > 1

    def honest(self, group: int) -> int:
        """Return h, how many owners' shares make up the whole noise of what a group counts alone.

        Raises:
            UsageError: If nobody would be left, or there are too many owners.
        """
        n_owners = self.n_owners[group]
        # A group that has no more owners than may collude has at least the one that holds a person's record.
        most = n_owners - 1 if self.n_groups > 1 else self.colluding
        return honest_owners(n_owners, min(self.colluding, most))

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """Of one-way counts, scores and tables."""
        return Budget.of(self.epsilon, self.delta).divide(self.split)

    def noise(
        self, budget: Budget, sensitivity: Sensitivity, n_answers: int, attributes: Attributes, unit: int = 1
    ) -> Noise:
        """Return the noise that an owner adds where some attributes are counted.

        Across groups that is the whole noise of an adder; a holder adds `held_noise`.

        Args:
            sensitivity: Of one answer, in records.
            n_answers: How many answers the budget pays for.
            unit: The answers are in units of one in so many of a record.

        Raises:
            UsageError: If the noise is too large to be drawn.
        """
        honest = 1 if self.is_across(attributes) else self.honest(self.home(attributes[0]))
        return budget.noise(sensitivity, n_answers, honest, unit)

    def held_noise(self, noise: Noise, attributes: Attributes) -> Noise:
        """Return a holder's share of the noise of a table across groups, of which adders add the whole."""
        return noise.shared(self.honest(min(map(self.home, attributes), key=self.order.index)))

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

    def table_noise(self, n_tables: int, pair: Attributes) -> Noise:
        """Return the noise of the table of a pair, if so many are chosen."""
        return self.noise(self.budgets[2], TABLE, n_tables, pair)

    def most_table_noise(self, pair: Attributes) -> Noise:
        """Return the noise of the table of a pair, if as many are chosen as may be."""
        return self.table_noise(max(most_pairs(len(self.attributes), self.n_records), 1), pair)

    @cached_property
    def pair_variances(self) -> Mapping[Attributes, float]:
        """Variance of the noise of each pair's table, if as many are chosen as may be."""
        return {
            pair: self.variance(self.most_table_noise(pair), pair) for pair in all_pairs(len(self.attributes))
        }

    @cached_property
    def pair_variance(self) -> float:
        """The largest of them."""
        alone = self.variance(self.most_table_noise((0,)), (0,))
        return max(self.pair_variances.values(), default=alone)

    @cached_property
    def _choice(self) -> Mapping[bool, tuple[Budget, int]]:
        """What coarse tables, across groups, and scores get of the budget, and how many there are."""
        pairs, budget = all_pairs(len(self.attributes)), self.budgets[1]
        n_across = sum(self.is_across(pair) for pair in pairs)
        n_within = len(pairs) - n_across
        across, within = budget.divide((ACROSS, 1 - ACROSS)) if n_across and n_within else (budget, budget)
        return {True: (across, n_across), False: (within, n_within)}

    def choice_noise(self, pair: Attributes) -> Noise:
        """Return the noise of the score of a pair, or of its coarse table where it is across groups.

        Raises:
            UsageError: If it is too large to be drawn.
        """
        across = self.is_across(pair)
        budget, number = self._choice[across]
        return self.noise(budget, TABLE if across else SCORE, number, pair, 1 if across else UNIT)


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
class Score:
    """How far is the table of two attributes' bins from independence?"""

    pair: tuple[int, int]
    """Numbers of the attributes."""
    codings: tuple[Coding, Coding]
    """Their bins."""
    noise: Noise

    @property
    def n_numbers(self) -> int:
        """How many numbers the answer has."""
        return 1


@dataclass(frozen=True, slots=True)
class Table:
    """How many records are in every cell of two attributes' bins?"""

    pair: tuple[int, int]
    """Numbers of the attributes."""
    codings: tuple[Coding, Coding]
    """Their bins."""
    noise: Noise

    @property
    def n_numbers(self) -> int:
        """How many numbers the answer has."""
        return self.codings[0].n_bins * self.codings[1].n_bins


@dataclass(frozen=True, slots=True)
class CoarseTable:
    """How many records are in every cell of the merged bins of attributes of two groups of owners?"""

    pair: tuple[int, int]
    """Numbers of the attributes."""
    fine: tuple[Coding, Coding]
    """Their bins."""
    codings: tuple[Coding, Coding]
    """Their merged bins."""
    noise: Noise

    @property
    def n_numbers(self) -> int:
        """How many numbers the answer has."""
        return self.codings[0].n_bins * self.codings[1].n_bins


Question: TypeAlias = OneWay | Score | CoarseTable | Table
Round: TypeAlias = tuple[Question, ...]
"""Questions that are asked together; the numbers of their answers follow each other."""


def question_digest(question: Question) -> str:
    """Return the SHA-256 of all that the exact answer to a question and its noise depend on, hexadecimal."""
    about: tuple[object, ...]
    arrays: list[Int64Array]
    if isinstance(question, OneWay):
        about, arrays = (question.attribute,), [question.edges]
    else:
        about = (*question.pair, *(coding.n_bins for coding in question.codings))
        arrays = [part for coding in question.codings for part in (coding.leaves.edges, coding.labels)]
        if isinstance(question, Score):
            arrays += [coding.counts for coding in question.codings]
    noise = question.noise
    about += (str(noise.kind), noise.size, noise.honest, noise.floor, [array.size for array in arrays])
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
class Measured:
    """What all rounds together measured."""

    rounds: tuple[Round, ...]
    """What was asked."""
    sums: tuple[Int64Array, ...]
    """The sums of the owners' answers, by round."""
    codings: tuple[Coding, ...]
    """Of each attribute."""
    pairs: tuple[Attributes, ...]
    """Whose tables were asked for."""
    measurements: tuple[Measurement, ...]
    """To fit a model to: the bins' counts of each attribute, then the tables of the pairs."""

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


def next_round(design: Design, sums: Sequence[Int64Array]) -> Round | Measured:
    """Return what is asked after some rounds, or what all of them measured.

    Args:
        sums: Sums of the owners' answers to the rounds so far.

    Raises:
        ValueError: If there are more rounds than the release has, or one has another number of numbers.
    """
    course = _course(design)
    asked = next(course)
    rounds = [asked]
    for number, answer in enumerate(sums, start=1):
        if answer.shape != (n_numbers(asked),):
            raise ValueError(f"round {number} has {n_numbers(asked)} numbers, {answer.size} are given")
        try:
            asked = course.send(answer)
        except StopIteration as end:
            if number < len(sums):
                raise ValueError(f"the release has {number} rounds, {len(sums)} are answered") from None
            codings, pairs, measurements = end.value
            return Measured(tuple(rounds), tuple(sums), codings, pairs, measurements)
        rounds.append(asked)
    return asked


def n_rounds(design: Design) -> int:
    """Return how many rounds the release has."""
    levels = _levels(design)
    return max(number for number, _ in levels) + (2 if len(levels) > 1 else 0)


_MOST_VALUES = 2**62
"""Most values of an attribute: the sum of two of its codes fits into 64 bits."""


def check_design(design: Design) -> None:
    """Check, before anything is charged, that every round can be answered and records be drawn.

    Raises:
        UsageError: If the budget is too small for the noise, an attribute has too many values, structural
            zeros leave no possible record, or they relate too many attributes.
    """
    wide = [attribute.name for attribute in design.attributes if attribute.n_values > _MOST_VALUES]
    if wide:
        raise UsageError(
            f"attribute {wide[0]!r} has more values than a model can count",
            "declare a narrower domain or fewer decimals, or leave it out",
        )
    check_rules(design.attributes, design.n_records, design.rules)
    _levels(design)
    for pair in all_pairs(len(design.attributes)):
        design.choice_noise(pair)
        # Fewer pairs get less noise.
        design.most_table_noise(pair)


def one_way_noises(design: Design) -> list[Noise]:
    """Return the noise of the one-way counts of each attribute."""
    return [noise for _, noise in _levels(design)]


def _levels(design: Design) -> list[tuple[int, Noise]]:
    """Return in how many levels each attribute is counted, and the noise of each of them."""
    by_attribute = []
    budgets = design.budgets[0].divide(attribute_weights(design.attributes))
    for place, (attribute, budget) in enumerate(zip(design.attributes, budgets, strict=True)):
        alone = design.variance(design.noise(budget, TABLE, 1, (place,)), (place,))
        levels = n_levels(attribute, design.n_records, alone)
        by_attribute.append((levels, design.noise(budget, TABLE, levels, (place,))))
    return by_attribute


_Model: TypeAlias = tuple[tuple[Coding, ...], tuple[Attributes, ...], tuple[Measurement, ...]]
"""The last three fields of `Measured`."""


def _course(design: Design) -> Generator[Round, Int64Array, _Model]:
    """Yield the rounds of a release; takes the sums of the answers to each."""
    codings = yield from _codings(design)
    pairs = all_pairs(len(codings))
    measurements = [coding.measurement(place) for place, coding in enumerate(codings)]
    if not pairs:
        return codings, (), tuple(measurements)
    scored = tuple(_scores(design, codings))
    answer = yield scored
    chosen = choose_pairs(
        {
            question.pair: _score(design, question, of_pair)
            for question, of_pair in zip(scored, split(scored, answer), strict=True)
        },
        design.pair_variances,
        [coding.n_bins for coding in codings],
        most_pairs(len(codings), design.n_records),
        [tuple(sorted(rule)) for rule in design.rules],
    )
    asked = tuple(
        Table((i, j), (codings[i], codings[j]), design.table_noise(len(chosen), (i, j))) for i, j in chosen
    )
    answer = yield asked
    for table, counts in zip(asked, split(asked, answer), strict=True):
        variances = np.full(counts.size, design.variance(table.noise, table.pair))
        measurements.append(Measurement(table.pair, counts.astype(np.float64), variances))
    return codings, tuple(chosen), tuple(measurements)


def _scores(design: Design, codings: Sequence[Coding]) -> Iterator[Score | CoarseTable]:
    """Return what is asked to choose pairs, pair by pair."""
    groups = coarse_groups(design.n_records)
    merged = [coarse(coding, groups) for coding in codings]
    for i, j in all_pairs(len(codings)):
        noise = design.choice_noise((i, j))
        if design.is_across((i, j)):
            yield CoarseTable((i, j), (codings[i], codings[j]), (merged[i], merged[j]), noise)
        else:
            yield Score((i, j), (codings[i], codings[j]), noise)


def _score(design: Design, question: Score | CoarseTable, answer: Int64Array) -> int:
    """Return the score of a pair, in units."""
    if isinstance(question, Score):
        return int(answer[0])
    expected = expected_table(*question.codings, design.n_records)
    return coarse_score(answer, expected, design.variance(question.noise, question.pair))


def _codings(design: Design) -> Generator[Round, Int64Array, tuple[Coding, ...]]:
    """Ask for the one-way counts of all attributes, level by level, and make bins of them."""
    levels = _levels(design)
    leaves: list[Leaves | None] = [None] * len(levels)
    for level in range(max(number for number, _ in levels)):
        asked = []
        for place, (attribute, (number, noise)) in enumerate(zip(design.attributes, levels, strict=True)):
            known = leaves[place]
            if known is None:
                edges = first_edges(attribute, design.n_records, design.variance(noise, (place,)), number)
                asked.append(OneWay(place, edges, noise))
            elif level < number:
                asked.append(OneWay(place, next_edges(known), noise))
        answer = yield tuple(asked)
        for question, counts in zip(asked, split(asked, answer), strict=True):
            place, edges = question.attribute, question.edges
            variance = design.variance(question.noise, (place,))
            known, attribute = leaves[place], design.attributes[place]
            leaves[place] = (
                leaves_of(attribute, edges, counts, design.n_records, variance)
                if known is None
                else divided_leaves(known, edges, counts, variance)
            )
    most, variance = most_bins(design.n_records, design.pair_variance), design.pair_variance
    codings = []
    for place, (attribute, of_attribute) in enumerate(zip(design.attributes, leaves, strict=True)):
        if of_attribute is not None:
            parts, sides = separated(of_attribute, place, design.rules)
            codings.append(coding_of(attribute, parts, most, variance, sides))
    return tuple(codings)


def split(questions: Sequence[Question], answer: Int64Array) -> list[Int64Array]:
    """Divide the numbers of a round among its questions."""
    ends = np.cumsum([question.n_numbers for question in questions])
    return list(np.split(answer, ends[:-1]))


# --- records --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyntheticRelease:
    """What is released, and what it was made of."""

    codes: Sequence[Int64Array]
    """Codes of values, `(n_records,)` by attribute."""
    measured: Measured
    model: Model
    """What was fitted to it."""


def synthesise(design: Design, measured: Measured) -> SyntheticRelease:
    """Fit a model to what was measured, and draw the records: the same bytes for everybody."""
    codings, measurements = measured.codings, measured.measurements
    sizes = [coding.n_bins for coding in codings]
    model = fit(sizes, measurements, design.n_records, impossible_cells(codings, design.rules))
    codes = draw_records(model, codings, design.n_records, Keystream(measured.seed))
    return SyntheticRelease(codes, measured, model)
