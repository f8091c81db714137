"""Hierarchies become trees with a public order, or one clear error."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from common.errors import UsageError
from common.model.schema import Attribute, AttributeType, TaxonomyMethod
from owner_node.masking.tasks import AttributeTask, check_table
from owner_node.values.taxonomy import MalformedTaxonomy, Taxonomy, read_hierarchy, taxonomy_of
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute
from tests.oracles import taxonomy as oracle

JOBS = """\
nurse;care;hospital;*
midwife;care;hospital;*
surgeon;medicine;hospital;*
cook;kitchen;kitchen;*
pilot;pilot;pilot;*
"""
LABELS = ("nurse", "midwife", "surgeon", "cook", "pilot")


def taxonomy(text=JOBS, categories=LABELS):
    """The taxonomy of a hierarchy's text."""
    return taxonomy_of(read_hierarchy(text), categories)


def jobs(tree=None, **changes):
    """An attribute with a taxonomy."""
    settings = {"categories": LABELS, "taxonomy": (tree or taxonomy()).digest} | changes
    return Attribute("job", AttributeType.CATEGORY, 0, len(settings["categories"]) - 1, **settings)


def test_repeated_labels_collapse():
    """ARX fills short branches by repeating a label; the repetition is no level of its own."""
    paths = read_hierarchy(JOBS)
    assert paths["cook"] == ("*", "kitchen", "cook")
    assert paths["pilot"] == ("*", "pilot")
    assert read_hierarchy('\ufeff"a;b";c;*\r\n\r\nd;c;*\r\n')["a;b"] == ("*", "c", "a;b")


def test_a_label_in_two_branches_is_two_nodes():
    """A node is its path from the root: what is called alike in two branches is not shared."""
    tree = taxonomy("a;other;x;*\nb;other;y;*", ("a", "b"))
    assert tree.difference(0, 1) == Fraction(6, 7)


def test_worked_example():
    """Distances of the example, counted by hand, and the order they lead to."""
    tree = taxonomy()
    nurse, midwife, surgeon, cook, pilot = range(5)
    assert tree.difference(nurse, nurse) == 0
    assert tree.difference(nurse, midwife) == Fraction(2, 5)
    assert tree.difference(nurse, surgeon) == Fraction(4, 6)
    assert tree.difference(nurse, cook) == Fraction(5, 6)
    assert tree.difference(nurse, pilot) == Fraction(4, 5)
    assert tree.difference(cook, pilot) == Fraction(3, 4)
    # Products of 1 + difference: nurse, midwife 7.70, surgeon 9.17, pilot (9/5)^3 7/4 = 10.21, and
    # cook (11/6)^3 7/4 = 10.78.
    assert tree.most_marginal() == cook
    assert tree.order() == (cook, pilot, nurse, midwife, surgeon)


def test_ties_are_in_declared_order():
    """Categories that are alike in the tree keep the order they were declared in, as all owners see it."""
    flat = "a;*\nb;*\nc;*"
    assert taxonomy(flat, ("b", "c", "a")).order() == (0, 1, 2)
    assert taxonomy(flat, ("b", "c", "a")).digest == taxonomy(flat, ("a", "b", "c")).digest
    assert taxonomy("a;*\nb;*\nc;x;*", ("a", "b", "c")).digest != taxonomy(flat, ("a", "b", "c")).digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it has no line with a category"),
        ("a;x;*\n;x;*", "line 2: the category is missing"),
        ("a;x;*\nb; ;*", "line 2: an ancestor is empty"),
        ("a;x;*\nb;x;root", "2 roots, '*', 'root'"),
        ("a;x;*\nb;*;x;*", "line 2: a cycle"),
        ("a;x;y;*\nb;y;x;*", "a cycle: 'x', 'y' are above each other"),
        ("a;x;z;v;*\nb;y;x;v;*\nc;z;y;v;*\nd;u;z;*", "a cycle: 'x', 'y', 'z' are above each other"),
        ("a;x;*\na;y;*", "line 2: category 'a' is in an earlier line too"),
        ('"a;x;*', "line 1: quotes that do not close"),
    ],
)
def test_malformed_hierarchies(text, expected):
    """What is no tree is an error that names the line or the labels."""
    with pytest.raises(MalformedTaxonomy) as caught:
        read_hierarchy(text)
    assert expected in str(caught.value)


def test_all_problems_come_together():
    """A long file is corrected in one go; a file that is something else does not fill the screen."""
    with pytest.raises(MalformedTaxonomy) as caught:
        read_hierarchy(";x;*\na;x;*\na;y;+")
    assert len(caught.value.problems) == 2
    with pytest.raises(MalformedTaxonomy) as caught:
        read_hierarchy(";x\n" * 50)
    assert len(caught.value.problems) == 21


def test_other_categories_than_declared():
    """A category without a place in the tree, or the reverse, is an error."""
    with pytest.raises(MalformedTaxonomy, match=r"not in the hierarchy: 'baker'; .* categories: 'pilot'"):
        taxonomy(categories=("nurse", "midwife", "surgeon", "cook", "baker"))


def test_ten_thousand_categories():
    """A large code list, with branches of different depth, is put in order, and as one without shortcuts."""
    labels = [f"c{index:04}" for index in range(10_000)]
    lines = [
        f"{each};{each[:4]};{each[:3]};*" if index % 3 else f"{each};{each[:3]};*"
        for index, each in enumerate(labels)
    ]
    tree = taxonomy("\n".join(lines), tuple(labels))
    assert sorted(tree.order()) == list(range(10_000))
    few = Taxonomy(tree.paths[:300])
    assert list(few.order()) == oracle.order(few.paths)


def test_rank_masks_places_in_the_taxonomys_order():
    """Almost without noise a record keeps its category, and the list is in the taxonomy's order."""
    tree = taxonomy()
    column = np.repeat(np.arange(5), [40, 30, 20, 50, 10])[np.random.default_rng(1).permutation(150)]
    task = AttributeTask(jobs(tree), Decimal(10**6), 10, "idp-joint", 1, tree)
    masked = mask_attribute(column, task, SeededBits(3))
    assert np.array_equal(masked.by_record(), column)
    assert list(dict.fromkeys(masked.released.values.tolist())) == list(tree.order())


def test_rank_differs_from_the_declared_order():
    """Clusters are made in the taxonomy's order: mixed ones fall between categories that are near there."""
    tree = taxonomy()
    column = np.repeat([4, 1], [6, 12])
    task = AttributeTask(jobs(tree), Decimal(10**6), 18, "idp-ls", 1, tree)
    assert set(mask_attribute(column, task, SeededBits(3)).by_record().tolist()) == {0}
    declared = AttributeTask(jobs(taxonomy=""), Decimal(10**6), 18, "idp-ls")
    assert set(mask_attribute(column, declared, SeededBits(3)).by_record().tolist()) == {2}


@pytest.mark.parametrize("tree", [None, taxonomy("a;*\nb;*", ("a", "b"))])
def test_a_plan_with_another_taxonomy_than_was_read_is_refused(tree):
    """An attribute is never masked in an order that its owners did not agree on."""
    with pytest.raises(UsageError, match="taxonomy"):
        check_table({"job": np.zeros(9, np.int64)}, [AttributeTask(jobs(), Decimal(1), 3, "idp-ls", 1, tree)])


def test_exponential_draws_one_category_per_cluster():
    """Records of a cluster share one category; almost without noise it is the least marginal one."""
    tree = taxonomy()
    drawn = jobs(tree, method=TaxonomyMethod.EXPONENTIAL)
    column = np.repeat([3, 4, 0, 1, 2], [40, 30, 20, 50, 10])
    task = AttributeTask(drawn, Decimal(10**4), 10, "exponential", 1, tree)
    masked = mask_attribute(column, task, SeededBits(3))
    assert np.array_equal(masked.by_record(), column)
    noisy = AttributeTask(drawn, Decimal("0.01"), 10, "exponential", 1, tree)
    counts = np.bincount(mask_attribute(column, noisy, SeededBits(3)).by_record(), minlength=5)
    assert np.count_nonzero(counts) > 1
    assert np.all(counts % 10 == 0)


@pytest.mark.parametrize(
    ("method", "mechanism"), [(TaxonomyMethod.EXPONENTIAL, "idp-joint"), (TaxonomyMethod.RANK, "exponential")]
)
def test_method_and_mechanism_belong_together(method, mechanism):
    """What an owner declares to be drawn is never masked by ranks, nor the reverse."""
    tree = taxonomy()
    task = AttributeTask(jobs(tree, method=method), Decimal(1), 3, mechanism, 1, tree)
    with pytest.raises(UsageError, match="does not go with its method"):
        check_table({"job": np.zeros(9, np.int64)}, [task])
