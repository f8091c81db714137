"""Advice follows from numbers, says why, and says no where no is right."""

from dataclasses import replace

import pytest

from owner_node.explore.advice import MOST_EXCESS, advise, most_protective
from owner_node.explore.results import NOTHING, RECOMMENDED, CellResult
from owner_node.risk.risks import Risk
from owner_node.risk.utility import Estimate

CELL = CellResult("idp-joint", "1", "auto", "0.03", "1", mean_sse=Estimate(0.01, 0.009, 0.011))


def risk(rate, *, attack="linkage", control=None, baseline=0.001):
    """An attack that is right about a share of the persons."""
    beside = None if control is None else Estimate(control, control, control)
    return Risk(attack, Estimate(rate, rate, rate), baseline, 100, "", beside, "age")


def erring(mean):
    """The cell with another error."""
    return replace(CELL, mean_sse=Estimate(mean, mean, mean))


def test_least_revealing_then_cheapest_then_best():
    """Among useful settings what they reveal decides first, then what is charged, then the error."""
    quiet = replace(CELL, epsilon="2", epsilon_joint="2", risks=(risk(0.05),))
    loud = replace(CELL, risks=(risk(0.18),))
    cheap = replace(quiet, epsilon="0.5", epsilon_joint="0.5", mean_sse=Estimate(0.02, 0.02, 0.02))
    better = replace(cheap, mean_sse=Estimate(0.015, 0.015, 0.015))
    found = advise([loud, quiet, cheap, better], 0.1)
    assert (found.verdict, found.cell) == (RECOMMENDED, 3)
    assert "ε = 0.5" in found.reasons[0]
    assert any("5 %" in reason and "linked" in reason for reason in found.reasons)


def test_nothing_is_worth_releasing_for_its_error():
    """Where even the best is not much better than the means, or worse, the advice says so."""
    found = advise([erring(0.05), erring(0.9)], 0.1)
    assert (found.verdict, found.cell) == (NOTHING, None)
    assert found.reasons[0].startswith("No setting here is worth releasing: too little")
    assert "50 %" in found.reasons[1]
    assert "reveals nothing" in advise([erring(0.9)], 0.1).reasons[1]


def test_nothing_is_worth_releasing_for_what_it_reveals():
    """A useful setting that finds a fifth of the persons is not recommended; a control takes it back."""
    over = MOST_EXCESS + 0.01
    found = advise([replace(CELL, risks=(risk(over),))], 0.1)
    assert (found.verdict, found.cell) == (NOTHING, None)
    assert "21 % of the persons are linked" in found.reasons[1]
    inferred = risk(over + 0.5, attack="inference", control=0.5)
    assert advise([replace(CELL, risks=(inferred,))], 0.1).verdict == NOTHING
    known_anyway = risk(over + 0.5, attack="inference", control=0.6)
    assert advise([replace(CELL, risks=(known_anyway,))], 0.1).verdict == RECOMMENDED
    of_values = risk(0.99, attack="interval")
    assert advise([replace(CELL, risks=(of_values,))], 0.1).verdict == RECOMMENDED


def test_what_was_not_examined_is_said():
    """Without attacks, without a bound, or without any setting that is possible, the advice says so."""
    assert any("nothing is known" in reason for reason in advise([CELL], 0.1).reasons)
    unbounded = advise([replace(CELL, epsilon_joint=None)], 0.1)
    assert any("No bound holds" in reason for reason in unbounded.reasons)
    assert advise([replace(CELL, epsilon_joint=None), CELL], 0.1).cell == 1
    assert any("is 63" in reason for reason in advise([replace(CELL, epsilon_joint="63")], 0.1).reasons)
    impossible = replace(CELL, mean_sse=None, problem="5 records, k = 9: at least 9 are needed")
    assert advise([impossible, CELL], 0.1).cell == 1


def test_rank_noise_is_named_and_kept_where_nothing_was_tried():
    """Without attacks rank noise is not given up for a smaller error; its 0 is named like any other."""
    bare = replace(erring(0.001), rank_noise="0")
    noisy = replace(erring(0.02), rank_noise="0.1")
    assert advise([bare, CELL, noisy], 0.1).cell == 2
    assert "rank noise 0 is" in advise([bare], 0.1).reasons[0]
    assert "rank noise" not in advise([replace(bare, mechanism="dp", k=None)], 0.1).reasons[0]


def test_what_would_change_it_is_what_was_found():
    """Sentences about ε, k and rank noise are the figures of the settings, and none where there are none."""
    grid = [
        replace(CELL, epsilon=epsilon, epsilon_joint=epsilon, rank_noise=noise, risks=(risk(rate),))
        for epsilon, noise, rate in (
            ("0.1", "0.03", 0.271),
            ("1", "0.03", 0.718),
            ("1", "0", 0.74),
            ("1", "0.1", 0.7),
        )
    ]
    told = " ".join(advise(grid[1:], 0.1).reasons)
    assert "by rank noise, all else equal: 71.7 % at 0.03, 73.9 % at 0, 69.9 % at 0.1 (little" in told
    assert "by ε" not in told
    assert "by k" not in told
    told = " ".join(advise(grid, 0.1).reasons)
    assert "by ε, all else equal: 27 % at 0.1, 71.7 % at 1." in told
    poor_end = replace(grid[0], mean_sse=Estimate(0.09, 0.09, 0.09))
    told = " ".join(advise([poor_end, *grid[1:]], 0.1).reasons)
    assert "27 % at 0.1 (too little is left of the data)" in told
    assert "More rank noise than 0.1 and fewer attributes" in told
    assert most_protective(grid, 0.1) == 0
    poor = [replace(erring(rate), epsilon=epsilon) for rate, epsilon in ((0.3, "0.1"), (0.05, "1"))]
    assert any("by ε, all else equal: 300 % at 0.1, 50 % at 1." in each for each in advise(poor, 0.1).reasons)
    assert most_protective(poor, 0.1) == 1


@pytest.mark.parametrize("count", [1, 4, 30])
def test_means_depend_on_the_number_of_attributes(count):
    """The bar is a quarter of 1/l."""
    assert advise([erring(0.24 / count)], 1 / count).verdict == RECOMMENDED
    assert advise([erring(0.26 / count)], 1 / count).verdict == NOTHING
