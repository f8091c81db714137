"""What a report says of records that share a released value."""

from dataclasses import replace
from decimal import Decimal

import pytest

from common.model.mechanisms import MECHANISMS
from common.release.report import equal_values
from tests.fakes.releases import make_plan


def masked(mechanism, rank_noise="0"):
    """A plan of two owners that mask one attribute so."""
    plan = make_plan([(["age"], ["a", "b"])])
    tasks = tuple(
        replace(
            task,
            attributes=tuple(
                replace(
                    each,
                    mechanism=mechanism,
                    k=each.k if MECHANISMS[mechanism].clustered else None,
                    rank_noise=Decimal(rank_noise),
                    rank_loss=None,
                )
                for each in task.attributes
            ),
        )
        for task in plan.tasks
    )
    return replace(plan, tasks=tasks)


@pytest.mark.parametrize(
    ("mechanism", "rank_noise", "told"),
    [
        ("idp-joint", "0", "in the same cluster, or in clusters whose values came out equal"),
        ("idp-joint", "0.03", "need not have been in it themselves"),
        ("dp-hist", "0.03", "not from clusters"),
        ("dp", "0", "noise of its own"),
        ("exponential", "0", "need not have shared a cluster"),
    ],
)
def test_a_shared_value_means_what_its_carrier_makes_it_mean(mechanism, rank_noise, told):
    """That records with the same value shared a cluster is said only where it is so."""
    (line,) = equal_values(masked(mechanism, rank_noise))
    assert line.startswith("age: ")
    assert told in line


def test_attributes_of_one_carrier_share_a_line():
    """However many attributes there are, a line is said once, with the names of all of them."""
    (line,) = equal_values(make_plan([(["age", "income"], ["a", "b"])]))
    assert line.startswith("age, income: ")
