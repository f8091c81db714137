"""A short run of `make chaos` among the tests: the seed is in the output of a failure, and repeats it."""

import secrets
from itertools import product

import pytest

from tests.chaos.campaign import Result, campaign
from tests.chaos.schedule import LAYOUTS, Deed, Kind, Linking, draw

_SECONDS = 45.0


@pytest.mark.timeout(400)
def test_chaos_for_a_short_time(tmp_path):
    """Whatever is killed, cancelled or refused at random moments, nothing is lost or spent twice."""
    seed = secrets.randbelow(10**9)
    result = Result()
    campaign(tmp_path, seed, 1000, print, result, _SECONDS)
    assert result.runs > 0
    assert not result.failures


def test_a_seed_is_a_schedule():
    """A seed that was printed asks for the same schedule again; seeds together ask for everything."""
    assert draw(7) == draw(7)
    drawn = [draw(seed) for seed in range(300)]
    blows = [blow for each in drawn for blow in each.blows]
    assert {(each.layout, each.linking) for each in drawn} == set(product(LAYOUTS, Linking))
    assert {each.kind for each in drawn} == set(Kind)
    assert {blow.deed for blow in blows} == set(Deed)
    assert max(len(blow.parties) for blow in blows) == 3
