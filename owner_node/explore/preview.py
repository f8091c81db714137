"""What one plan would do to the data that it asks for, tried before a person agrees to it.

The draws are made for this alone, so that what is shown says nothing about the noise of the release.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from owner_node.explore.assessment import Randomness, Wanted, risks_of
from owner_node.explore.attacks import ATTACKS
from owner_node.explore.estimates import document_of
from owner_node.explore.subjects import subject_of
from owner_node.explore.utility import measure
from owner_node.masking.arrays import Int64Array
from owner_node.masking.mask import AttributeTask

REPETITIONS, DEEP_REPETITIONS = 3, 3
MOST_VALUES = 500_000
"""Records times attributes up to which a preview is made: it takes some seconds then."""


def preview(
    columns: Mapping[str, Int64Array], tasks: Sequence[AttributeTask], randomness: Randomness
) -> dict[str, Any]:
    """Try a plan on the records that it asks for.

    Args:
        columns: Original values by attribute, `(n_records,)` each, in resolution units.
        tasks: How the plan masks each attribute.
        randomness: Where noise and choices come from.

    Returns:
        `{mean_sse, mean_sse_of_means, risks}`, each as in `results`.

    Raises:
        UnusableDataError: If there are too few records.
    """
    everything = np.arange(len(tasks))
    wanted = Wanted(REPETITIONS, DEEP_REPETITIONS, (), ATTACKS, everything, everything)
    subject = subject_of(columns, tasks, wanted, randomness)
    found = measure(subject.whole, tasks, REPETITIONS, (), randomness.bits)
    return {
        "mean_sse": document_of(found.mean_sse()),
        "mean_sse_of_means": 1 / len(tasks),
        "risks": [risk.to_document() for risk in risks_of(tasks, subject, randomness)],
    }
