"""Integers sorted on disk: dealt into buckets, which are sorted in memory one by one.

Every integer is written once and read once, which is the least that an external sort can do.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from common.runs import FileRun, RunFile
from common.workspace import Workspace
from owner_node.masking.arrays import Int64Array

_SHARE_OF_MEMORY = 24
"""A bucket has one part in so many of the memory: three sorts that feed each other each hold one or two."""
_TOO_LARGE = 4
"""Sizes of a bucket from which it is dealt again."""
_KEY = np.dtype(np.int64)


def bucket_records(workspace: Workspace) -> int:
    """Return how many records a bucket should have."""
    return max(1, workspace.memory // _SHARE_OF_MEMORY // _KEY.itemsize)


def even_splits(lowest: int, highest: int, n_buckets: int) -> Int64Array:
    """Divide keys into ranges of equal width; return where each but the first begins."""
    width = highest + 1 - lowest
    n_buckets = max(1, min(n_buckets, width))
    return np.array([lowest + width * each // n_buckets for each in range(1, n_buckets)], dtype=np.int64)


def sorted_buckets(
    batches: Iterable[Int64Array], splits: Int64Array, workspace: Workspace
) -> Iterator[Int64Array]:
    """Sort integers.

    Args:
        batches: The integers; every one is another.
        splits: Integers at which the buckets begin, ascending, without the first one's. They decide about
            speed and memory, not about the result. Without any, everything is sorted in memory.
        workspace: Memory, and the folder of the buckets, which lie in a file without a name.

    Yields:
        The integers in order, bucket by bucket. Nothing is yielded before all were read.

    Raises:
        OSError: If the disk is full.
    """
    most = bucket_records(workspace)
    if not splits.size:
        yield _in_order(batches)
        return
    with workspace.file() as stream:
        spool = RunFile(stream)
        # Every run, and how many of its integers come before each bucket.
        dealt: list[tuple[FileRun, Int64Array]] = []
        for keys in _gathered(batches, most):
            keys.sort()
            begins = np.concatenate([[0], np.searchsorted(keys, splits), [keys.size]])
            dealt.append((spool.append([keys], _KEY), begins))
        for number in range(splits.size + 1):
            parts = [(run, int(begins[number]), int(begins[number + 1])) for run, begins in dealt]
            if sum(end - first for _, first, end in parts) > _TOO_LARGE * most:
                yield from _dealt_again(parts, workspace)
            else:
                yield _in_order(run.read(first, end) for run, first, end in parts)


def _dealt_again(parts: list[tuple[FileRun, int, int]], workspace: Workspace) -> Iterator[Int64Array]:
    """Sort a bucket that does not fit, in buckets of its own."""
    held = [(run, first, end) for run, first, end in parts if end > first]
    lowest = min(int(run.read(first, first + 1)[0]) for run, first, _ in held)
    highest = max(int(run.read(end - 1, end)[0]) for run, _, end in held)
    n_records = sum(end - first for _, first, end in held)
    splits = even_splits(lowest, highest, n_records // bucket_records(workspace) + 1)
    yield from sorted_buckets((run.read(first, end) for run, first, end in held), splits, workspace)


def _gathered(batches: Iterable[Int64Array], most: int) -> Iterator[Int64Array]:
    """Join batches until they have enough integers to be dealt; each is an array of its own."""
    held: list[Int64Array] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= most:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _in_order(pieces: Iterable[Int64Array]) -> Int64Array:
    joined = np.concatenate([np.zeros(0, np.int64), *pieces])
    joined.sort()
    return joined
