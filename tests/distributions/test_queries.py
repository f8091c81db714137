"""Answers to queries have exactly the probabilities that their noise gives them."""

from decimal import Decimal
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from scipy import stats

from common.model.schema import Attribute, AttributeType
from owner_node.masking.queries import check_answerable, draw_answer, exact_answer
from owner_node.masking.questions import Question, QuestionKind, Range
from tests.fakes.bits import SeededBits

BAD = 1e-4
HOPELESS = 1e-9
N_DRAWS = 4000
AGE = Attribute("age", AttributeType.INTEGER, 10, 40)
VALUES = {
    QuestionKind.MEDIAN: np.array([12, 19, 21, 22, 25, 31]),
    QuestionKind.MAXIMUM: np.array([12, 19, 21, 34, 36]),
    QuestionKind.SECOND_MAXIMUM: np.array([12, 19, 21, 23, 24]),
    QuestionKind.COUNT: np.repeat([12, 30], [8, 12]),
}
RANGES = {QuestionKind.COUNT: (Range(25, 41),)}


def below(x: int, scale: int) -> Decimal:
    """P(X <= x) of the discrete Laplace distribution, to 28 digits."""
    q = (Decimal(-1) / scale).exp()
    return 1 - q ** (x + 1) / (1 + q) if x >= 0 else q**-x / (1 + q)


def probabilities(exact, scale: int, f: int) -> list[Decimal]:
    """The probability of every answer, lowest first: rounded half up, the ends taking what is outside."""
    step = exact.parts << f
    centre = int(exact.sums[0]) << f
    # Answer a or less means: centre + X < (a + 1/2) step.
    edges = [ceil(Decimal(step * (2 * a + 1)) / 2) - 1 - centre for a in range(exact.n_values - 1)]
    cumulative = [Decimal(0), *(below(edge, scale) for edge in edges), Decimal(1)]
    return [b - a for a, b in pairwise(cumulative)]


def p_value(drawn: list[int], expected: list[Decimal]) -> float:
    """Chi-square of answers; neighbouring ones of small probability are one class."""
    found, wanted, rest_found, rest_wanted = [], [], 0, Decimal(0)
    for answer, probability in enumerate(expected):
        rest_found += drawn.count(answer)
        rest_wanted += probability * len(drawn)
        if rest_wanted >= 20:
            found.append(rest_found)
            wanted.append(float(rest_wanted))
            rest_found, rest_wanted = 0, Decimal(0)
    found[-1] += rest_found
    wanted[-1] += float(rest_wanted)
    return float(stats.chisquare(found, wanted).pvalue)


@pytest.mark.parametrize("kind", list(VALUES))
def test_answers_have_their_exact_probabilities(kind):
    """Against probabilities computed from the scale; with a scale off by a fifth they are not."""
    question = Question(kind, AGE, Decimal("0.7"), 1, RANGES.get(kind, ()))
    exact, f = exact_answer(question, VALUES[kind]), check_answerable(question, VALUES[kind].size)
    scale = exact.scale(question.epsilon, f)
    bits = SeededBits(5)
    drawn = [draw_answer(question, VALUES[kind], bits)[0] - exact.offset for _ in range(N_DRAWS)]
    assert p_value(drawn, probabilities(exact, scale, f)) > BAD
    for wrong in (scale * 4 // 5, scale * 5 // 4):
        assert p_value(drawn, probabilities(exact, wrong, f)) < HOPELESS


def test_the_counts_of_a_histogram_are_drawn_one_by_one():
    """Each count has noise of its own, of scale 2/ε: independent, and spread as it should be."""
    cells = tuple(Range(10 + n, 11 + n) for n in range(31))
    question = Question(QuestionKind.HISTOGRAM, AGE, Decimal("0.5"), 1, cells)
    values = np.repeat(np.arange(10, 41), 1000)
    bits = SeededBits(6)
    noise = np.array([draw_answer(question, values, bits) for _ in range(1500)]) - 1000
    assert abs(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]) < 0.02
    q = np.exp(-1 / 4)
    assert noise.var() == pytest.approx(2 * q / (1 - q) ** 2, rel=0.03)


def test_an_answer_without_variation_is_noisy_all_the_same():
    """Where no change of one record moves the median, it does not leave exactly."""
    question = Question(QuestionKind.MEDIAN, AGE, Decimal("0.5"), 1)
    values = np.full(9, 20)
    bits = SeededBits(7)
    assert exact_answer(question, values).sensitivity == 0
    assert len({draw_answer(question, values, bits) for _ in range(200)}) > 3
