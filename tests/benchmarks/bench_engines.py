"""The disk engine against SQL of DuckDB that sorts as often, and the memory engine; peak memory of both."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.result import Result

AGAINST_SQL = 1.5
AGAINST_MEMORY = 3.0
ONE_ATTRIBUTE = 5 * 10**7
FIVE_ATTRIBUTES = 2 * 10**7
GIGABYTE = 10**9
LIMIT_OF_FIVE = 85 * 10**7
"""Of a gigabyte that the process may take, libraries have a part before anything is loaded."""


def run() -> Iterator[Result]:
    """Measure one attribute of 5·10^7 records, and five of 2·10^7, from Parquet to Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        table = make_table(Path(folder), ONE_ATTRIBUTE, 1)
        ours, by_hand = run_work("disk", table, GIGABYTE), run_work("sql", table, GIGABYTE)
        yield times(
            f"mask {ONE_ATTRIBUTE:,} records × 1, disk engine / SQL by hand", ours, by_hand, AGAINST_SQL
        )
        yield _peak(f"peak memory of {ONE_ATTRIBUTE:,} × 1 / 1.5 GB", ours, 1.5 * GIGABYTE)
        table.unlink()
        table = make_table(Path(folder), FIVE_ATTRIBUTES, 5)
        ours, memory = run_work("disk", table, LIMIT_OF_FIVE), run_work("memory", table, LIMIT_OF_FIVE)
        name = f"mask {FIVE_ATTRIBUTES:,} records × 5, disk engine / memory engine"
        yield times(name, ours, memory, AGAINST_MEMORY)
        yield _peak(f"peak memory of {FIVE_ATTRIBUTES:,} × 5 / 1 GB", ours, GIGABYTE)


def make_table(folder: Path, n_records: int, n_attributes: int) -> Path:
    """Write a table of random integers."""
    path = folder / "people.parquet"
    _work("make", str(path), str(n_records), str(n_attributes))
    return path


def run_work(verb: str, table: Path, memory: int) -> dict[str, Any]:
    """Mask a table in a process of its own; return its seconds and peak memory."""
    out = table.with_name("masked.parquet")
    found: dict[str, Any] = json.loads(_work(verb, str(table), str(out), str(memory)))
    out.unlink()
    return found


def _work(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.benchmarks.engine_work", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def times(name: str, ours: dict[str, Any], other: dict[str, Any], limit: float) -> Result:
    """Compare seconds; the detail has those of a processor, too."""
    each = [f"{found['seconds']:.1f} s ({found['processor']:.1f} s of processor)" for found in (ours, other)]
    detail = " against ".join(each)
    return Result(name, ours["seconds"] / other["seconds"], limit, detail)


def _peak(name: str, ours: dict[str, Any], most: float) -> Result:
    return Result(name, ours["peak"] / most, 1.0, f"{ours['peak'] / 1e6:,.0f} MB")
