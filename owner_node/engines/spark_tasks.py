"""What the executors of Spark do with batches of records; the code of masking that runs there.

Each function makes one for `DataFrame.mapInArrow`: batches in, batches out. The key of a masking comes as a
broadcast, never as part of the function: what Spark shows and logs of a plan does not have it. Random bits
are those of the records' numbers, so that a task that runs again, on whichever executor, draws them again.

Executors import this module: it needs NumPy, Arrow and what masking needs, not the rest of the owner node.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from owner_node.masking.arrays import BitSource, Int64Array, PositionArray, Purpose
from owner_node.masking.engine import EachMasked
from owner_node.masking.lists import Recipe
from owner_node.masking.order import tie_breakers
from owner_node.masking.rank_noise import PositionNoise
from owner_node.masking.tasks import AttributeTask

BatchMap: TypeAlias = Callable[[Iterator[Any]], Iterator[Any]]
Placing: TypeAlias = Callable[[Int64Array], Int64Array]
"""Maps resolution units to values from 0 to V - 1, in the order that an attribute is masked in."""
PLACED = {"value": pa.int64(), "low": pa.int64()}
"""Columns of `place`."""
POSITIONED = {"value": pa.int64(), "position": pa.int64(), "noisy": pa.int64(), "low": pa.int64()}
"""Columns of `add_noise`."""
MASKED = {"record": pa.int64(), "masked": pa.int64()}
"""Columns of masked values."""


def place(task: AttributeTask, n_records: int, placing: Placing, key: Any) -> BatchMap:
    """Place values, and draw tie-breakers for rank noise: `record`, `column` to `PLACED`.

    Args:
        key: Broadcast of the key of the masking.
    """
    record_bits = (n_records - 1).bit_length()

    def of_run(records: PositionArray, bits: BitSource) -> Int64Array:
        ties = tie_breakers(records.size, bits.of(Purpose.TIES, int(records[0])))
        return (ties.astype(np.int64) << record_bits) | records

    def place_batches(batches: Iterator[Any]) -> Iterator[Any]:
        bits = _bits(key)
        for records, column in _columns(batches, "record", "column"):
            low = records
            if task.rank_noise:
                low = np.concatenate([of_run(records[run], bits) for run in consecutive(records)])
            yield _batch(PLACED, placing(column), low)

    return place_batches


def add_noise(task: AttributeTask, n_records: int, key: Any) -> BatchMap:
    """Add noise to the positions of the sorted records: `PLACED` and `position` to `POSITIONED`.

    Args:
        key: Broadcast of the key of the masking.
    """
    record_bits, drawn = (n_records - 1).bit_length(), PositionNoise.of(task.rank_noise, n_records)

    def of_run(first: int, low: Int64Array, bits: BitSource) -> tuple[Int64Array, Int64Array]:
        noise = drawn.draw(bits.of(Purpose.RANK_NOISE, first), low.size)
        ties = tie_breakers(low.size, bits.of(Purpose.RANK_TIES, first)).astype(np.int64)
        records = low & ((1 << record_bits) - 1)
        return drawn.noisy_positions(noise, first), (ties << record_bits) | records

    def add_to_batches(batches: Iterator[Any]) -> Iterator[Any]:
        bits = _bits(key)
        for values, positions, low in _columns(batches, "value", "position", "low"):
            parts = [of_run(int(positions[run.start]), low[run], bits) for run in consecutive(positions)]
            yield _batch(POSITIONED, values, positions, *map(np.concatenate, zip(*parts, strict=True)))

    return add_to_batches


def apply_list(recipe: Any, key: Any) -> BatchMap:
    """Give records the entries of the released list: `record`, `place` to `MASKED`.

    Args:
        recipe: Broadcast of the list (`lists.Recipe`).
        key: Broadcast of the key of the masking.
    """

    def apply(batches: Iterator[Any]) -> Iterator[Any]:
        entries = _Entries(_load_recipe(recipe.value), _bits(key))
        for records, places in _columns(batches, "record", "place"):
            parts = [entries.at(int(places[run.start]), run.stop - run.start) for run in consecutive(places)]
            yield _batch(MASKED, records, np.concatenate(parts))

    return apply


def mask_each(masked: EachMasked, key: Any) -> BatchMap:
    """Mask every record by itself: `record`, `column` to `MASKED`.

    Args:
        key: Broadcast of the key of the masking.
    """

    def apply(batches: Iterator[Any]) -> Iterator[Any]:
        bits = _bits(key)
        for records, column in _columns(batches, "record", "column"):
            parts = [
                masked(column[run], bits.of(Purpose.LIST, int(records[run.start])))
                for run in consecutive(records)
            ]
            yield _batch(MASKED, records, np.concatenate(parts))

    return apply


class _Entries:
    """Reads the entries of a list, usually one after the other."""

    def __init__(self, recipe: Recipe, bits: BitSource) -> None:
        self._recipe, self._bits = recipe, bits
        self._next = -1
        self._stream: Iterator[Int64Array] = iter(())
        self._held = np.zeros(0, dtype=np.int64)

    def at(self, place: int, size: int) -> Int64Array:
        """Return the entries of consecutive places, `(size,)`."""
        if place != self._next:
            self._stream = self._recipe(place, self._bits)
            self._held = self._held[:0]
        self._next = place + size
        parts = [self._held]
        n_held = self._held.size
        while n_held < size:
            parts.append(next(self._stream))
            n_held += parts[-1].size
        entries = np.concatenate(parts)
        self._held = entries[size:]
        return entries[:size]


def consecutive(numbers: PositionArray) -> Iterable[slice]:
    """Divide numbers into runs of consecutive ones: batches cross the borders of files."""
    edges = np.flatnonzero(np.diff(numbers) != 1) + 1
    ends = [0, *edges.tolist(), numbers.size]
    return [slice(first, after) for first, after in pairwise(ends)]


def spark_schema(columns: Iterable[str]) -> str:
    """Return the schema of some integer columns as Spark writes it."""
    return ", ".join(f"{name} bigint" for name in columns)


def _bits(key: Any) -> BitSource:
    return BitSource(bytearray(key.value))


def _load_recipe(recipe: bytes) -> Recipe:
    from pyspark import cloudpickle

    made: Recipe = cloudpickle.loads(recipe)
    return made


def _columns(batches: Iterator[Any], *names: str) -> Iterator[list[Int64Array]]:
    """Return columns of the batches that have records."""
    for batch in batches:
        if batch.num_rows:
            columns = (batch.column(batch.schema.get_field_index(name)) for name in names)
            yield [column.to_numpy().astype(np.int64, copy=False) for column in columns]


def _batch(columns: dict[str, Any], *values: Int64Array) -> Any:
    return pa.record_batch(list(map(pa.array, values)), names=list(columns))
