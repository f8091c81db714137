"""Records sorted by one integer each: dealt into buckets on disk, which are sorted in memory one by one.

Every record is written once and read once, which is the least that an external sort can do.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from common.runs import FileRun, Records, RunFile
from common.workspace import Workspace
from owner_node.masking.arrays import Int64Array

KEY = "key"
"""The field that structured records are sorted by; others are their own keys."""
_SHARE_OF_MEMORY = 24
"""A bucket has one part in so many of the memory. Three sorts that feed each other each hold one or two, with
as much again for the order of its records."""
_TOO_LARGE = 4
"""Sizes of a bucket from which it is dealt again."""


def bucket_records(workspace: Workspace, dtype: np.dtype[Any]) -> int:
    """Return how many records of a type a bucket should have."""
    return max(1, workspace.memory // _SHARE_OF_MEMORY // dtype.itemsize)


def even_splits(lowest: int, highest: int, n_buckets: int) -> Int64Array:
    """Divide keys into ranges of equal width; return where each but the first begins."""
    width = highest + 1 - lowest
    n_buckets = max(1, min(n_buckets, width))
    return np.array([lowest + width * each // n_buckets for each in range(1, n_buckets)], dtype=np.int64)


def sorted_buckets(
    batches: Iterable[Records], dtype: np.dtype[Any], splits: Int64Array, workspace: Workspace
) -> Iterator[Records]:
    """Sort records.

    Args:
        batches: Records, or structured records with the field `KEY`; every key is another one.
        dtype: Their type.
        splits: Keys at which the buckets begin, ascending, without the first one's. They decide about speed
            and memory, not about the result. Without any, all records are sorted in memory.
        workspace: Memory, and the folder of the buckets, which lie in a file without a name.

    Yields:
        The records in order, bucket by bucket. Nothing is yielded before all records were read.

    Raises:
        OSError: If the disk is full.
    """
    most = bucket_records(workspace, dtype)
    if not splits.size:
        yield _in_order(_joined(batches, dtype))
        return
    with workspace.file() as stream:
        spool = RunFile(stream)
        # Every run, and how many of its records come before each bucket.
        dealt: list[tuple[FileRun, Int64Array]] = []
        for records in _gathered(batches, most):
            numbers = np.searchsorted(splits, _keys(records), side="right")
            order = np.argsort(numbers.astype(np.min_scalar_type(splits.size)), kind="stable")
            begins = np.append(0, np.cumsum(np.bincount(numbers, minlength=splits.size + 1)))
            dealt.append((spool.append([np.take(records, order)], dtype), begins))
        for number in range(splits.size + 1):
            parts = [(run, int(begins[number]), int(begins[number + 1])) for run, begins in dealt]
            if sum(end - first for _, first, end in parts) > _TOO_LARGE * most:
                yield from _dealt_again(parts, dtype, workspace)
            else:
                yield _in_order(_joined((run.read(first, end) for run, first, end in parts), dtype))


def _dealt_again(
    parts: list[tuple[FileRun, int, int]], dtype: np.dtype[Any], workspace: Workspace
) -> Iterator[Records]:
    """Sort a bucket that does not fit, in buckets of its own."""

    def pieces() -> Iterator[Records]:
        for run, first, end in parts:
            yield run.read(first, end)

    ends = [(int(keys.min()), int(keys.max())) for keys in map(_keys, pieces()) if keys.size]
    lowest, highest = min(each for each, _ in ends), max(each for _, each in ends)
    n_records = sum(end - first for _, first, end in parts)
    splits = even_splits(lowest, highest, n_records // bucket_records(workspace, dtype) + 1)
    yield from sorted_buckets(pieces(), dtype, splits, workspace)


def _gathered(batches: Iterable[Records], most: int) -> Iterator[Records]:
    """Join batches until they have enough records to be dealt."""
    held: list[Records] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= most:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _joined(pieces: Iterable[Records], dtype: np.dtype[Any]) -> Records:
    return np.concatenate([np.zeros(0, dtype), *pieces])


def _keys(records: Records) -> Int64Array:
    return records if records.dtype.names is None else np.ascontiguousarray(records[KEY])


def _in_order(records: Records) -> Records:
    if records.dtype.names is None:
        records.sort()
        return records
    return np.take(records, np.argsort(_keys(records)))
