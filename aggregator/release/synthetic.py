"""The product of synthetic records at the aggregator: made of the sums of owners' noisy counts.

Everything follows from plan and sums, so another attempt makes the same records.
"""

from collections.abc import Callable, Generator

import numpy as np
import pyarrow as pa

from aggregator.release.product import AggregatorProduct, Material
from common.errors import InternalError
from common.model.plan import Plan
from common.planning.synthetic import design_of
from common.release.counts import counts_table
from common.release.table import release_table
from common.synthesis.records import synthesise
from common.synthesis.sample import MOST_RECORDS
from common.synthesis.schedule import RoundSums, next_round
from common.workspace import Workspace

_COPIES = 6
"""How often a column of all records is there while records are drawn and written."""


class Synthetic(AggregatorProduct):
    """Records made of noisy counts; no fragment is ever sent for them."""

    def needed_memory(self, plan: Plan) -> int:
        """Return the bytes of memory that drawing takes at least: all records are drawn at once."""
        n_records = min(design_of(plan).n_records, MOST_RECORDS)
        return _COPIES * 8 * n_records * len(plan.counted)

    def needed_room(self, *_arguments: object) -> int:
        """Return 0: nothing is written to the scratch folder."""
        return 0

    def noisy_counts(self, material: Material) -> pa.Table | None:
        """Return the noisy counts that are released beside the records."""
        return counts_table(_measured(material))

    def join(
        self, material: Material, _workspace: Workspace, advance: Callable[[int], None]
    ) -> Generator[pa.Table]:
        """Make the records; they come in one piece, with slots of events in units as further columns."""
        made = synthesise(_measured(material), lambda: advance(0))
        advance(sum(material.counts.values()))
        units = made.units
        records = release_table(material.plan, units, made.measured.design.n_records)
        for each in (each for each in material.plan.attributes if each.slot > 0):
            records = records.append_column(each.name, pa.array(units[each.name]))
        yield records


def _measured(material: Material) -> RoundSums:
    design = design_of(material.plan, material.n_records)
    sums = [np.frombuffer(numbers, dtype="<i8").astype(np.int64) for numbers in material.sums]
    measured = next_round(design, sums)
    if not isinstance(measured, RoundSums):
        raise InternalError("a synthetic release is published before all rounds are answered")
    return measured


SYNTHETIC = Synthetic()
