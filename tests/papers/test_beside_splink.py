"""What match keys are compared with: persons drawn from FEBRL4, and how links of Splink are counted."""

import numpy as np
import pyarrow as pa
import pytest

from owner_node.values.match_keys import SUGGESTED
from tests.papers.beside_splink import COLUMNS, best_pairs, count_links, draw_persons, plain_text, score_pairs
from tests.papers.febrl import febrl4_tables, measured, persons

N = 2_000


@pytest.mark.needs("febrl")
def test_drawn_persons_are_written_as_in_febrl4():
    """Two owners with four in five persons in common, as often misspelt in every column."""
    tables = draw_persons(N, seed=3)
    first, second = (table.set_index("truth") for table in tables)
    common = first.index.intersection(second.index)
    assert [len(table) for table in tables] == [N, N]
    assert len(common) == 0.8 * N
    original, misspelt = febrl4_tables()
    for name in COLUMNS:
        alike = float((first.loc[common, name] == second.loc[common, name]).mean())
        assert alike == pytest.approx(float((original[name] == misspelt[name]).mean()), abs=0.05)
    found = measured([persons(table) for table in tables], SUGGESTED)
    assert found.recall > 0.85
    assert found.precision > 0.99


def test_best_pairs_are_the_best_of_both():
    """A pair is dropped if one of its persons has a likelier one; the likeliest come first."""
    pairs = pa.table(
        {
            "truth_l": [1, 2, 2, 3],
            "truth_r": [1, 1, 2, 4],
            "match_weight": [9.0, 8.0, 5.0, 7.0],
            "match_probability": [0.99, 0.98, 0.8, 0.9],
        }
    )
    is_right, probabilities = best_pairs(pairs)
    assert is_right.tolist() == [True, False]
    assert probabilities.tolist() == [0.99, 0.9]


def test_threshold_is_the_longest_list_of_its_precision():
    """Later right pairs can make up for a wrong one."""
    is_right = np.array([True, True, False, True, True, False])
    assert count_links(is_right, 1.0) == 2
    assert count_links(is_right, 0.8) == 5
    assert count_links(~is_right, 0.9) == 0


@pytest.mark.needs("febrl", "splink")
def test_splink_links_febrl4():
    """Its settings fit the data: it finds at least four in five persons, nearly none of them wrongly."""
    plain = [plain_text(table) for table in febrl4_tables()]
    is_right, _ = best_pairs(score_pairs(plain, is_large=False))
    size = count_links(is_right, 0.999)
    assert is_right[:size].sum() > 0.8 * len(plain[0])
