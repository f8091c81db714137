"""Mixed releases of a million persons by two groups of two owners: strict, and with what plans can allow.

With `--max-overlap 2` and `--on-mismatch intersect`, 50,000 persons are at both owners of a group, and each
group has 100,000 persons that the other lacks. Each release has daemons of its own, whose memory holds
nothing else; what the exceptions take is told as a multiple of what a strict release of the same number of
records takes.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import from_document
from deploy.local_cluster import LocalCluster
from deploy.local_setup import dataset, make_setup, section, share_linkage_key
from tests.benchmarks.daemon_memory import daemons, memory
from tests.benchmarks.result import Result

N_PERSONS = 1_000_000
HALF = N_PERSONS // 2
SHARED = 50_000
"""Persons at both owners of a group."""
OTHER = 100_000
"""Persons that a group has and the other one lacks."""
N_ATTRIBUTES = 5
"""Of each group."""
LARGEST = 100_000
GROUPS = "a,b;c,d"
STRICT = {"a": (0, HALF), "b": (HALF, N_PERSONS), "c": (0, HALF), "d": (HALF, N_PERSONS)}
"""First and last number of each owner's persons."""
EXCEPTIONS = {
    "a": (0, HALF + SHARED // 2),
    "b": (HALF - SHARED // 2, N_PERSONS),
    "c": (OTHER, OTHER + HALF + SHARED // 2),
    "d": (OTHER + HALF - SHARED // 2, OTHER + N_PERSONS),
}
TIME_LIMIT = 1.5
MEMORY_LIMIT = 1.5


@dataclass(frozen=True, slots=True)
class Taken:
    """What a release took."""

    seconds: float
    """From the command to its end."""
    aggregator: int
    """Most bytes of the aggregator above its idle state."""
    owner: int
    """The same of the owner that took most."""


def run() -> Iterator[Result]:
    """Make both releases and compare them."""
    strict = _release(STRICT)
    allowed = _release(EXCEPTIONS, "--max-overlap", "2", "--on-mismatch", "intersect")
    detail = f"{allowed.seconds:.1f} s against {strict.seconds:.1f} s, {N_PERSONS:,} persons by 2 x 2 owners"
    yield Result("release with exceptions / strict", allowed.seconds / strict.seconds, TIME_LIMIT, detail)
    for side in ("aggregator", "owner"):
        most, least = getattr(allowed, side), getattr(strict, side)
        detail = f"{most / 1e6:.0f} MB above idle against {least / 1e6:.0f} MB"
        yield Result(f"peak memory with exceptions / strict, {side}", most / least, MEMORY_LIMIT, detail)


def _release(persons: Mapping[str, tuple[int, int]], *allowed: str) -> Taken:
    with tempfile.TemporaryDirectory(prefix="exceptions-") as name:
        folder = Path(name)
        _prepare(folder, persons)
        with LocalCluster(folder) as cluster:
            cluster.start()
            idle = {daemon.name: memory(daemon, "VmRSS") for daemon in daemons(cluster)}
            start = time.perf_counter()
            ended = cluster.cli(
                *("aggregator", "release", "--dataset", "people", "--layout", "mixed", "--groups", GROUPS),
                *("--epsilon", "1", "--k", "100", "--mechanism", "idp-joint", *allowed, "--yes", "--json"),
                timeout=600,
            )
            seconds = time.perf_counter() - start
            if ended.returncode:
                raise from_document(json.loads(ended.stdout))
            peaks = [memory(daemon, "VmHWM") - idle[daemon.name] for daemon in daemons(cluster)]
    return Taken(seconds, peaks[0], max(peaks[1:]))


def _prepare(folder: Path, persons: Mapping[str, tuple[int, int]]) -> None:
    """Write every owner's Parquet file, its records in an order of their own, and the configurations."""
    rng, owners = np.random.default_rng(1), {}
    rules = {"max_epsilon_per_release": "10", "max_overlap": 2, "allow_intersect": True}
    for owner, (first, last) in persons.items():
        group = next(group for group in GROUPS.split(";") if owner in group)
        names = [f"{group[0]}{number}" for number in range(N_ATTRIBUTES)]
        columns = {name: rng.integers(0, LARGEST, last - first) for name in names}
        person = pa.array(first + rng.permutation(last - first)).cast(pa.string())
        place = folder / "owners" / owner
        place.mkdir(parents=True)
        pq.write_table(pa.table({"person": person, **columns}), place / "people.parquet")
        about = {"name": "people", "source": "people.parquet", "total_epsilon": "20", "identifier": "person"}
        kind = {"type": "integer", "min": 0, "max": LARGEST}
        owners[owner] = section("[policy]", rules) + dataset(about, dict.fromkeys(names, kind))
    make_setup(folder, owners)
    share_linkage_key(folder, list(persons))
