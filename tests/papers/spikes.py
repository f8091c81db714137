"""What declared spikes do for Adult's capital gains and losses, nine tenths of which are 0.

One attribute as `auto` plans it, without rank noise: with a share of ε of ten, and errors with other shares.
"""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from common.model.schema import Attribute, AttributeType, round_to_leading_digit
from common.planning.attributes import plan_attribute
from owner_node.masking.arrays import Float64Array, Int64Array, SystemBits
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.draws import SortedAttribute
from tests.papers.tables import Numbers

EPSILON = Decimal("0.1")
EPSILONS = tuple(map(Decimal, ("0.02", "0.05", "0.1", "0.2", "0.5", "1")))
"""Of the table of squared errors."""
HEADS = (
    "attribute, spikes",
    "share of zeros",
    "least",
    "most",
    "mean",
    "standard deviation",
    "squared error",
    "total variation",
)
_WIDTH = 1000
"""Of the bars whose total variation is taken; 0 has one of its own."""
_SETTINGS = (
    ("capital_gain", 99_999, ()),
    ("capital_gain", 99_999, (0,)),
    ("capital_gain", 99_999, (0, 99_999)),
    ("capital_loss", 4_356, ()),
    ("capital_loss", 4_356, (0,)),
)


def _bars(values: Int64Array, upper: int) -> Float64Array:
    """Return the shares of the records that bars have."""
    bars = np.where(values > 0, values // _WIDTH + 1, 0)
    shares: Float64Array = np.bincount(bars, minlength=upper // _WIDTH + 2) / values.size
    return shares


@dataclass(frozen=True, slots=True)
class _Measured:
    """Means over draws; the squared error is a share of the variance."""

    zeros: Float64Array
    """Share of zeros of every draw."""
    mean: float
    deviation: float
    error: float
    total_variation: float


def _measured(values: Int64Array, attribute: Attribute, epsilon: Decimal, runs: int) -> _Measured:
    planned = plan_attribute(
        attribute,
        mechanism="auto",
        epsilon=epsilon,
        k=None,
        records_rounded=round_to_leading_digit(values.size),
    )
    task = AttributeTask(
        attribute, epsilon, planned.k, planned.mechanism, epsilon_spikes=planned.epsilon_spikes
    )
    own, found = SortedAttribute.of(values, task, SystemBits()), []
    for _ in range(runs):
        draw = own.draw(task, SystemBits())
        masked = own.by_record(draw)
        apart = np.abs(_bars(masked, attribute.upper) - _bars(values, attribute.upper)).sum() / 2
        found.append(((masked == 0).mean(), masked.mean(), masked.std(), own.error(draw) or 0.0, apart))
    zeros, *others = np.array(found).T
    return _Measured(zeros, *(float(each.mean()) for each in others))


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV files; returns the tables of docs/decisions.md by name."""
    table = pd.read_csv(data / "adult.csv", keep_default_na=False)
    shares, errors = list[tuple[str, tuple[float, ...]]](), list[tuple[str, tuple[float, ...]]]()
    for name, upper, spikes in _SETTINGS:
        values = table[name].to_numpy(dtype=np.int64)
        if not spikes:
            zeros = float((values == 0).mean())
            original = (zeros, zeros, zeros, values.mean(), values.std(), 0.0, 0.0)
            shares.append((f"{name}, original", original))
        attribute = Attribute(name, AttributeType.INTEGER, 0, upper, spikes=spikes)
        by_epsilon = {each: _measured(values, attribute, each, runs) for each in EPSILONS}
        found, label = (
            by_epsilon[EPSILON],
            f"{name}, {' and '.join(f'{each:,}' for each in spikes) or 'none'}",
        )
        ends = (float(each) for each in (found.zeros.mean(), found.zeros.min(), found.zeros.max()))
        shares.append((label, (*ends, found.mean, found.deviation, found.error, found.total_variation)))
        errors.append((label, tuple(each.error for each in by_epsilon.values())))
    tables = {
        "spikes": Numbers(HEADS, tuple(shares)),
        "spikes errors": Numbers(("attribute, spikes", *(f"ε = {each}" for each in EPSILONS)), tuple(errors)),
    }
    for name, made in tables.items():
        made.write(out / f"{name.replace(' ', '_')}.csv")
    about = f"Adult's 48,842 records, {runs} draws each."
    return {name: f"{about}\n\n{made.markdown()}" for name, made in tables.items()}
