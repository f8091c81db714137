"""Records of everybody whom any owner holds: present as counted, and absent at an owner as a whole."""

from decimal import Decimal
from itertools import combinations

import numpy as np
import pytest

from common.model.presence import presence_attribute, with_absence
from common.model.schema import Attribute, AttributeType
from common.synthesis.presence import presence_pairs, presence_rules
from common.synthesis.records import (
    Present,
    SyntheticRelease,
    excluded,
    mean_of,
    noisy_tables,
    overlaps,
    synthesise,
)
from common.synthesis.schedule import Design, check_design
from owner_node.linking.places import placed_columns
from owner_node.synthesis.roles import Shared
from tests.fakes.synthetic_owners import TERMS, GroupOwner, plain_counting, synthesise_across

AGE = Attribute("age", AttributeType.INTEGER, 0, 60)
SICK = Attribute("sick", AttributeType.BOOLEAN, 0, 1)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c"))
COST = Attribute("cost", AttributeType.INTEGER, 0, 2**20, keeps_missing=True)
N = 600


def design_of(groups: list[list[Attribute]], epsilon: str, n_records: int = N) -> Design:
    """Return the design of a release of groups of one owner each."""
    declared = [each for group in groups for each in group]
    owner_groups = [place for place, group in enumerate(groups) for _ in group] + list(range(len(groups)))
    attributes = (
        *map(with_absence, declared),
        *(presence_attribute(str(place)) for place in range(len(groups))),
    )
    presence = tuple(range(len(declared), len(attributes)))
    alone = tuple(place for place, each in enumerate(declared) if not each.keeps_missing)
    made = Design(
        attributes, n_records, Decimal(epsilon), Decimal(0), owner_groups=tuple(owner_groups),
        presence=presence, absent_alone=alone,
        rules=tuple(presence_rules(attributes, owner_groups, presence, alone)),
        named_pairs=(*combinations(range(len(declared)), 2), *presence_pairs(presence)),
    )  # fmt: skip
    check_design(made)
    return made


def released(design: Design, held: list[np.ndarray], seed: int = 1) -> SyntheticRelease:
    """Release what owners of some persons each hold, drawn at random; `held` has their places."""
    draw, owners = np.random.default_rng(seed), []
    for group, places in enumerate(held):
        own = {
            place: draw.integers(0, attribute.n_values - 1, places.size)
            for place, attribute in enumerate(design.attributes)
            if design.home(place) == group and place not in design.presence
        }
        columns = placed_columns(own, design, group, places)
        shared = Shared.everybody(design.n_records, design.n_groups, TERMS.persons)
        owners.append(GroupOwner(columns, shared, bytes([group, seed]) * 16, b""))
    return synthesise_across(TERMS, design, owners, plain_counting)


def checked(made: SyntheticRelease) -> list[np.ndarray]:
    """Check that records are consistent; return who is present, by group."""
    design = made.measured.design
    present = [made.codes[place] == 1 for place in design.presence]
    assert np.logical_or.reduce(present).all()
    for place, attribute in enumerate(design.attributes):
        if place in design.presence:
            continue
        absent = made.codes[place] == attribute.n_values - 1
        assert absent[~present[design.home(place)]].all()
        if place in design.absent_alone:
            assert not absent[present[design.home(place)]].any()
    return present


@pytest.mark.parametrize("epsilon", ["0.2", "20"])
@pytest.mark.parametrize(
    "held",
    [
        (range(400), range(300, 600)),
        (range(300), range(300, 600)),
        (range(600), range(600)),
        (range(600), range(7, 8)),
        (range(0), range(600)),
    ],
    ids=["some common", "nobody common", "everybody", "one", "an owner of nobody"],
)
def test_records_are_present_or_absent_as_a_whole(held, epsilon):
    """However little ε is, and whoever is where: a record has all values of an owner, or none of them."""
    design = design_of([[AGE, SICK], [WARD, COST]], epsilon)
    places = [np.array(each, dtype=np.int64) for each in held]
    made = released(design, places)
    present = checked(made)
    again = synthesise(made.measured)
    assert all(np.array_equal(*each) for each in zip(made.codes, again.codes, strict=True))
    if epsilon == "20":
        both = np.intersect1d(places[0], places[1]).size
        assert abs(int((present[0] & present[1]).sum()) - both) <= 15


def test_three_owners_overlap_as_tables_of_presence_say():
    """Of three groups their sizes do not say who is at two of them: tables of presence do."""
    design = design_of([[AGE], [WARD], [SICK]], "40")
    held = [np.arange(0, 400), np.arange(200, 600), np.r_[0:100, 350:450]]
    made = released(design, held)
    present, found = checked(made), overlaps(made.measured)
    assert sorted(found) == [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]
    for groups, estimate in found.items():
        expected = len(set.intersection(*(set(held[group].tolist()) for group in groups)))
        assert abs(estimate.count - expected) < 20
        assert abs(int(np.logical_and.reduce([present[group] for group in groups]).sum()) - expected) < 30


def test_intervals_hold_the_overlap_as_often_as_they_say():
    """95 % of the intervals of who is at both owners have the true number."""
    design = design_of([[AGE, SICK], [WARD]], "1")
    hits = 0
    for trial in range(60):
        made = released(design, [np.arange(0, 400), np.arange(300, 600)], trial)
        low, high = overlaps(made.measured)[0, 1].interval
        hits += low <= 100 <= high
    assert hits >= 50


def test_no_rule_is_found_about_absence():
    """That all of an owner's values are absent together must not pass for a relation of values."""
    design = design_of([[SICK, WARD], [AGE]], "40")
    made = released(design, [np.arange(0, 300), np.arange(300, 600)])
    found = excluded(made.measured, noisy_tables(made.measured))
    assert len(found) == len(design.rules)


def test_estimates_are_weighted_by_their_precision():
    """A count with a hundredth of the variance counts a hundred times."""
    mean = mean_of([Present(100.0, 1.0), Present(201.0, 100.0)])
    assert mean.count == pytest.approx(101.0)
    assert mean.variance == pytest.approx(100 / 101)
    assert mean.interval == pytest.approx((101 - 1.96 * (100 / 101) ** 0.5, 101 + 1.96 * (100 / 101) ** 0.5))
