"""The Spark engine: against a job that sorts and numbers as often, on two processors of this machine."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.bench_engines import make_table, run_work, times
from tests.benchmarks.result import Result
from tests.needs import missing_spark

AGAINST_A_JOB = 1.5
N_RECORDS = int(os.environ.get("TESSERA_BENCH_RECORDS", "10000000"))
MEMORY = 4 * 10**9


def run() -> Iterator[Result]:
    """Measure five attributes from Parquet to Parquet; nothing where there is no Spark."""
    if missing_spark() is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        table = make_table(Path(folder), N_RECORDS, 5)
        ours, by_hand = run_work("spark", table, MEMORY), run_work("job", table, MEMORY)
        name = f"mask {N_RECORDS:,} records × 5, Spark engine / Spark by hand"
        yield times(name, ours, by_hand, AGAINST_A_JOB)
