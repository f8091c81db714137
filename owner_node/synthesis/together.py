"""Synthetic releases of owners whose records are all here: an owner alone, or owners of an experiment.

Owners answer with their counts and their shares of the noise, and the answers are added up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from hashlib import sha256

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute
from common.synthesis.accounting import ROUNDS, SCORE, TABLE, Budget, Noise, default_colluding, honest_owners
from common.synthesis.model import Attributes, Measurement, Model, fit
from common.synthesis.rounds import (
    UNIT,
    Coding,
    Leaves,
    StructuralZero,
    all_pairs,
    attribute_weights,
    choose_pairs,
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
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import one_way_counts, pair_counts, pair_score
from owner_node.synthesis.shares import noise_share

Columns = Sequence[Int64Array]
"""Codes or bins of an owner's records, `(n_records,)` by attribute."""


@dataclass(frozen=True, slots=True)
class SyntheticRelease:
    """What was released, and what it was made of."""

    codes: Sequence[Int64Array]
    """Codes of values, `(n_records,)` by attribute."""
    codings: Sequence[Coding]
    """Of each attribute."""
    pairs: Sequence[Attributes]
    """Whose tables were measured."""
    measurements: Sequence[Measurement]
    """Everything that was measured."""
    model: Model
    """What was fitted to it."""


def scores(part: Columns, codings: Sequence[Coding]) -> Int64Array:
    """Return an owner's scores of all pairs, `(n_pairs,)`.

    Args:
        part: Bins of its records.
        codings: Of each attribute.
    """
    found = []
    for i, j in all_pairs(len(codings)):
        counts = pair_counts(part[i], part[j], (codings[i].n_bins, codings[j].n_bins))
        found.append(pair_score(counts, expected_table(codings[i], codings[j], part[i].size)))
    return np.array(found, dtype=np.int64)


def _pair(part: Columns, i: int, j: int, shape: tuple[int, int]) -> Int64Array:
    return pair_counts(part[i], part[j], shape)


class Together:
    """Owners of the same attributes whose noisy answers are added up."""

    def __init__(
        self,
        parts: Sequence[Columns],
        epsilon: Decimal,
        delta: Decimal,
        bits: Sequence[BitSource],
        colluding: int | None = None,
        n_records: int | None = None,
    ) -> None:
        """Take the records of some owners.

        Args:
            parts: By owner, codes from 0 to V - 1.
            epsilon: ε.
            delta: δ.
            bits: Each owner's.
            colluding: How many of them may collude; None for the default.
            n_records: How many records there are; None to count them.
        """
        self.parts, self.bits = parts, bits
        colluding = default_colluding(len(parts)) if colluding is None else colluding
        self.honest = honest_owners(len(parts), colluding)
        self.rounds = Budget.of(epsilon, delta).divide(ROUNDS)
        self.n_records = sum(part[0].size for part in parts) if n_records is None else n_records

    def variance(self, noise: Noise) -> float:
        """Return the variance of an answer's noise."""
        return noise.variance(len(self.parts))

    def ask(
        self, noise: Noise, parts: Sequence[Columns], answer: Callable[[Columns], Int64Array]
    ) -> Int64Array:
        """Return the sum of all owners' noisy answers."""
        answers = [answer(part) for part in parts]
        shares = [noise_share(each.size, noise, bits) for each, bits in zip(answers, self.bits, strict=True)]
        found: Int64Array = np.sum([*answers, *shares], axis=0, dtype=np.int64)
        return found

    def pair_variance(self, n_attributes: int) -> float:
        """Return the variance of the noise of pairs' tables, if as many are chosen as may be."""
        n_pairs = max(most_pairs(n_attributes, self.n_records), 1)
        return self.variance(self.rounds[2].noise(TABLE, n_pairs, self.honest))

    def leaves(self, attribute: Attribute, place: int, budget: Budget) -> Leaves:
        """Ask for the one-way counts of an attribute, level by level."""

        def ask(edges: Int64Array) -> Int64Array:
            return self.ask(noise, self.parts, lambda part: one_way_counts(part[place], edges))

        alone = self.variance(budget.noise(TABLE, 1, self.honest))
        levels = n_levels(attribute, self.n_records, alone)
        noise = budget.noise(TABLE, levels, self.honest)
        variance = self.variance(noise)
        edges = first_edges(attribute, self.n_records, variance, levels)
        leaves = leaves_of(attribute, edges, ask(edges), self.n_records, variance)
        for _ in range(levels - 1):
            edges = next_edges(leaves)
            leaves = divided_leaves(leaves, edges, ask(edges), variance)
        return leaves

    def codings(self, attributes: Sequence[Attribute], rules: Sequence[StructuralZero] = ()) -> list[Coding]:
        """Make the first round, and bins of its answers."""
        variance = self.pair_variance(len(attributes))
        most, found = most_bins(self.n_records, variance), []
        budgets = self.rounds[0].divide(attribute_weights(attributes))
        for place, (attribute, budget) in enumerate(zip(attributes, budgets, strict=True)):
            leaves, sides = separated(self.leaves(attribute, place, budget), place, rules)
            found.append(coding_of(attribute, leaves, most, variance, sides))
        return found

    def release(
        self, attributes: Sequence[Attribute], rules: Sequence[StructuralZero] = ()
    ) -> SyntheticRelease:
        """Make all rounds, the model and the records."""
        codings = self.codings(attributes, rules)
        binned = [
            [each.bins(codes) for each, codes in zip(codings, part, strict=True)] for part in self.parts
        ]
        sizes, pairs = [each.n_bins for each in codings], all_pairs(len(codings))
        measurements = [each.measurement(place) for place, each in enumerate(codings)]
        chosen: list[Attributes] = []
        if pairs:
            noise = self.rounds[1].noise(SCORE, len(pairs), self.honest, UNIT)
            answer = self.ask(noise, binned, lambda part: scores(part, codings)).tolist()
            variance = self.pair_variance(len(attributes))
            most = most_pairs(len(attributes), self.n_records)
            chosen = choose_pairs(
                dict(zip(pairs, answer, strict=True)), dict.fromkeys(pairs, variance), sizes, most
            )
            noise = self.rounds[2].noise(TABLE, len(chosen), self.honest)
            for i, j in chosen:
                counts = self.ask(noise, binned, partial(_pair, i=i, j=j, shape=(sizes[i], sizes[j])))
                variances = np.full(counts.size, self.variance(noise))
                measurements.append(Measurement((i, j), counts.astype(np.float64), variances))
        model = fit(sizes, measurements, self.n_records, impossible_cells(codings, rules))
        seed = sha256(b"".join(each.counts.tobytes() for each in measurements)).digest()
        codes = draw_records(model, codings, self.n_records, Keystream(seed))
        return SyntheticRelease(codes, codings, chosen, measurements, model)
