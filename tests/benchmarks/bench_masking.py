"""Speed and memory of masking as it is released by default, against one stable argsort of the same values.

Amounts get the quantiles of `--mechanism auto`, ages get counts, both with the default rank noise. Beside it
stands the time of numpy's own sort, which differs most from processor to processor.
"""

import tracemalloc
from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from common.model.mechanisms import HISTOGRAM
from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import Int64Array
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from tests.benchmarks.result import Result, medians

MEMORY_LIMIT = 2.0
RANK_NOISE = Decimal("0.03")
AMOUNTS = "amounts of 0.00 to 1,000,000.00"
AGES = "ages of 0 to 110"
LARGEST = {AMOUNTS: 10**8, AGES: 110}
SPEED_LIMITS = {AMOUNTS: 0.7, AGES: 1.0}


def run() -> Iterable[Result]:
    """Measure masking: two kinds of numbers at 10^6 records, one at 10^7; memory with rank noise or not."""
    yield _speed(10**6, AMOUNTS, repetitions=9)
    yield _speed(10**6, AGES, repetitions=9)
    yield _speed(10**7, AMOUNTS, repetitions=5)
    yield _memory(10**6, n_attributes=10)
    yield _memory(10**6, n_attributes=10, rank_noise=RANK_NOISE)


def _task(name: str, kind: str, n_records: int, rank_noise: Decimal) -> AttributeTask:
    decimals = 2 if kind == AMOUNTS else 0
    attribute = Attribute(name, AttributeType.NUMBER, 0, LARGEST[kind], decimals)
    mechanism, k = ("dp-quantiles", int(2.5 * n_records**0.5)) if kind == AMOUNTS else (HISTOGRAM, None)
    return AttributeTask(attribute, Decimal(1), k, mechanism, rank_noise=rank_noise)


def _values(kind: str, n_records: int, seed: int) -> Int64Array:
    return np.random.default_rng(seed).integers(0, LARGEST[kind] + 1, n_records)


def _speed(n_records: int, kind: str, repetitions: int) -> Result:
    values, tasks = _values(kind, n_records, 1), [_task("value", kind, n_records, RANK_NOISE)]
    masking, reference, sorting = medians(
        repetitions,
        lambda: mask_table(MemoryEngine({"value": values}), tasks),
        lambda: np.argsort(values, kind="stable"),
        lambda: np.sort(values),
    )
    detail = f"{masking * 1e3:.0f} ms against {reference * 1e3:.0f} ms; numpy.sort {sorting * 1e3:.0f} ms"
    name = f"mask {n_records:,} {kind} by default / stable argsort"
    return Result(name, masking / reference, SPEED_LIMITS[kind], detail)


def _memory(n_records: int, n_attributes: int, rank_noise: Decimal = Decimal(0)) -> Result:
    names = [f"value {index}" for index in range(n_attributes)]
    columns = {name: _values(AMOUNTS, n_records, seed) for seed, name in enumerate(names)}
    tasks = [_task(name, AMOUNTS, n_records, rank_noise) for name in names]
    tracemalloc.start()
    mask_table(MemoryEngine(columns), tasks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(column.nbytes for column in columns.values())
    noise = f" with rank noise {rank_noise}" if rank_noise else ""
    name = f"additional memory, {n_attributes} attributes of {n_records:,} records{noise} / table"
    return Result(name, peak / size, MEMORY_LIMIT, f"{peak / 1e6:.0f} MB against {size / 1e6:.0f} MB")
