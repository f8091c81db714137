"""What declared spikes do for Adult's capital gains and losses, nine tenths of which are 0.

One attribute with a share of ε of ten, as `auto` plans it, without rank noise.
"""

from collections.abc import Iterator
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


def _rows(table: pd.DataFrame, runs: int) -> Iterator[tuple[str, tuple[float, ...]]]:
    for name, upper, spikes in _SETTINGS:
        values = table[name].to_numpy(dtype=np.int64)
        if not spikes:
            zeros = float((values == 0).mean())
            yield f"{name}, original", (zeros, zeros, zeros, values.mean(), values.std(), 0.0, 0.0)
        attribute = Attribute(name, AttributeType.INTEGER, 0, upper, spikes=spikes)
        rounded = round_to_leading_digit(values.size)
        planned = plan_attribute(
            attribute, mechanism="auto", epsilon=EPSILON, k=None, records_rounded=rounded
        )
        task = AttributeTask(
            attribute, EPSILON, planned.k, planned.mechanism, epsilon_spikes=planned.epsilon_spikes
        )
        own, found = SortedAttribute.of(values, task, SystemBits()), []
        for _ in range(runs):
            draw = own.draw(task, SystemBits())
            masked = own.by_record(draw)
            apart = np.abs(_bars(masked, upper) - _bars(values, upper)).sum() / 2
            zeros = float((masked == 0).mean())
            found.append((zeros, masked.mean(), masked.std(), own.error(draw) or 0.0, float(apart)))
        zeros, *others = np.mean(found, axis=0).tolist()
        ends = [float(end(each[0] for each in found)) for end in (min, max)]
        listed = " and ".join(f"{each:,}" for each in spikes) or "none"
        yield f"{name}, {listed}", (zeros, *ends, *others)


def run(data: Path, out: Path, runs: int) -> dict[str, str]:
    """Make the CSV file; returns its table of docs/decisions.md by name."""
    table = Numbers(HEADS, tuple(_rows(pd.read_csv(data / "adult.csv", keep_default_na=False), runs)))
    table.write(out / "spikes.csv")
    return {"spikes": f"Adult's 48,842 records, {runs} draws each.\n\n{table.markdown()}"}
