"""Tables of the command lines: drawn on a terminal, aligned text elsewhere.

rich is imported only when there is something to draw.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from common.log import one_line

if TYPE_CHECKING:
    from rich.table import Table

Cell = object
"""What a table shows: text, a number, a boolean, or None for nothing."""
Rows = Sequence[Sequence[Cell]]
"""Lines of a table, each as long as its headings."""

_UNBROKEN = 12
"""Cells up to this length are not broken where a terminal is narrow."""
_BETWEEN_DRAWN, _BETWEEN_PLAIN = 3, 1
"""Width of what is between two columns, with lines and without."""
_HEADINGS_ALONE = "    \n    \n ━━ \n    \n    \n    \n    \n    \n"
"""The only line is below the headings, in the notation of rich."""


def drawn(title: str, columns: Sequence[str], rows: Rows, width: int) -> "Table":
    """Draw a table; without upright lines where it would be too wide, so that no number has to be broken.

    Args:
        title: A line above the table; empty for none.
        columns: Headings.
        rows: The lines.
        width: Characters in a line of the terminal.
    """
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left", show_edge=False)
    natural = _widths([columns, *map(_texts, rows)])
    sizes: list[int] | None = None
    if sum(natural) + _BETWEEN_DRAWN * len(columns) > width:
        table.box, table.padding = Box(_HEADINGS_ALONE), (0, 0)
        room = width - _BETWEEN_PLAIN * (len(columns) - 1)
        sizes = fitted(natural, _widths([[""] * len(columns), *map(_texts, rows)]), room)
    for i, (column, right) in enumerate(zip(columns, _numeric(len(columns), rows), strict=True)):
        table.add_column(
            Text(column),
            justify="right" if right else "left",
            overflow="fold",
            width=None if sizes is None else sizes[i],
        )
    for row in rows:
        table.add_row(*map(Text, _texts(row)))
    return table


def fitted(natural: Sequence[int], cells: Sequence[int], room: int) -> list[int] | None:
    """Return widths in which only headings and long texts are broken; None if there are none.

    Args:
        natural: Widths in which nothing is broken.
        cells: The same of the cells without their headings.
        room: What there is for all columns together.
    """
    least = [max(1, min(cell, _UNBROKEN)) for cell in cells]
    if sum(least) > room:
        return None
    sizes = list(natural)
    while sum(sizes) > room:
        widest = max(range(len(sizes)), key=lambda i: (sizes[i] > least[i], sizes[i]))
        sizes[widest] -= 1
    return sizes


def aligned(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Return the lines of a table as text without lines."""
    texts = [list(columns), *map(_texts, rows)]
    widths, numeric = _widths(texts), _numeric(len(columns), rows)
    for line in texts:
        cells = zip(line, widths, numeric, strict=True)
        yield "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in cells).rstrip()


def shown(cell: Cell) -> str:
    """Return a cell as text, in one line."""
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return one_line(format(cell, "f") if isinstance(cell, Decimal) else str(cell))


def _texts(row: Sequence[Cell]) -> list[str]:
    return [shown(cell) for cell in row]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _numeric(n_columns: int, rows: Rows) -> list[bool]:
    """Which columns hold numbers, and nothing but numbers and gaps."""

    def numbers(position: int) -> bool:
        cells = [row[position] for row in rows if row[position] is not None]
        return bool(cells) and all(isinstance(c, int | Decimal) and not isinstance(c, bool) for c in cells)

    return [numbers(position) for position in range(n_columns)]
