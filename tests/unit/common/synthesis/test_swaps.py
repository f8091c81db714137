"""Swaps against slow searches that compute the loss anew, and the rules that hold afterwards."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UsageError
from common.progress import StepStoppedError
from common.synthesis.binning import Attributes
from common.synthesis.keystream import Keystream
from common.synthesis.swaps import Couples, NoisyTable, _Records, swapped

SIZES = (3, 3, 3)
PAIRS = ((0, 1), (0, 2), (1, 2))
Columns = Sequence[np.ndarray]


def counted(columns: Columns, pair: Attributes, sizes: Sequence[int]) -> np.ndarray:
    """Count a pair's cells one record after the other."""
    table = np.zeros([sizes[place] for place in pair], dtype=np.int64)
    np.add.at(table, tuple(columns[place] for place in pair), 1)
    return table


def dependent(n_records: int, seed: int, sizes: Sequence[int] = SIZES) -> list[np.ndarray]:
    """Return columns that mostly follow the first one, `(n_records,)` each."""
    draw = np.random.default_rng(seed)
    first = draw.integers(0, sizes[0], n_records)
    others = [
        np.where(draw.random(n_records) < 0.7, first % size, draw.integers(0, size, n_records))
        for size in sizes[1:]
    ]
    return [first, *others]


def measured(
    columns: Columns, seed: int, variances: Sequence[int] = (1, 1, 1), sizes: Sequence[int] = SIZES
) -> list[NoisyTable]:
    """Return noisy tables of all pairs."""
    draw, tables = np.random.default_rng(seed), []
    for pair, variance in zip(PAIRS, variances, strict=True):
        exact = counted(columns, pair, sizes).ravel()
        noise = np.rint(draw.normal(0, variance**0.5, exact.size)).astype(np.int64)
        tables.append(NoisyTable(pair, exact + noise, variance))
    return tables


def shuffled(columns: Columns, seed: int) -> list[np.ndarray]:
    """Put each column into an order of its own."""
    draw = np.random.default_rng(seed)
    return [draw.permutation(column) for column in columns]


def loss_of(
    columns: Columns,
    tables: Sequence[NoisyTable],
    sizes: Sequence[int] = SIZES,
    weights: Mapping[tuple[int, ...], float] | None = None,
) -> float:
    """Return the loss, the weights being the inverse of the variances unless they are given."""
    total = 0.0
    for table in tables:
        apart = counted(columns, table.pair, sizes).ravel() - table.counts
        total += (weights[table.pair] if weights else 1 / table.variance) * int((apart**2).sum())
    return total


def greedy(columns: Columns, tables: Sequence[NoisyTable]) -> float:
    """Return the loss where no swap of two records' values lowers it, the best swap being made each time."""
    columns = [column.copy() for column in columns]

    swaps = [(i, a, b) for i in range(3) for a, b in combinations(range(columns[0].size), 2)]

    def swap(attribute: int, a: int, b: int) -> None:
        columns[attribute][[a, b]] = columns[attribute][[b, a]]

    loss = loss_of(columns, tables)
    while True:
        best, chosen = loss, None
        for each in swaps:
            swap(*each)
            if (now := loss_of(columns, tables)) < best:
                best, chosen = now, each
            swap(*each)
        if chosen is None:
            return loss
        swap(*chosen)
        loss = best


@pytest.mark.parametrize("seed", range(4))
def test_swaps_against_a_greedy_search(seed):
    """They lower the loss by nine tenths of what the search does, where noise is one record."""
    columns = dependent(20, seed)
    tables, start = measured(columns, seed), shuffled(columns, seed)
    before, best = loss_of(start, tables), greedy(start, tables)
    ended = loss_of(swapped(start, SIZES, tables, [], Keystream(b"seed")), tables)
    assert before - ended > 0.9 * (before - best)


def records_of(seed: int, n_records: int = 40) -> tuple[_Records, list[NoisyTable], tuple[int, ...]]:
    """Return records, and noisy tables of other ones."""
    sizes = (3, 4, 2)
    columns = dependent(n_records, seed, sizes)
    tables = measured(columns, seed, (1, 4, 9), sizes)
    records = _Records([each.astype(np.int16) for each in shuffled(columns, seed)], sizes, tables, [])
    if seed % 2:
        records.weigh_tables()
    return records, tables, sizes


def differing(records: _Records, attribute: int) -> Couples:
    """Return couples that have different values of an attribute."""
    one, other = np.split(records.columns[attribute], 2)
    return np.stack([np.flatnonzero(one != other) + first for first in (0, one.size)])


@given(st.integers(0, 10**6), st.integers(0, 2))
def test_the_change_of_every_swap_is_exact(seed, attribute):
    """What a couple is said to add to the loss is what counting anew says; tables are right after swaps."""
    records, tables, sizes = records_of(seed)
    before = loss_of(records.columns, tables, sizes, records._weight)
    couples = differing(records, attribute)
    changes = records._change(attribute, couples)
    for a, b, change in zip(*couples, changes, strict=True):
        columns = [column.copy() for column in records.columns]
        columns[attribute][[a, b]] = columns[attribute][[b, a]]
        assert loss_of(columns, tables, sizes, records._weight) - before == change
    records._swap(attribute, couples)
    for table in tables:
        recounted = counted(records.columns, table.pair, sizes).ravel() - table.counts
        assert np.array_equal(records._residual[table.pair].ravel(), recounted)


@given(st.integers(0, 10**6), st.integers(0, 2))
def test_as_many_swap_as_lower_the_loss_most(seed, attribute):
    """No other number of couples, chosen at random, has a loss that is much lower in the mean."""
    records, tables, sizes = records_of(seed, 1000)
    stream = Keystream(b"seed")
    # Near the end most couples would overshoot if all of them swapped.
    for step in range(seed % 60):
        records.shuffle(stream)
        records.step(step % 3, stream)
    couples = differing(records, attribute)
    change = records._change(attribute, couples)
    couples, change = couples.compress(change < 0, axis=1), change[change < 0]
    number = records._best_number(attribute, couples, -int(change.sum()))
    before = loss_of(records.columns, tables, sizes, records._weight)
    records._swap(attribute, couples)
    crossed = loss_of(records.columns, tables, sizes, records._weight) - before - change.sum()
    # The loss is quadratic: of k of K couples, k/K of what each adds, and k (k - 1)/(K (K - 1)) of what any
    # two add to that.
    k, most = np.arange(change.size + 1), change.size
    mean = k / max(most, 1) * change.sum() + k * (k - 1) / max(most * (most - 1), 1) * crossed
    # Two thirds are left where one couple swaps instead of two: shares are rounded down.
    assert mean[number] <= 0.66 * mean.min()


def test_swaps_end_when_they_are_not_due():
    """A daemon that stops waits for one step, and not for all sweeps."""
    columns, left = dependent(1000, 1), iter(range(4))

    def check() -> None:
        if next(left, None) is None:
            raise StepStoppedError

    with pytest.raises(StepStoppedError):
        swapped(shuffled(columns, 1), SIZES, measured(columns, 1), [], Keystream(b"seed"), check)


def test_swaps_keep_one_way_counts_and_follow_the_seed():
    """Columns have the same values in another order, which the seed decides; the caller's are not changed."""
    columns = dependent(1000, 1)
    tables, start = measured(columns, 1), shuffled(columns, 1)
    before = [column.copy() for column in start]
    one, again, other = (swapped(start, SIZES, tables, [], Keystream(seed)) for seed in (b"a", b"a", b"b"))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert np.array_equal(start, before)
    for found in (one, other):
        assert np.array_equal(np.sort(found), np.sort(before))


def test_blocks_of_couples_leave_the_records_as_they_are(monkeypatch):
    """What is computed at once is a matter of speed: everybody makes the same records."""
    columns = dependent(1000, 1)
    tables, start = measured(columns, 1), shuffled(columns, 1)
    at_once = swapped(start, SIZES, tables, [], Keystream(b"a"))
    monkeypatch.setattr("common.synthesis.swaps._BLOCK", 7)
    assert np.array_equal(swapped(start, SIZES, tables, [], Keystream(b"a")), at_once)


def test_swaps_end_where_noise_explains_the_tables(monkeypatch):
    """The loss ends near that of the records without noise; going on would lower it by fitting noise."""
    columns = dependent(5000, 2)
    tables, start = measured(columns, 2, (100,) * 3), shuffled(columns, 2)

    def ended() -> float:
        return loss_of(swapped(start, SIZES, tables, [], Keystream(b"seed")), tables)

    known, stopped = loss_of(columns, tables), ended()
    monkeypatch.setattr(_Records, "weigh_tables", lambda _: True)
    assert 1.5 * ended() < stopped < known + 12


@pytest.mark.parametrize("n_records", [0, 1, 2, 3])
def test_few_records(n_records):
    """Down to none, with or without tables."""
    start = dependent(n_records, 1)
    for tables in ([], measured(dependent(50, 1), 1)):
        found = swapped(start, SIZES, tables, [], Keystream(b"seed"))
        assert [each.size for each in found] == [n_records] * 3


def breaking(columns: Columns, rules: Sequence[Mapping[int, np.ndarray]]) -> int:
    """Return how many records break a rule, one after the other."""
    return sum(
        any(all(inside[columns[place][i]] for place, inside in rule.items()) for rule in rules)
        for i in range(columns[0].size)
    )


@st.composite
def excluded(draw) -> dict[int, np.ndarray]:
    """Draw a rule in bins of `SIZES`."""
    places = draw(st.sets(st.integers(0, 2), min_size=1))
    return {i: np.array(draw(st.lists(st.booleans(), min_size=3, max_size=3))) for i in sorted(places)}


@settings(max_examples=50)
@given(st.lists(excluded(), max_size=4), st.integers(1, 40), st.integers(0, 10**6))
def test_rules_hold_in_every_record(rules, n_records, seed):
    """No record breaks one, or an error is raised; one-way counts change only where a record breaks one."""
    columns = dependent(n_records, seed)
    tables, start = measured(columns, seed), shuffled(columns, seed)
    try:
        found = swapped(start, SIZES, tables, rules, Keystream(b"seed"))
    except UsageError:
        assert breaking(start, rules)
        return
    assert breaking(found, rules) == 0
    assert {each.size for each in found} == {n_records}
    if not breaking(start, rules):
        assert np.array_equal(np.sort(found), np.sort(start))


@given(st.lists(excluded(), min_size=1, max_size=4), st.integers(0, 10**6))
def test_no_step_breaks_more_rules(rules, seed):
    """Neither to lower the loss nor to repair other records."""
    start = shuffled(dependent(40, seed), seed)
    records = _Records(
        [each.astype(np.int16) for each in start], SIZES, measured(dependent(40, seed), seed), rules
    )
    before = sum(breaking(records.columns, [rule]) for rule in rules)
    for step in range(6):
        records.step(step % 3, Keystream(bytes([step])))
        after = sum(breaking(records.columns, [rule]) for rule in rules)
        assert after <= before
        before = after


FIRST = np.array([True, False])
BOTH_FIRST = [{0: FIRST, 1: FIRST}]


@pytest.mark.parametrize(("share", "copies"), [(0.4, False), (0.7, True)])
@pytest.mark.parametrize("with_table", [True, False])
def test_swaps_repair_records_and_copies_what_they_cannot(share, copies, with_table):
    """One-way counts change only where they leave no other way, also where a noisy table says otherwise."""
    bins = (np.arange(1000) >= 1000 * share).astype(np.int64)
    tables = [NoisyTable((0, 1), np.array([900, 0, 0, 100]), 1)] if with_table else []
    start = [bins, bins]
    found = swapped(start, (2, 2), tables, BOTH_FIRST, Keystream(b"seed"))
    assert breaking(start, BOTH_FIRST) == 1000 * share
    assert breaking(found, BOTH_FIRST) == 0
    kept = [
        np.bincount(column, minlength=2).tolist() == [1000 * share, 1000 - 1000 * share] for column in found
    ]
    assert kept == [not copies] * 2


def test_counts_that_leave_no_record_give_a_possible_one():
    """Where every record has the excluded bins, nothing can be copied; the release was charged already."""
    zeros = np.zeros(10, dtype=np.int64)
    found = swapped([zeros, zeros], (2, 2), [], BOTH_FIRST, Keystream(b"seed"))
    assert not ((found[0] == 0) & (found[1] == 0)).any()


def test_a_million_records_with_a_rule():
    """They keep the rule and are near their tables, in a minute of one processor."""
    sizes, began = (10, 8, 6), process_time()
    columns = dependent(10**6, 3, sizes)
    rules = [{0: np.arange(10) < 2, 1: np.arange(8) > 4}]
    out = (columns[0] < 2) & (columns[1] > 4)
    columns = [column[~out] for column in columns]
    tables, start = measured(columns, 3, (2_500,) * 3, sizes), shuffled(columns, 3)
    found = swapped(start, sizes, tables, rules, Keystream(b"seed"))
    assert process_time() - began < 60
    assert not ((found[0] < 2) & (found[1] > 4)).any()
    assert loss_of(found, tables, sizes) < loss_of(start, tables, sizes) / 1000
