"""Counts made of noisy counts."""

import numpy as np
import pytest

from common.model.counts import nearest_counts, whole_counts


@pytest.mark.parametrize("noisy", [[3.0, 5.0], [-1.0, -2.0], [0.0], [2.0**48, 1.0, 2.0**48]])
def test_no_records_have_no_counts(noisy):
    """A part of a domain can have no records left and large noise: its own parts get none either."""
    counts = whole_counts(nearest_counts(np.array(noisy), 0), 0)
    assert counts.tolist() == [0] * len(noisy)
