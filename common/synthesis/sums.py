"""Sums of owners' answers under masks that cancel when all are added (`owner_node.synthesis.masks`)."""

from collections.abc import Mapping

import numpy as np

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.rounds import FIRST_COUNTED

LARGEST_SUM = 2**40
"""Counts in units of a quarter of a record, scores and noise stay far below; sums of other vectors, or of
vectors under other masks, do so with a probability of 2^-23 each."""
NUMBER = np.dtype("<u8")


def add_answers(answers: Mapping[str, bytes], n_numbers: int) -> Int64Array:
    """Add the answers of all owners.

    Args:
        answers: By owner id.

    Returns:
        The sum of the owners' vectors, `(n_numbers,)`.

    Raises:
        IntegrityError: If an answer has another length.
    """
    total = np.zeros(n_numbers, dtype=NUMBER)
    for owner, answer in answers.items():
        if len(answer) != n_numbers * NUMBER.itemsize:
            raise IntegrityError(
                f"the answer of {owner} has {len(answer)} bytes, {n_numbers} numbers have "
                f"{n_numbers * NUMBER.itemsize}",
                "both sides must run compatible versions",
                {"owner": owner},
            )
        total += np.frombuffer(answer, dtype=NUMBER)
    return total.astype(np.uint64).view(np.int64)


def check_sums(sums: Int64Array, round_number: int) -> None:
    """Check that sums can be those of a round: masks cancelled.

    Raises:
        IntegrityError: If one is out of bounds, or none of the first round is zero: an answer is missing,
            changed or of another round, or an owner has other keys than it says.
    """
    if round_number < FIRST_COUNTED and bool(sums.any()):
        raise IntegrityError(
            "the masks of the owners do not cancel: one has another linkage key, key for sums or version",
            "nothing was spent; compare linkage keys (owner-node linkage-key show) and versions of all",
        )
    beyond = int(np.count_nonzero((sums > LARGEST_SUM) | (sums < -LARGEST_SUM)))
    if beyond:
        raise IntegrityError(
            f"{beyond:,} of {sums.size:,} sums of the owners' answers are out of bounds: their masks do not "
            "cancel",
            "an owner answered another round or plan, or an answer was changed",
        )
