"""Sections of what people look at: a terminal prints them here, and a page shows them (`parts.html`)."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

from common.cli import console
from common.cli.brief import wrap
from common.errors import one_line

_LONG = 30
"""Characters; columns with longer texts are given room."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values."""

    values: Mapping[str, object]
    """Values by name; empty ones are left out."""

    @property
    def known(self) -> dict[str, str]:
        """The values that are not empty, each in one line."""
        return {name: one_line(str(value)) for name, value in self.values.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Cells under headings."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[console.Cell]]
    notes: Sequence[str] = ()
    """What the columns mean."""

    @property
    def kinds(self) -> list[str]:
        """What each column holds, as the style sheet of pages calls it: numbers, long texts, or neither."""
        numeric = console.numeric(len(self.columns), self.rows)
        longest = [max(map(len, map(console.cell_text, column))) for column in zip(*self.rows, strict=True)]
        return [
            "n" if number else "text" if length > _LONG else ""
            for number, length in zip(numeric, longest or [0] * len(numeric), strict=True)
        ]

    def lines(self, most: int) -> list[list[str]]:
        """Return the first rows as texts."""
        return [[console.cell_text(cell) for cell in row] for row in self.rows[:most]]


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences under a title; nothing is shown if there are none."""

    title: str
    lines: Sequence[str]


Section = Facts | SectionTable | Listing


def show(sections: Iterable[Section]) -> None:
    """Print sections, with an empty line before each but the first."""
    first = True
    for section in sections:
        if isinstance(section, Listing) and not section.lines:
            continue
        if not first:
            console.print_line()
        first = False
        if isinstance(section, Facts):
            width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
            lines = list(align_facts(section.known, width))
        elif isinstance(section, SectionTable):
            console.table(section.title, section.columns, section.rows)
            lines = list(section.notes)
        else:
            lines = [section.title, *(f"- {line}" for line in section.lines)]
        for line in lines:
            console.print_line(line)


def align_facts(facts: Mapping[str, str], columns: int) -> Iterator[str]:
    """Lay out names and values; a value that takes several lines stays in its column.

    Texts of other parties, such as a purpose, therefore never start where a name would.
    """
    width = max(map(len, facts), default=0) + 4
    for name, value in facts.items():
        yield from wrap(value, columns, f"  {name}".ljust(width), " " * width)
