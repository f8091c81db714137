"""Programs with nothing to do yet, as the wheel installs them: memory, and how long until they are ready."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from deploy.local_cluster import LocalCluster
from deploy.local_process import PROGRAMS, LocalDaemon, run_program
from deploy.local_setup import HOST, dataset, free_port, make_setup, section
from deploy.wheel_environment import programs
from tests.benchmarks.result import Result, medians

TURNS = 5
MEMORY_LIMIT = 80e6
PAGES_LIMIT = 100e6
READY_LIMIT = 2.0
HELP_LIMIT = 1.0
AGGREGATOR_FILE = Path("aggregator", "aggregator.toml")
DATASET = dataset(
    {"name": "patients", "source": "patients.csv", "total_epsilon": "1"},
    {"age": {"type": "integer", "min": 0, "max": 120}},
)


def run() -> Iterator[Result]:
    """Measure the first answers of both programs, and an owner daemon whose aggregator is running."""
    before = os.environ.get(PROGRAMS)
    os.environ[PROGRAMS] = str(programs())
    try:
        with tempfile.TemporaryDirectory(prefix="idle-") as name:
            yield from _helps(Path(name))
            pages = section("[console]", {"listen": f"{HOST}:{free_port()}"})
            make_setup(Path(name), {"a": DATASET, "b": pages + DATASET})
            with (Path(name) / AGGREGATOR_FILE).open("a") as config:
                config.write(section("[console]", {"listen": f"{HOST}:{free_port()}"}))
            with LocalCluster(Path(name)) as cluster:
                cluster.start()
                for party in ("", "b"):
                    cluster.serve_console(party)
                yield from _daemons(cluster)
    finally:
        if before is None:
            del os.environ[PROGRAMS]
        else:
            os.environ[PROGRAMS] = before


def _helps(folder: Path) -> Iterator[Result]:
    names = ("aggregator", "owner-node")
    taken = medians(TURNS, *(lambda each=each: run_program(each, ["--help"], folder) for each in names))
    for each, seconds in zip(names, taken, strict=True):
        yield Result(f"{each} --help / 1 s", seconds / HELP_LIMIT, 1.0, f"{seconds:.2f} s")


def _daemons(cluster: LocalCluster) -> Iterator[Result]:
    owner = cluster.owner("a")
    aggregator, own = _start(cluster.aggregator), _start(owner)
    cluster.wait_connected()
    for name, daemon, most in (
        ("owner daemon / 80 MB", owner, MEMORY_LIMIT),
        ("aggregator / 80 MB", cluster.aggregator, MEMORY_LIMIT),
        ("aggregator's console / 100 MB", cluster.consoles[0], PAGES_LIMIT),
        ("owner's console / 100 MB", cluster.consoles[1], PAGES_LIMIT),
    ):
        resident = psutil.Process(daemon.pid).memory_info().rss
        yield Result(f"memory of an idle {name}", resident / most, 1.0, f"{resident / 1e6:.0f} MB")
    yield Result("start of an owner daemon / 2 s", own / READY_LIMIT, 1.0, f"{own:.2f} s")
    yield Result("start of an aggregator / 2 s", aggregator / READY_LIMIT, 1.0, f"{aggregator:.2f} s")


def _start(daemon: LocalDaemon) -> float:
    """Return the median time from a start of a daemon until it is ready, in seconds."""
    times = []
    for _ in range(TURNS):
        daemon.stop()
        start = time.perf_counter()
        daemon.start()
        daemon.wait_for("ready")
        times.append(time.perf_counter() - start)
    return statistics.median(times)
