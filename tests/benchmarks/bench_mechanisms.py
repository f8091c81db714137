"""Time of every mechanism, as a ratio to `idp-ls`; of counts and of rank noise as a ratio to `idp-joint`.

All are compared on the same records, those that make clusters with the same k. Without clusters every record
takes a draw, and drawing exactly is what the time goes into; none is sorted, and two threads draw.
"""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

import numpy as np

from common.model.mechanisms import COUNTS, HISTOGRAM, MECHANISMS, REQUESTABLE
from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import Int64Array
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from tests.benchmarks.result import Result, medians

LIMIT = 2.0
N_RECORDS = 10**6
K = 50
VALUE = Attribute("value", AttributeType.NUMBER, 0, 10**8, 2)
COUNTED = Attribute("value", AttributeType.INTEGER, 0, 110)
LIMIT_OF_COUNTS = 1.0
LIMIT_OF_QUANTILES = 1.1
LIMIT_OF_RANK_NOISE = 1.0
RANK_NOISE = Decimal("0.03")


def run() -> Iterable[Result]:
    """Measure every mechanism but the one that the others are compared with; then counts and rank noise."""
    values = np.random.default_rng(1).integers(0, 10**8 + 1, N_RECORDS)
    for name in REQUESTABLE:
        if name != "idp-ls" and MECHANISMS[name].carrier is not COUNTS:
            yield _compared(name, values, K if MECHANISMS[name].clustered else None)
    ages = np.random.default_rng(1).integers(0, COUNTED.n_values, N_RECORDS)
    yield _counted(ages)
    yield _quantiles(values)
    yield _rank_noise("amounts", AttributeTask(VALUE, Decimal(1), K, "idp-joint"), values)
    yield _rank_noise("ages", AttributeTask(COUNTED, Decimal(1), None, HISTOGRAM), ages)


def _mask(values: Int64Array, mechanism: str, k: int | None) -> None:
    mask_table(MemoryEngine({"value": values}), [AttributeTask(VALUE, Decimal(1), k, mechanism)])


def _counted(values: Int64Array) -> Result:
    tasks = [
        AttributeTask(COUNTED, Decimal(1), k, name)
        for name, k in ((HISTOGRAM, None), ("idp-joint", COUNTED.n_values))
    ]
    ours, reference = medians(
        7,
        lambda: mask_table(MemoryEngine({"value": values}), tasks[:1]),
        lambda: mask_table(MemoryEngine({"value": values}), tasks[1:]),
    )
    name = f"{HISTOGRAM}, {N_RECORDS:,} records / idp-joint"
    detail = f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms, {COUNTED.n_values} values"
    return Result(name, ours / reference, LIMIT_OF_COUNTS, detail)


def _quantiles(values: Int64Array) -> Result:
    """Compare the default for many values with one value per cluster, both with rank noise."""
    joint = AttributeTask(VALUE, Decimal(1), K, "idp-joint", rank_noise=RANK_NOISE)
    linear = replace(joint, mechanism="idp-quantiles")
    ours, reference = medians(
        15,
        lambda: mask_table(MemoryEngine({"value": values}), [linear]),
        lambda: mask_table(MemoryEngine({"value": values}), [joint]),
    )
    name = f"idp-quantiles, {N_RECORDS:,} records with rank noise / idp-joint with rank noise"
    detail = f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms, k = {K}"
    return Result(name, ours / reference, LIMIT_OF_QUANTILES, detail)


def _rank_noise(kind: str, task: AttributeTask, values: Int64Array) -> Result:
    noisy = replace(task, rank_noise=RANK_NOISE)
    with_noise, without = medians(
        15,
        lambda: mask_table(MemoryEngine({"value": values}), [noisy]),
        lambda: mask_table(MemoryEngine({"value": values}), [task]),
    )
    name = f"what rank noise adds, {N_RECORDS:,} {kind}, {task.mechanism} / masking"
    detail = f"{with_noise * 1e3:.0f} ms against {without * 1e3:.0f} ms"
    return Result(name, with_noise / without - 1, LIMIT_OF_RANK_NOISE, detail)


def _compared(name: str, values: Int64Array, k: int | None) -> Result:
    ours, reference = medians(7, lambda: _mask(values, name, k), lambda: _mask(values, "idp-ls", K))
    draws = "" if k else f", a draw for every record against one for every {K}"
    detail = f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms, k = {K}{draws}"
    return Result(f"{name}, {N_RECORDS:,} records / idp-ls", ours / reference, LIMIT, detail)
