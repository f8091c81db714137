"""Sums under pairwise masks: exact for all owners together, and nothing for fewer."""

from collections.abc import Mapping
from dataclasses import replace
from secrets import token_bytes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.rounds import KEY_BYTES
from common.synthesis.sums import LARGEST_SUM, Masks, add_answers, public_key

RELEASE = "flu-2026"
ROUNDS = tuple(digit * 64 for digit in "0123456789")
"""Digests of documents that open rounds."""


def masks(n_owners: int, release_key: bytes = b"") -> dict[str, Masks]:
    """Return the masks of so many owners; their order by id is not that of their numbers."""
    private = {f"owner{number}": token_bytes(KEY_BYTES) for number in range(n_owners)}
    public = {owner: public_key(key) for owner, key in private.items()}
    return {owner: Masks(owner, key, public, RELEASE, release_key) for owner, key in private.items()}


def vectors(n_owners: int, n_numbers: int = 50, seed: int = 1) -> list[Int64Array]:
    """Return owners' numbers, `(n_numbers,)` each."""
    draws = np.random.default_rng(seed).integers(-(2**34), 2**34, (n_owners, n_numbers))
    return list(draws.astype(np.int64))


def answers(owners: Mapping[str, Masks], parts: list[Int64Array], number: int = 0) -> dict[str, bytes]:
    """Return what every owner sends in a round."""
    return {
        owner: each.answer(part, ROUNDS[number])
        for (owner, each), part in zip(owners.items(), parts, strict=True)
    }


@pytest.mark.parametrize("n_owners", [1, 2, 3, 10, 40])
def test_the_answers_of_all_owners_add_up_to_the_sum(n_owners: int) -> None:
    """Masks cancel, whatever the number of owners and with or without a key of tokens."""
    parts = vectors(n_owners)
    for release_key in (b"", b"k" * 32):
        found = add_answers(answers(masks(n_owners, release_key), parts), 50)
        np.testing.assert_array_equal(found, np.sum(parts, axis=0))


@given(st.lists(st.lists(st.integers(-(2**37), 2**37), min_size=3, max_size=3), min_size=1, max_size=7))
def test_any_numbers_within_bounds_add_up(numbers: list[list[int]]) -> None:
    """The sum is that of whole numbers, not of residues."""
    parts = [np.array(each, dtype=np.int64) for each in numbers]
    found = add_answers(answers(masks(len(parts)), parts), 3)
    assert found.tolist() == [sum(column) for column in zip(*numbers, strict=True)]


@pytest.mark.parametrize("bound", [LARGEST_SUM, -LARGEST_SUM])
def test_sums_are_bounded(bound: int) -> None:
    """A sum at the bound is one; one beyond it is refused."""
    step = 1 if bound > 0 else -1
    owners, zero = masks(2), np.zeros(1, dtype=np.int64)
    assert add_answers(answers(owners, [np.array([bound]), zero]), 1).tolist() == [bound]
    with pytest.raises(IntegrityError, match="1 of 1 sums"):
        add_answers(answers(owners, [np.array([bound]), zero + step]), 1)


def _missing(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    return dict(list(right.items())[1:])


def _of_another_round(right: dict[str, bytes], owners: dict[str, Masks]) -> dict[str, bytes]:
    return right | {"owner0": owners["owner0"].answer(np.zeros(50, dtype=np.int64), ROUNDS[1])}


def _of_another_release(right: dict[str, bytes], owners: dict[str, Masks]) -> dict[str, bytes]:
    other = replace(owners["owner0"], release="flu-2027")
    return right | {"owner0": other.answer(np.zeros(50, dtype=np.int64), ROUNDS[0])}


def _under_another_key_of_tokens(right: dict[str, bytes], owners: dict[str, Masks]) -> dict[str, bytes]:
    other = replace(owners["owner0"], release_key=b"o" * 32)
    return right | {"owner0": other.answer(np.zeros(50, dtype=np.int64), ROUNDS[0])}


def _with_a_flipped_bit(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    changed = bytearray(right["owner1"])
    changed[7] ^= 0x40
    return right | {"owner1": bytes(changed)}


def _without_masks(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    return right | {"owner2": bytes(400)}


def _too_short(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    return right | {"owner1": right["owner1"][:-8]}


def _too_long(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    return right | {"owner1": right["owner1"] + bytes(8)}


def _no_whole_numbers(right: dict[str, bytes], _owners: dict[str, Masks]) -> dict[str, bytes]:
    return right | {"owner1": right["owner1"] + b"\0"}


@pytest.mark.parametrize(
    "change",
    [
        _missing, _of_another_round, _of_another_release, _under_another_key_of_tokens,
        _with_a_flipped_bit, _without_masks, _too_short, _too_long, _no_whole_numbers,
    ],
)  # fmt: skip
def test_a_sum_is_had_of_all_right_answers_or_not_at_all(change: object) -> None:
    """Whatever is missing or wrong, the rest is no sum."""
    owners = masks(3, b"k" * 32)
    right = answers(owners, [np.zeros(50, dtype=np.int64)] * 3)
    add_answers(right, 50)
    with pytest.raises(IntegrityError):
        add_answers(change(right, owners), 50)  # type: ignore[operator]


def test_fewer_answers_than_all_are_uniform() -> None:
    """What an aggregator has before the last answer has the same distribution for all data."""
    n_numbers = 2**16
    owners = masks(3)
    parts = [np.full(n_numbers, 12_345, dtype=np.int64)] * 3
    right = answers(owners, parts)
    partial = np.frombuffer(right["owner0"], "<u8") + np.frombuffer(right["owner2"], "<u8")
    for numbers in (*(np.frombuffer(each, "<u8") for each in right.values()), partial):
        counts = np.bincount(numbers.view(np.uint8), minlength=256)
        expected = numbers.nbytes / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert chi_square < 380  # 255 degrees of freedom: exceeded with a probability of 10^-6
        assert np.unique(numbers).size == n_numbers


def test_the_masks_of_two_rounds_have_nothing_in_common() -> None:
    """Else the difference of two answers would be that of two vectors."""
    owners, zero = masks(2), np.zeros(1000, dtype=np.int64)
    first, second = (np.frombuffer(owners["owner0"].answer(zero, each), "<u8") for each in ROUNDS[:2])
    assert np.unique(np.concatenate([first, second, second - first])).size == 3000


def test_an_answer_is_the_same_bytes_each_time() -> None:
    """So it can be made again from the sealed vector."""
    owners, vector = masks(3), np.arange(20, dtype=np.int64)
    assert owners["owner1"].answer(vector, ROUNDS[4]) == owners["owner1"].answer(vector, ROUNDS[4])


@pytest.mark.parametrize("flip", [0, 0x80])
def test_a_copied_key_uncovers_nobody(flip: int) -> None:
    """An owner with another's key, or that key with the bit that X25519 ignores, cancels no masks."""
    owners = masks(3)
    honest = owners["owner1"]
    copied = bytearray(honest.public_keys["owner2"])
    copied[31] ^= flip
    keys = {**honest.public_keys, "owner0": bytes(copied)}
    zero = np.zeros(50, dtype=np.int64)
    if not flip:
        with pytest.raises(IntegrityError, match="the key of owner owner2 for sums is also that of owner0"):
            replace(honest, public_keys=keys)
        return
    answer = np.frombuffer(replace(honest, public_keys=keys).answer(zero, ROUNDS[0]), "<u8")
    assert np.count_nonzero(answer) == 50


_LOW_ORDER = (bytes(32), b"\x01" + bytes(31), bytes([0xEC, *[0xFF] * 30, 0x7F]))
"""u = 0, 1 and p - 1: RFC 7748 and "contributory behaviour" (cr.yp.to/ecdh.html)."""


@pytest.mark.parametrize("weak", _LOW_ORDER)
def test_weak_keys_are_refused(weak: bytes) -> None:
    """Everybody knows the secrets that such keys give."""
    owner = masks(3)["owner0"]
    changed = replace(owner, public_keys={**owner.public_keys, "owner2": weak})
    with pytest.raises(IntegrityError, match="the key of owner owner2 for sums is weak"):
        changed.answer(np.zeros(1, dtype=np.int64), ROUNDS[0])


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_another_length_are_refused(length: int) -> None:
    """They are no keys."""
    owner = masks(2)["owner0"]
    with pytest.raises(IntegrityError, match=f"owner1 for sums has {length} bytes"):
        replace(owner, public_keys={**owner.public_keys, "owner1": b"k" * length})


def test_an_owner_refuses_another_key_in_its_place() -> None:
    """An aggregator that swaps an owner's key is noticed by that owner."""
    owner = masks(2)["owner0"]
    with pytest.raises(IntegrityError, match="stands for owner owner0"):
        replace(owner, public_keys={**owner.public_keys, "owner0": public_key(token_bytes(KEY_BYTES))})


def test_private_keys_do_not_show() -> None:
    """Neither in a log nor in an error."""
    owner = masks(2, b"k" * 32)["owner0"]
    assert repr(owner.private_key) not in repr(owner)
    assert repr(owner.release_key) not in repr(owner)


def test_known_masks() -> None:
    """Both versions of a release derive the same masks: the derivation is part of the protocol.

    Derived independently with HKDF by hand (RFC 5869) and `openssl enc -aes-256-ctr`.
    """
    private = {"a": bytes(range(32)), "b": bytes(range(32, 64))}
    public = {owner: public_key(key) for owner, key in private.items()}
    zero = np.zeros(2, dtype=np.int64)
    first = Masks("a", private["a"], public, RELEASE).answer(zero, ROUNDS[3])
    assert first.hex() == "cc12af0eb223dad92be160a2f1821d0e"
