"""Noisy counts that cannot be those of n records are named; those of honest owners are never refused."""

import re
from decimal import Decimal
from itertools import product
from math import exp

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.synthesis.accounting import Kind, Noise
from common.synthesis.plausible import Counted, _comparisons, allowed_distance, fault_of_sums
from common.synthesis.schedule import Design, OneWay, RoundSums, Table, attributes_of, next_round, split
from owner_node.synthesis.counts import exact_answer

ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 90),
    Attribute("sex", AttributeType.BOOLEAN, 0, 1),
    Attribute("pay", AttributeType.INTEGER, 0, 200_000),
    Attribute("job", AttributeType.CATEGORY, 0, 4, categories=tuple("abcde")),
)
RULES = ({0: [(0, 17)], 2: [(100, 150_001)]}, {2: [(3, 7)], 3: [(1, 1), (4, 4)]})
OWNERS = [((), ()), ((3,), ()), ((1, 1), (0, 1, 0, 1)), ((2, 3), (0, 1, 0, 1)), ((1, 5, 1), (0, 1, 2, 1))]


def design(n, epsilon="1", delta="0.000001", owners=(), owner_groups=(), rules=()):
    """A release."""
    colluding = int(max(owners, default=1) > 1)
    return Design(
        ATTRIBUTES, n, Decimal(epsilon), Decimal(delta), owners, colluding, rules, owner_groups=owner_groups
    )


def columns_of(n, draw):
    """Records with skewed and related attributes."""
    base = draw.beta(1, 3, n)
    shares = [np.clip(base + draw.normal(0, 0.1, n), 0, 0.999) for _ in ATTRIBUTES]
    return [(share * each.n_values).astype(np.int64) for share, each in zip(shares, ATTRIBUTES, strict=True)]


def drawn(noise, n_shares, size, draw):
    """Draw the sum of owners' shares as fast as numpy does."""
    if noise.kind is Kind.GAUSSIAN:
        return np.rint(draw.normal(0, (noise.size * n_shares) ** 0.5, size)).astype(np.int64)
    parts = [(noise.size, n_shares / noise.n_honest), *([(noise.floor, n_shares)] if noise.floor else [])]
    sides = [[draw.negative_binomial(r, 1 - exp(-1 / t), size) for t, r in parts] for _ in range(2)]
    return np.sum(sides[0], axis=0) - np.sum(sides[1], axis=0)


def noise_of(made, question, draw):
    """Draw all noise of a question."""
    attributes, size = attributes_of(question), question.n_numbers
    groups = sorted({made.home(each) for each in attributes}, key=made.order.index)
    if len(groups) == 1:
        return drawn(question.noise, made.n_owners[groups[0]], size, draw)
    holders, adders = (made.n_owners[group] for group in groups)
    held = made.held_noise(question.noise, attributes)
    return drawn(question.noise, holders * adders, size, draw) + drawn(held, holders, size, draw)


def measured(made, draw, *, noisy=True):
    """Count records of a release; return the sums of its rounds."""
    columns = columns_of(made.n_records, draw)
    sums: list[np.ndarray] = []
    while not isinstance(asked := next_round(made, sums), RoundSums):
        noise = np.concatenate([noise_of(made, each, draw) for each in asked])
        sums.append(exact_answer(asked, columns) + noise * noisy)
    return sums


@pytest.mark.parametrize(("owners", "owner_groups"), OWNERS)
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_honest_counts_are_never_refused(owners, owner_groups, delta):
    """With few records and much noise, of one owner and several, with rules and without."""
    draw = np.random.default_rng(3)
    for n, rules, _ in product((2, 30, 3_000), ((), RULES), range(4)):
        made = design(n, "0.1", delta, owners, owner_groups, rules)
        assert fault_of_sums(made, measured(made, draw)) == ""


@pytest.mark.parametrize("rules", [(), RULES])
@pytest.mark.parametrize("n", [30, 20_000])
def test_without_noise_all_that_is_compared_is_equal(n, rules):
    """Totals, counts and margins, also where rules divide bins: what is allowed is for noise alone."""
    made = design(n, rules=rules)
    sums, n_margins = measured(made, np.random.default_rng(1), noisy=False), 0
    one_way: dict[int, Counted] = {}
    for number, answer in enumerate(sums):
        asked = next_round(made, sums[:number])
        assert not isinstance(asked, RoundSums)
        for question, counts in zip(asked, split(asked, answer), strict=True):
            counted = Counted(question, counts, 1.0)
            for _, found, expected, variance, _ in _comparisons(counted, "abcd", n, one_way):
                assert found.tolist() == expected.tolist()
                assert found.shape == variance.shape
                n_margins += found.size > 1 and found.sum() == n and isinstance(question, Table)
            if isinstance(question, OneWay):
                one_way[question.attribute] = counted
    assert n_margins >= 2 * len(made.pairs)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("n_numbers", [1, 3, 40])
def test_what_is_allowed_holds_for_sums_of_noise(size, n_numbers):
    """Exactly, by convolution: sums of Laplace numbers are beyond it at most as often as is stated."""
    values = np.arange(-60 * size, 60 * size + 1)
    single = np.exp(-np.abs(values) / size)
    single, whole = single / single.sum(), np.ones(1)
    for _ in range(n_numbers):
        whole = np.convolve(whole, single)
    sums = np.abs(np.arange(whole.size) - whole.size // 2)
    variance = np.array([n_numbers * Noise(Kind.LAPLACE, size).variance(1)])
    for x in (1.0, 5.0, 14.0, 20.0):
        assert whole[sums > allowed_distance(variance, size + 1, x)].sum() <= 2 * exp(-x)


def fewer(counts, _):
    """The first 3,988 of 20,000 persons."""
    return counts * 3_988 // 20_000


def moved(counts, shape):
    """All of a row in another one: the total is right."""
    grid = counts.reshape(shape).copy()
    grid[0], grid[-1] = 0, grid[0] + grid[-1]
    return grid.ravel()


def weighted(counts, _):
    """One person counted 10,000 times, and taken from another cell."""
    changed = counts.copy()
    changed[0], changed[1] = changed[0] + 30_000, changed[1] - 30_000
    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fewer, r"the total of age and sex, counted by a, b, is [34],\d+ for 20,000 records: noise explains"),
        (lambda counts, _: counts * 0, "the total of age and sex, counted by a, b, is 0 for 20,000 records"),
        (lambda counts, _: counts * 3, "the total of age and sex, counted by a, b, is 60,"),
        (weighted, "a count of age and sex, counted by a, b, is "),
        (moved, "a sum of age and sex by age, counted by a, b, is "),
    ],
)
def test_a_table_that_is_none_of_the_records_is_named(change, said):
    """Persons left out or counted several times, a count beyond reach, and bins that others are in."""
    made = design(20_000, owners=(1, 1), owner_groups=(0, 1, 0, 1))
    *before, last = measured(made, np.random.default_rng(1))
    asked = next_round(made, before)
    assert isinstance(asked, tuple)
    first, tables = asked[0], split(asked, last)
    assert isinstance(first, Table)
    tables[0] = change(tables[0], [each.n_bins for each in first.binnings])
    fault = fault_of_sums(made, [*before, np.concatenate(tables)], [("a",), ("b",)])
    assert re.match(said, fault)
    assert fault_of_sums(made, [*before, last]) == ""


def test_one_way_counts_of_other_records_are_named():
    """Sums that an aggregator invented, in any of the levels."""
    made = design(20_000)
    sums = measured(made, np.random.default_rng(1))
    assert len(sums) > 2
    for number in range(len(sums) - 1):
        invented = [*sums[:number], sums[number] * 0 + 7]
        assert "the total of " in fault_of_sums(made, invented)
    with pytest.raises(ValueError, match=r"the release has \d rounds"):
        fault_of_sums(made, [*sums, sums[-1]])
