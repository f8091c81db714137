"""Answers to queries against brute force: local sensitivities are reached, and the noise is made for them."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UnusableDataError
from common.model.schema import Attribute, AttributeType
from owner_node.masking.queries import check_answerable, draw_answer, exact_answer
from owner_node.masking.questions import Question, QuestionKind, Range
from tests.fakes.bits import SeededBits
from tests.oracles.queries import counts, neighbours, statistic

LOWER, UPPER = -2, 3
DOMAIN = range(LOWER, UPPER + 1)
ATTRIBUTE = Attribute("x", AttributeType.INTEGER, LOWER, UPPER)
STATISTICS = (QuestionKind.MEDIAN, QuestionKind.MAXIMUM, QuestionKind.SECOND_MAXIMUM, QuestionKind.QUANTILE)
TABLES = st.lists(st.integers(LOWER, UPPER), min_size=2, max_size=6)
EPSILONS = st.decimals("0.001", "20", places=3)
CUTS = (Range(LOWER, 0), Range(0, 1), Range(1, UPPER + 1))


def question(kind: QuestionKind, g: int = 1, epsilon: Decimal = Decimal(1)) -> Question:
    """A question about the attribute; counts are of its middle value, histograms of three ranges."""
    ranges = {QuestionKind.COUNT: CUTS[1:2], QuestionKind.HISTOGRAM: CUTS}.get(kind, ())
    share = Decimal("0.3") if kind is QuestionKind.QUANTILE else None
    return Question(kind, ATTRIBUTE, epsilon, g, ranges, share)


@settings(max_examples=60, deadline=None)
@given(table=TABLES, g=st.integers(1, 3), kind=st.sampled_from(STATISTICS))
def test_local_sensitivity_of_order_statistics(table, g, kind):
    """Over all changes of g records the statistic moves by exactly the local sensitivity, and not more."""
    exact = exact_answer(question(kind, g), np.array(table))
    own = statistic(str(kind), table)
    assert Fraction(int(exact.sums[0]), exact.parts) + exact.offset == own
    moved = max(abs(statistic(str(kind), each) - own) for each in neighbours(table, g, DOMAIN))
    assert moved == Fraction(exact.sensitivity, exact.parts)


@settings(max_examples=40, deadline=None)
@given(table=TABLES, g=st.integers(1, 3))
def test_counts_never_move_further(table, g):
    """Changing g records moves a count by at most g and a histogram by at most 2g."""
    ranges = [(each.first, each.end) for each in CUTS]
    for kind, chosen in ((QuestionKind.COUNT, ranges[1:2]), (QuestionKind.HISTOGRAM, ranges)):
        exact = exact_answer(question(kind, g), np.array(table))
        own = counts(table, chosen)
        assert exact.sums.tolist() == own
        moved = max(
            sum(abs(a - b) for a, b in zip(counts(each, chosen), own, strict=True))
            for each in neighbours(table, g, DOMAIN)
        )
        assert moved <= exact.sensitivity


@settings(max_examples=40, deadline=None)
@given(table=TABLES, g=st.integers(1, 3))
def test_sums_never_move_further(table, g):
    """Changing g records moves a sum by at most g times the domain's width, and somewhere it does."""
    exact = exact_answer(question(QuestionKind.MEAN, g), np.array(table))
    assert int(exact.sums[0]) + exact.offset == sum(table)
    assert all(abs(sum(each) - sum(table)) <= exact.sensitivity for each in neighbours(table, g, DOMAIN))
    lowest = [LOWER] * max(len(table), g)
    assert max(sum(each) - sum(lowest) for each in neighbours(lowest, g, DOMAIN)) == exact.sensitivity


@pytest.mark.parametrize("g", [1, 2, 3])
def test_counts_do_move_so_far(g):
    """The bound of counts and histograms is reached, so nothing smaller would do."""
    table = [0] * 4
    for kind, expected in ((QuestionKind.COUNT, g), (QuestionKind.HISTOGRAM, 2 * g)):
        asked = question(kind, g)
        chosen = [(each.first, each.end) for each in asked.ranges]
        own = counts(table, chosen)
        moved = max(
            sum(abs(a - b) for a, b in zip(counts(each, chosen), own, strict=True))
            for each in neighbours(table, g, DOMAIN)
        )
        assert moved == exact_answer(asked, np.array(table)).sensitivity == expected


@pytest.mark.parametrize(
    ("table", "kind", "sensitivity"),
    [
        ([0, 0, 0, 0, 1], QuestionKind.MEDIAN, 0),  # the data sets D1 and D2 of the paper, Section IV.B
        ([0, 0, 0, 1, 1], QuestionKind.MEDIAN, 1),
        ([-2, 1, 2], QuestionKind.MAXIMUM, 1),  # max(U - x_n, x_n - x_(n-1))
        ([-2, 0, 3], QuestionKind.MAXIMUM, 3),
        ([-2, 1, 2], QuestionKind.SECOND_MAXIMUM, 3),
        ([-2, 3, 3], QuestionKind.SECOND_MAXIMUM, 5),
    ],
)
def test_the_formulas_of_the_paper(table, kind, sensitivity):
    """Worked by hand from Soria-Comas et al. 2017, Section VI."""
    assert exact_answer(question(kind), np.array(table)).sensitivity == sensitivity


@given(table=TABLES, epsilon=EPSILONS, g=st.integers(1, 3), kind=st.sampled_from(list(QuestionKind)))
def test_the_scale_keeps_epsilon(table, epsilon, g, kind):
    """On the integer scale that is really used: sensitivity over scale is at most epsilon, and never 0."""
    asked = question(kind, g, epsilon)
    exact, f = exact_answer(asked, np.array(table)), check_answerable(asked, len(table))
    scale = exact.scale(epsilon, f)
    assert scale >= 1
    assert Fraction(max(exact.sensitivity, 1) << f, scale) <= Fraction(epsilon)
    assert Fraction(max(exact.sensitivity, 1) << f, scale - 1 or 1) > Fraction(epsilon) or scale == 1


def test_domains_that_are_too_wide_are_refused_before_anything_is_drawn():
    """Sums and noise stay exact in 63 bits, or there is no answer and the reason is told."""
    wide = Attribute("x", AttributeType.INTEGER, -(2**61), 2**61)
    for kind in STATISTICS:
        with pytest.raises(UnusableDataError) as caught:
            check_answerable(replace(question(kind, 1, Decimal("0.1")), attribute=wide), 10)
        assert caught.value.hint
    # Counts do not depend on the domain.
    assert check_answerable(Question(QuestionKind.COUNT, wide, Decimal("0.1"), 1, CUTS[:1]), 10) == 20


def test_a_second_maximum_needs_two_records():
    """One record has none."""
    with pytest.raises(UnusableDataError):
        draw_answer(question(QuestionKind.SECOND_MAXIMUM), np.array([1]), SeededBits(1))
    assert len(draw_answer(question(QuestionKind.MEDIAN), np.array([1]), SeededBits(1))) == 1


@given(table=TABLES, epsilon=EPSILONS, kind=st.sampled_from(list(QuestionKind)), seed=st.integers(0, 2**32))
def test_answers_stay_in_the_domain(table, epsilon, kind, seed):
    """Whatever the noise, a value is one of the domain, a count or a sum one that there can be."""
    answers = draw_answer(question(kind, 1, epsilon), np.array(table), SeededBits(seed))
    ends = (0, len(table)) if kind.counts else (LOWER, UPPER)
    if kind.adds:
        ends = (LOWER * len(table), UPPER * len(table))
    assert all(ends[0] <= answer <= ends[1] for answer in answers)
    assert len(answers) == (len(CUTS) if kind is QuestionKind.HISTOGRAM else 1)
