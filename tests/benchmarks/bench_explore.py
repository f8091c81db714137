"""A sweep against the same sweep of one k and one draw, and the memory of linking 45,222 records.

The sweep is measured twice: as a whole run of a fresh process, as `owner-node explore` is, and alone in this
process, its records loaded. Alone it is mostly drawing: there are 170 times as many clusters to draw for. The
data are made here, like Adult's in size, so that the benchmark needs no file: ten attributes of 2 to 101
values.
"""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute, AttributeType, Schema, round_to_leading_digit
from deploy.local_setup import dataset, section
from owner_node.explore.assessment import Grid
from owner_node.explore.sweep import ExploredTable, ExploreRequest, explore
from owner_node.masking.engine import MemoryEngine
from owner_node.risk.links import Candidates, linked
from owner_node.risk.trials import Randomness
from tests.benchmarks.result import Result, medians

N_RECORDS = 45_222
N_VALUES = (101, 8, 16, 7, 14, 6, 5, 2, 100, 41)
EPSILONS = "0.01,0.1,0.5,1,2"
KS = "auto,10,25,50,100,500"
SWEEP_LIMIT = 6.0
MEMORY_LIMIT = 1.0
"""Peak memory of linking, in gigabytes."""


def run() -> Iterable[Result]:
    """Measure all."""
    yield _sweep()
    yield _loaded()
    yield _linkage()


def _sweep() -> Result:
    with TemporaryDirectory() as folder:
        _write(Path(folder))
        whole, single = medians(1, lambda: _explore(folder, KS, "10"), lambda: _explore(folder, "100", "1"))
    name = f"explore, {N_RECORDS:,} records, 5 ε × 6 k × 10 draws / 5 ε × 1 k × 1 draw"
    return Result(name, whole / single, SWEEP_LIMIT, f"{whole:.1f} s against {single:.1f} s")


def _loaded() -> Result:
    columns = _columns()
    attributes = tuple(
        Attribute(name, AttributeType.INTEGER, 0, size - 1)
        for name, size in zip(columns, N_VALUES, strict=True)
    )
    schema = Schema(attributes, records_rounded=round_to_leading_digit(N_RECORDS))
    table = ExploredTable("data", schema, MemoryEngine(columns), {})
    epsilons = tuple(map(Decimal, EPSILONS.split(",")))

    def sweep(ks: str, repetitions: int) -> None:
        numbers = tuple(None if each == "auto" else int(each) for each in ks.split(","))
        grid = Grid(epsilons, numbers, ("idp-joint",))
        explore(
            table, ExploreRequest(grid, repetitions, 1, (), ()), {}, Randomness.of_system(), lambda *_: None
        )

    whole, single = medians(5, lambda: sweep(KS, 10), lambda: sweep("100", 1))
    name = "explore, the same sweeps alone, of records that are loaded"
    return Result(name, whole / single, SWEEP_LIMIT, f"{whole:.2f} s against {single:.3f} s")


def _columns() -> dict[str, Int64Array]:
    draw = np.random.default_rng(1)
    columns = [np.minimum(draw.geometric(min(0.6, 3 / size), N_RECORDS), size) - 1 for size in N_VALUES]
    return {f"a{number}": column.astype(np.int64) for number, column in enumerate(columns)}


def _write(folder: Path) -> None:
    columns = _columns()
    names = list(columns)
    np.savetxt(
        folder / "data.csv",
        np.column_stack(list(columns.values())),
        fmt="%d",
        delimiter=",",
        header=",".join(names),
        comments="",
    )
    attributes: dict[str, dict[str, object]] = {
        name: {"type": "integer", "min": 0, "max": size - 1}
        for name, size in zip(names, N_VALUES, strict=True)
    }
    owner = section("[owner]", {"id": "north", "trust_domain": "bench.example", "state_dir": "state"})
    tls = section("[tls]", {"ca": "ca.pem", "cert": "north.pem", "key": "north.key"})
    about: dict[str, object] = {"name": "data", "source": "data.csv", "total_epsilon": "1"}
    (folder / "owner.toml").write_text("\n".join([owner, tls, dataset(about, attributes)]))


def _explore(folder: str, ks: str, repetitions: str) -> None:
    command = [
        *(sys.executable, "-c", "from owner_node.cli import main; main()", "explore", "--dataset", "data"),
        *("--epsilon", EPSILONS, "--k", ks, "--repetitions", repetitions, "--mechanism", "idp-joint"),
        *("--rank-noise", "0", "--measures", "none", "--attacks", "none", "--json"),
        *("--config", f"{folder}/owner.toml"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _linkage() -> Result:
    draw = np.random.default_rng(2)
    records = np.column_stack([draw.integers(0, size, N_RECORDS) for size in N_VALUES]).astype(float)
    records /= records.std(axis=0)
    targets = records + draw.normal(0, 0.3, records.shape)
    tracemalloc.start()
    found = linked(targets, np.arange(N_RECORDS), Candidates.of(records))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    name = f"linkage, {N_RECORDS:,} × {len(N_VALUES)} records, all of them targets: peak memory, GB"
    return Result(name, peak / 1e9, MEMORY_LIMIT, f"{peak / 1e6:.0f} MB; {found.mean():.1%} linked")
