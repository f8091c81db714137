"""The shuffle: uniform over all orders, whatever the buckets; nothing lost, nothing left on the disk."""

import errno
import os
from collections import Counter
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from aggregator.release.shuffling import n_buckets, shuffle
from common.errors import IntegrityError
from common.workspace import Workspace

NUMBER = np.dtype([("x", np.int64)])
N_DRAWS = 6000
"""Enough to see an order of four records that swaps each with any other: 200 in the statistic, 71 allowed."""


def records(n):
    """The numbers 0…n-1 as records."""
    return np.arange(n, dtype=np.int64).view(NUMBER)


def memory_for(buckets, n):
    """The memory with which so many records need so many buckets."""
    memory = next(m for m in range(1, 10**6) if n_buckets(n, NUMBER.itemsize, m) <= buckets)
    assert n_buckets(n, NUMBER.itemsize, memory) == buckets
    return memory


@pytest.mark.parametrize("buckets", [1, 2, 4])
def test_every_order_is_equally_likely(tmp_path, buckets):
    """All 24 orders of four records come equally often, with one bucket, few, and as many as records."""
    workspace = Workspace(memory_for(buckets, 4), tmp_path / "scratch")
    found = Counter(
        tuple(np.concatenate([*shuffle([records(4)], 4, NUMBER, workspace)])["x"].tolist())
        for _ in range(N_DRAWS)
    )
    counts = [found[order] for order in permutations(range(4))]
    assert sum(counts) == sum(found.values())
    assert len(counts) == factorial(4)
    assert chisquare(counts).pvalue > 1e-6


def test_a_shuffle_that_only_deals_into_buckets_fails_this_test(tmp_path, monkeypatch):
    """The test above sees it if the second pass leaves a bucket as it is."""
    monkeypatch.setattr("aggregator.release.shuffling.random_order", np.arange)
    workspace = Workspace(memory_for(2, 4), tmp_path / "scratch")
    found = Counter(
        tuple(np.concatenate([*shuffle([records(4)], 4, NUMBER, workspace)])["x"].tolist())
        for _ in range(2000)
    )
    assert chisquare([found[order] for order in permutations(range(4))]).pvalue < 1e-6


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3000), memory=st.integers(2000, 200_000), cuts=st.integers(1, 9), seed=st.integers(0, 9)
)
def test_every_record_comes_once(tmp_path_factory, n, memory, cuts, seed):
    """Whatever memory and pieces are, the result has the same records, and the scratch folder is empty."""
    scratch = tmp_path_factory.getbasetemp() / "shuffled"
    order = np.random.default_rng(seed).permutation(n)
    pieces = np.array_split(records(n)[order], cuts)
    buckets = list(shuffle(pieces, n, NUMBER, Workspace(memory, scratch)))
    assert np.array_equal(np.sort(np.concatenate(buckets)["x"]), np.arange(n))
    assert len(buckets) == n_buckets(n, NUMBER.itemsize, memory)
    assert list(scratch.glob("*")) == []


@pytest.mark.parametrize("wrong", [999, 1001])
@pytest.mark.parametrize("memory", [10_000, 1 << 20])
def test_another_number_of_records_is_refused(tmp_path, wrong, memory):
    """A record too many or too few is an error before any is released."""
    shuffled = shuffle([records(1000)], wrong, NUMBER, Workspace(memory, tmp_path / "scratch"))
    with pytest.raises(IntegrityError, match="number of records that linking found"):
        next(shuffled)


def test_a_full_disk_is_an_error_that_names_it(tmp_path, monkeypatch):
    """The error of a full scratch folder names it, and nothing stays there."""
    scratch = tmp_path / "scratch"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("common.runs.RunFile.append", full)
    with pytest.raises(OSError, match="No space left") as caught:
        next(shuffle([records(1000)], 1000, NUMBER, Workspace(10_000, scratch)))
    assert caught.value.filename == str(scratch)
    assert list(scratch.iterdir()) == []


def test_a_plan_of_2_to_the_34_records_needs_few_buckets():
    """The number of buckets grows with the records and stays one that a table in memory can hold."""
    assert n_buckets(2**34, 40, 10**9) == 8192
    assert n_buckets(10**6, 40, 10**9) == 1
