"""The rank noise for a stated risk: as little as is enough, or none at all where none is."""

from decimal import Decimal
from functools import cache

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType, Schema, round_to_leading_digit
from common.planning.arguments import DEFAULT
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.explore.sweep import ExploredTable
from owner_node.explore.target import RANK_NOISES, find_rank_noise, sentences
from owner_node.masking.engine import MemoryEngine
from owner_node.risk.trials import Randomness, attacked_share, people_of
from tests.fakes.bits import SeededBits

N = 500
NAMES = tuple("abcde")


def table():
    """Five independent attributes."""
    attributes = tuple(Attribute(name, AttributeType.INTEGER, 0, 99_999) for name in NAMES)
    draw = np.random.default_rng(1)
    columns = {name: draw.permutation(N) * 100 for name in NAMES}
    schema = Schema(attributes, records_rounded=round_to_leading_digit(N))
    return ExploredTable("people", schema, MemoryEngine(columns), {})


@cache
def found(most, known=(), earlier=()):
    """The search with a seed, its steps checked; the same for every test that asks for it."""
    steps = []
    setting = GridSetting("idp-quantiles", Decimal(50), None)
    randomness = Randomness(SeededBits(2), np.random.default_rng(2))
    target = find_rank_noise(
        table(), setting, Decimal(most), known, randomness, lambda *step: steps.append(step), earlier
    )
    distinct = list(dict.fromkeys(steps))
    assert distinct == [(done, steps[-1][1]) for done in range(len(distinct))]
    return target


def test_as_little_as_is_enough():
    """The next smaller rank noise re-identifies more than is accepted; words say what the choice costs."""
    target = found("0.2")
    assert target.rank_noise is not None
    by_noise = {trial.rank_noise: trial.reidentified.mean for trial in target.trials}
    before = RANK_NOISES[RANK_NOISES.index(target.rank_noise) - 1]
    assert by_noise[DEFAULT] > by_noise[before] > 0.2 >= by_noise[target.rank_noise]
    assert len(by_noise) <= 6
    told = " ".join(sentences(target))
    assert f"Rank noise {target.rank_noise:f}: an intruder who knows a, b, c, d, e of everybody" in told
    assert "The cost: mean SSE" in told
    assert target.to_document()["rank_noise"] == target.rank_noise


def test_earlier_releases_count():
    """What was released before helps the intruder: more rank noise is needed; one more is measured."""
    setting = GridSetting("idp-quantiles", Decimal(50), None, Decimal("0.2"))
    before = plan_cell(setting, table().schema, {}).tasks
    alone, together = found("0.2"), found("0.2", earlier=(before,))
    assert (alone.n_earlier, together.n_earlier) == (0, 1)
    assert together.rank_noise is None or together.rank_noise > alone.rank_noise
    assert all(trial.with_earlier is None for trial in alone.trials)
    assert all(trial.most.mean >= trial.with_earlier.mean for trial in together.trials)
    chosen = next(trial for trial in alone.trials if trial.rank_noise == alone.rank_noise)
    assert alone.with_one_more.mean > chosen.reidentified.mean
    assert "This and one more release like it: " in " ".join(sentences(alone))
    told = " ".join(sentences(together))
    assert (
        "this and 1 earlier release of these data" in told or "with 1 earlier release of these data" in told
    )


def test_an_earlier_release_alone_can_be_too_much():
    """No rank noise of the next release takes back what has been released."""
    setting = GridSetting("idp-quantiles", Decimal(50), None, DEFAULT)
    target = found("0.2", earlier=(plan_cell(setting, table().schema, {}).tasks,))
    assert target.rank_noise is None
    assert "together with 1 earlier release of these data" in " ".join(sentences(target))


def test_default_is_enough():
    """Where little is known the default suffices, and nothing smaller is looked for."""
    target = found("0.5", ("a",))
    assert (target.rank_noise, len(target.trials), target.known) == (DEFAULT, 1, ("a",))
    assert "It is the default" in " ".join(sentences(target))


def test_nothing_is_enough():
    """A share below chance is not reached: it is said, with what is left at most."""
    target = found("0.0001")
    assert target.rank_noise is None
    assert [trial.rank_noise for trial in target.trials] == [DEFAULT, RANK_NOISES[-1]]
    assert "No rank noise up to 1 is enough" in " ".join(sentences(target))


@pytest.mark.parametrize(("known", "least", "most"), [((), 0.9, 1), (("a",), 0, 0.6), (("x",), 0, 0)])
def test_share_of_a_plan(known, least, most):
    """What a policy limits: known attributes that a plan does not mask tell nothing."""
    records = table()
    tasks = plan_cell(GridSetting("idp-joint", Decimal(50), 5), records.schema, {}).tasks
    randomness = Randomness(SeededBits(3), np.random.default_rng(3))
    people = people_of(records.records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    share = attacked_share(tasks, people, known, randomness)
    assert least <= share.mean <= most
