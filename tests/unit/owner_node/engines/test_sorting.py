"""Records that are written in runs and merged come back in order, and leave nothing behind."""

import errno
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import CancelledError, InternalError
from common.progress import Progress
from common.workspace import Workspace, temporary_workspace
from owner_node.engines.fragments import count_missing
from owner_node.engines.sorting import Key, Sorter

FEW = 24 * 80
"""Bytes of memory with which runs have some ten records."""
NUMBERS = pa.schema([("key", pa.int64())])
LONG = pa.schema([("high", pa.int64()), ("low", pa.int64())])
TOKENS = pa.schema([("first", pa.uint64()), ("second", pa.uint64()), ("value", pa.int32())])
TEXTS = pa.schema([("person", pa.string()), ("value", pa.int64())])
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FEW_INTEGERS = st.integers(-1, 1) | INTEGERS
WORDS = st.integers(0, 1) | st.integers(0, 2**64 - 1)
CASES: dict[str, tuple[pa.Schema, tuple[st.SearchStrategy[Any], ...], int]] = {
    "numbers": (NUMBERS, (FEW_INTEGERS,), 1),
    "long keys": (LONG, (FEW_INTEGERS, INTEGERS), 2),
    "tokens and values": (TOKENS, (WORDS, WORDS, st.integers(0, 9)), 2),
    "texts and values": (TEXTS, (st.text("a\0bé😀￿", max_size=4), FEW_INTEGERS), 2),
}


def in_batches(records: list[Any], schema: pa.Schema, size: int) -> Iterator[Any]:
    """Yield records some at a time, an empty batch first."""
    for first in (len(records), *range(0, len(records), size)):
        some = records[first : first + size]
        columns = [
            pa.array([record[number] for record in some], each.type) for number, each in enumerate(schema)
        ]
        yield pa.record_batch(columns, schema=schema)


@pytest.mark.parametrize("case", CASES)
@given(st.data())
def test_any_records_come_in_order(case, data):
    """Frequent and equal keys, no records, one run and many; texts by their bytes, as Python sorts them."""
    schema, fields, n_keys = CASES[case]
    records = data.draw(st.lists(st.tuples(*fields), max_size=150))
    presorted = data.draw(st.booleans())
    batches = in_batches(sorted(records) if presorted else records, schema, data.draw(st.integers(1, 30)))
    with temporary_workspace() as made:
        sorter = Sorter(Workspace(FEW, made.scratch), 7)
        found = list(sorter.sort(batches, schema, schema.names[:n_keys]))
        assert not list(made.scratch.iterdir())
    assert all(0 < len(batch) <= 7 for batch in found)
    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert [row[:n_keys] for row in rows] == sorted(record[:n_keys] for record in records)
    assert sorted(rows) == sorted(records)


@pytest.mark.parametrize("bits", [(5, 58), (5, 59), (62, 62)])
@pytest.mark.parametrize("memory", [FEW, 10**6])
def test_keys_of_two_numbers(bits: tuple[int, int], memory: int, tmp_path: Path) -> None:
    """In one integer or in two columns, they come in order; a key that is there twice is our error."""
    draw = np.random.default_rng(1)
    high, low = (draw.integers(0, 2**each, 300) for each in bits)
    key = Key(*bits)
    assert key.packed == (sum(bits) <= 63)
    sorter = Sorter(Workspace(memory, tmp_path))
    found = list(key.sorted_by(sorter, zip(np.split(high, 10), np.split(low, 10), strict=True)))
    numbers = [tuple(map(int, pair)) for pieces in found for pair in zip(*pieces, strict=True)]
    assert numbers == sorted(zip(high.tolist(), low.tolist(), strict=True))
    with pytest.raises(InternalError, match="not in order"):
        list(key.sorted_by(sorter, [(high[:1], low[:1])] * 30))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=80)


@given(ROWS, ROWS, st.integers(1, 20))
def test_missing_records_are_counted_as_often_as_they_occur(own, released, size):
    """Whether equal records are in one run or in many."""
    schema = pa.schema([("weight", pa.int64()), ("0", pa.int64())])
    with temporary_workspace() as made:
        found = count_missing(
            in_batches(own, schema, size),
            in_batches(released, schema, size),
            schema.names,
            Workspace(FEW, made.scratch),
            Progress(),
        )
    assert found == sum(max(0, own.count(row) - released.count(row)) for row in set(own))


def test_a_closed_sorter_stops_reading_and_merging(tmp_path: Path) -> None:
    """While records come in, and while they go out; the file of the runs is gone."""
    workspace = Workspace(FEW, tmp_path / "scratch")

    def stream(sorter: Sorter, closing_after: int) -> Iterator[Any]:
        for number in range(100):
            if number == closing_after:
                sorter.close()
            yield pa.record_batch([pa.array(range(100))], schema=NUMBERS)

    for closing_after in (3, 100):
        with closing(Sorter(workspace, 10)) as sorter:
            found = sorter.sort(stream(sorter, closing_after), NUMBERS, ["key"])
            if closing_after == 100:
                next(found)
                sorter.close()
            with pytest.raises(CancelledError):
                list(found)
        assert not list((tmp_path / "scratch").iterdir())


def test_a_full_disk_is_an_error_of_the_scratch_folder(tmp_path: Path, monkeypatch: Any) -> None:
    """It names the folder, which an operator can free, and no file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("owner_node.engines.sorting.RunFile.append", full)
    sorter = Sorter(Workspace(FEW, tmp_path / "scratch"))
    with pytest.raises(OSError, match="No space left") as caught:
        list(sorter.sort(in_batches([(1,)], NUMBERS, 1), NUMBERS, ["key"]))
    assert caught.value.filename == str(tmp_path / "scratch")
