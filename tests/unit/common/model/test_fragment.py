"""Statements that are signed: one canonical form, read strictly."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.fragment import Addendum, Consent, FragmentStatement, KeyProof, LedgerHead, Receipt

D = "0123456789abcdef" * 4
STATEMENTS = (
    Addendum("r-1", D, "equal", {"a": 3, "b": 3}),
    Addendum(
        "r-1", D, "equal", {"a": 3, "b": 3}, key_proofs=(KeyProof("a", D, "", D), KeyProof("b", D, D, D))
    ),
    Consent("r-1", "a", D, "ab" * 32, "accept"),
    Consent("r-1", "a", D, "", "refuse"),
    Consent("r-1", "a", D, "ab" * 32, "accept", 3),
    Consent("r-1", "a", D, "ab" * 32, "accept", 3, 30),
    FragmentStatement("r-1", "a", D, D, D, 12, 3),
    Receipt("r-1", "a", D, D, "2026-03-01T12:00:00+00:00"),
    LedgerHead("a", 7, D),
    LedgerHead("a", 0, ""),
)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: type(each).__name__)
def test_round_trip(statement):
    """What is written is read as the same statement, with the same digest."""
    read = type(statement).from_bytes(statement.to_bytes())
    assert read == statement
    assert read.digest == statement.digest


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: type(each).__name__)
def test_no_other_bytes_mean_the_same(statement):
    """Any byte inserted, deleted or changed gives an error or another statement, never the same one."""
    data = statement.to_bytes()
    for position in range(len(data)):
        for changed in (
            data[:position] + data[position + 1 :],
            data[:position] + b" " + data[position:],
            data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
        ):
            with suppress(ValueError):
                assert type(statement).from_bytes(changed) != statement


@given(st.binary(max_size=60))
def test_garbage_is_a_value_error(data):
    """Bytes of a stranger raise ValueError and nothing else, and are not repeated in it."""
    for kind in {type(each) for each in STATEMENTS}:
        with pytest.raises(ValueError):
            kind.from_bytes(data)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Addendum("r-1", D, "similar", {"a": 3}),
        lambda: Addendum("r-1", D, "equal", {"a": -1}),
        lambda: Addendum("r-1", D, "equal", {"../a": 1}),
        lambda: Consent("r-1", "a", D, "xyz", "accept"),
        lambda: Consent("r-1", "a", D, "", "perhaps"),
        lambda: Consent("r-1", "a", D, "", "accept", 1),
        lambda: Consent("r-1", "a", D, "ab", "accept", -1),
        lambda: Consent("r-1", "a", D, "ab", "accept", 1, -1),
        lambda: Consent("r-1", "a", D, "ab", "accept", 10**9),
        lambda: Consent("r-1", "a", D[:-1], "", "accept"),
        lambda: Receipt("r-1", "a", D, D, "yesterday"),
        lambda: LedgerHead("a", 1, ""),
        lambda: LedgerHead("A", 1, D),
    ],
)
def test_impossible_statements_cannot_be_made(wrong):
    """A statement that makes no sense is refused when it is made, not when it is used."""
    with pytest.raises(ValueError):
        wrong()
