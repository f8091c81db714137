"""A horizontal Adult release over four running daemons, against masking the four fragments in one process.

The release is timed as a user has it: from the command to its end. Masking is only masking: the tables are in
memory, one after another.
"""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common.model.plan import Plan
from common.release.verification import verify_release
from deploy.local_cluster import LocalCluster
from owner_node.config import load as load_config
from owner_node.masking.mask import mask_table
from owner_node.release.masked import MASKED
from owner_node.release.product import Prepared
from tests.benchmarks.result import Result
from tests.needs import missing_data
from tests.papers.prepare import DATASET, prepare
from tests.papers.run_setup import make_release

TURNS = 3
TIMES_MASKING = 3
SECONDS = 2.0


def run() -> Iterator[Result]:
    """Measure releases of the data set that `TESSERA_DATA` has."""
    if missing := missing_data():
        yield Result("Adult releases", math.inf, 1.0, f"not measured: {missing}")
        return
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        owners = prepare("adult-horizontal", Path(os.environ["TESSERA_DATA"]), folder)
        with LocalCluster(folder, owners) as cluster:
            cluster.start()
            made, first, later = _releases(cluster, owners)
        plan = verify_release(made).plan
        masking = _masking([_prepared(folder, plan, owner) for owner in owners])
    allowed = TIMES_MASKING * masking + SECONDS
    for name, seconds in (("first Adult release", first), ("later Adult releases", later)):
        detail = f"{seconds:.2f} s against {TIMES_MASKING} × {masking:.3f} s + {SECONDS:.0f} s"
        yield Result(f"{name} / ({TIMES_MASKING} × masking + 2 s)", seconds / allowed, 1.0, detail)


def _releases(cluster: LocalCluster, owners: list[str]) -> tuple[Path, float, float]:
    """Make several releases; return the last one, the first one's seconds, the median of the others'."""
    times, made = [], Path()
    # During the first one the daemons load their libraries.
    for turn in range(TURNS + 1):
        start = time.perf_counter()
        made = make_release(cluster, "horizontal", owners, f"r{turn}", "1", "50")
        times.append(time.perf_counter() - start)
    return made, times[0], statistics.median(times[1:])


def _prepared(folder: Path, plan: Plan, owner: str) -> Prepared:
    config = load_config(folder / "owners" / owner / "owner.toml")
    return MASKED.prepare(config.dataset(DATASET), plan, plan.assignment_of(owner), None)


def _masking(fragments: list[Prepared]) -> float:
    """Return the median of the seconds that masking all takes."""
    times = []
    for _ in range(TURNS + 1):
        start = time.perf_counter()
        for fragment in fragments:
            mask_table(fragment.records, fragment.tasks)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
