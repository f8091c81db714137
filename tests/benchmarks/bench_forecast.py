"""Time and memory of the forecast that an owner makes before it consents, against masking the same table."""

import tracemalloc
from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from common.model.schema import Attribute, AttributeType
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.forecast import forecast
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from tests.benchmarks.result import Result, medians

SPEED_LIMIT = 3.0
MEMORY_LIMIT = 2.0
N_ATTRIBUTES = 10


def run() -> Iterable[Result]:
    """Measure large and small tables, with many clusters and few."""
    yield _speed(10**6, "idp-joint", 50, 10**8)
    yield _speed(10**6, "idp-joint", 5000, 110)
    yield _speed(10**6, "idp-ls", 50, 10**8)
    yield _speed(12_000, "idp-joint", 50, 110)
    yield _memory(10**6)


def _table(
    n_records: int, mechanism: str, k: int, largest: int
) -> tuple[dict[str, np.ndarray], list[AttributeTask]]:
    draw, names = np.random.default_rng(1), [f"value {index}" for index in range(N_ATTRIBUTES)]
    columns = {name: draw.integers(0, largest + 1, n_records) for name in names}
    attributes = [Attribute(name, AttributeType.INTEGER, 0, largest) for name in names]
    return columns, [AttributeTask(each, Decimal("0.1"), k, mechanism) for each in attributes]


def _speed(n_records: int, mechanism: str, k: int, largest: int) -> Result:
    columns, tasks = _table(n_records, mechanism, k, largest)
    foreseeing, masking = medians(
        5, lambda: forecast(columns, tasks), lambda: mask_table(MemoryEngine(columns), tasks)
    )
    name = f"forecast, {n_records:,} records, {mechanism}, k = {k} / masking"
    detail = f"{foreseeing * 1e3:.0f} ms against {masking * 1e3:.0f} ms"
    return Result(name, foreseeing / masking, SPEED_LIMIT, detail)


def _memory(n_records: int) -> Result:
    columns, tasks = _table(n_records, "idp-joint", 50, 10**8)
    tracemalloc.start()
    forecast(columns, tasks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(column.nbytes for column in columns.values())
    name = f"additional memory of the forecast, {n_records:,} records / table"
    return Result(name, peak / size, MEMORY_LIMIT, f"{peak / 1e6:.0f} MB against {size / 1e6:.0f} MB")
