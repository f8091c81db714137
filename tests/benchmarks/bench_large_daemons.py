"""Releases of owners of ten million records each, through real daemons with one gigabyte each.

Three owners of the same five attributes, and two that divide them between them. Everything is as users have
it: sources in Parquet, programs of the wheel, a command that waits. The measure is the peak memory of the
largest process.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.local_cluster import LocalCluster
from deploy.local_process import PROGRAMS
from deploy.local_setup import dataset, make_setup, section, share_linkage_key
from deploy.wheel_environment import programs
from tests.benchmarks.daemon_memory import daemons, memory
from tests.benchmarks.result import Result

N_RECORDS = 10**7
NAMES = tuple(f"value_{number}" for number in range(5))
PARTS = {
    "horizontal": {"a": NAMES, "b": NAMES, "c": NAMES},
    "vertical": {"a": NAMES[:3], "b": NAMES[3:]},
}
"""The attributes of each owner by layout."""
LARGEST = 10**7
LARGEST_PROCESS = 1.5e9
"""Bytes that a process may have resident, its libraries included."""
ENGINE = section("[engine]", {"memory_limit": "1GB", "threads": 2})
BLOCK = 2**20
SECONDS = 3 * 3600
_DEADLINES = dict.fromkeys(("link", "mask", "collect"), "3h")


def run() -> Iterator[Result]:
    """Make one release of each layout."""
    with _installed():
        for layout, parts in PARTS.items():
            with tempfile.TemporaryDirectory(prefix="large-") as name:
                yield from _released(Path(name), layout, parts)


@contextmanager
def _installed() -> Iterator[None]:
    """Run what the wheel installs."""
    before = os.environ.get(PROGRAMS)
    os.environ[PROGRAMS] = str(programs())
    try:
        yield
    finally:
        if before is None:
            del os.environ[PROGRAMS]
        else:
            os.environ[PROGRAMS] = before


def _released(folder: Path, layout: str, parts: dict[str, tuple[str, ...]]) -> Iterator[Result]:
    """Make a release, and say what every process took."""
    make_setup(folder, {owner: _says(names) for owner, names in parts.items()}, deadlines=_DEADLINES)
    with (folder / "aggregator" / "aggregator.toml").open("a") as stream:
        stream.write(f"\n{ENGINE}")
    for number, (owner, names) in enumerate(parts.items()):
        first = number * N_RECORDS if layout == "horizontal" else 0
        _write(folder / "owners" / owner / "people.parquet", names, first, number)
    share_linkage_key(folder, list(parts))
    with LocalCluster(folder) as cluster:
        cluster.start()
        began = time.perf_counter()
        ended = cluster.cli(
            *(
                "aggregator",
                "release",
                "--dataset",
                "people",
                "--layout",
                layout,
                "--owners",
                ",".join(parts),
            ),
            *("--epsilon", "5", "--k", "500", "--mechanism", "idp-joint", "--id", layout, "--yes", "--json"),
            timeout=SECONDS,
        )
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise RuntimeError(f"the {layout} release ended with {ended.stdout}{ended.stderr}")
        peaks = {each.name: memory(each, "VmHWM") for each in daemons(cluster)}
    taken = ", ".join(f"{name} {peak / 1e9:.2f} GB" for name, peak in peaks.items())
    detail = f"{N_RECORDS:,} records at each of {len(parts)} owners in {seconds:.0f} s; {taken}"
    largest = max(peaks.values())
    yield Result(
        f"largest process of a {layout} release through daemons / 1.5 GB",
        largest / LARGEST_PROCESS,
        1.0,
        detail,
    )


def _says(names: tuple[str, ...]) -> str:
    """Return an owner's settings."""
    about = {"name": "people", "source": "people.parquet", "total_epsilon": "100", "identifier": "person"}
    declared = {name: {"type": "integer", "min": 0, "max": LARGEST} for name in names}
    return f"{ENGINE}\n{dataset(about, declared)}"


def _write(path: Path, names: tuple[str, ...], first: int, seed: int) -> None:
    """Write an owner's people, numbered from `first` on, in an order of its own."""
    draw = np.random.default_rng(seed)
    people = first + draw.permutation(N_RECORDS)
    schema = pa.schema([("person", pa.string()), *((name, pa.int64()) for name in names)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, N_RECORDS, BLOCK):
            some = people[start : start + BLOCK]
            columns = [draw.integers(0, LARGEST, some.size, endpoint=True) for _ in names]
            writer.write_table(pa.table([pa.array(some).cast(pa.string()), *columns], schema=schema))
