"""Distributions before and after masking, as few enough bars to look at."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.schema import Attribute
from owner_node.masking.arrays import Int64Array

MOST_BARS = 40
OTHERS = "all others"


def distribution(attribute: Attribute, original: Int64Array, masked: Int64Array) -> Mapping[str, Any]:
    """Count original and masked values in the same bars.

    Numbers and dates: bars of equal width from the smallest to the largest value that occurs in either.
    Categories: a bar each in declared order; the rarest together where there are too many.

    Args:
        attribute: The attribute.
        original: Values in resolution units, `(n_records,)`.
        masked: The same after masking.

    Returns:
        `{name, bins, original, masked}`.
    """
    if attribute.is_categorical:
        labels, counts = _of_categories(attribute, original, masked)
    else:
        labels, counts = _of_numbers(attribute, original, masked)
    return {
        "name": attribute.name,
        "bins": labels,
        "original": [int(each) for each in counts[0]],
        "masked": [int(each) for each in counts[1]],
    }


def _of_categories(
    attribute: Attribute, original: Int64Array, masked: Int64Array
) -> tuple[list[str], list[Int64Array]]:
    labels = list(attribute.categories or ("false", "true"))
    counts = [np.bincount(values, minlength=len(labels)) for values in (original, masked)]
    if len(labels) <= MOST_BARS:
        return labels, counts
    most = np.sort(np.argsort(-counts[0] - counts[1], kind="stable")[: MOST_BARS - 1])
    rest = [each.sum() - each[most].sum() for each in counts]
    return (
        [*(labels[each] for each in most), OTHERS],
        [np.append(each[most], other) for each, other in zip(counts, rest, strict=True)],
    )


def _of_numbers(
    attribute: Attribute, original: Int64Array, masked: Int64Array
) -> tuple[list[str], list[Int64Array]]:
    lowest = int(min(original.min(), masked.min()))
    highest = int(max(original.max(), masked.max()))
    width = -(-(highest - lowest + 1) // MOST_BARS)
    n_bars = -(-(highest - lowest + 1) // width)
    counts = [np.bincount((values - lowest) // width, minlength=n_bars) for values in (original, masked)]
    starts = [lowest + number * width for number in range(n_bars)]
    ends = [min(start + width - 1, highest) for start in starts]
    labels = [
        attribute.text(start) if start == end else f"{attribute.text(start)} … {attribute.text(end)}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return labels, counts
