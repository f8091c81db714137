"""What synthetic tables of an owner's own data would be worth: expected from public numbers, and tried.

Trials draw noise for this alone, and none of them is released. What they show depends on the data: it is for
their owner.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from common.planning.synthetic_noise import ExpectedErrors, expected_errors, has_enough_records
from common.words.synthetic import expected_noise
from owner_node.explore.sweep import ExploredTable
from owner_node.masking.arrays import BitSource
from owner_node.risk.total_variation import Distributions
from owner_node.synthesis.own_table import own_design, synthesise_together


@dataclass(frozen=True, slots=True)
class TriedTable:
    """Synthetic tables of one ε."""

    epsilon: Decimal
    expected: ExpectedErrors
    """From public numbers."""
    one_way: float
    """Mean total variation of single attributes, as it was in the trials."""
    two_way: float
    """The same of pairs of attributes; 0 for one attribute."""
    attributes: Mapping[str, float]
    """Mean total variation of each attribute in the trials, by name."""
    pairs: Mapping[tuple[str, str], float]
    """The same of each pair, also of those that are not counted."""
    noise: str
    """What to expect, in words."""
    fits: bool
    """Whether there are enough records."""

    def to_document(self) -> dict[str, Any]:
        """Return what `explore --json` shows."""
        return {
            "epsilon": self.epsilon,
            "expected_one_way": f"{self.expected.one_way:.3g}",
            "expected_two_way": f"{self.expected.two_way:.3g}",
            "one_way": f"{self.one_way:.3g}",
            "two_way": f"{self.two_way:.3g}",
            "attributes": [
                {"name": name, "expected": f"{self.expected.attributes[name]:.3g}", "found": f"{found:.3g}"}
                for name, found in self.attributes.items()
            ],
            "pairs": [
                {
                    "first": first,
                    "second": second,
                    "expected": None if each is None else f"{each:.3g}",
                    "found": f"{found:.3g}",
                }
                for (first, second), found in self.pairs.items()
                for each in [self.expected.pairs.get((first, second))]
            ],
            "noise": self.noise,
            "fits": self.fits,
        }


def try_tables(
    table: ExploredTable,
    epsilons: Sequence[Decimal],
    delta: Decimal,
    repetitions: int,
    bits: BitSource,
    progress: Callable[[int, int], None],
    pairs: Sequence[Sequence[str]] = (),
) -> list[TriedTable]:
    """Make synthetic tables of some ε, and compare them with the original records.

    Args:
        epsilons: ε of the whole record of a person.
        progress: Called with how many trials are made, and how many there are; also within a trial, so that
            it can end the work.
        pairs: Names of the pairs that are counted; empty for all.

    Raises:
        UsageError, UnusableDataError: If such a table is not possible.
    """
    attributes, n_records = table.schema.attributes, table.records.n_records
    designs = [own_design(table.schema, n_records, epsilon, delta, pairs) for epsilon in epsilons]
    columns = table.records.columns
    codes = [columns[attribute.name] - attribute.lower for attribute in attributes]
    distributions = Distributions.of(attributes, columns)
    tried, done, n_trials = [], 0, repetitions * len(designs)
    for design in designs:
        every = list(combinations([attribute.name for attribute in attributes], 2))
        ones, twos = np.zeros(len(attributes)), np.zeros(len(every))
        for _ in range(repetitions):
            made = synthesise_together(design, [codes], [bits], partial(progress, done, n_trials))
            drawn = [
                column + attribute.lower for column, attribute in zip(made.codes, attributes, strict=True)
            ]
            ones += distributions.of_single(drawn)
            twos += distributions.of_pairs(drawn)
            done += 1
            progress(done, n_trials)
        expected = expected_errors(design)
        by_name = dict(zip(expected.attributes, (ones / repetitions).tolist(), strict=True))
        by_pair = dict(zip(every, (twos / repetitions).tolist(), strict=True))
        tried.append(
            TriedTable(
                design.epsilon, expected, fmean(by_name.values()), fmean(by_pair.values() or [0.0]), by_name,
                by_pair, expected_noise(design), has_enough_records(design),
            )
        )  # fmt: skip
    return tried
