"""How masking distorts single attributes: their means, their zeros, and their most frequent values.

An expected error says little about a skewed attribute: where nearly all values are 0, a small error can still
turn half of the zeros into other values. The numbers depend on the data and are for their owner only. They
come from draws of their own and disclose nothing about the noise of a release.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute
from common.words.numbers import number_text, percent_text
from owner_node.masking.arrays import BitSource
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.utility import OriginalRecords

REPETITIONS = 3
"""Draws that every number is averaged over."""
SHARE = 0.05
"""A share of records that changes by this much or more is a distortion."""
MEAN_SHARE = 0.1
"""So is a mean of values with a natural zero that changes by this share of itself."""
SPREAD_SHARE = 0.05
"""And any mean that changes by this share of the standard deviation."""


def distortions(
    whole: OriginalRecords, tasks: Sequence[AttributeTask], bits: BitSource
) -> list[dict[str, Any]]:
    """Mask a few times, and compare means, zeros and most frequent values with the original ones.

    Returns:
        For every attribute `{name, mean, zeros, most_frequent, distorted}`: `mean` and `zeros` are
        `{before, after}`, or null where the attribute has none; `most_frequent` is `{value, before, after}`;
        `distorted` names what is flagged.
    """
    draws = [whole.masked(tasks, bits) for _ in range(REPETITIONS)]
    return [
        _of_attribute(attribute.scale.attribute, attribute.original, columns)
        for attribute, *columns in zip(whole.attributes, *draws, strict=True)
    ]


def _of_attribute(attribute: Attribute, before: Int64Array, columns: Sequence[Int64Array]) -> dict[str, Any]:
    def share(value: int) -> dict[str, float]:
        after = np.mean([(column == value).mean() for column in columns])
        return {"before": float((before == value).mean()), "after": float(after)}

    values, counts = np.unique(before, return_counts=True)
    most = int(values[counts.argmax()])
    numbers = attribute.type.is_quantity
    has_zero = numbers and attribute.lower <= 0 <= attribute.upper
    effect: dict[str, Any] = {
        "name": attribute.name,
        "mean": None,
        "zeros": share(0) if has_zero else None,
        "most_frequent": {"value": attribute.text(most), **share(most)},
    }
    flags = [
        key
        for key in ("zeros", "most_frequent")
        if (shares := effect[key]) and abs(shares["after"] - shares["before"]) >= SHARE
    ]
    if numbers:
        before, *columns = (column[column <= attribute.upper] for column in (before, *columns))
    if numbers and all(map(len, (before, *columns))):
        unit = float(attribute.unit)
        means = float(before.mean()), float(np.mean([column.mean() for column in columns]))
        moved, spread = abs(means[1] - means[0]), float(before.std())
        effect["mean"] = {"before": means[0] * unit, "after": means[1] * unit}
        natural = attribute.lower >= 0 and moved >= MEAN_SHARE * means[0] > 0
        if natural or moved >= SPREAD_SHARE * spread > 0:
            flags.append("mean")
    return effect | {"distorted": flags}


def warnings(distortions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one short text for every attribute that is distorted."""
    return [
        f"{distortion['name']} {', '.join(_words(distortion))}"
        for distortion in distortions
        if distortion["distorted"]
    ]


def _words(distortion: Mapping[str, Any]) -> list[str]:
    words = []
    if "mean" in distortion["distorted"]:
        before, after = distortion["mean"]["before"], distortion["mean"]["after"]
        relative = (
            f"{100 * (after / before - 1):+.0f} %"
            if before > 0
            else f"{number_text(before)} → {number_text(after)}"
        )
        words.append(f"mean {relative}")
    most = distortion["most_frequent"]
    if "zeros" in distortion["distorted"]:
        words.append(f"zeros {_percent(distortion['zeros'])}")
    if "most_frequent" in distortion["distorted"] and most["value"] != "0":
        words.append(f"{most['value']!r} {_percent(most)}")
    return words


def _percent(share: Mapping[str, Any]) -> str:
    return f"{percent_text(share['before'])} → {percent_text(share['after'])}"
