"""Answers to queries against the figures of Soria-Comas et al. 2017, Section VI."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.masking.queries import draw_answer, exact_answer
from owner_node.masking.questions import Question, QuestionKind
from tests.fakes.bits import SeededBits

UNIT = 10**6
"""Six decimals: fine enough to look continuous."""


def test_table_one():
    """Median, ε = 1, local sensitivity 1: 95 % of the answers are within 3 of the median."""
    attribute = Attribute("x", AttributeType.NUMBER, -50 * UNIT, 50 * UNIT, 6)
    values = np.array([-9, -1, 0, 1, 9]) * UNIT
    question = Question(QuestionKind.MEDIAN, attribute, Decimal(1))
    assert exact_answer(question, values).sensitivity == UNIT
    bits = SeededBits(17)
    answers = np.array([draw_answer(question, values, bits)[0] for _ in range(4000)]) / UNIT
    assert np.mean(np.abs(answers) <= 3) == pytest.approx(1 - np.exp(-3), abs=0.01)
    assert np.quantile(np.abs(answers), 0.95) == pytest.approx(3, abs=0.25)


def test_the_second_maximum_needs_less_noise_than_the_maximum():
    """Section VI.B: its sensitivity does not depend on the domain, however wide that is declared."""
    values = np.random.default_rng(4).normal(50, 10, 2001).astype(np.int64)
    found = {}
    for width in (200, 20_000):
        attribute = Attribute("x", AttributeType.INTEGER, 0, width)
        for kind in (QuestionKind.MAXIMUM, QuestionKind.SECOND_MAXIMUM):
            found[kind, width] = exact_answer(Question(kind, attribute, Decimal(1)), values).sensitivity
    assert found[QuestionKind.MAXIMUM, 200] == 200 - values.max()
    assert found[QuestionKind.MAXIMUM, 20_000] == 20_000 - values.max()
    assert found[QuestionKind.SECOND_MAXIMUM, 200] == found[QuestionKind.SECOND_MAXIMUM, 20_000] < 15
