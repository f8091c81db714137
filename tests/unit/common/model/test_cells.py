"""What stands in the cells of a release steers neither terminals nor spreadsheets."""

import json
import logging

import pytest

from common.log import JsonFormatter
from common.model.schema import fault_of_cell

FORMULAS = ["=1+1", "@SUM(A1)", "+A1", "-2+3+cmd|' /C calc'!A0", "--1", "+\u0663"]
BEFORE = [" ", "\u00a0", "\u3000", "\u2003", '"', "'", "' ", "\u201c", "`"]
WIDE = {ord(each): ord(each) + 0xFEE0 for each in "=@+-123"}


@pytest.mark.parametrize(
    "text",
    [
        "<=50K",
        '"quoted"',
        "'s-Gravenhage",
        "\uff15\u6708",
        "\uff0d\uff15",
        "-",
        "+",
        "-5",
        "+3.2",
        "A+",
        "a=b",
        "café",
        "\u0646\u0645\u06cc\u200c\u062f",
        "a b",
        "(missing)",
    ],
)
def test_labels_of_real_data_are_accepted(text):
    """Signs, numbers, comparisons, and scripts that need joiners are labels like others."""
    assert fault_of_cell(text) is None


@pytest.mark.parametrize(
    "text",
    FORMULAS
    + [f"{before}{each}" for each in FORMULAS for before in BEFORE]
    + [each.translate(WIDE) for each in FORMULAS],
)
def test_formulas_are_refused(text):
    """What a spreadsheet would run is no label."""
    assert "formula" in (fault_of_cell(text) or "")


@pytest.mark.parametrize("text", ["a\x1b[2J", "a\tb", "\rb", "a\u202eb", "a\u200bb", "a\u2028b"])
def test_characters_that_are_not_seen_are_refused(text):
    """Control, bidirectional and invisible characters are no part of a label."""
    assert "control, invisible" in (fault_of_cell(text) or "")


def test_log_lines_escape_what_is_not_seen():
    """A text of a peer in a log line reaches no terminal as it is, and every reader of JSON gets it back."""
    record = logging.LogRecord("n", logging.INFO, "", 0, "refused", None, None)
    reason = "a\u202eb\x9b\U000e0001é"
    record.__dict__["reason"] = reason
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert "é" in line
    assert json.loads(line)["reason"] == reason
