"""Synthetic releases of owners whose records are all here: an owner alone, or owners of an experiment."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.synthesis.schedule import Design, RoundSums, SyntheticRelease, next_round, synthesise
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, noisy_answer

if TYPE_CHECKING:
    from common.arrays import Int64Array


def synthesise_together(
    design: Design, parts: Sequence[Columns], bits: Sequence[BitSource]
) -> SyntheticRelease:
    """Make all rounds of a release, and its records.

    Args:
        bits: Each owner's source of random bits.
    """
    sums: list[Int64Array] = []
    while not isinstance(asked := next_round(design, sums), RoundSums):
        answers = [noisy_answer(asked, part, source) for part, source in zip(parts, bits, strict=True)]
        sums.append(np.sum(answers, axis=0, dtype=np.int64))
    return synthesise(design, asked)
