"""Values of a column that stand for a missing one, such as 99, and the form in which they are compared."""

import re
from dataclasses import dataclass

_PATTERNS = (r"^\+?(-?[0-9]+)(?:{mark}0*)?$", r"^\+?(-?[0-9]+){mark}([0-9]*[1-9])0*$")
"""Whole numbers, and those with decimals."""


@dataclass(frozen=True, slots=True)
class MissingCodes:
    """The values of one column that stand for a missing one."""

    texts: tuple[str, ...]
    of_numbers: bool = False
    """True if the column has numbers, so that 1e3 is 1000; elsewhere 099 is a text of its own."""


def without_zeros(point: str) -> tuple[tuple[str, str], ...]:
    """Return patterns and what replaces them, which write 99.0 and +99 as 99, in Python as in Arrow."""
    return tuple(
        (pattern.format(mark=re.escape(point)), into)
        for pattern, into in zip(_PATTERNS, (r"\1", r"\1.\2"), strict=True)
    )


def comparable(text: str) -> str:
    """Return a text without blanks around it, and a number without zeros after its decimals."""
    text = text.strip()
    for pattern, into in without_zeros("."):
        text = re.sub(pattern, into, text)
    return text
