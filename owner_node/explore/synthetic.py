"""What synthetic tables of an owner's own data would be worth: expected from public numbers, and tried.

Trials draw noise for this alone, and none of them is released. What they show depends on the data: it is for
their owner.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from common.planning.synthetic import ExpectedErrors, expected_errors, has_enough_records, own_design
from common.words.synthetic import expected_noise
from owner_node.explore.sweep import ExploredTable
from owner_node.masking.arrays import BitSource
from owner_node.risk.total_variation import Distributions
from owner_node.synthesis.together import synthesise_together


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
    n_pairs: float
    """Mean number of pairs that were counted."""
    relations: Mapping[tuple[str, str], float]
    """Share of the trials that counted a pair, by pair and the largest first."""
    noise: str
    """What to expect, in words."""
    fits: bool
    """Whether there are enough records for a model."""

    def to_document(self) -> dict[str, Any]:
        """Return what `explore --json` shows."""
        return {
            "epsilon": self.epsilon,
            "expected_one_way": f"{self.expected.one_way:.3g}",
            "expected_two_way": f"{self.expected.two_way:.3g}",
            "one_way": f"{self.one_way:.3g}",
            "two_way": f"{self.two_way:.3g}",
            "pairs": f"{self.n_pairs:.3g}",
            "relations": [
                {"first": first, "second": second, "share": f"{share:.3g}"}
                for (first, second), share in self.relations.items()
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
) -> list[TriedTable]:
    """Make synthetic tables of some ε, and compare them with the original records.

    Args:
        epsilons: ε of the whole record of a person.
        progress: Called after every trial with how many are made, and how many there are.

    Raises:
        UsageError, UnusableDataError: If such a table is not possible.
    """
    attributes, n_records = table.schema.attributes, table.records.n_records
    designs = [own_design(table.schema, n_records, epsilon, delta) for epsilon in epsilons]
    columns = table.records.columns
    codes = [columns[attribute.name] - attribute.lower for attribute in attributes]
    distributions = Distributions.of(attributes, columns)
    tried, done = [], 0
    for design in designs:
        variations: list[tuple[float, ...]] = []
        counted: Counter[tuple[str, str]] = Counter()
        for _ in range(repetitions):
            made = synthesise_together(design, [codes], [bits])
            drawn = [
                column + attribute.lower for column, attribute in zip(made.codes, attributes, strict=True)
            ]
            variations.append((*distributions.total_variation(drawn), len(made.measured.pairs)))
            counted.update((attributes[i].name, attributes[j].name) for i, j in made.measured.pairs)
            done += 1
            progress(done, repetitions * len(designs))
        one, two, pairs = np.mean(variations, axis=0).tolist()
        tried.append(
            TriedTable(
                design.epsilon, expected_errors(design), one, two, pairs,
                {pair: n / repetitions for pair, n in counted.most_common()}, expected_noise(design),
                has_enough_records(design),
            )
        )  # fmt: skip
    return tried
