"""A few runs of `make chaos` among the tests, always those of the same seeds; `make chaos` draws new ones."""

from dataclasses import replace
from itertools import product

import pytest

from common.model.products import Product
from owner_node.config.engine import EngineKind
from tests.chaos.campaign import Result, campaign, run
from tests.chaos.schedule import ENGINES, LAYOUTS, Deed, Kind, Linking, Round, Work, draw
from tests.chaos.soak import Measured, Soak, growth, soak
from tests.chaos.surroundings import surroundings

_SEEDS = range(8989, 8994)
"""Seeds in which everything that can fail does, and every kind of release is asked for."""
_OF_SPARK = 3464
"""A seed whose release nothing can keep from being published: daemons are started twice."""


@pytest.mark.timeout(900)
def test_chaos_for_a_short_time(tmp_path):
    """Whatever is killed, cancelled or refused at random moments, nothing is lost or spent twice."""
    result = Result()
    campaign(tmp_path, _SEEDS.start, len(_SEEDS), print, result)
    assert result.runs == len(_SEEDS)
    assert not result.failures


@pytest.mark.needs("spark")
@pytest.mark.timeout(900)
def test_a_daemon_masks_with_spark(tmp_path):
    """A real daemon starts its session and masks with it."""
    schedule, result = replace(draw(_OF_SPARK), patience=8), Result()
    assert EngineKind.SPARK in schedule.engines.values()
    with surroundings(tmp_path / "chaos") as around:
        found = run(around, schedule, result)
        logs = "\n".join(log.read_text() for log in (around.cluster.folder / "logs").iterdir())
    assert not found
    assert result.ends == {"published": 1}, logs


def test_the_seeds_of_the_suite_ask_for_everything():
    """All that a longer campaign does, but Spark, which is started by itself."""
    drawn = [draw(seed) for seed in _SEEDS]
    assert {blow.deed for each in drawn for blow in each.blows} == set(Deed)
    assert {each.kind for each in drawn} == set(Kind)
    assert {each.product for each in drawn} == set(Product)
    assert {engine for each in drawn for engine in each.engines.values()} == {*ENGINES} - {EngineKind.SPARK}


def test_a_seed_is_a_schedule():
    """A seed that was printed asks for the same schedule again; seeds together ask for everything."""
    assert draw(7) == draw(7)
    drawn = [draw(seed) for seed in range(300)]
    blows = [blow for each in drawn for blow in each.blows]
    ways = {(each.layout, each.linking, each.by_keys) for each in drawn}
    assert ways == set(product(LAYOUTS, Linking, (False, True)))
    assert {each.kind for each in drawn} == set(Kind)
    assert {blow.deed for blow in blows} == set(Deed)
    assert {tuple(each.engines.values()) for each in drawn} == set(product(ENGINES, repeat=2))
    assert {*Work, *Round} <= {blow.moment.state for blow in blows}
    assert {(each.layout, each.product) for each in drawn} == set(product(LAYOUTS, Product))
    assert max(len(blow.parties) for blow in blows) == 3


@pytest.mark.timeout(600)
def test_a_soak_for_a_short_time(tmp_path):
    """Ten owners, of whom some are killed, publish what `make soak` publishes for longer."""
    result = Soak()
    soak(tmp_path, 1, 0.05, result)
    assert (result.problems, set(result.ends)) == ([], {"published"})


def test_a_soak_sees_what_grows():
    """A descriptor that every second release leaves open is seen among numbers that go up and down."""
    measured = [(n, Measured(10**8 + 10**6 * (n % 3), 20 + n // 2, 9, 5, 7)) for n in range(10, 100)]
    assert growth(measured, "descriptors") == pytest.approx(0.5, abs=0.01)
    assert abs(growth(measured, "memory")) < 2_000
    assert growth(measured, "files") == pytest.approx(0, abs=1e-9)
