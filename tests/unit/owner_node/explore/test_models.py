"""Models tell what is there to be told, and nothing else."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from owner_node.explore.models import f_measures, in_own_threads, propensity, split


def test_f_measure_by_hand():
    """Class 0: 2 of 3 predictions right, 2 of 4 found: 2·2/(3 + 4); class 1 likewise; class 2 never."""
    # The forest learns that the attribute is the class.
    classes = np.tile([0, 1], 20)
    predicted, actual = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 0, 1])
    found = f_measures(
        (classes[:, None].astype(float), classes), (predicted[:, None].astype(float), actual), 3, seed=1
    )
    assert found == pytest.approx([4 / 7, 2 / 5, 0])


def test_classes_are_recognised_from_what_says_them():
    """A forest finds a class that attributes say, and guesses at one that they do not."""
    draw = np.random.default_rng(1)
    rows = draw.normal(0, 1, (600, 3))
    said, unsaid = (rows[:, 0] > 0).astype(np.int64), draw.integers(0, 2, 600)
    n_training = split(600)
    assert n_training == 396
    found = []
    for classes in (said, unsaid):
        training, test = (rows[:n_training], classes[:n_training]), (rows[n_training:], classes[n_training:])
        found.append(f_measures(training, test, 2, seed=1))
    assert found[0].min() > 0.95
    assert found[1].max() < 0.7
    again = f_measures(
        (rows[:n_training], said[:n_training]), (rows[n_training:], said[n_training:]), 2, seed=1
    )
    assert np.array_equal(again, found[0])


def test_records_of_one_distribution_cannot_be_told_apart():
    """The propensity score of two samples is as by chance; of shifted or uncorrelated ones more."""
    draw = np.random.default_rng(2)
    mixing = np.array([[1.0, 0.8], [0.0, 0.6]])
    first, second, third = (draw.normal(0, 1, (3000, 2)) @ mixing for _ in range(3))
    same = propensity(first, second)
    assert same.ratio < 3
    assert propensity(first, third + 0.5).ratio > 30
    assert propensity(first, np.column_stack([third[:, 0], draw.permutation(third[:, 1])])).ratio > 30
    assert propensity(first, first + 1000).pmse == pytest.approx(0.25, abs=0.01)
    constant = np.ones((100, 2))
    assert propensity(constant, constant).pmse == 0


def test_products_stay_in_their_threads():
    """While several settings are looked at no product of matrices starts threads; afterwards it may again."""

    def n_threads():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before = n_threads()
    with in_own_threads():
        assert set(n_threads()) == {1}
    assert n_threads()[: len(before)] == before
