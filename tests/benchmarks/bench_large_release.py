"""Releases of owners of ten million records each, joined and published within one gigabyte.

Three owners of the same attributes, and two of different ones. The fragments are made beforehand, in
processes of their own. The measured process reads them as the aggregator does, joins and shuffles them,
writes the release folder and verifies it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.release_party import MEMORY, OWNERS
from tests.benchmarks.result import Result

LARGEST_PROCESS = 1.5e9
"""Bytes that the process may have resident, its libraries included."""


def run() -> Iterator[Result]:
    """Measure in a process of its own, whose memory holds nothing else."""
    command = [sys.executable, "-m", "tests.benchmarks.release_party"]
    for layout, owners in OWNERS.items():
        with tempfile.TemporaryDirectory(prefix="large-") as name:
            for owner in owners:
                subprocess.run([*command, "write", layout, name, owner], check=True)
            done = subprocess.run([*command, "publish", layout, name], stdout=subprocess.PIPE, check=True)
            left = [each.name for each in (Path(name) / "scratch").glob("*")]
        if left:
            raise RuntimeError(f"the scratch folder still holds {left}")
        measured = json.loads(done.stdout)
        detail = (
            f"{measured['records']:,} records of {len(owners)} owners, 5 attributes, in "
            f"{measured['seconds']:.0f} s with memory_limit {MEMORY / 1e9:.0f} GB: "
            f"{measured['peak'] / 1e9:.2f} GB resident"
        )
        ratio = measured["peak"] / LARGEST_PROCESS
        yield Result(f"peak memory of a large {layout} release / 1.5 GB", ratio, 1.0, detail)
