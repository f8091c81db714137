"""Options that are given without a value."""

import json
from pathlib import Path
from typing import Annotated

import pytest
import typer

from aggregator.cli import application as aggregator
from common.cli import console
from common.cli.program import Command, program
from owner_node.cli import application as owner_node


def take(
    name: Annotated[str, typer.Option("--name", "-n")] = "",
    out: Annotated[Path | None, typer.Option("--out")] = None,
    many: Annotated[list[str] | None, typer.Option("--many")] = None,
    as_json: console.JsonOption = False,
) -> None:
    """Print what was taken."""
    console.print_json(
        {"name": name, "out": None if out is None else str(out), "many": many, "json": as_json}
    )


app = program("program", "Takes options.", "1.2.3", {"take": Command(f"{__name__}:take", "Prints.")})


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--name", ["--name", ""]),
        ("--name", ["--name="]),
        ("-n", ["-n", " "]),
        ("--out", ["--out", ""]),
        ("--many", ["--many", "a", "--many", ""]),
        ("an argument", [""]),
        ("an argument", ["--name", "x", ""]),
    ],
)
def test_blank_values_are_refused_by_name(option, words, capsys):
    """An unset variable of a script is found, and an empty path is not the current folder: exit 2."""
    code = console.run(app, "program", ["take", *words, "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["code"], error["message"]) == (2, "usage", f"{option} is empty")


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ([], {"name": "", "out": None, "many": None, "json": True}),
        (
            ["--name", "x ", "--out", ".", "--many", "a"],
            {"name": "x ", "out": ".", "many": ["a"], "json": True},
        ),
    ],
)
def test_other_values_are_taken_as_they_are(words, taken, capsys):
    """Defaults that are empty stay, and so does what is given."""
    assert console.run(app, "program", ["take", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == taken


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (aggregator, ["plan", "--dataset", "d", "--layout", "horizontal", "--epsilon", "1", "--purpose", ""]),
        (owner_node, ["mask", "--dataset", "d", "--epsilon", "1", "--out", "d.csv", "--id", ""]),
        (owner_node, ["query", "median", "--dataset", "d", "--attribute", "a", "--epsilon", "1", "--id", ""]),
    ],
)
def test_no_command_of_the_programs_takes_them(make, words, capsys, monkeypatch, tmp_path):
    """Nothing is charged under a new id where an empty one was given, before any configuration is read."""
    monkeypatch.chdir(tmp_path)
    code = console.run(make(), "program", words)
    assert (code, f"{words[-2]} is empty" in capsys.readouterr().err) == (2, True)
