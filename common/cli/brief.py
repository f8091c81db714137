"""A page that a person reads before a decision: at most 25 lines of 80 characters, on any terminal.

Some parts of a page are lists that can be long: owners, attributes, a purpose. A list that does not fit is
cut, and its last line says how much is left out and which option shows it. Sentences are never cut.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from common.cli.console import Cell, aligned
from common.log import one_line

LINES, WIDTH = 25, 80
"""Size of a page."""
_DETAILS = "--details"
_LONGEST_ITEM = 38
"""Longer items of a list are shortened."""
_LEAST = 1
"""Lines that a list keeps, however little room there is."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page: for each number of lines, what it shows in them."""

    within: Callable[[int], list[str]]
    """Returns its lines; a list is cut to the given number, a sentence never."""

    @property
    def whole(self) -> list[str]:
        """All its lines."""
        return self.within(LINES)


def text(line: str, bullet: str = "") -> Part:
    """Return a sentence that is always shown as a whole, with further lines indented below its bullet."""
    lines = wrap(
        one_line(line),
        WIDTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_on_hyphens=False,
    )
    return Part(lambda _most: lines)


def clipped(name: str, value: str) -> Part:
    """Return a text of another party after its name; a long one is cut at the last line."""
    indent = " " * (len(name) + 2)
    lines = wrap(f"{name}: {one_line(value)}", WIDTH, subsequent_indent=indent)

    def within(most: int) -> list[str]:
        if len(lines) <= most:
            return lines
        end = f" … ({_DETAILS})"
        return [*lines[: most - 1], lines[most - 1][: WIDTH - len(end)] + end]

    return Part(within)


def listed(name: str, items: Iterable[str]) -> Part:
    """Return short items one after another, separated by commas."""
    kept = [_shortened(one_line(item), _LONGEST_ITEM) for item in items]

    def within(most: int) -> list[str]:
        n_shown = len(kept)
        while True:
            left = len(kept) - n_shown
            more = f" and {left} more ({_DETAILS})" if left else ""
            lines = wrap(
                f"{name}: {', '.join(kept[:n_shown])}{more}", WIDTH, subsequent_indent="  ",
                break_on_hyphens=False,
            )  # fmt: skip
            if len(lines) <= most or not n_shown:
                return lines
            # Much too long lists shrink at once.
            n_shown = min(n_shown - 1, n_shown * most // len(lines) + 1)

    return Part(within)


def rows(columns: Sequence[str], lines: Sequence[Sequence[Cell]]) -> Part:
    """Return a table of aligned text; texts are shortened until a line fits."""
    width = WIDTH
    while True:
        cells = [[_shortened(c, width) if isinstance(c, str) else c for c in line] for line in lines]
        table = list(aligned(columns, cells))
        if max(map(len, table)) <= WIDTH or width < 2:
            break
        width -= 1

    def within(most: int) -> list[str]:
        if len(table) <= most:
            return table
        left = len(table) - (most - 1)
        return [*table[: most - 1], f"… and {left} more ({_DETAILS})"]

    return Part(within)


def page(parts: Sequence[Part], after: Sequence[Part] = ()) -> list[str]:
    """Return the lines of a page.

    Args:
        parts: What it shows, in order; the longest lists are cut first.
        after: Parts that follow an empty line, where there is room for one.
    """
    everything = [*parts, *after]
    shown = [part.whole for part in everything]
    least = [min(len(lines), _LEAST) for lines in shown]
    cut = {i for i, lines in enumerate(shown) if len(everything[i].within(least[i])) < len(lines)}
    while sum(map(len, shown)) > LINES and cut:
        longest = max(cut, key=lambda i: len(shown[i]))
        if len(shown[longest]) <= least[longest]:
            break
        shown[longest] = everything[longest].within(len(shown[longest]) - 1)
    lines = [line for part in shown[: len(parts)] for line in part]
    ends = [line for part in shown[len(parts) :] for line in part]
    gap = [""] if ends and len(lines) + len(ends) < LINES else []
    return [*lines, *gap, *ends]


def _shortened(item: str, length: int) -> str:
    return item if len(item) <= length else f"{item[: max(length, 2) - 1]}…"
