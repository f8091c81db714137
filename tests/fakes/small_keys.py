"""Paillier keys of a third of their size, for tests that are not about it: a twentieth of the time.

Keys have their full size in test_paillier.py, in the release of test_synthetic_across.py that makes its own,
and in daemons.
"""

import pytest

from owner_node.synthesis import crossed

MODULUS_BITS = 1024
"""The fewest that the library makes keys of."""
MODULUS_BYTES = MODULUS_BITS // 8
CIPHERTEXT_BYTES = 2 * MODULUS_BYTES
_WIDE_BYTES = MODULUS_BYTES + 16
_SIZES = {
    "common.model.rounds.CIPHERTEXT_BYTES": CIPHERTEXT_BYTES,
    "common.synthesis.counters.CIPHERTEXT_BYTES": CIPHERTEXT_BYTES,
    "common.synthesis.counters.CAPACITY": MODULUS_BITS - 1,
    "owner_node.synthesis.crossed.CIPHERTEXT_BYTES": CIPHERTEXT_BYTES,
    "owner_node.synthesis.crossed.WIDE_BYTES": _WIDE_BYTES,
    "owner_node.synthesis.paillier.CIPHERTEXT_BYTES": CIPHERTEXT_BYTES,
    "owner_node.synthesis.paillier.MODULUS_BITS": MODULUS_BITS,
    "owner_node.synthesis.paillier.MODULUS_BYTES": MODULUS_BYTES,
    "owner_node.synthesis.paillier.WIDE_BYTES": _WIDE_BYTES,
}
"""What depends on the size, in every module that reads it."""
_begin_process = crossed._begin_process


def small_keys(patch: pytest.MonkeyPatch) -> None:
    """Let owners of this process, and the processes that it starts for them, have small keys."""
    for name, value in _SIZES.items():
        patch.setattr(name, value)
    patch.setattr(crossed, "_begin_process", _begin_small_process)


def _begin_small_process() -> None:
    small_keys(pytest.MonkeyPatch())
    _begin_process()
