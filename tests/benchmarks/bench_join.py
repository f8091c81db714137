"""Joining three vertical fragments of 3 × 10^6 records, against engines that join tables: time and memory.

The fragments are decoded from files as the aggregator has them. Ours also shuffles the records and gives them
their release types; what it is compared with only joins. Memory counts everything above the loaded
libraries: the fragments, the joined table and what joining needs beside them.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.arrays import sortable
from tests.benchmarks.join_party import GROUPS, N_RECORDS, grid, upper
from tests.benchmarks.result import Result
from tests.fakes.releases import encoded

TIME_LIMIT = 1.0
MEMORY_LIMIT = 3.0


def run() -> Iterator[Result]:
    """Measure in a process of its own, whose memory holds nothing else."""
    with tempfile.TemporaryDirectory(prefix="join-") as name:
        _write_fragments(Path(name))
        command = [sys.executable, "-m", "tests.benchmarks.join_party", name]
        measured = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    seconds, table, peak = measured["seconds"], measured["table"], measured["peak"]
    ours = seconds.pop("ours")
    best = min(seconds, key=seconds.__getitem__)
    others = ", ".join(f"{engine} {taken:.2f} s" for engine, taken in sorted(seconds.items()))
    detail = f"{N_RECORDS:,} records of 3 owners in {ours:.2f} s against {others}"
    yield Result(f"join and shuffle / join by {best}", ours / seconds[best], TIME_LIMIT, detail)
    detail = f"{peak / 1e6:.0f} MB above the libraries, the joined table has {table / 1e6:.0f} MB"
    yield Result("peak memory of a join / joined table", peak / table, MEMORY_LIMIT, detail)


def _write_fragments(folder: Path) -> None:
    """Write the fragments, each in the order of its tokens."""
    rng, plan = np.random.default_rng(1), grid()
    tokens = rng.integers(0, 256, (N_RECORDS, 16), dtype=np.uint8)
    order = np.argsort(sortable(tokens), kind="stable").astype(np.int64)
    for names, (owner,) in GROUPS:
        columns = {name: rng.integers(0, upper(name), N_RECORDS) for name in names}
        fragment = encoded(plan.assignment_of(owner), columns, order, tokens)
        (folder / owner).write_bytes(fragment)
