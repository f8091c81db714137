"""Taxonomies of any shape agree with sets of ancestors and all pairs."""

from hypothesis import given, settings
from hypothesis import strategies as st

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
