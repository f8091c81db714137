"""Noise of a synthetic release at an owner: a question has one draw, whatever comes with it."""

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, repeat

import numpy as np
import pytest

from common.canonical import digest
from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Noise
from common.synthesis.schedule import Design, Question, RoundSums, next_round, question_digest
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.counts import noisy_answer
from owner_node.synthesis.crossed import stream
from owner_node.synthesis.roles import MessageContext
from owner_node.synthesis.shares import noise_share

SEED = bytes(range(32))
ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 90),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=tuple("abc")),
    Attribute("pay", AttributeType.INTEGER, 0, 10**6),
)
ALONE = Design(ATTRIBUTES, 50_000, Decimal(1))
ACROSS = Design(ATTRIBUTES, 50_000, Decimal(1), owner_groups=(0, 1, 0))


def rounds_of(design: Design, false: int = 0) -> list[tuple[Question, ...]]:
    """Return all rounds of a release; `false` is added to one sum of the first round."""
    draws = np.random.default_rng(3)
    columns = [
        (draws.beta(1, 4, design.n_records) * each.n_values).astype(np.int64) for each in design.attributes
    ]
    rounds: list[tuple[Question, ...]] = []
    sums: list[np.ndarray] = []
    while not isinstance(asked := next_round(design, sums), RoundSums):
        rounds.append(asked)
        exact = noisy_answer(asked, columns, repeat(SystemBits()))
        if not sums:
            exact[0] += false
        sums.append(exact)
    return rounds


def noise_of(question: Question, seed: bytes, release: str, number: int) -> np.ndarray:
    """Return the noise of a question in a round of a release of one group."""
    bits = stream(seed, MessageContext(release, "ab" * 32, round=number), "own", question_digest(question))
    return noise_share(question.n_numbers, question.noise, bits)


@pytest.mark.parametrize("design", [ALONE, ACROSS])
def test_questions_are_told_apart(design: Design) -> None:
    """By attributes, bins and noise: whatever their exact answers and noise depend on."""
    questions = [each for asked in rounds_of(design) for each in asked]
    digests = {question_digest(each) for each in questions}
    assert len(digests) == len(questions)
    for each in questions:
        louder = replace(each, noise=Noise(each.noise.kind, each.noise.size + 1))
        digests.add(question_digest(louder))
        assert question_digest(replace(each)) in digests
    assert len(digests) == 2 * len(questions)


def test_a_question_has_one_draw() -> None:
    """To put an owner's state back and to change what comes with a round brings no second one to average."""
    first, *_ = rounds_of(ALONE)
    # Another number of records, as an addendum may state it, asks the same.
    again = next_round(replace(ALONE, n_records=50_001), [])
    assert not isinstance(again, RoundSums)
    for question, same in zip(first, again, strict=True):
        drawn = noise_of(question, SEED, "r1", 1)
        assert drawn.shape == (question.n_numbers,)
        assert (noise_of(same, SEED, "r1", 1) == drawn).all()
        others = [(bytes(32), "r1", 1), (SEED, "r2", 1), (SEED, "r1", 2)]
        for each in others:
            assert (noise_of(question, *each) != drawn).any()


def test_noise_of_a_release_that_is_under_way() -> None:
    """An owner answers, and shows an auditor, the same after an upgrade: these bytes are never others."""
    (question, *_), *_ = rounds_of(ALONE)
    drawn = (noise_of(question, SEED, "r1", number).astype("<i8").tobytes() for number in (1, 2))
    assert [digest(each)[:16] for each in drawn] == ["bc6fed46dff8fd51", "7a46bbb14a7cc493"]


def test_a_false_sum_changes_the_noise_of_what_follows_from_it() -> None:
    """Where the question is another, so is its noise: no difference of two answers shows exact counts."""
    compared = 0
    for true, false in zip(rounds_of(ALONE)[-1], rounds_of(ALONE, false=20_000)[-1], strict=False):
        if question_digest(true) != question_digest(false):
            size = min(true.n_numbers, false.n_numbers)
            assert (noise_of(true, SEED, "r1", 3)[:size] != noise_of(false, SEED, "r1", 3)[:size]).any()
            compared += 1
    assert compared


def test_noise_is_spread_as_planned() -> None:
    """The draws of questions are those of their distribution, and of one question to the next unrelated."""
    (question, *_), *_ = rounds_of(Design(ATTRIBUTES, 50_000, Decimal(1), Decimal("0.000001")))
    draws = [noise_of(question, SEED, f"r{number}", 1) for number in range(200)]
    values = np.concatenate(draws).astype(np.float64)
    assert values.var() == pytest.approx(question.noise.variance(1), rel=0.05)
    related = np.mean([one * other for one, other in pairwise(draws)]) / values.var()
    assert abs(related) < 5 / np.sqrt(values.size)
