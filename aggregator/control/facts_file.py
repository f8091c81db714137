"""The file of `--facts`: rules and derived attributes across owners, in TOML as in `owner.toml`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from common.daemon.settings import Excluded, Followed
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.planning.facts import Facts, StatedDerivation
from common.settings import Contradictions, Listed, Section, parse_toml, read, validate


@dataclass(frozen=True, slots=True)
class DerivedTable(Section):
    """The table `[attributes.NAME]`: an attribute that is derived instead of counted."""

    follows: Annotated[str, Field(min_length=1, description="name the attribute that determines it")]
    """Name of the attribute that determines it."""
    values: Annotated[Followed, Field(description='such as { "nurse" = "care", "surgeon" = "medicine" }')]
    """Every value of that attribute, with the value of this one that follows from it."""


@dataclass(frozen=True, slots=True)
class FactsFile(Section):
    """A file of facts."""

    structural_zeros: Listed[dict[str, Excluded]] = ()
    """Rules: of each, no record has all of the values."""
    attributes: dict[str, DerivedTable] = field(default_factory=dict)
    """Attributes that follow others, by name."""

    def __post_init__(self) -> None:
        faults = [
            (f"structural_zeros[{number}]", "names no attribute")
            for number, rule in enumerate(self.structural_zeros, start=1)
            if not rule
        ]
        if not self.structural_zeros and not self.attributes:
            faults.append(("structural_zeros", "missing, and so is [attributes.NAME]: no fact is stated"))
        if faults:
            raise Contradictions(faults)

    @property
    def facts(self) -> Facts:
        """The facts that it states."""
        rules = (
            StructuralZero(tuple(ExcludedValues(name, rule[name]) for name in sorted(rule)))
            for rule in self.structural_zeros
        )
        following = (
            StatedDerivation(table.follows, tuple(table.values.items()), name)
            for name, table in self.attributes.items()
        )
        return Facts(tuple(rules), tuple(following))


def facts_document(stated: Path | str) -> str:
    """Return the canonical JSON of the facts in a file, or in a text that a form has.

    Raises:
        ConfigurationError: With everything that is wrong with it.
    """
    place = stated if isinstance(stated, Path) else Path("facts")
    document = read(stated) if isinstance(stated, Path) else parse_toml(stated, place)
    return validate(FactsFile, document, place).facts.to_bytes().decode()
