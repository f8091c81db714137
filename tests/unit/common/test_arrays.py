"""Stable orders of keys and tokens, against numpy's."""

import numpy as np
import pytest

from common.arrays import order_of, sortable, token_order


@pytest.mark.parametrize("n_records", [0, 1, 2, 1000])
@pytest.mark.parametrize("step", [1, 1 << 10, 1 << 54])
@pytest.mark.parametrize("extremes", [(), (0, 2**64 - 1)])
def test_keys_that_differ_in_few_bits_keep_their_stable_order(n_records, step, extremes):
    """Keys that differ only in the bits that give way to positions, and equal ones, are still in order."""
    keys = np.random.default_rng(1).integers(0, 1 << 9, n_records, dtype=np.uint64) * np.uint64(step)
    for each in (np.append(keys, np.array(extremes, dtype=np.uint64)), keys.view(np.int64)[::-1]):
        assert np.array_equal(order_of(each), np.argsort(each, kind="stable"))


@pytest.mark.parametrize("n_records", [0, 1, 2, 1000])
@pytest.mark.parametrize("byte", [0, 7, 8, 15])
def test_tokens_that_differ_in_one_byte_keep_their_stable_order(n_records, byte):
    """All sixteen bytes count; equal tokens keep the order of their records."""
    tokens = np.full((n_records, 16), 7, dtype=np.uint8)
    tokens[:, byte] = np.random.default_rng(2).integers(0, 256, n_records)
    assert np.array_equal(token_order(tokens), np.argsort(sortable(tokens), kind="stable"))
