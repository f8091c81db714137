"""Linkage by likelihood: its channel against noise that is drawn, the attack against its definition."""

from collections import Counter
from decimal import Decimal
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import LIKELIHOOD, LINKAGE
from owner_node.risk.likelihood import (
    MATCHED,
    Carried,
    Channel,
    Known,
    Likelihoods,
    linked_by_likelihood,
    propagate,
)
from owner_node.risk.trials import AttackPlan, Randomness, knowledge_of, people_of, risks_of
from tests.fakes.bits import SeededBits
from tests.oracles import explore as oracle

LABELS = tuple("abcdefgh")
INCOME = Attribute("income", AttributeType.INTEGER, 0, 9_999)
AGE = Attribute("age", AttributeType.INTEGER, 0, 99)
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 7, categories=LABELS, order=CategoryOrder.FREQUENCY)


@pytest.mark.parametrize("scale", [0.0, 0.01, 0.2])
def test_the_channel_is_what_rank_noise_does(scale):
    """Probabilities of released groups add up to 1, and agree with noise that is drawn on ranks."""
    n_records, draw = 400_000, np.random.default_rng(5)
    after = np.array([0, 0.1, 0.15, 0.6, 1])
    before = np.array([[0, 0.05], [0.4, 0.45], [0.1, 1]])
    channel = Channel(scale)
    found = channel.probabilities(before, channel.noisy(after)).T
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-6)
    ranks = (np.arange(n_records) + 0.5) / n_records
    noisy = ranks + scale * draw.laplace(size=n_records)
    place = np.empty(n_records)
    place[np.argsort(noisy, kind="stable")] = ranks
    for row, (low, high) in zip(found, before, strict=True):
        own = place[(ranks > low) & (ranks < high)]
        expected = [((own > start) & (own < end)).mean() for start, end in pairwise(after)]
        assert row == pytest.approx(expected, abs=0.01)


def test_rank_noise_of_a_small_table_is_whole_ranks():
    """The channel has the scale that masking uses, rounded up to whole ranks; none without rank noise."""
    assert [Channel.of(noise, 50).scale for noise in (0.03, 0.001, 0)] == [0.04, 0.02, 0]


RECORDS = st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=2, max_size=8)


@given(RECORDS)
@example([(0, 0, 0, 3), (0, 0, 1, 3), (0, 0, 2, 1), (0, 1, 0, 3), (0, 1, 2, 0), (1, 0, 2, 2), (1, 0, 2, 3)])
def test_linkage_as_defined(records):
    """Every person and every record: who is linked, and among how many that are as likely."""
    columns = np.array(records, dtype=float).T
    everybody = np.arange(len(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("owner_node.risk.likelihood.MATCHED", 0)
        # More records than that can be as likely as the likeliest one.
        patch.setattr("owner_node.risk.likelihood._SHORTLIST", 8)
        found = linked(list(columns[:2]), list(columns[2:]), [0, 0], everybody, everybody)
    plain = columns.tolist()
    # A record that nobody can have, and a person who can have none, are decided by rounding.
    likely = np.array(oracle.likely(plain[:2], plain[2:], [0, 0]))
    assume(min(likely.max(axis=0).min(), likely.max(axis=1).min()) > 1e-10)
    assert found == pytest.approx(oracle.linked_by_likelihood(plain[:2], plain[2:], [0, 0]))


def test_probabilities_as_defined():
    """Of every released record for every person, with noise on one attribute's ranks: by averaging ranks."""
    draw = np.random.default_rng(2)
    original, released = draw.integers(0, 4, (2, 9)).astype(float), draw.integers(0, 3, (2, 9)).astype(float)
    scale = Channel.of(0.2, 9).scale
    carried = [Carried.of(Known(*each)) for each in zip(original, released, (0.2, 0), strict=True)]
    likelihoods = Likelihoods.of(carried)
    tables = likelihoods.tables(np.arange(9))
    found = likelihoods.of_kinds(tables, likelihoods.kind_of).T
    expected = np.array(oracle.likely(original.tolist(), released.tolist(), [scale, 0]))
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-14)
    assert (expected > 1e-6).any()


def test_blocks_change_nothing(monkeypatch):
    """People and kinds of records in many blocks give what they give in one."""
    draw = np.random.default_rng(3)
    original = [draw.integers(0, 40, 300).astype(float) for _ in range(3)]
    released = [column + draw.integers(0, 4, 300).astype(float) for column in original]
    everybody = draw.permutation(300)
    monkeypatch.setattr("owner_node.risk.likelihood.MATCHED", 0)
    whole = linked(original, released, [0.03, 0, 0.1], everybody, everybody)
    monkeypatch.setattr("owner_node.risk.likelihood._PEOPLE_PER_BLOCK", 7)
    monkeypatch.setattr("owner_node.risk.likelihood._KINDS_PER_BLOCK", 11)
    parts = linked(original, released, [0.03, 0, 0.1], everybody, everybody)
    assert parts == pytest.approx(whole)
    assert 0.1 < whole.mean() < 1


def test_whoever_is_not_hidden_is_found():
    """Among unmasked records by lot among equal ones, on unrelated records hardly anybody."""
    draw = np.random.default_rng(4)
    original = [draw.integers(0, 30, 400).astype(float) for _ in range(2)]
    everybody = np.arange(400)
    rows = list(zip(*original, strict=True))
    equal = Counter(rows)
    alone = linked(original, original, [0, 0], everybody, everybody)
    assert alone == pytest.approx([1 / equal[row] for row in rows])
    unrelated = [draw.permutation(column) for column in original]
    assert linked(original, unrelated, [0.1, 0.1], everybody, everybody).mean() < 0.02


def linked(original, released, rank_noises, targets, others):
    """The attack on attributes that are known exactly."""
    triples = zip(original, released, rank_noises, strict=True)
    return linked_by_likelihood([Known(*each) for each in triples], targets, others).right


def test_a_list_in_random_order_within_clusters():
    """Probabilities are how often values are drawn: those of a cluster are alike, and a value with entries in
    two clusters belongs to both.
    """
    draw, n_records = np.random.default_rng(6), 60
    original, sizes = np.arange(n_records).astype(float), np.array([20, 20, 20])
    entries = np.concatenate([np.arange(15), np.full(15, 15), np.arange(16, 46)]).astype(float)
    times, counts = 20_000, np.zeros((n_records, 46))
    scale = Channel.of(0.1, n_records).scale * n_records
    for _ in range(times):
        noisy = np.arange(n_records) + draw.laplace(scale=scale, size=n_records)
        shuffled = np.concatenate([draw.permutation(part) for part in np.split(entries, [20, 40])])
        counts[np.argsort(noisy), shuffled.astype(int)] += 1
    released = np.concatenate([draw.permutation(part) for part in np.split(entries, [20, 40])])
    carried = Carried.of(Known(original, released, 0.1, sizes))
    found = carried.likely(np.arange(n_records))
    group_of = {value: carried.group[np.flatnonzero(released == value)[0]] for value in range(46)}
    assert [len(set(map(group_of.get, part))) for part in (range(15), range(16, 26), range(26, 46))] == [
        1,
        1,
        1,
    ]
    expected = np.zeros_like(found)
    for value, group in group_of.items():
        expected[group] += counts[:, value] / times
    assert found == pytest.approx(expected, abs=0.04)


def noisy_ranks(ranks, scale, draw):
    """Ranks after rank noise."""
    return np.argsort(np.argsort(ranks + draw.laplace(scale=scale, size=ranks.size))).astype(float)


def test_approximate_knowledge():
    """Attributes known to 5 % of the ranks are enough where nothing is masked, and no help where records are
    unrelated; through noise exact knowledge finds more.
    """
    draw = np.random.default_rng(7)
    original = [draw.permutation(400).astype(float) for _ in range(4)]
    released = [noisy_ranks(each, 20, draw) for each in original]
    everybody, errors = np.arange(400), draw.uniform(-0.05, 0.05, 400)

    def rate(masked, noise, *knowledge):
        known = [Known(*each, noise, None, *knowledge) for each in zip(original, masked, strict=True)]
        return linked_by_likelihood(known, everybody, everybody).right.mean()

    assert rate(original, 0.0, errors, 0.05) > 0.95
    assert rate(released, 0.05) > rate(released, 0.05, errors, 0.05) > 0.3
    assert rate([draw.permutation(each) for each in original], 0.05, errors, 0.05) < 0.02


def test_odds_of_a_matching():
    """Belief propagation comes near the probabilities over all matchings of six persons with six records."""
    draw = np.random.default_rng(9)
    matchings = np.array(list(permutations(range(6))))
    for _ in range(5):
        table = np.exp(2 * draw.normal(size=(6, 6)))
        weights = table[np.arange(6), matchings].prod(axis=1)
        expected = np.zeros((6, 6))
        for matching, weight in zip(matchings, weights / weights.sum(), strict=True):
            expected[np.arange(6), matching] += weight
        odds = propagate(table)
        assert odds / (1 + odds) == pytest.approx(expected, abs=0.15)
        assert abs(odds / (1 + odds) - expected).mean() < 0.04


@pytest.mark.parametrize("most", [0, MATCHED])
def test_as_many_as_a_matching_of_all_persons(most, monkeypatch):
    """Comparing with everybody links as many as the likeliest matching of all persons with all records; so
    does belief propagation, where there are few.
    """
    monkeypatch.setattr("owner_node.risk.likelihood.MATCHED", most)
    draw, n_records, noise = np.random.default_rng(8), 500, 0.05
    original = [draw.permutation(n_records).astype(float) for _ in range(3)]
    rate = {"everybody": 0.0, "matching": 0.0}
    everybody = np.arange(n_records)
    for _ in range(4):
        released = [noisy_ranks(each, noise * n_records, draw) for each in original]
        known = [Known(*each, noise) for each in zip(original, released, strict=True)]
        likelihoods = Likelihoods.of([Carried.of(each) for each in known])
        table = np.log(likelihoods.of_kinds(likelihoods.tables(everybody), likelihoods.kind_of))
        records, persons = linear_sum_assignment(table, maximize=True)
        rate["matching"] += (records == persons).mean() / 4
        rate["everybody"] += linked_by_likelihood(known, everybody, everybody).right.mean() / 4
    assert rate["everybody"] > rate["matching"] - 0.02
    assert rate["everybody"] > 0.3


def attacked(mechanism, rank_noise, attributes, names=(LINKAGE, LIKELIHOOD)):
    """Attacks on one way of masking, by name."""
    draw = np.random.default_rng(1)
    age = draw.integers(18, 90, 600)
    columns = {
        "age": age,
        "income": np.minimum(age * 60 + draw.geometric(1 / 500, 600), INCOME.upper),
        "town": np.minimum(draw.geometric(0.4, 600) - 1, 7)[::-1].copy(),
    }
    k = 7 if mechanism.startswith("idp-") else None
    tasks = [
        AttributeTask(each, Decimal(50), k, mechanism, 1, None, Decimal(rank_noise)) for each in attributes
    ]
    everything, randomness = np.arange(len(tasks)), Randomness(SeededBits(1), np.random.default_rng(2))
    aims = AttackPlan(names, knowledge_of([each.name for each in attributes], ())[:1], everything, 2)
    people = people_of({each.name: columns[each.name] for each in attributes}, tasks, randomness)
    return {risk.attack: risk for risk in risks_of(tasks, people, aims, randomness)}


@pytest.mark.parametrize("mechanism", ["idp-joint", "dp-hist"])
def test_rank_noise_hides_persons_from_it(mechanism):
    """It finds more than the nearest record does; noise on the ranks makes it harder, on all of them nearly
    impossible; by lot one in 540 would be found.
    """
    found = [attacked(mechanism, noise, (INCOME, AGE, TOWN)) for noise in ("0", "0.03", "0.9")]
    without, some, much = (each[LIKELIHOOD].rate.mean for each in found)
    assert without > some > much
    assert without > 0.5
    assert some > found[1][LINKAGE].rate.mean
    assert much < 0.03
    assert found[0][LIKELIHOOD].baseline == 1 / 540
    assert found[0][LIKELIHOOD].control is None


def test_counts_are_looked_at_in_the_order_they_are_listed_in():
    """Categories that are compared by frequency, but counted in declared order: every place is known."""
    found = attacked("dp-hist", "0", (TOWN, AGE, INCOME))[LIKELIHOOD].rate.mean
    declared = Attribute("town", AttributeType.CATEGORY, 0, 7, categories=LABELS)
    assert found == pytest.approx(
        attacked("dp-hist", "0", (declared, AGE, INCOME))[LIKELIHOOD].rate.mean, abs=0.05
    )


@pytest.mark.parametrize("mechanism", ["dp", "idp-ls", "idp-cbls"])
def test_values_that_do_not_ascend_with_ranks(mechanism):
    """Where noise may change the order of values the attack is not tried, rather than tried in vain."""
    assert set(attacked(mechanism, "0", (INCOME, AGE))) == {LINKAGE}
