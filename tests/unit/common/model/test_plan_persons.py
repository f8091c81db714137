"""What a plan says of one person that several owners hold, against sums over every way to hold it."""

from dataclasses import replace
from decimal import Decimal
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from common.model.plan import Linking, Plan
from tests.fakes.releases import make_plan

GROUPS = [(["age"], ["a", "b", "c"]), (["income"], ["a", "d"])]
BOUNDS = st.lists(st.integers(1, 50).map(lambda each: Decimal(each) / 10), min_size=5, max_size=5)


def planned(bounds: list[Decimal], most: int) -> Plan:
    """Return a grid whose tasks have these epsilons, and twice these joint bounds."""
    plan = replace(make_plan(GROUPS), linking=Linking(tokens=True, max_overlap=most))
    tasks = tuple(
        replace(
            task, attributes=tuple(replace(each, epsilon=e, epsilon_joint=2 * e) for each in task.attributes)
        )
        for task, e in zip(plan.tasks, bounds, strict=True)
    )
    return replace(plan, tasks=tasks)


@given(BOUNDS, st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 2)))
def test_the_worst_that_a_person_can_meet(
    bounds: list[Decimal], most: int, multiples: tuple[int, int]
) -> None:
    """The bounds are the largest sum over all choices of as many owners in each group, and no more."""
    plan = planned(bounds, most)
    of_group = [[task for task in plan.tasks if task.group == group] for group in range(2)]
    ways = product(*(combinations(tasks, m) for tasks, m in zip(of_group, multiples, strict=True)))
    worst = max(sum(task.epsilon for tasks in way for task in tasks) for way in ways)
    assert plan.epsilon_of_person(multiples) == worst
    assert plan.epsilon_joint_of_person(multiples) == 2 * worst
    assert plan.most_multiples == (most, min(most, 2))
    assert plan.epsilon_joint == plan.epsilon_joint_of_person(plan.most_multiples)
    assert Plan.from_bytes(plan.to_bytes()) == plan


@given(BOUNDS, st.tuples(st.integers(1, 3), st.integers(1, 2)))
def test_what_an_owner_is_charged(bounds: list[Decimal], multiples: tuple[int, int]) -> None:
    """An owner of two groups is charged for each as often as owners of that group hold a person."""
    plan = planned(bounds, 3)
    own = plan.assignment_of("a")
    assert own.epsilon_at(multiples) == bounds[0] * multiples[0] + bounds[3] * multiples[1]
    assert own.epsilon_joint_at(multiples) == 2 * own.epsilon_at(multiples)
    assert own.epsilon_at((1, 1)) == own.epsilon
    assert plan.assignments["d"].epsilon_at(multiples) == bounds[4] * multiples[1]


def test_no_bound_for_one_is_none_for_the_person() -> None:
    """Where a task has no joint bound, nobody who may be in it has one."""
    plan = planned([Decimal(1)] * 5, 2)
    first, *others = plan.tasks
    free = replace(first, attributes=tuple(replace(each, epsilon_joint=None) for each in first.attributes))
    unbounded = replace(plan, tasks=(free, *others))
    assert unbounded.epsilon_joint is None
    assert unbounded.assignment_of("a").epsilon_joint_at((1, 1)) is None
    assert unbounded.assignment_of("b").epsilon_joint_at((2, 1)) == 4
