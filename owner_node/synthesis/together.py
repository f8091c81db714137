"""Synthetic releases of owners whose records are all here: an owner alone, or owners of an experiment."""

from collections.abc import Sequence

import numpy as np

from common.arrays import Int64Array
from common.check import Check, unchecked
from common.synthesis.schedule import Design, Round, SyntheticRelease, run_rounds, synthesise
from owner_node.masking.arrays import BitSource
from owner_node.synthesis.counts import Columns, noisy_answer


def synthesise_together(
    design: Design, parts: Sequence[Columns], bits: Sequence[BitSource], check: Check = unchecked
) -> SyntheticRelease:
    """Make all rounds of a release, and its records.

    Args:
        bits: Each owner's source of random bits.
        check: Called often while records are made; it may raise.
    """

    def answer(asked: Round) -> Int64Array:
        answers = [noisy_answer(asked, part, source) for part, source in zip(parts, bits, strict=True)]
        sums: Int64Array = np.sum(answers, axis=0, dtype=np.int64)
        return sums

    return synthesise(design, run_rounds(design, answer), check)
