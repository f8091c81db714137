"""The course of a synthetic release: everybody computes the same next question, within the budget."""

from decimal import Decimal
from fractions import Fraction
from secrets import token_bytes

import numpy as np
import pytest

from common.model.rounds import KEY_BYTES
from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import SCORE, TABLE, Kind
from common.synthesis.course import (
    CoarseTable,
    Design,
    Measured,
    Score,
    Table,
    attributes_of,
    n_numbers,
    n_rounds,
    next_round,
    synthesise,
)
from common.synthesis.rounds import UNIT
from common.synthesis.sums import Masks, add_answers, public_key
from owner_node.synthesis.counts import exact_answer, noisy_answer
from owner_node.synthesis.shares import noise_share
from tests.fakes.bits import SeededBits


def number(upper: int) -> Attribute:
    """A number from 0 on."""
    return Attribute(f"up to {upper}", AttributeType.INTEGER, 0, upper)


NARROW, WIDE, WIDEST = number(50), number(2_000), number(10**6)
LABELLED = Attribute("labels", AttributeType.CATEGORY, 0, 4, categories=tuple("abcde"))
DESIGNS = (
    Design((NARROW,), 5_000, Decimal(1)),
    Design((WIDE,), 50_000, Decimal(1)),
    Design((WIDEST, LABELLED, NARROW), 50_000, Decimal(1)),
    Design((NARROW, WIDE, WIDEST, LABELLED), 9_000, Decimal(2), owners=(3,), colluding=1),
    Design((NARROW, WIDE, LABELLED), 30_000, Decimal(1), Decimal("0.000001"), owners=(4,), colluding=1),
)

VERTICAL = (
    Design((NARROW, LABELLED), 5_000, Decimal(1), homes=(0, 1)),
    Design((WIDEST, LABELLED, NARROW), 50_000, Decimal(1), homes=(1, 0, 1)),
    Design((NARROW, WIDE, LABELLED), 2_000, Decimal(1), Decimal("0.000001"), homes=(0, 1, 2)),
    Design((NARROW, WIDE, WIDEST, LABELLED), 30_000, Decimal(1), Decimal("0.000001"), homes=(0, 0, 1, 1)),
)
MIXED = (
    Design((NARROW, LABELLED, WIDE), 5_000, Decimal(1), owners=(2, 3), colluding=1, homes=(0, 1, 0)),
    Design((NARROW, WIDE, LABELLED), 20_000, Decimal(1), Decimal("0.000001"), (4, 1, 2), 1, homes=(0, 1, 2)),
)


ALL = DESIGNS + VERTICAL + MIXED


def records(design: Design, n_records: int, seed: int) -> list[np.ndarray]:
    """Return random records, skewed, `(n_records,)` by attribute."""
    draw = np.random.default_rng(seed)
    shares = draw.beta(1, 4, (len(design.attributes), n_records))
    return [
        (share * each.n_values).astype(np.int64)
        for share, each in zip(shares, design.attributes, strict=True)
    ]


def parts_of(design: Design) -> list[list[np.ndarray]]:
    """Return the records of every owner."""
    (n_owners,) = design.n_owners
    return [records(design, design.n_records // n_owners, owner) for owner in range(n_owners)]


@pytest.mark.parametrize("design", DESIGNS, ids=range(len(DESIGNS)))
def test_the_aggregator_learns_sums_alone_and_everybody_asks_the_same(design):
    """A release under masks: owners compute each question from sums, and all end with the same records."""
    parts = parts_of(design)
    private = {f"owner{place}": token_bytes(KEY_BYTES) for place in range(len(parts))}
    public = {owner: public_key(key) for owner, key in private.items()}
    masks = [Masks(owner, key, public, "flu") for owner, key in private.items()]
    sums: list[np.ndarray] = []
    bits = [SeededBits(place) for place in range(len(parts))]
    while not isinstance(asked := next_round(design, sums), Measured):
        answers = {}
        for mask, part, source in zip(masks, parts, bits, strict=True):
            # Each owner computes the question by itself.
            own = next_round(design, sums)
            assert not isinstance(own, Measured)
            answers[mask.owner] = mask.answer(noisy_answer(own, part, source), f"{len(sums):064x}")
        sums.append(add_answers(answers, n_numbers(asked)))
        exact = np.sum([exact_answer(asked, part) for part in parts], axis=0)
        for question, apart in _by_question(asked, sums[-1] - exact):
            assert np.abs(apart).max() < 40 * design.variance(question.noise, attributes_of(question)) ** 0.5
    assert len(sums) == n_rounds(design)
    made, again = (synthesise(design, asked) for _ in range(2))
    assert [each.tobytes() for each in made.codes] == [each.tobytes() for each in again.codes]
    assert {each.size for each in made.codes} == {design.n_records}


def _by_question(asked, numbers):
    ends = np.cumsum([each.n_numbers for each in asked])
    return zip(asked, np.split(numbers, ends[:-1]), strict=True)


def losses(design: Design, seed: int) -> Fraction:
    """Return the sum over all questions of what a person's record can lose, whatever the answers are."""
    draw, spent = np.random.default_rng(seed), Fraction(0)
    sums: list[np.ndarray] = []
    while not isinstance(asked := next_round(design, sums), Measured):
        for question in asked:
            kind, size = question.noise.kind, question.noise.size
            attributes = attributes_of(question)
            if not design.is_across(attributes):
                n_owners = design.n_owners[design.home(attributes[0])]
                assert question.noise.honest == max(n_owners - design.colluding, 1)
            sensitivity, unit = (SCORE, UNIT) if isinstance(question, Score) else (TABLE, 1)
            if kind is Kind.LAPLACE:
                spent += Fraction(sensitivity.l1 * unit, size)
            else:
                spent += Fraction(sensitivity.l2_squared * unit**2, 2 * size * question.noise.honest)
        spread = int(draw.choice([1, 100, design.n_records, 2**38]))
        sums.append(draw.integers(-spread, spread + 1, n_numbers(asked)))
    return spent


@pytest.mark.parametrize("design", ALL, ids=range(len(ALL)))
@pytest.mark.parametrize("seed", range(8))
def test_no_answers_make_a_release_cost_more(design, seed):
    """All questions together cost the budget at most, whatever sums an owner is sent, also forged ones."""
    whole = Fraction(sum((each.amount for each in design.budgets), Decimal(0)))
    assert 0 < losses(design, seed) <= whole
    assert whole <= Fraction(design.epsilon)


@pytest.mark.parametrize("design", VERTICAL, ids=range(len(VERTICAL)))
def test_pairs_across_owners_are_counted_coarsely_and_have_both_noises(design):
    """Coarse tables in place of their scores, twice the variance, and no more of the budget."""
    sums: list[np.ndarray] = []
    columns = records(design, design.n_records, 1)
    while not isinstance(asked := next_round(design, sums), Measured):
        for question in asked:
            if isinstance(question, CoarseTable | Score):
                assert isinstance(question, CoarseTable) is design.is_across(question.pair)
            if isinstance(question, CoarseTable):
                most = 4 if design.n_records < 3_000 else 6
                assert {coding.n_bins <= most for coding in question.codings} == {True}
                assert question.n_numbers <= most**2
        again = next_round(design, sums)
        assert isinstance(again, tuple)
        assert exact_answer(asked, columns).tolist() == exact_answer(again, columns).tolist()
        sums.append(exact_answer(asked, columns))
    assert len(sums) == n_rounds(design)
    last = {each.attributes: each.variance for each in asked.measurements if len(each.attributes) == 2}
    across = {float(each[0]) for pair, each in last.items() if design.is_across(pair)}
    within = {float(each[0]) for pair, each in last.items() if not design.is_across(pair)}
    assert len(across) == 1
    assert {2 * each for each in within} <= across
    # Relations across owners are found, as those within one are.
    assert len(synthesise(design, asked).codes) == len(design.attributes)


def test_coarse_tables_show_which_attributes_are_related():
    """Of three attributes at another owner the related one has the best score."""
    design = Design((NARROW, NARROW, NARROW, NARROW), 5_000, Decimal(1), homes=(0, 1, 1, 1))
    columns = records(design, 5_000, 1)
    columns[2] = np.minimum(columns[0] + (columns[1] > 25), 50)
    sums: list[np.ndarray] = []
    for _ in range(2):
        asked = next_round(design, sums)
        assert isinstance(asked, tuple)
        noise = np.concatenate([noise_share(each.n_numbers, each.noise, SeededBits(1)) for each in asked])
        sums.append(exact_answer(asked, columns) + noise)
    asked = next_round(design, sums)
    assert isinstance(asked, tuple)
    assert (0, 2) in [each.pair for each in asked if isinstance(each, Table)]
    assert not design.is_across((1, 2))


def test_every_attribute_has_a_group_and_every_group_owners():
    """A design that says anything else is none."""
    for wrong, said in (
        ({"homes": (0,)}, "attribute has a group"),
        ({"homes": (0, 1), "owners": (2,)}, "group has a number"),
    ):
        with pytest.raises(ValueError, match=said):
            Design((NARROW, LABELLED), 5_000, Decimal(1), **wrong)


@pytest.mark.parametrize("design", MIXED, ids=range(len(MIXED)))
def test_noise_across_groups_is_whole_for_everybody(design):
    """An adder's is the whole, whatever its group; a holder's is the share of its group's tables."""
    noise = design.table_noise(1, (0, 1))
    group = min(design.home(0), design.home(1), key=design.order.index)
    within = design.budgets[2].noise(TABLE, 1, design.honest(group))
    assert noise == design.budgets[2].noise(TABLE, 1)
    assert design.held_noise(noise, (0, 1)) == within
    assert design.variance(noise, (0, 1)) > noise.variance(design.n_owners[0] * design.n_owners[1])


def test_answers_of_another_form_are_refused():
    """Other lengths, and rounds that the release does not have."""
    design = DESIGNS[2]
    sums: list[np.ndarray] = []
    while not isinstance(asked := next_round(design, sums), Measured):
        for wrong in (n_numbers(asked) - 1, n_numbers(asked) + 1):
            with pytest.raises(ValueError, match=f"round {len(sums) + 1} has {n_numbers(asked)} numbers"):
                next_round(design, [*sums, np.zeros(wrong, dtype=np.int64)])
        sums.append(np.zeros(n_numbers(asked), dtype=np.int64))
    with pytest.raises(ValueError, match=f"the release has {len(sums)} rounds, {len(sums) + 1} are answered"):
        next_round(design, [*sums, sums[-1]])


@pytest.mark.parametrize(
    ("attributes", "n_records", "expected"),
    [((NARROW,), 5_000, 1), ((WIDE,), 50_000, 2), ((WIDEST,), 50_000, 3), ((WIDEST,), 50, 1),
     ((NARROW, LABELLED), 5_000, 3), ((WIDEST, NARROW), 50_000, 5)],
)  # fmt: skip
def test_the_number_of_rounds_is_known_before_any_answer(attributes, n_records, expected):
    """It follows from the domains and the number of records."""
    assert n_rounds(Design(attributes, n_records, Decimal(1))) == expected
