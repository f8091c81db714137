"""Numbers that people type: one spelling, whatever digits Python would take."""

from decimal import Decimal

import pytest
from pydantic import TypeAdapter, ValidationError

from common.cli import console
from common.errors import UsageError
from common.model.privacy import parse_epsilon, read_decimal, read_whole_number
from common.model.schema import AttributeType, to_units
from common.planning.arguments import parse_k, parse_rank_noise, parse_weights
from owner_node.cli import application
from owner_node.config.key_types import Share

OTHERS = [
    "\u0663", "\uff13", "\u0969", "\u00b3", "1_000", "\u0661.5", "\u22123", "\uff0b3", "0x3", "inf", "NaN",
    "", "3 3", "+-3",
]  # fmt: skip
READERS = {
    "k": lambda text: parse_k(text or "x"),
    "epsilon": parse_epsilon,
    "rank noise": lambda text: parse_rank_noise([text]),
    "rank noise of one": lambda text: parse_rank_noise([f"age={text}"]),
    "weight": lambda text: parse_weights([f"age={text}"]),
    "number": read_decimal,
    "whole number": read_whole_number,
    "value": lambda text: to_units(AttributeType.NUMBER, text, 2),
    "share": TypeAdapter(Share).validate_python,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", OTHERS)
def test_other_spellings_are_refused(reader, text):
    """Who reads a command or a plan in another script may see another number than the program."""
    with pytest.raises((UsageError, ValueError, ValidationError)):
        READERS[reader](text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", "3"),
        (" 3 ", "3"),
        ("+3", "3"),
        ("-0.50", "-0.50"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e-3", "0.001"),
    ],
)
def test_numbers_are_read(text, number):
    """Signs, spaces around, and exponents are as usual."""
    assert read_decimal(text) == Decimal(number)


@pytest.mark.parametrize(("text", "number"), [("3", 3), (" +12 ", 12), ("-1", -1)])
def test_whole_numbers_are_read(text, number):
    """The same for counts."""
    assert read_whole_number(text) == number


@pytest.mark.parametrize("words", [("console", "--port"), ("explore", "--dataset", "d", "--repetitions")])
@pytest.mark.parametrize("text", ["\u0663", "1_0", "x", "3.5"])
def test_options_are_read_alike(capsys, words, text):
    """What the parser of options converts itself, too."""
    assert console.run(application(), "owner-node", [*words, text]) == 2
    assert words[-1] in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_has_its_range(capsys, port):
    """No other number is a port."""
    assert console.run(application(), "owner-node", ["console", "--port", port]) == 2
    assert "65535" in capsys.readouterr().err
