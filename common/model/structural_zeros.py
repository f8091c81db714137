"""Structural zeros: what no record of a synthetic release is, by rules that its owners declare.

A rule names values of some attributes, which no record has together: "nobody below 16 is married". It is
public knowledge, like a domain, and no fact about the data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.canonical import Document

MOST_RULES = 100
MOST_RANGES = 100
"""Of one attribute in one rule."""
MOST_RANGES_TOGETHER = 20_000
"""Most ranges of all rules together: each is looked up, in files of strangers, too."""


@dataclass(frozen=True, slots=True)
class ExcludedValues(Document):
    """Values of one attribute."""

    attribute: str
    """Its name."""
    ranges: tuple[tuple[str, str], ...]
    """First and last value of every range, as declared; of labels both are the same."""

    def __str__(self) -> str:
        """Return it in words."""
        shown = [first if first == last else f"{first} to {last}" for first, last in self.ranges]
        return f"{self.attribute} {' or '.join(shown)}"


@dataclass(frozen=True, slots=True)
class StructuralZero(Document):
    """A rule: no record has, of all of these attributes, one of these values."""

    values: tuple[ExcludedValues, ...]
    """By attribute, in alphabetical order."""

    def __post_init__(self) -> None:
        if not self.values or list(self.names) != sorted(set(self.names)):
            raise ValueError("a rule names some attributes, each once and in alphabetical order")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its attributes."""
        return tuple(each.attribute for each in self.values)

    def __str__(self) -> str:
        """Return it in words."""
        return " with ".join(map(str, self.values))


def rules_of(rules: Sequence[StructuralZero], names: Iterable[str]) -> tuple[StructuralZero, ...]:
    """Return the rules that speak of these attributes alone, in their order."""
    known = set(names)
    return tuple(each for each in rules if known >= set(each.names))
