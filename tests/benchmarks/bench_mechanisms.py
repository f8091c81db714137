"""Time of every mechanism, as a ratio to `idp-ls`.

Mechanisms that make clusters are compared on the same records and k. Without clusters every record takes a
draw, and drawing exactly is what the time goes into: those are compared with `idp-ls` on as many draws.
"""

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from common.privacy import MECHANISMS, REQUESTABLE
from common.schema import Attribute, AttributeType
from owner_node.masking.arrays import Int64Array
from owner_node.masking.mask import AttributeTask, mask_table
from tests.benchmarks.result import Result, medians

LIMIT = 2.0
N_RECORDS = 10**6
K = 50
LEAST_K = 3
VALUE = Attribute("value", AttributeType.NUMBER, 0, 10**8, 2)


def run() -> Iterable[Result]:
    """Measure every mechanism but the one that the others are compared with."""
    values = np.random.default_rng(1).integers(0, 10**8 + 1, N_RECORDS)
    for name in REQUESTABLE:
        if name != "idp-ls":
            yield _clustered(name, values) if MECHANISMS[name].clustered else _by_record(name, values)


def _mask(values: Int64Array, mechanism: str, k: int | None) -> None:
    mask_table({"value": values}, [AttributeTask(VALUE, Decimal(1), k, mechanism)])


def _clustered(name: str, values: Int64Array) -> Result:
    ours, reference = medians(7, lambda: _mask(values, name, K), lambda: _mask(values, "idp-ls", K))
    detail = f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms, k = {K}"
    return Result(f"{name}, {N_RECORDS:,} records / idp-ls", ours / reference, LIMIT, detail)


def _by_record(name: str, values: Int64Array) -> Result:
    few = values[: N_RECORDS // LEAST_K]
    ours, reference = medians(3, lambda: _mask(few, name, None), lambda: _mask(values, "idp-ls", LEAST_K))
    detail = f"{ours * 1e3:.0f} ms against {reference * 1e3:.0f} ms, {few.size:,} draws each"
    return Result(f"{name}, {few.size:,} draws / idp-ls", ours / reference, LIMIT, detail)
