"""Attacks on draws: who knows less finds less, several releases show more, noise may tell who is extreme."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from common.progress import StepStoppedError
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import (
    EXTREMES,
    LIKELIHOOD,
    MEMBERSHIP,
    Intruder,
    known_attributes,
    related_attributes,
)
from owner_node.risk.likelihood import linked_by_likelihood
from owner_node.risk.scales import distinguished_by_scales
from owner_node.risk.trials import (
    AttackPlan,
    Randomness,
    knowledge_of,
    masked,
    people_of,
    risk_across,
    risks_of,
    sorted_records,
)
from tests.fakes.bits import SeededBits

N = 600
NAMES = tuple("abcdef")
ATTRIBUTES = tuple(Attribute(name, AttributeType.INTEGER, 0, 99_999) for name in NAMES)


def randomness(seed=1):
    """Choices and noise of a seed."""
    return Randomness(SeededBits(seed), np.random.default_rng(seed))


def tasks_with(mechanism, rank_noise, epsilon="500", k=10):
    """How six attributes are masked."""
    return [
        AttributeTask(each, Decimal(epsilon), k, mechanism, 1, None, Decimal(rank_noise))
        for each in ATTRIBUTES
    ]


def columns():
    """Six independent attributes without ties."""
    draw = np.random.default_rng(3)
    return {name: draw.permutation(N) * 100 for name in NAMES}


def risks(tasks, known=(), attacks=(LIKELIHOOD, MEMBERSHIP, EXTREMES)):
    """What is found, by attack and knowledge."""
    chance = randomness()
    people = people_of(columns(), tasks, chance)
    aims = AttackPlan(attacks, knowledge_of(NAMES, known), np.arange(6), 3)
    return {(each.attack, each.knows): each for each in risks_of(tasks, people, aims, chance)}


def test_attacks_can_be_stopped_one_by_one():
    """With many records each takes seconds."""
    checks = []

    def check():
        checks.append(1)
        if len(checks) == 3:
            raise StepStoppedError

    tasks, chance = tasks_with("idp-joint", "0.1"), randomness()
    aims = AttackPlan((LIKELIHOOD,), knowledge_of(NAMES, ()), np.arange(6), 3)
    with pytest.raises(StepStoppedError):
        risks_of(tasks, people_of(columns(), tasks, chance), aims, chance, check)


@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-quantiles"])
def test_less_knowledge_finds_less(mechanism):
    """All, approximately all, any five and any three attributes; by chance one in 540."""
    found = risks(tasks_with(mechanism, "0.1"), attacks=(LIKELIHOOD,))
    everything, five, three = (found[LIKELIHOOD, knows].rate.mean for knows in ("all", "any 5", "any 3"))
    assert everything > five > three
    assert everything > 0.5
    assert found[LIKELIHOOD, "all, approximately"].rate.mean < everything
    assert three < 0.2
    hidden = risks(tasks_with(mechanism, "0.9"), attacks=(LIKELIHOOD,))
    assert {name for name, _ in hidden} == {LIKELIHOOD}
    assert all(each.rate.mean < 0.05 for each in hidden.values())


def test_relations_with_unknown_attributes_find_more():
    """Whoever knows two of six related attributes uses the other four, which nobody knows of anybody."""
    draw = np.random.default_rng(3)
    two = draw.normal(size=(N, 2))
    mixed = two @ np.array([[1, 0], [0, 1], [1, 0.1], [0, -1], [0.7, 0.7], [0.7, -0.7]]).T
    mixed[:, 2:] += 0.1 * draw.normal(size=(N, 4))
    related = {
        name: np.clip(50_000 + 12_000 * column, 0, 99_999).astype(np.int64)
        for name, column in zip(NAMES, mixed.T, strict=True)
    }

    def found(values):
        chance, tasks = randomness(), tasks_with("idp-quantiles", "0.1")
        people = people_of(values, tasks, chance)
        release = masked(tasks, people.members, chance.bits)
        intruder = Intruder(
            np.array([0, 1]),
            None,
            np.array([], dtype=np.int64),
            np.arange(300),
            np.arange(300),
            np.arange(540),
        )
        known = list(known_attributes(people.crowd, release, intruder))
        others = related_attributes(people.crowd, dict(enumerate(release.places.T)), (0, 1))
        rates = [
            linked_by_likelihood(known, intruder.persons, intruder.others, each).right.mean()
            for each in ([], others)
        ]
        return len(others), *rates

    n_components, plain, by_relations = found(related)
    assert n_components == 2
    assert by_relations > 1.5 * plain
    _, plain, by_relations = found(columns())
    assert by_relations > 0.8 * plain


def test_named_knowledge_is_not_varied():
    """Whoever names what an intruder knows is told about that, known exactly and approximately."""
    knows = {known for name, known in risks(tasks_with("idp-joint", "0.1"), ("a", "c")) if name == LIKELIHOOD}
    assert knows == {"a, c", "a, c, approximately"}


def test_who_is_in_the_release_and_who_is_extreme():
    """Told where little is hidden, and not where everything is: one of two would be right by chance."""
    told, hidden = (
        risks(tasks_with("idp-joint", noise, k=k), attacks=(MEMBERSHIP, EXTREMES))
        for noise, k in (("0", 3), ("0.9", 20))
    )
    assert told[MEMBERSHIP, ""].rate.mean > 0.9
    assert 0.35 < hidden[MEMBERSHIP, ""].rate.mean < 0.65
    assert told[EXTREMES, ""].rate.mean == pytest.approx(1 / 3, abs=0.1)
    assert hidden[EXTREMES, ""].rate.mean < 0.05


def test_releases_together_find_more():
    """The noise of several releases averages out, unless there is too much of it."""
    some, much = (tasks_with("idp-quantiles", noise) for noise in ("0.2", "1"))
    chance = randomness(2)
    people, known = people_of(columns(), some, chance), knowledge_of(NAMES, ())[0]

    def rate(*releases):
        found = risk_across(releases, people, known, chance)
        assert found is not None
        return found.knows, found.rate.mean

    (_, alone), (one, twice), (two, thrice) = rate(some), rate(some, some), rate(some, some, some)
    assert alone < twice - 0.1 < thrice - 0.15
    assert (one, two) == ("all, with 1 earlier release", "all, with 2 earlier releases")
    assert rate(some, some[:2])[1] > alone
    assert rate(much, much)[1] < 0.1


def test_noise_tells_who_is_extreme():
    """One value at the end of a wide domain shows in the noise if little is trimmed, hardly if more is, and
    not in noise that depends on no data.
    """
    draw = np.random.default_rng(4)
    values = {name: draw.integers(0, 2000, N) for name in NAMES}

    def told(mechanism):
        tasks = tasks_with(mechanism, "0", "1", 25)
        records = sorted_records(values, tasks, SeededBits(1))
        return distinguished_by_scales(records, tasks, SeededBits(2))

    assert min(told("idp-joint")) > 0.9
    assert np.mean(told("idp-quantiles")) < 0.7
    assert told("dp-quantiles") == []
