"""Where a hash chain is: what is signed, kept elsewhere, and compared."""

from dataclasses import dataclass

GENESIS = "0" * 64
"""What the first entry names as the hash before it."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain is."""

    sequence: int
    """Number of its newest entry; 0 if there is none."""
    hash: str
    """Hash of the newest entry, hexadecimal; 64 zeros if there is none."""
