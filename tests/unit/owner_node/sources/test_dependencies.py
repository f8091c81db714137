"""Columns that another one determines: compared by a slow oracle, and shown to the owner alone."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from owner_node.sources.dependencies import MOST_VALUES, Dependencies, determined
from owner_node.sources.guessing import guess

NAMES = "abc"


@given(st.lists(st.tuples(*(st.integers(0, 3) for _ in NAMES)), max_size=80), st.integers(1, 30))
def test_batches_find_what_all_records_have(records: list[tuple[int, ...]], size: int) -> None:
    """One value for each value, exactly; and neither a constant, nor values with a few records each."""
    dependencies = Dependencies(NAMES)
    for start in range(0, len(records), size):
        batch = np.array(records[start : start + size], dtype=np.int64)
        dependencies.update(dict(zip(NAMES, batch.T, strict=True)))
    expected = set()
    for i, j in permutations(range(len(NAMES)), 2):
        values = {(each[i], each[j]) for each in records}
        n_first, n_second = (len({each[place] for each in records}) for place in (i, j))
        if len(values) == n_first and n_second > 1 and 10 * n_first <= len(records):
            expected.add((NAMES[i], NAMES[j]))
    found = {(first, second) for second, by in dependencies.found().items() for first in by}
    # Of two that determine each other one is found.
    assert found <= expected
    assert all(pair in found or pair[::-1] in found for pair in expected)
    assert not any(pair[::-1] in found for pair in found)


def test_columns_of_many_values_are_not_compared() -> None:
    """Every identifier determines everything."""
    ids = np.arange(20 * MOST_VALUES)
    assert determined({"id": ids, "ward": ids % 4, "beds": (ids % 4) // 2}) == {"beds": ["ward"]}


@pytest.mark.parametrize(("wrong", "found"), [("", ("school",)), ("9", ())])
def test_a_file_is_compared_as_it_is_read(tmp_path: Path, wrong: str, found: tuple[str, ...]) -> None:
    """A single record that differs is enough, and a missing value is one of its own."""
    years = {"none": "0", "primary": "6", "": "-"}
    lines = [f"{school},{years[school]},{i}" for i in range(100) for school in years]
    if wrong:
        lines[-1] = f"none,{wrong},7"
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["school,years,other", *lines, ""]))
    columns = {each.name: each for each in guess(file).columns}
    assert tuple(columns["years"].determined_by) == found
    assert not columns["other"].determined_by
