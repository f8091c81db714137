"""The sampler's corners: scale 0, rejected words, noise that 63 bits cannot hold."""

import numpy as np
import pytest

from owner_node.masking import noise as coins
from owner_node.masking.arrays import SystemBits
from owner_node.masking.noise import (
    FEWEST_SHARED,
    LARGEST_SCALE,
    add_saturating,
    discrete_laplace,
    shared_laplace,
)
from tests.fakes.bits import QueuedWords, SeededBits

LARGEST = 2**63 - 1


def test_scale_zero_draws_nothing_and_other_elements_their_own_scale():
    """Scales are per element, and 0 means exactly no noise."""
    scales = np.tile(np.array([0, 1, 10**9]), 2000)
    drawn = np.abs(discrete_laplace(scales, SystemBits()).reshape(-1, 3))
    assert drawn[:, 0].max() == 0
    assert 0 < drawn[:, 1].max() < 64
    assert drawn[:, 2].mean() > 10**8


def test_no_elements():
    """An empty list of scales is an empty list of draws."""
    assert discrete_laplace(np.empty(0, dtype=np.int64), SystemBits()).size == 0


def test_words_of_the_incomplete_last_multiple_are_drawn_anew():
    """Without the rejection small remainders would be likelier than large ones."""
    bound = 2**62 + 1  # three multiples fit below 2^64
    accepted, rejected = 3 * bound - 1, 3 * bound
    drawn = coins.uniform_below(np.array([bound, bound]), QueuedWords(accepted, rejected, 17))
    assert drawn.tolist() == [bound - 1, 17]


def test_a_word_that_belongs_to_no_third_is_drawn_anew():
    """One in three: 2^64 is no multiple of it, and the last word decides nothing."""
    piece = 2**64 // 3
    queue = QueuedWords(piece - 1, piece, 2**64 - 1, 2 * piece, 5)
    assert coins.one_in(3, queue, np.arange(4)).tolist() == [True, False, True, False]


@pytest.mark.parametrize("n_draws", [1, FEWEST_SHARED])
def test_a_scale_that_noise_is_not_exact_for_is_refused(n_draws):
    """Few draws and many: no scale above the largest is drawn in some other way."""
    assert np.abs(discrete_laplace(np.full(n_draws, LARGEST_SCALE), SeededBits(5))).max() > 2**50
    with pytest.raises(ValueError, match="no noise of"):
        discrete_laplace(np.full(n_draws, LARGEST_SCALE + 1), SeededBits(5))


@pytest.mark.parametrize("n_draws", [FEWEST_SHARED - 1, FEWEST_SHARED])
def test_noise_beyond_31_bits_is_cut_where_32_are_asked_for(n_draws):
    """As above, for few draws as for many, and as far below 0 as above."""
    drawn = shared_laplace(n_draws, 2**30, SeededBits(5), np.int32)
    assert drawn.dtype == np.int32
    assert (drawn.min(), drawn.max()) == (1 - 2**31, 2**31 - 1)
    assert abs(np.mean(np.abs(drawn.astype(np.int64)) == 2**31 - 1) - np.exp(-2)) < 0.01
    assert abs(np.mean(drawn > 0) - 0.5) < 0.015


def test_saturating_sums_are_a_function_of_the_exact_sum():
    """Where noise was cut, the result must not tell the sum it was added to."""
    tail = 2**40
    sums = np.array([0, 5, LARGEST - tail])
    assert add_saturating(sums, np.full(3, LARGEST), tail).tolist() == [LARGEST] * 3
    assert add_saturating(sums, np.full(3, -LARGEST), tail).tolist() == [-tail] * 3
    noises = np.array([-7, tail, tail + 1])
    assert add_saturating(sums, noises, tail).tolist() == [-7, 5 + tail, LARGEST]
    # Where no sum comes near the largest integer.
    assert add_saturating(sums[:2], np.array([3 - tail, -LARGEST]), tail).tolist() == [3 - tail, -tail]


def test_system_bits_are_full_words():
    """The operating system's bits: 64 per word, none fixed."""
    words = SystemBits().words(2000)
    assert words.dtype == np.uint64
    assert words.size == 2000
    counts = np.unpackbits(words.view(np.uint8).reshape(2000, 8), axis=1).sum(axis=0)
    assert counts.min() > 800
    assert counts.max() < 1200
