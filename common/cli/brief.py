"""A page that a person reads before a decision: at most 25 lines of 80 characters, on any terminal.

Some parts of a page are lists that can be long: owners, attributes, a purpose. A list that does not fit is
cut, and its last line says how much is left out and which option shows it. Sentences are never cut.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from common.cli.console import Cell, align
from common.errors import one_line

LINES, WIDTH = 25, 80
"""Size of a page."""
_DETAILS = "--details"
_LONGEST_ITEM = 38
"""Longer items of a list are shortened."""
_LEAST = 1
"""Lines that a list keeps, however little room there is."""
_LEAST_OF_TABLE = 3
"""The same for a table: headings, a line, and how many are left out."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of a page: for each number of lines, what it shows in them."""

    within: Callable[[int], list[str]]
    """Returns its lines; a list is cut to the given number, a sentence never."""

    @property
    def whole(self) -> list[str]:
        """All its lines."""
        return self.within(LINES)


def text(line: str, bullet: str = "") -> PagePart:
    """Return a sentence that is always shown as a whole, with further lines indented below its bullet."""
    lines = wrap(one_line(line), WIDTH, bullet, " " * len(bullet))
    return PagePart(lambda _most: lines)


def clip(name: str, value: str) -> PagePart:
    """Return a text of another party after its name; a long one is cut at the last line."""
    lines = wrap(one_line(value), WIDTH, f"{name}: ", " " * (len(name) + 2))

    def within(most: int) -> list[str]:
        if len(lines) <= most:
            return lines
        end = f" … ({_DETAILS})"
        return [*lines[: most - 1], _beginning(lines[most - 1], WIDTH - len(end)) + end]

    return PagePart(within)


def list_items(name: str, items: Iterable[str]) -> PagePart:
    """Return short items one after another, separated by commas."""
    kept = [_shorten(one_line(item), _LONGEST_ITEM) for item in items]

    def within(most: int) -> list[str]:
        n_shown = len(kept)
        while True:
            left = len(kept) - n_shown
            more = f" and {left} more ({_DETAILS})" if left else ""
            lines = wrap(f"{name}: {', '.join(kept[:n_shown])}{more}", WIDTH, then="  ")
            if len(lines) <= most or not n_shown:
                return lines
            # Much too long lists shrink at once.
            n_shown = min(n_shown - 1, n_shown * most // len(lines) + 1)

    return PagePart(within)


def rows(columns: Sequence[str], lines: Sequence[Sequence[Cell]]) -> PagePart:
    """Return a table of aligned text, with one line at least; texts are shortened until a line fits."""
    width = WIDTH
    while True:
        cells = [[_shorten(c, width) if isinstance(c, str) else c for c in line] for line in lines]
        table = list(align(columns, cells))
        if max(map(cell_len, table)) <= WIDTH or width < 2:
            break
        width -= 1

    def within(most: int) -> list[str]:
        # Headings above nothing tell nobody anything.
        most = max(most, _LEAST_OF_TABLE)
        if len(table) <= most:
            return table
        left = len(table) - (most - 1)
        return [*table[: most - 1], f"… and {left} more ({_DETAILS})"]

    return PagePart(within)


def page(parts: Sequence[PagePart], after: Sequence[PagePart] = ()) -> list[str]:
    """Return the lines of a page.

    Args:
        parts: What it shows, in order; the longest lists are cut first.
        after: Parts that follow an empty line, where there is room for one.
    """
    everything = [*parts, *after]
    shown = [part.whole for part in everything]
    # A list has a name, which can take more than one line by itself.
    least = [len(part.within(_LEAST)) for part in everything]
    while sum(map(len, shown)) > LINES:
        longest = max(range(len(shown)), key=lambda i: len(shown[i]) if len(shown[i]) > least[i] else 0)
        if len(shown[longest]) <= least[longest]:
            break
        shown[longest] = everything[longest].within(len(shown[longest]) - 1)
    lines = [line for part in shown[: len(parts)] for line in part]
    ends = [line for part in shown[len(parts) :] for line in part]
    gap = [""] if ends and len(lines) + len(ends) < LINES else []
    return [*lines, *gap, *ends]


def wrap(value: str, columns: int, first: str = "", then: str = "") -> list[str]:
    """Break a text into lines that no terminal breaks again: wide characters take two columns.

    Args:
        columns: Columns of a line; a line has a character of the text in any case.
    """
    lines: list[str] = []
    line, gap = first, ""
    for word in value.split():
        rest = word
        while rest and cell_len(line + gap + rest) > columns:
            fits_below = cell_len(then + rest) <= columns
            head = "" if fits_below else _beginning(rest, columns - cell_len(line + gap))
            if not head and line == then:
                head = rest[0]
            lines.append(line + gap + head if head else line)
            rest, line, gap = rest[len(head) :], then, ""
        if rest:
            line, gap = line + gap + rest, " "
    return [*lines, line] if gap or not lines else lines


def _beginning(item: str, columns: int) -> str:
    """Return as much of a text as fits."""
    end = len(item)
    while cell_len(item[:end]) > max(columns, 0):
        end -= 1
    return item[:end]


def _shorten(item: str, columns: int) -> str:
    return item if cell_len(item) <= columns else f"{_beginning(item, max(columns, 2) - 1)}…"
