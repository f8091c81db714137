"""Rows of a sweep follow at once in several threads: every setting still gets its own errors."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owner_node.explore.assessment import Grid
from owner_node.explore.sweep import ExploreRequest, explore
from owner_node.masking.mechanisms import SumMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of
from owner_node.risk.draws import SortedAttribute, released_lists
from owner_node.risk.trials import Randomness
from owner_node.risk.utility import SSE, OriginalRecords, measure_errors
from tests.fakes.bits import SeededBits
from tests.unit.owner_node.explore.test_sweep import ABOUT, INCOME, columns, table


def attribute_of(number: int) -> SimpleNamespace:
    """An attribute whose errors say which task of which attribute they are of, and which draw."""

    def errors(tasks: list[int], _bits: Any, times: int) -> list[list[float]]:
        return [[100.0 * task + 10 * number + draw for draw in range(times)] for task in tasks]

    return SimpleNamespace(errors=errors)


@pytest.mark.parametrize("n_threads", [0, 3])
@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 4))
def test_errors_are_those_of_their_row_setting_and_attribute(n_threads, lengths, n_attributes):
    """Whatever the number of rows, settings and attributes, and whoever takes them up."""
    whole = cast(
        "OriginalRecords", SimpleNamespace(attributes=[attribute_of(each) for each in range(n_attributes)])
    )
    numbers = iter(range(sum(lengths)))
    rows = [[[next(numbers)] * n_attributes for _ in range(length)] for length in lengths]
    with ThreadPoolExecutor(n_threads or 1) as threads:
        found = list(
            measure_errors(whole, cast("Any", rows), 3, SeededBits(1), threads.map if n_threads else map)
        )
    assert [len(row) for row in found] == lengths
    for setting, utility in enumerate(each for row in found for each in row):
        assert [utility.of_attribute(SSE, each) for each in range(n_attributes)] == [
            100 * setting + 10 * each + 1 for each in range(n_attributes)
        ]


def test_every_cell_has_the_errors_of_its_clusters():
    """With hardly any noise the error is that of the clusters: a cell cannot have that of another k."""
    grid = Grid((Decimal(10**6), Decimal(10**7)), (5, 20, 80), ("dp-ir",))
    done: list[tuple[int, int]] = []
    randomness = Randomness(SeededBits(1), np.random.default_rng(1))
    cells = explore(
        table((INCOME,)),
        ExploreRequest(grid, 2, 1, (), ()),
        ABOUT,
        randomness,
        lambda *each: done.append(each),
        2,
    ).to_document()["cells"]
    without = [cell["mean_sse_without_noise"] for cell in cells]
    assert len({round(each, 9) for each in without}) == 3
    assert [cell["mean_sse"]["mean"] for cell in cells] == pytest.approx(without, rel=1e-3)
    assert done == [(each, 6) for each in range(7)]


def test_what_fails_in_a_thread_ends_the_sweep(monkeypatch):
    """The first failure is what the caller sees, however many rows are still to come."""

    def errors(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(SortedAttribute, "errors", errors)
    grid = Grid((Decimal(1),), (5, 20, 80), ("dp-ir", "idp-joint"))
    randomness = Randomness(SeededBits(1), np.random.default_rng(1))
    with pytest.raises(MemoryError):
        explore(table((INCOME,)), ExploreRequest(grid, 2, 1, (), ()), ABOUT, randomness, lambda *_: None, 2)


def test_every_list_of_many_ascends_from_its_first_value():
    """Lists are made to ascend one after the other in one array: none begins a value early or late."""
    task = AttributeTask(INCOME, Decimal("0.5"), 20, "idp-joint")
    mechanism = mechanism_of(task)
    assert isinstance(mechanism, SumMechanism)
    ascending = np.sort(columns()["income"]) - INCOME.lower
    drawn = list(released_lists(mechanism, ascending, [task.setting], SeededBits(3), 200))
    values = np.concatenate([lists.values for lists in drawn])
    assert len(values) == 200
    assert np.all(np.diff(values, axis=1) >= 0)
    # The lowest of one list have no regard to the highest of the one before.
    assert np.median(values[1:, 0]) < np.median(values[:-1, -1])
