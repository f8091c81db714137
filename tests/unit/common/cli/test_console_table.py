"""Tables on terminals of any width: no number is broken while there is room for all of them."""

import io
from decimal import Decimal

import pytest
from rich.console import Console

from common.cli.console import draw, fit_widths

HEADS = ("mechanism", "ε", "rank noise", "mean SSE", "unchanged-records", "reason")
ROWS = [
    ("auto", Decimal("0.1"), Decimal("0.03"), "0.00909", "7.27 %", "counts: 5 possible values, few enough"),
    ("idp-joint", 2, None, "13,000 %", "0.0741 %", "clusters"),
]


def printed(width: int) -> list[str]:
    """What a terminal of this width shows."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(draw("Settings", HEADS, ROWS, width))
    return file.getvalue().splitlines()


def test_a_wide_terminal_has_lines_between_columns():
    """Each row is one line, with everything in it."""
    title, heads, rule, first, second = printed(140)
    assert title.strip() == "Settings"
    assert [each.strip() for each in heads.split("┃")] == list(HEADS)
    assert set(rule) == {"━", "╇"}
    assert [each.strip() for each in first.split("│")] == [
        *("auto", "0.1", "0.03", "0.00909", "7.27 %"),
        "counts: 5 possible values, few enough",
    ]
    assert second.split("│")[2].strip() == "–"


@pytest.mark.parametrize("width", [60, 80])
def test_on_a_narrow_one_headings_and_long_texts_are_broken(width):
    """What is short stays whole, nothing is cut off, and no line is wider than the terminal."""
    lines = printed(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for whole in (
        "auto",
        "0.1",
        "0.03",
        "0.00909",
        "7.27 %",
        "idp-joint",
        "13,000 %",
        "0.0741 %",
        "clusters",
    ):
        assert whole in text
    assert "│" not in text
    assert "━" in text
    assert {"counts:", "5", "possible", "values,", "few", "enough"} <= set(text.split())


def test_on_a_tiny_one_everything_is_broken_and_nothing_lost():
    """Where not even the numbers have room, they are folded as before."""
    text = "".join("".join(printed(24)).split())
    assert "0.00909" not in text
    for sign in "%–":
        assert sign in text


def test_widths_take_from_the_widest_first():
    """The room is used up, and no column falls below its cells, or twelve of a long one's characters."""
    assert fit_widths([9, 17, 40], [4, 8, 40], 40) == [9, 15, 16]
    assert fit_widths([9, 17, 40], [4, 8, 40], 24) == [4, 8, 12]
    assert fit_widths([9, 17, 40], [4, 8, 40], 23) is None
    assert fit_widths([3], [0], 1) == [1]
