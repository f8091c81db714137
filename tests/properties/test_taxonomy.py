"""Taxonomies of any shape agree with sets of ancestors and all pairs."""

from itertools import combinations_with_replacement

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from owner_node.masking.exponential import distance_table
from owner_node.masking.taxonomy import Taxonomy, read_hierarchy
from tests.oracles import taxonomy as oracle

PATHS = st.lists(st.lists(st.sampled_from("xyz"), max_size=4), min_size=1, max_size=12).map(
    lambda branches: tuple(
        ("*", *(f"{label}{depth}" for depth, label in enumerate(branch)), f"c{index}")
        for index, branch in enumerate(branches)
    )
)


@given(PATHS)
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


def losses(tree, one, other, k):
    """The largest loss of every cluster between two columns of places, as multiples of epsilon."""
    table = distance_table(tree)
    halves = []
    for column in (one, other):
        clusters = np.array(sorted(column)).reshape(-1, k)
        exponents = -table[clusters].sum(axis=1) / (2 * table.max())
        halves.append(exponents - np.log(np.exp(exponents).sum(axis=1, keepdims=True)))
    return np.abs(halves[0] - halves[1]).max(axis=1)


def test_no_change_of_a_record_costs_more_than_is_stated():
    """All columns of six records, all changes of one: epsilon per cluster, the number of clusters in all."""
    tree = Taxonomy((("*", "x", "a"), ("*", "x", "b"), ("*", "y", "z", "c"), ("*", "d")))
    most, joint = 0.0, 0.0
    for column in combinations_with_replacement(range(4), 6):
        for position in range(6):
            for value in range(4):
                changed = (*column[:position], value, *column[position + 1 :])
                found = losses(tree, column, changed, 3)
                most, joint = max(most, found.max()), max(joint, found.sum())
    assert 0.5 < most <= 1
    # More than one cluster's epsilon, or else less than the number of clusters would do as the joint bound.
    assert 1 < joint <= 2
