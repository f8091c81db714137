"""Estimates with an interval of confidence.

References:
    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    Student 1908, "The probable error of a mean".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np

CONFIDENCE = 0.95
_NORMAL = 1.959963984540054
"""The quantile of the standard normal distribution that 2.5 % are above."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that draws of noise, or a choice of records, stand behind."""

    mean: float
    """The estimate."""
    low: float
    """Lower end of its 95 % confidence interval."""
    high: float
    """Upper end of it."""

    def to_document(self) -> dict[str, float]:
        """Return the estimate as the results hold it."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


def estimate(values: Sequence[float], most: float = inf) -> Estimate | None:
    """Estimate the mean of what repetitions gave, by Student's distribution.

    Args:
        values: One number per repetition, none below 0.
        most: The largest number there can be.

    Returns:
        The estimate; of one repetition it is the number itself. None if there is none, or one is not finite.
    """
    if not values or not all(map(isfinite, values)):
        return None
    mean = float(np.mean(values))
    margin = _margin(values)
    return Estimate(mean, max(0.0, mean - margin), min(most, mean + margin))


def share(rates: Sequence[float], n_targets: int) -> Estimate:
    """Estimate a share of records, such as the success of an attack.

    What is uncertain is both which records were looked at and which noise was drawn, so the interval is the
    wider one of Wilson's for the records of one repetition and Student's for the repetitions.

    Args:
        rates: One share per repetition, from 0 to 1.
        n_targets: Records that each of them is a share of.

    Returns:
        The estimate, within 0 and 1.
    """
    mean = float(np.mean(rates))
    spread = _NORMAL**2 / n_targets
    centre = (mean + spread / 2) / (1 + spread)
    reach = _NORMAL / (1 + spread) * sqrt(mean * (1 - mean) / n_targets + spread / (4 * n_targets))
    margin = _margin(rates)
    return Estimate(
        mean,
        max(0.0, min(mean, centre - reach, mean - margin)),
        min(1.0, max(mean, centre + reach, mean + margin)),
    )


def _margin(values: Sequence[float]) -> float:
    """Return how far the interval of a mean reaches to each side; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    from scipy.special import stdtrit

    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return quantile * float(np.std(values, ddof=1)) / sqrt(n)


def document_of(found: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate's document; None where there is no estimate."""
    return None if found is None else found.to_document()
