"""Random bits of a key: by element, without a repetition, and gone when the key is erased."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from common.model.schema import Attribute, AttributeType
from owner_node.masking import mask
from owner_node.masking.arrays import BitSource, Purpose, SystemBits
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.tasks import AttributeTask
from tests.fakes.bits import SeededBits

KEY = bytes(range(32))
AGE = Attribute("age", AttributeType.INTEGER, 0, 100)


def source(purpose: Purpose = Purpose.TIES, first: int = 0) -> BitSource:
    """A source with a key that the test knows."""
    return BitSource(bytearray(KEY), purpose, first)


def test_bits_are_those_of_aes_in_counter_mode():
    """A computation of its own: purpose, lane and width in the first two bytes of the counter."""
    start = (2 << 120) | (1 << 116) | (4 << 112)
    stream = Cipher(algorithms.AES(KEY), modes.CTR(start.to_bytes(16))).encryptor().update(bytes(4 * 100))
    drawn = source().take(100).integers(np.uint32, 1)
    assert drawn.tolist() == np.frombuffer(stream, dtype=np.uint32).tolist()


@given(st.integers(0, 2**34), st.integers(1, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 8]))
def test_an_element_has_its_bits_wherever_a_part_begins(first, size, skipped, width):
    """Blocks, threads and engines begin where they like."""
    kinds: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
    kind = kinds[width]
    whole = source(first=first).take(skipped + size)
    part = source(first=first + skipped).take(size)
    assert np.array_equal(whole.integers(kind)[skipped:], part.integers(kind))
    assert np.array_equal(whole.integers(kind, 0, slice(skipped, None)), part.integers(kind))
    places = np.arange(size)
    for _ in range(3):
        assert np.array_equal(whole.next(places + skipped), part.next(places))


def test_no_bits_are_given_twice():
    """Purposes, lanes, widths, elements, further words, keys: all words of 64 bits differ."""
    found = []
    for bits in (source(), source(Purpose.LIST), source().spawn(), SystemBits(), SystemBits()):
        for _ in range(2):
            taken = bits.take(500)
            found += [taken.integers(np.uint64, lane) for lane in (0, 1)]
            found.append(
                taken.integers(np.uint32)[:-1:2] + (taken.integers(np.uint32)[1::2].astype(np.uint64) << 32)
            )
            found += [taken.next(np.arange(500)) for _ in range(2)]
    every = np.concatenate(found)
    assert np.unique(every).size == every.size


def test_a_source_moves_on_and_a_seed_repeats():
    """What was taken is not taken again; the same key begins at the same place."""
    bits = SeededBits(1)
    first, second = bits.words(10), bits.words(10)
    assert not np.intersect1d(first, second).size
    assert np.array_equal(SeededBits(1).words(20), np.concatenate([first, second]))


def test_an_erased_key_draws_nothing():
    """Nothing of it is left, in no source of any purpose."""
    key = bytearray(KEY)
    bits = BitSource(key)
    of_ties = bits.of(Purpose.TIES)
    bits.erase()
    assert key == b""
    with pytest.raises(ValueError, match="key"):
        of_ties.words(1)


def test_every_attribute_of_every_masking_has_a_key_of_its_own(monkeypatch):
    """Two columns with the same values, masked twice: four keys of 32 bytes, all erased in the end."""
    keys = []

    class Spied(SystemBits):
        """Remembers the keys."""

        def __init__(self):
            super().__init__()
            keys.append((bytes(self._key), self._key))

    monkeypatch.setattr(mask, "SystemBits", Spied)
    columns = {name: np.arange(100) for name in ("age", "size")}
    tasks = [
        AttributeTask(
            Attribute(name, AttributeType.INTEGER, 0, 100),
            Decimal(1),
            5,
            "idp-quantiles",
            rank_noise=Decimal(1),
        )
        for name in columns
    ]
    masked = [mask.mask_table(MemoryEngine(columns), tasks) for _ in range(2)]
    assert len({drawn for drawn, _ in keys}) == 4
    assert all(len(drawn) == 32 and kept == b"" for drawn, kept in keys)
    several = [column.tolist() for table in masked for column in table.values()]
    assert all(several.count(each) == 1 for each in several)


def test_a_key_is_erased_where_masking_fails(monkeypatch):
    """Whatever happens in between."""
    bits = SystemBits()
    monkeypatch.setattr(mask, "SystemBits", lambda: bits)
    monkeypatch.setattr(mask, "mask_attribute", lambda *_: 1 / 0)
    task = AttributeTask(AGE, Decimal(1), 5, "idp-quantiles")
    with pytest.raises(ZeroDivisionError):
        mask.mask_table(MemoryEngine({"age": np.arange(100)}), [task])
    assert bits._key == b""
