"""Sums under pairwise masks: exact for all owners together, and nothing for fewer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from secrets import token_bytes

import numpy as np
import pytest

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.rounds import FIRST_COUNTED, KEY_BYTES
from common.synthesis.sums import LARGEST_SUM, add_answers, check_sums
from owner_node.synthesis.masks import Masks, public_key

RELEASE = "flu-2026"
ROUNDS = tuple(digit * 64 for digit in "0123456789")
"""Digests of documents that open rounds."""


def masks(n_owners: int, release_key: bytes = b"") -> dict[str, Masks]:
    """Return the masks of so many owners; their order by id is not that of their numbers."""
    private = {f"owner{number}": token_bytes(KEY_BYTES) for number in range(n_owners)}
    public = {owner: public_key(key) for owner, key in private.items()}
    return {owner: Masks(owner, key, public, RELEASE, release_key) for owner, key in private.items()}


def answers(owners: Mapping[str, Masks], parts: Iterable[Int64Array]) -> dict[str, bytes]:
    """Return what every owner sends in the first round."""
    return {
        owner: each.answer(part, ROUNDS[0]) for (owner, each), part in zip(owners.items(), parts, strict=True)
    }


@pytest.mark.parametrize("n_owners", [1, 2, 3, 10, 40])
def test_the_answers_of_all_owners_add_up_to_the_sum(n_owners: int) -> None:
    """Masks cancel, whatever the number of owners and with or without a key of tokens."""
    parts = np.random.default_rng(1).integers(-(2**34), 2**34, (n_owners, 50))
    for release_key in (b"", b"k" * 32):
        found = add_answers(answers(masks(n_owners, release_key), parts), 50)
        np.testing.assert_array_equal(found, np.sum(parts, axis=0))


@pytest.mark.parametrize("bound", [LARGEST_SUM, -LARGEST_SUM])
def test_sums_are_bounded(bound: int) -> None:
    """A sum at the bound is one, where something is counted; one beyond it is refused."""
    check_sums(np.array([bound]), FIRST_COUNTED)
    with pytest.raises(IntegrityError, match="1 of 1 sums"):
        check_sums(np.array([bound + (1 if bound > 0 else -1)]), FIRST_COUNTED)


@pytest.mark.parametrize("wrong", [1, -1, LARGEST_SUM + 1])
def test_sums_of_zeros_are_zeros(wrong: int) -> None:
    """In the first round any other number is wrong."""
    check_sums(np.zeros(3, dtype=np.int64), 1)
    with pytest.raises(IntegrityError, match="masks of the owners do not cancel"):
        check_sums(np.array([0, 0, wrong]), 1)


def zeros(owner: Masks, number: int = 0) -> bytes:
    """Return an owner's answer of fifty zeros."""
    return owner.answer(np.zeros(50, dtype=np.int64), ROUNDS[number])


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda owner: zeros(owner, 1), id="another round"),
        pytest.param(lambda owner: zeros(replace(owner, release="flu-2027")), id="another release"),
        pytest.param(lambda owner: zeros(replace(owner, release_key=b"o" * 32)), id="another key of tokens"),
        pytest.param(
            lambda owner: (int.from_bytes(zeros(owner), "little") ^ 2**62).to_bytes(400, "little"),
            id="a flipped bit",
        ),
        pytest.param(lambda owner: bytes(400), id="without masks"),
        pytest.param(lambda owner: zeros(owner)[:-8], id="too short"),
        pytest.param(lambda owner: zeros(owner) + b"\0", id="no whole numbers"),
        pytest.param(None, id="missing"),
    ],
)
def test_a_sum_is_had_of_all_right_answers_or_not_at_all(changed: Callable[[Masks], bytes] | None) -> None:
    """Whatever is missing or wrong, the rest is no sum."""
    owners = masks(3, b"k" * 32)
    given = {name: zeros(owner) for name, owner in owners.items()}
    check_sums(add_answers(given, 50), FIRST_COUNTED)
    given["owner1"] = changed(owners["owner1"]) if changed else b""
    for number in (1, FIRST_COUNTED):
        with pytest.raises(IntegrityError):
            check_sums(add_answers({name: each for name, each in given.items() if each}, 50), number)


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


@pytest.mark.parametrize("flip", [0, 0x80])
def test_a_copied_key_uncovers_nobody(flip: int) -> None:
    """An owner with another's key, or that key with the bit that X25519 ignores, cancels no masks."""
    owners = masks(3)
    n_honest = owners["owner1"]
    copied = bytearray(n_honest.public_keys["owner2"])
    copied[31] ^= flip
    keys = {**n_honest.public_keys, "owner0": bytes(copied)}
    zero = np.zeros(50, dtype=np.int64)
    if not flip:
        with pytest.raises(IntegrityError, match="the key of owner owner2 for sums is also that of owner0"):
            replace(n_honest, public_keys=keys)
        return
    answer = np.frombuffer(replace(n_honest, public_keys=keys).answer(zero, ROUNDS[0]), "<u8")
    assert np.count_nonzero(answer) == 50


_LOW_ORDER = (bytes(32), b"\x01" + bytes(31), bytes([0xEC, *[0xFF] * 30, 0x7F]))
"""u = 0, 1 and p - 1: RFC 7748 and "contributory behaviour" (cr.yp.to/ecdh.html)."""


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        *(("owner1", weak, "the key of owner owner1 for sums is weak") for weak in _LOW_ORDER),
        *(("owner1", b"k" * n, f"owner1 for sums has {n} bytes") for n in (0, 31, 33)),
        ("owner0", public_key(b"k" * 32), "stands for owner owner0"),
    ],
)
def test_unusable_keys_are_refused(name: str, key: bytes, said: str) -> None:
    """Everybody knows the secrets of weak ones, and an owner notices another key in its place."""
    owner = masks(3)["owner0"]
    with pytest.raises(IntegrityError, match=said):
        replace(owner, public_keys={**owner.public_keys, name: key}).check()


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
