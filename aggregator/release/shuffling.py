"""Puts joined records into a uniformly random order, also where they do not fit into memory.

First pass: every record gets a bucket, drawn uniformly from the system's randomness and independently of all
others, and is written to scratch with the others of its bucket. Second pass: bucket after bucket is read and
put into a uniformly random order. The result is the buckets one after another.

Every order has the same probability. Proof: take n records and any order of them, and let n_1, …, n_B be the
sizes of the buckets, whatever they are. The order comes about if and only if its first n_1 records were
drawn into bucket 1, its next n_2 into bucket 2, and so on, and then every bucket was put into exactly this
order. Given the sizes, all n! / (n_1! … n_B!) ways to divide the records into buckets have the same
probability, because every record draws in the same way and independently. The orders within buckets have
the probability 1 / n_b! each, independently. The product is 1 / n!, which depends on neither order nor sizes.

What fits into one bucket never leaves the memory.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from common.arrays import random_order
from common.errors import IntegrityError
from common.runs import Records, RunFile, read_at
from common.workspace import Workspace

_SHARE_OF_MEMORY = 4
"""A bucket takes one part in so many of the memory while it is put into order."""
_ORDER_BYTES = 24
"""Of a record while it is put into order, beside itself and its copy: its key and its place."""
_MOST_BUCKETS = 1 << 16
_BLOCK_RECORDS = 1 << 17


def n_buckets(n_records: int, record_bytes: int, memory: int) -> int:
    """Return the number of buckets, a power of two."""
    needed = n_records * (2 * record_bytes + _ORDER_BYTES)
    buckets = 1
    while buckets * (memory // _SHARE_OF_MEMORY) < needed and buckets < min(n_records, _MOST_BUCKETS):
        buckets *= 2
    return buckets


def shuffle(
    records: Iterable[Records], n_records: int, dtype: np.dtype[Any], workspace: Workspace
) -> Iterator[Records]:
    """Put records into a uniformly random order.

    Yields:
        The records in the new order, in blocks. Nothing is yielded before all records were read.
    """
    buckets = n_buckets(n_records, dtype.itemsize, workspace.memory)
    if buckets == 1:
        # The order depends on no record: it is drawn while they are read.
        with ThreadPoolExecutor(1) as thread:
            drawn = thread.submit(random_order, n_records)
            (whole,) = _chunks(records, n_records, n_records, dtype)
            order = drawn.result()
        # A block stays in the cache until it is read.
        for start in range(0, n_records, _BLOCK_RECORDS):
            yield np.take(whole, order[start : start + _BLOCK_RECORDS])
        return
    with workspace.file() as stream:
        spool = RunFile(stream)
        # Byte offset of every chunk, and how many of its records come before each bucket.
        offsets, begins = [], []
        for chunk in _chunks(records, n_records, -(-n_records // buckets), dtype):
            bucket = np.frombuffer(os.urandom(2 * len(chunk)), dtype=np.uint16) & np.uint16(buckets - 1)
            order = np.argsort(bucket, kind="stable")
            offsets.append(spool.append([np.take(chunk, order)], dtype).offset)
            counts = np.bincount(bucket, minlength=buckets)
            begins.append(np.concatenate(([0], np.cumsum(counts))).astype(np.uint32))
        for place in range(buckets):
            sizes = [int(begin[place + 1]) - int(begin[place]) for begin in begins]
            bucketed = np.empty(sum(sizes), dtype=dtype)
            end = 0
            for offset, begin, size in zip(offsets, begins, sizes, strict=True):
                read_at(stream, offset + int(begin[place]) * dtype.itemsize, bucketed[end : end + size])
                end += size
            yield np.take(bucketed, random_order(len(bucketed)))


def _chunks(records: Iterable[Records], n_records: int, size: int, dtype: np.dtype[Any]) -> Iterator[Records]:
    """Fill arrays of a size with records; an array is valid until the next one is requested."""
    chunk, filled, n_found = np.empty(size, dtype=dtype), 0, 0
    for array in records:
        n_found += len(array)
        if len(array) == size and not filled and n_found <= n_records:
            yield array
            continue
        rest = array
        while len(rest) and n_found <= n_records:
            taken = rest[: size - filled]
            chunk[filled : filled + len(taken)] = taken
            filled, rest = filled + len(taken), rest[len(taken) :]
            if filled == size:
                yield chunk
                filled = 0
    if n_found != n_records:
        raise IntegrityError("the fragments do not have the number of records that linking found")
    if filled:
        yield chunk[:filled]
