"""Records made ready: every attribute sorted once, and some people left out of what will be attacked."""

from collections.abc import Mapping, Sequence

import numpy as np

from common.errors import UsageError
from owner_node.explore.assessment import Randomness, Subject, Wanted, baseline_of, crowd_of
from owner_node.explore.draws import SortedAttribute
from owner_node.explore.utility import Originals
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.masking.mask import for_each
from owner_node.masking.tasks import AttributeTask

CONTROL_SHARE, MOST_CONTROLS = 10, 300
"""One record in so many is left out of the releases that are attacked, and at most so many are."""


def subject_of(
    columns: Mapping[str, Int64Array],
    tasks: Sequence[AttributeTask],
    wanted: Wanted,
    randomness: Randomness,
    fewest_members: int = 0,
) -> Subject:
    """Sort all attributes once, and once more without the people who are left out for the attacks.

    Args:
        columns: Original values by attribute, `(n_records,)` each, in resolution units.
        tasks: Any way of masking them.
        wanted: What is to be found out.
        randomness: Where ties and choices come from.
        fewest_members: People who are not left out, at least: no clusters of k are made of fewer than k.

    Raises:
        UsageError: If there are too few records to leave one out.
    """
    n_records = columns[tasks[0].attribute.name].size
    if n_records < 2:
        raise UsageError(f"{n_records} record is too little to be explored", "explore more of them")
    whole = _sorted(columns, tasks, randomness.bits)
    classes = baseline_of(whole, wanted, int(randomness.choices.integers(2**31)))
    if not wanted.attacks:
        return Subject(whole, None, None, classes, wanted)
    n_outside = min(n_records // CONTROL_SHARE, MOST_CONTROLS, max(n_records - fewest_members, 0))
    left_out = np.zeros(n_records, dtype=np.bool_)
    left_out[randomness.choices.choice(n_records, n_outside, replace=False)] = True
    members = _sorted({name: column[~left_out] for name, column in columns.items()}, tasks, randomness.bits)
    outside = [columns[task.attribute.name][left_out] for task in tasks]
    return Subject(whole, members, crowd_of(members, outside), classes, wanted)


def _sorted(columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask], bits: BitSource) -> Originals:
    def one(task: AttributeTask) -> SortedAttribute:
        return SortedAttribute.of(columns[task.attribute.name], task, bits)

    return Originals.of(for_each(one, tasks, columns[tasks[0].attribute.name].size))
