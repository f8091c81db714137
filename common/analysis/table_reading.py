"""A synthetic table of one owner for analysis: verified, as a pandas or Arrow table, with its noisy counts.

import tessera

table = tessera.read_table("patients.parquet")
table.frame, table.counts.means()
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common.analysis.noisy_counts import NoisyCounts
from common.analysis.reading import to_frame
from common.release.synthetic_table import VerifiedTable, records_table, verify_table
from common.words.numbers import cost_text

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: str | Path) -> "SyntheticTable":
    """Verify a synthetic table as `aggregator verify` does, and read it.

    Args:
        path: The file of the records; noisy counts and report are beside it.
    """
    return SyntheticTable(verify_table(Path(path)))


class SyntheticTable:
    """A verified synthetic table."""

    def __init__(self, verified: VerifiedTable) -> None:
        self.verified = verified
        """The checked parts: design, counts, report."""

    @property
    def report(self) -> Mapping[str, Any]:
        """How it was made; all numbers are texts."""
        return self.verified.report

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Sentences that state what is promised."""
        return tuple(self.report["promises"])

    @property
    def invariants(self) -> tuple[str, ...]:
        """Sentences that state what is not hidden."""
        return tuple(self.report["invariants"])

    @cached_property
    def counts(self) -> NoisyCounts:
        """The noisy counts, and estimates from them alone."""
        verified = self.verified
        return NoisyCounts(verified.made.measured, verified.following)

    @cached_property
    def table(self) -> pa.Table:
        """The records as an Arrow table."""
        return records_table(self.verified.made, self.verified.following)

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The records as a DataFrame; see `common.analysis.reading.to_frame` for its types."""
        import pandas as pd

        return to_frame(self.table, self.verified.released, pd.RangeIndex(self.table.num_rows))

    def __repr__(self) -> str:
        design = self.verified.design
        return (
            f"<synthetic table {self.report['id']}: {design.n_records:,} records, {len(design.attributes)} "
            f"attributes, {cost_text(design.epsilon, design.delta)}; verified>"
        )
