"""Speed and memory of masking, against one stable argsort of the same values and the table's own size."""

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

import numpy as np

from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import Int64Array
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from tests.benchmarks.result import Result, medians

SPEED_LIMIT = 0.6
MEMORY_LIMIT = 2.0
AMOUNTS = "amounts of 0.00 to 1,000,000.00"
AGES = "ages of 0 to 110"
LARGEST = {AMOUNTS: 10**8, AGES: 110}


def run() -> Iterable[Result]:
    """Measure masking: two kinds of numbers at 10^6 records, one at 10^7; memory with rank noise or not."""
    yield _speed(10**6, AMOUNTS, repetitions=9)
    yield _speed(10**6, AGES, repetitions=9)
    yield _speed(10**7, AMOUNTS, repetitions=5)
    yield _memory(10**6, n_attributes=10)
    yield _memory(10**6, n_attributes=10, rank_noise=Decimal("0.03"))


def _task(name: str, kind: str) -> AttributeTask:
    decimals = 2 if kind == AMOUNTS else 0
    attribute = Attribute(name, AttributeType.NUMBER, 0, LARGEST[kind], decimals)
    return AttributeTask(attribute, Decimal(1), 50, "idp-joint")


def _values(kind: str, n_records: int, seed: int) -> Int64Array:
    return np.random.default_rng(seed).integers(0, LARGEST[kind] + 1, n_records)


def _speed(n_records: int, kind: str, repetitions: int) -> Result:
    values, tasks = _values(kind, n_records, 1), [_task("value", kind)]
    masking, sorting = medians(
        repetitions,
        lambda: mask_table(MemoryEngine({"value": values}), tasks),
        lambda: np.argsort(values, kind="stable"),
    )
    detail = f"{masking * 1e3:.0f} ms against {sorting * 1e3:.0f} ms"
    return Result(f"mask {n_records:,} {kind} / stable argsort", masking / sorting, SPEED_LIMIT, detail)


def _memory(n_records: int, n_attributes: int, rank_noise: Decimal = Decimal(0)) -> Result:
    names = [f"value {index}" for index in range(n_attributes)]
    columns = {name: _values(AMOUNTS, n_records, seed) for seed, name in enumerate(names)}
    tasks = [replace(_task(name, AMOUNTS), rank_noise=rank_noise) for name in names]
    tracemalloc.start()
    mask_table(MemoryEngine(columns), tasks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(column.nbytes for column in columns.values())
    noise = f" with rank noise {rank_noise}" if rank_noise else ""
    name = f"additional memory, {n_attributes} attributes of {n_records:,} records{noise} / table"
    return Result(name, peak / size, MEMORY_LIMIT, f"{peak / 1e6:.0f} MB against {size / 1e6:.0f} MB")
