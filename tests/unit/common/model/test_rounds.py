"""Bounds of what owners of different attributes send each other."""

import pytest

from common.model.rounds import CIPHERTEXT_BYTES, ParcelKind, largest_parcel


@pytest.mark.parametrize("n_groups", [1, 39])
def test_rows_of_many_persons_fit(n_groups):
    """One number of a person with one attribute, a byte for each group of adders, and a header."""
    n_persons = 2**22
    size = n_persons * (CIPHERTEXT_BYTES + n_groups) + 50_000
    assert size <= largest_parcel(ParcelKind.ROWS, 1, n_persons) < 1.1 * size
