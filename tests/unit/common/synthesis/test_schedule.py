"""The schedule of a synthetic release: everybody computes the same next question, within the budget."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest

from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Kind
from common.synthesis.schedule import (
    Design,
    Round,
    attributes_of,
    budget_split,
    check_design,
    n_numbers,
    n_rounds,
    next_round,
    run_rounds,
    split,
)
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.own_table import synthesise_together
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
    Design((NARROW, LABELLED), 5_000, Decimal(1), owner_groups=(0, 1)),
    Design((WIDEST, LABELLED, NARROW), 50_000, Decimal(1), owner_groups=(1, 0, 1)),
    Design((NARROW, WIDE, LABELLED), 2_000, Decimal(1), Decimal("0.000001"), owner_groups=(0, 1, 2)),
    Design(
        (NARROW, WIDE, WIDEST, LABELLED), 30_000, Decimal(1), Decimal("0.000001"), owner_groups=(0, 0, 1, 1)
    ),
)
MIXED = (
    Design((NARROW, LABELLED, WIDE), 5_000, Decimal(1), owners=(2, 3), colluding=1, owner_groups=(0, 1, 0)),
    Design(
        (NARROW, WIDE, LABELLED),
        20_000,
        Decimal(1),
        Decimal("0.000001"),
        (4, 1, 2),
        1,
        owner_groups=(0, 1, 2),
    ),
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


@pytest.mark.parametrize("design", DESIGNS, ids=range(len(DESIGNS)))
def test_sums_of_several_owners_are_off_by_their_noise(design):
    """Each round's answers add up to counts with the noise of its questions; all records are made."""
    (n_owners,) = design.n_owners
    parts = [records(design, design.n_records // n_owners, owner) for owner in range(n_owners)]
    made = synthesise_together(design, parts, [SeededBits(owner) for owner in range(n_owners)])
    for asked, sums in zip(made.measured.rounds, made.measured.sums, strict=True):
        exact = np.sum([exact_answer(asked, part) for part in parts], axis=0)
        for question, noise in zip(asked, split(asked, sums - exact), strict=True):
            assert np.abs(noise).max() < 40 * design.variance(question.noise, attributes_of(question)) ** 0.5
    assert len(made.measured.rounds) == n_rounds(design)
    assert {each.size for each in made.codes} == {design.n_records}


def losses(design: Design, seed: int) -> Fraction:
    """Return the sum over all questions of what a person's record can lose, whatever the answers are."""
    draw, spent = np.random.default_rng(seed), Fraction(0)

    def forged(asked: Round) -> np.ndarray:
        spread = int(draw.choice([1, 100, design.n_records, 2**38]))
        return draw.integers(-spread, spread + 1, n_numbers(asked))

    for question in chain.from_iterable(run_rounds(design, forged).rounds):
        kind, size = question.noise.kind, question.noise.size
        attributes = attributes_of(question)
        if not design.is_across(attributes):
            n_owners = design.n_owners[design.home(attributes[0])]
            assert question.noise.n_honest == max(n_owners - design.colluding, 1)
        spent += Fraction(2, size) if kind is Kind.LAPLACE else Fraction(1, size * question.noise.n_honest)
    return spent


@pytest.mark.parametrize("design", ALL, ids=range(len(ALL)))
@pytest.mark.parametrize("seed", range(8))
def test_no_answers_make_a_release_cost_more(design, seed):
    """All questions together cost the budget at most, whatever sums an owner is sent, also forged ones."""
    whole = Fraction(sum((each.amount for each in design.budgets), Decimal(0)))
    assert 0 < losses(design, seed) <= whole
    assert whole <= Fraction(design.epsilon)


@pytest.mark.parametrize("design", ALL, ids=range(len(ALL)))
def test_all_pairs_are_counted_after_the_one_way_counts(design):
    """The last round counts every pair once, with twice the variance across owners; no other round does."""
    columns = records(design, design.n_records, 1)
    measured = run_rounds(design, lambda asked: exact_answer(asked, columns))
    for number, asked in enumerate(measured.rounds, start=1):
        of = [attributes_of(each) for each in asked]
        last = number == n_rounds(design) and len(design.attributes) > 1
        assert of == (list(combinations(range(len(design.attributes)), 2)) if last else sorted(of))
        assert {len(each) for each in of} == {1 + last}
    for table, _ in measured.tables:
        assert table.noise == design.table_noise(table.pair)
        assert [each.n_bins for each in table.binnings] == [measured.binnings[i].n_bins for i in table.pair]
    if design.n_owners == (1, 1):
        across, within = (
            {design.pair_variances[pair] for pair in design.pairs if design.is_across(pair) is side}
            for side in (True, False)
        )
        assert {2 * each for each in within} <= across
        assert len(across) == 1


def test_the_split_follows_from_public_numbers():
    """Many records and δ give the tables 0.7 of the budget; a plan's split takes precedence."""
    assert budget_split(20_000, Decimal(1), Decimal("1e-6")) == (Decimal("0.3"), Decimal("0.7"))
    assert budget_split(20_000, Decimal(1), Decimal(0)) == (Decimal("0.4"), Decimal("0.6"))
    assert budget_split(20_000, Decimal("0.9"), Decimal("1e-6")) == (Decimal("0.4"), Decimal("0.6"))
    planned = Design((NARROW, LABELLED), 5_000, Decimal(2), split=(Decimal("0.25"), Decimal("0.75")))
    assert [each.amount for each in planned.budgets] == [Decimal("0.5"), Decimal("1.5")]


def test_every_attribute_has_a_group_and_every_group_owners():
    """Other designs raise an error."""
    for wrong, said in (
        ({"owner_groups": (0,)}, "attribute has a group"),
        ({"owner_groups": (0, 1), "owners": (2,)}, "group has a number"),
    ):
        with pytest.raises(ValueError, match=said):
            Design((NARROW, LABELLED), 5_000, Decimal(1), **wrong)


@pytest.mark.parametrize("design", MIXED, ids=range(len(MIXED)))
def test_noise_across_groups_is_whole_for_everybody(design):
    """An adder's is the whole, whatever its group; a holder's is the share of its group's tables."""
    noise = design.table_noise((0, 1))
    group = min(design.home(0), design.home(1), key=design.order.index)
    within = design.budgets[1].noise(len(design.pairs), design.n_honest(group))
    assert noise == design.budgets[1].noise(len(design.pairs))
    assert design.held_noise(noise, (0, 1)) == within
    assert design.variance(noise, (0, 1)) > noise.variance(design.n_owners[0] * design.n_owners[1])


def test_answers_of_another_form_are_refused():
    """Other lengths, and rounds that the release does not have."""
    design = DESIGNS[2]
    sums = run_rounds(design, lambda asked: np.zeros(n_numbers(asked), dtype=np.int64)).sums
    for place, right in enumerate(sums):
        for wrong in (right[1:], np.append(right, 0)):
            with pytest.raises(ValueError, match=f"round {place + 1} has {right.size} numbers"):
                next_round(design, [*sums[:place], wrong])
    with pytest.raises(ValueError, match=f"the release has {len(sums)} rounds, {len(sums) + 1} are answered"):
        next_round(design, [*sums, sums[-1]])


@pytest.mark.parametrize(
    ("attributes", "n_records", "expected"),
    [((NARROW,), 5_000, 1), ((WIDE,), 50_000, 2), ((WIDEST,), 50_000, 3), ((WIDEST,), 50, 1),
     ((NARROW, LABELLED), 5_000, 2), ((WIDEST, NARROW), 50_000, 4)],
)  # fmt: skip
def test_the_number_of_rounds_is_known_before_any_answer(attributes, n_records, expected):
    """It follows from the domains and the number of records."""
    assert n_rounds(Design(attributes, n_records, Decimal(1))) == expected


def test_too_many_ranges_are_refused_before_they_are_compared():
    """A design is read from files of strangers, and comparing many ranges takes long."""
    wide = tuple(replace(WIDEST, name=name) for name in "abc")
    ranges = [(each, each + 3) for each in range(0, 10**6, 10**3)]
    every = {0: [(0, 10**6)]}
    with pytest.raises(UsageError, match="counts, at most"):
        check_design(Design(wide, 9_000, Decimal(1), rules=({0: ranges, 1: ranges, 2: ranges}, every)))
