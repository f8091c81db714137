"""Joining three vertical fragments of 3 × 10^6 records, against engines that join tables: time and memory.

Ours also shuffles the records and gives them their release types; what it is compared with only joins tables
that are in memory. Each engine has processes of its own, since what is given back to the system by one engine
would be counted against the next. An aggregator joins once in a while, so that the first join of a process,
libraries loaded, is what its user waits for; later ones find memory that the process has already.

Memory counts everything above the loaded libraries: the fragments, which are decoded from files as the
aggregator has them, the joined table and what joining needs beside them.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.arrays import sortable
from tests.benchmarks.join_party import ENGINES, GROUPS, N_RECORDS, OURS, grid, upper
from tests.benchmarks.result import Result
from tests.fakes.releases import encoded

TIME_LIMIT = 1.0
MEMORY_LIMIT = 3.0
TURNS = 3


def run() -> Iterator[Result]:
    """Measure every engine, and memory, in processes of their own, whose memory holds nothing else."""
    with tempfile.TemporaryDirectory(prefix="join-") as name:
        _write_fragments(Path(name))
        taken = [{engine: _measure(engine, name) for engine in ENGINES} for _ in range(TURNS)]
        memory = _measure("memory", name)
    for which in ("first", "later"):
        seconds = {engine: statistics.median(turn[engine][which] for turn in taken) for engine in ENGINES}
        yield _times(which, seconds)
    table, peak = memory["table"], memory["peak"]
    detail = f"{peak / 1e6:.0f} MB above the libraries, the joined table has {table / 1e6:.0f} MB"
    yield Result("peak memory of a join / joined table", peak / table, MEMORY_LIMIT, detail)


def _measure(engine: str, folder: str) -> Any:
    command = [sys.executable, "-m", "tests.benchmarks.join_party", engine, folder]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _times(which: str, seconds: dict[str, float]) -> Result:
    ours = seconds.pop(OURS)
    best = min(seconds, key=seconds.__getitem__)
    others = ", ".join(f"{engine} {taken:.2f} s" for engine, taken in sorted(seconds.items()))
    detail = f"{N_RECORDS:,} records of 3 owners in {ours:.2f} s against {others}"
    return Result(f"{which} join and shuffle / join by {best}", ours / seconds[best], TIME_LIMIT, detail)


def _write_fragments(folder: Path) -> None:
    """Write the fragments, each in the order of its tokens."""
    rng, plan = np.random.default_rng(1), grid()
    tokens = rng.integers(0, 256, (N_RECORDS, 16), dtype=np.uint8)
    order = np.argsort(sortable(tokens), kind="stable").astype(np.int64)
    for names, (owner,) in GROUPS:
        columns = {name: rng.integers(0, upper(name), N_RECORDS) for name in names}
        fragment = encoded(plan.assignment_of(owner), columns, order, tokens)
        (folder / owner).write_bytes(fragment)
