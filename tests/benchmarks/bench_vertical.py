"""A vertical release of a million records by three owners with ten attributes, through real processes.

What it takes grows with the records, so memory is told in times the released table; the limits keep it from
growing unnoticed. The table counts as 64 bits for every value and record number.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.local_cluster import LocalCluster
from deploy.local_setup import dataset, make_setup, share_linkage_key
from tests.benchmarks.daemon_memory import daemons, memory
from tests.benchmarks.result import Result
from tests.papers.prepare import DATASET
from tests.papers.run_setup import make_release

N_RECORDS = 1_000_000
OWNERS = {"a": 4, "b": 3, "c": 3}
"""How many attributes each owner has."""
LARGEST = 100_000
TABLE_BYTES = 8 * N_RECORDS * (1 + sum(OWNERS.values()))
OWNER_LIMIT = 8.0
AGGREGATOR_LIMIT = 12.0
SECONDS_LIMIT = 60.0


def run() -> Iterator[Result]:
    """Make one release and look at the most memory that each daemon ever had."""
    with tempfile.TemporaryDirectory(prefix="vertical-") as name:
        folder = Path(name)
        _prepare(folder)
        with LocalCluster(folder) as cluster:
            cluster.start()
            idle = {daemon.name: memory(daemon, "VmRSS") for daemon in daemons(cluster)}
            start = time.perf_counter()
            make_release(cluster, "vertical", list(OWNERS), "first", "1", "100")
            seconds = time.perf_counter() - start
            peaks = {daemon.name: memory(daemon, "VmHWM") - idle[daemon.name] for daemon in daemons(cluster)}
    detail = (
        f"{N_RECORDS:,} records, {sum(OWNERS.values())} attributes of {len(OWNERS)} owners in {seconds:.1f} s"
    )
    yield Result(f"vertical release / {SECONDS_LIMIT:.0f} s", seconds / SECONDS_LIMIT, 1.0, detail)
    aggregator = peaks.pop(cluster.aggregator.name)
    owner = max(peaks.values())
    for side, peak, limit in (
        ("the aggregator", aggregator, AGGREGATOR_LIMIT), ("an owner", owner, OWNER_LIMIT)
    ):  # fmt: skip
        detail = f"{peak / 1e6:.0f} MB above idle, the released table has {TABLE_BYTES / 1e6:.0f} MB"
        yield Result(f"peak memory of {side} / released table", peak / TABLE_BYTES, limit, detail)


def _prepare(folder: Path) -> None:
    """Write every owner's Parquet file, its records in an order of their own, and the configurations."""
    rng, owners = np.random.default_rng(1), {}
    for owner, n_attributes in OWNERS.items():
        names = [f"{owner}{number}" for number in range(n_attributes)]
        columns = {name: rng.integers(0, LARGEST, N_RECORDS) for name in names}
        persons = pa.array(rng.permutation(N_RECORDS)).cast(pa.string())
        place = folder / "owners" / owner
        place.mkdir(parents=True)
        pq.write_table(pa.table({"person": persons, **columns}), place / "data.parquet")
        about = {"name": DATASET, "source": "data.parquet", "total_epsilon": "10", "identifier": "person"}
        kind = {"type": "integer", "min": 0, "max": LARGEST}
        owners[owner] = dataset(about, dict.fromkeys(names, kind))
    make_setup(folder, owners)
    share_linkage_key(folder, list(OWNERS))
