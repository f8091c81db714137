"""Drawing a million synthetic records of 25 attributes from noisy tables of their pairs."""

import time
from collections.abc import Iterator

import numpy as np

from common.arrays import Float64Array
from common.synthesis.keystream import Keystream
from common.synthesis.sample import bins_of_counts
from common.synthesis.swaps import NoisyTable, swapped
from tests.benchmarks.result import Result

N_RECORDS, N_ATTRIBUTES, N_FACTORS = 1_000_000, 25, 4
DEVIATION = 500
"""Of the noise of each count."""
LIMIT = 15.0
"""Seconds of processor time."""


def run() -> Iterator[Result]:
    """Measure attributes that are related through factors."""
    draw = np.random.default_rng(1)
    factors = draw.normal(size=(N_FACTORS, N_RECORDS))
    sizes = draw.integers(4, 20, N_ATTRIBUTES).tolist()
    columns = [
        np.clip((factors[place % N_FACTORS] + draw.normal(size=N_RECORDS) + 4) / 8 * size, 0, size - 1)
        for place, size in enumerate(sizes)
    ]
    tables = [
        _noisy((first, first + N_FACTORS), columns, sizes, draw) for first in range(N_ATTRIBUTES - N_FACTORS)
    ]
    stream = Keystream(bytes(32))
    begun = time.process_time()
    starts = [
        bins_of_counts(np.bincount(column.astype(np.int64), minlength=size), N_RECORDS, stream)
        for column, size in zip(columns, sizes, strict=True)
    ]
    swapped(starts, sizes, tables, [], stream)
    seconds = time.process_time() - begun
    detail = f"{N_RECORDS:,} records × {N_ATTRIBUTES}, {len(tables)} tables of pairs"
    yield Result("drawing synthetic records, seconds of processor time", seconds, LIMIT, detail)


def _noisy(
    pair: tuple[int, int], columns: list[Float64Array], sizes: list[int], draw: np.random.Generator
) -> NoisyTable:
    """Return the table of two attributes with noise."""
    shape = sizes[pair[0]], sizes[pair[1]]
    cells = columns[pair[0]].astype(np.int64) * shape[1] + columns[pair[1]].astype(np.int64)
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    noise = np.rint(draw.normal(scale=DEVIATION, size=counts.size)).astype(np.int64)
    return NoisyTable(pair, (counts + noise).reshape(shape), DEVIATION**2)
