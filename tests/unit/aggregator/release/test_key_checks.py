"""Different linkage keys: who has which, and who gives it to whom."""

import pytest

from aggregator.release.linking import KeyCheck, compare_key_checks
from common.errors import ConflictError


def told(**owners):
    """What owners tell, from pairs of value and generation."""
    return {owner: KeyCheck(*each) for owner, each in owners.items()}


def refused(**owners):
    """Return the conflict of what owners tell."""
    with pytest.raises(ConflictError) as caught:
        compare_key_checks(told(**owners))
    return caught.value


def test_the_same_key():
    """One key at all owners is no conflict, nor is one owner alone."""
    compare_key_checks(told(a=("11", 2), b=("11", 2)))
    compare_key_checks(told(a=("", 0)))


def test_one_owner_missed_a_rotation():
    """Every owner is named with its generation; the newest is to be taken on, however few have it."""
    error = refused(a=("11", 2), b=("22", 1), c=("22", 1))
    assert (
        error.message == "the owners have different linkage keys: a has generation 2 | b, c have generation 1"
    )
    assert "export at a, then linkage-key import --replace at b, c" in error.hint
    assert error.details == {
        "different": ["b", "c"],
        "same": [["a"], ["b", "c"]],
        "generations": {"a": 2, "b": 1, "c": 1},
    }


def test_keys_made_independently():
    """Of two keys of one generation that is kept which most owners have; no key-check value is told."""
    error = refused(a=("11", 1), b=("22", 1), c=("22", 1))
    assert "b, c have generation 1 | a has generation 1" in error.message
    assert "export at b, then linkage-key import --replace at a" in error.hint
    assert not any(value in str(error.to_document()) for value in ("11", "22"))


def test_versions_that_tell_no_generation():
    """Owners of an older version are compared all the same."""
    error = refused(a=("11", 0), b=("22", 0))
    assert error.message == "the owners have different linkage keys: a | b"
    assert error.exit_code == 3
