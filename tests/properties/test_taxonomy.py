"""Taxonomies of any shape agree with sets of ancestors and all pairs."""

from decimal import Decimal
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from owner_node.masking.clusters import Setting
from owner_node.masking.exponential import TaxonomyMechanism
from owner_node.values.taxonomy import Taxonomy, read_hierarchy
from tests.oracles import taxonomy as oracle

PATHS = st.lists(st.lists(st.sampled_from("xyz"), max_size=4), min_size=1, max_size=12).map(
    lambda branches: tuple(
        ("*", *(f"{label}{depth}" for depth, label in enumerate(branch)), f"c{index}")
        for index, branch in enumerate(branches)
    )
)


EQUAL_PRODUCTS = tuple(tuple(path.split()) for path in ("* y y1 y2 a", "* b", "* y z c", "* d", "* y z z2 e"))
"""The first two are equally marginal, by other distances: the first in declared order counts."""


@given(PATHS)
@example(EQUAL_PRODUCTS)
@settings(max_examples=300, deadline=None)
def test_order_is_that_of_all_pairs(paths):
    """Counting by ancestor and comparing profiles gives the order that comparing every pair gives."""
    tree = Taxonomy(paths)
    assert list(tree.order()) == oracle.order(paths)
    for index, path in enumerate(paths):
        assert tree.difference(0, index) == oracle.difference(paths[0], path)


@given(PATHS)
@settings(deadline=None)
def test_a_written_hierarchy_is_read_back(paths):
    """A tree survives its file, whatever the depth of its branches."""
    text = "\n".join(";".join(reversed(path)) for path in paths)
    assert tuple(read_hierarchy(text).values()) == paths


TREE = Taxonomy((("*", "x", "a"), ("*", "x", "b"), ("*", "y", "z", "c"), ("*", "d")))
EPSILON = Decimal("0.5")


def log_probabilities(column, k, g):
    """What the categories of each cluster are drawn by, on masking's own scale: `(n_clusters, V)`."""
    mechanism, setting = TaxonomyMechanism(), Setting("c", TREE.n_categories, EPSILON, k, g, TREE)
    counts = np.bincount(column, minlength=TREE.n_categories)
    found = [-kinds.marginality[kinds.row_of] / kinds.scale for kinds in mechanism.kinds(counts, setting)]
    exponents = np.concatenate(found)
    return exponents - np.log(np.exp(exponents).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("g", [1, 2, 3])
@pytest.mark.parametrize(("n_records", "k"), [(6, 3), (7, 3), (6, 6)])
def test_no_change_of_a_persons_records_costs_more_than_is_stated(n_records, k, g):
    """All columns, all changes of g records: epsilon per cluster, the number of clusters in all.

    More than half of it is lost by some change, so that a scale of half the size, or without g, is found out.
    """
    columns = list(combinations_with_replacement(range(TREE.n_categories), n_records))
    logs = np.array([log_probabilities(column, k, g) for column in columns])
    counts = np.array([np.bincount(column, minlength=TREE.n_categories) for column in columns])
    n_changed = np.abs(counts[:, None] - counts).sum(axis=2) // 2
    losses = np.abs(logs[:, None] - logs).max(axis=3)[n_changed <= g] / float(EPSILON)
    assert 0.5 < losses.max() <= 1
    if g == 1 and n_records > k:
        # More than one cluster's epsilon: less than the number of clusters would not do as the joint bound.
        assert losses.sum(axis=1).max() > 1
