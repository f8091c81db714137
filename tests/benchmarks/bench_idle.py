"""An owner daemon that has not masked yet: its memory, and how long it takes to be ready."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from deploy.local_cluster import LocalCluster
from deploy.local_setup import dataset, make_setup
from tests.benchmarks.result import Result

TURNS = 5
MEMORY_LIMIT = 80e6
SECONDS_LIMIT = 2.0
DATASET = dataset(
    {"name": "patients", "source": "patients.csv", "total_epsilon": "1"},
    {"age": {"type": "integer", "min": 0, "max": 120}},
)


def run() -> Iterator[Result]:
    """Measure starts of an owner daemon whose aggregator is running."""
    with tempfile.TemporaryDirectory(prefix="idle-") as name:
        make_setup(Path(name), {"a": DATASET})
        with LocalCluster(Path(name)) as cluster:
            cluster.start()
            owner, times = cluster.owner("a"), []
            for _ in range(TURNS):
                owner.stop()
                start = time.perf_counter()
                owner.start()
                owner.wait_for("ready")
                times.append(time.perf_counter() - start)
            cluster.wait_connected()
            resident = psutil.Process(owner.pid).memory_info().rss
    seconds = statistics.median(times)
    yield Result(
        "memory of an idle owner daemon / 80 MB", resident / MEMORY_LIMIT, 1.0, f"{resident / 1e6:.0f} MB"
    )
    yield Result("start of an owner daemon / 2 s", seconds / SECONDS_LIMIT, 1.0, f"{seconds:.2f} s")
