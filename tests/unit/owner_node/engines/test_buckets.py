"""Records dealt into buckets come back in order, whatever the buckets, and leave nothing behind."""

import errno
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import CancelledError
from common.workspace import Workspace, temporary_workspace
from owner_node.engines.buckets import bucket_records, even_splits, sorted_buckets
from owner_node.engines.sorting import Sorter


@given(
    st.lists(st.integers(0, 2**62), unique=True, max_size=200),
    st.lists(st.integers(0, 2**62), max_size=8).map(sorted),
    st.integers(1, 50),
)
def test_any_integers_in_any_buckets_come_in_order(keys, splits, batch_records):
    """Empty buckets, one bucket, buckets that are dealt again."""
    every = np.array(keys, dtype=np.int64)
    batches = [every[first : first + batch_records] for first in range(0, len(keys), batch_records)]
    with temporary_workspace() as made:
        # Buckets of ten records: most of these are too large.
        workspace = Workspace(24 * 8 * 10, made.scratch)
        assert bucket_records(workspace) == 10
        found = list(sorted_buckets(batches, np.array(splits, dtype=np.int64), workspace))
        assert not list(made.scratch.iterdir())
        if splits:
            assert max(map(len, found), default=0) <= 40
    assert np.concatenate([np.zeros(0, np.int64), *found]).tolist() == sorted(keys)


@given(st.integers(-(2**62), 2**62), st.integers(0, 2**62), st.integers(1, 300))
def test_even_splits_divide_all_keys(lowest, width, n_buckets):
    """They ascend strictly between the ends, and ranges differ in width by one at most."""
    splits = even_splits(lowest, lowest + width, n_buckets).tolist()
    ends = [lowest, *splits, lowest + width + 1]
    widths = [after - before for before, after in pairwise(ends)]
    assert len(splits) + 1 == min(n_buckets, width + 1)
    assert min(widths) >= 1
    assert max(widths) - min(widths) <= 1


def test_a_closed_sorter_stops_dealing_and_reading(tmp_path: Path) -> None:
    """While records come in, and while they go out; the file of the buckets is gone."""
    workspace = Workspace(10**6, tmp_path / "scratch", 1)

    def stream(sorter: Sorter, closing_after: int) -> Iterator[Any]:
        for number in range(100):
            if number == closing_after:
                sorter.close()
            yield np.arange(100) + 100 * number

    splits = even_splits(0, 9_999, 7)
    for closing_after in (3, 100):
        sorter = Sorter(workspace, tmp_path, 10)
        found = sorter.sort_keys(stream(sorter, closing_after), splits)
        if closing_after == 100:
            next(found)
            sorter.close()
        with pytest.raises(CancelledError):
            list(found)
        assert not list((tmp_path / "scratch").iterdir())


def test_a_full_disk_is_an_error_of_the_scratch_folder(tmp_path: Path, monkeypatch: Any) -> None:
    """It names the folder, which an operator can free, and no file."""
    workspace = Workspace(24 * 8 * 10, tmp_path / "scratch", 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("owner_node.engines.buckets.RunFile.append", full)
    with pytest.raises(OSError, match="No space left") as caught:
        list(sorted_buckets([np.arange(100)], even_splits(0, 99, 10), workspace))
    assert caught.value.filename == str(tmp_path / "scratch")
