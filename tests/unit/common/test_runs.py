"""Runs read side by side, against sorting everything."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import runs as module
from common.runs import ArrayRun, RunFile, in_ranges
from common.workspace import Workspace

PAIRS = np.dtype([("key", np.int64), ("who", np.int32)])


@settings(max_examples=100, deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=5),
    n_records=st.integers(0, 30),
    on_disk=st.booleans(),
)
def test_ranges_hold_everything_once_and_do_not_overlap(tmp_path_factory, lists, n_records, on_disk):
    """Whatever the blocks are, every range is complete: no key is in two of them, no record is lost."""
    arrays = [np.array([(key, who) for key in sorted(keys)], dtype=PAIRS) for who, keys in enumerate(lists)]
    workspace = Workspace(1 << 20, tmp_path_factory.getbasetemp() / "scratch")
    with pytest.MonkeyPatch.context() as patch, workspace.file() as stream:
        patch.setattr(module, "_FEWEST_RECORDS", 1)
        spool = RunFile(stream)
        runs = [
            spool.append(np.array_split(each, 3), PAIRS) if on_disk else ArrayRun(each) for each in arrays
        ]
        ranges = list(in_ranges(runs, n_records, "key"))
    for place, array in enumerate(arrays):
        assert np.array_equal(np.concatenate([each[place] for each in ranges]), array)
    spans = [np.concatenate(each)["key"] for each in ranges if sum(map(len, each))]
    assert all(before.max() < after.min() for before, after in pairwise(spans))


def test_blocks_are_as_small_as_they_were_asked_for():
    """Memory is bounded: runs of very different lengths are used up at the same pace."""
    rng = np.random.default_rng(1)
    runs = [ArrayRun(np.sort(rng.integers(0, 1 << 60, n))) for n in (200_000, 1000, 50_000)]
    sizes = [sum(map(len, each)) for each in in_ranges(runs, 10_000)]
    assert max(sizes) < 12_000
    assert sum(sizes) == 251_000
    assert len(sizes) < 60


def test_a_file_that_was_cut_is_an_error(tmp_path):
    """Records that are not there are never taken for zeros."""
    with Workspace(1 << 20, tmp_path / "scratch").file() as stream:
        run = RunFile(stream).append([np.arange(10)], np.dtype(np.int64))
        stream.truncate(40)
        with pytest.raises(OSError, match="ended too early"):
            run.read(0, 10)
