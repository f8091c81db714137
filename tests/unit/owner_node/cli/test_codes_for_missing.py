"""Codes for missing values by column, through `owner-node check`: every kind of source, every type."""

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from common.cli import console
from owner_node import config
from owner_node.cli import application
from owner_node.loading import count_records, load
from owner_node.notebook import Workspace
from tests.unit.owner_node.cli.test_check import OWNER

HEAD = """
[[dataset]]
name = "patients"
source = "{source}"
total_epsilon = 1
missing = "{missing}"
{more}
"""
NUMBER = 'type = "integer"\nmin = 0\nmax = 120\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the command is run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(source: str, attributes: dict[str, str], missing: str = "drop", more: str = "") -> int:
    """Run the command and return its exit code."""
    declared = HEAD.format(source=source, missing=missing, more=more)
    declared += "".join(f"[dataset.attributes.{name}]\n{keys}\n" for name, keys in attributes.items())
    Path("owner.toml").write_text(OWNER[: OWNER.index("[[dataset]]")] + declared)
    return console.run(application(), "owner-node", ["check", "--json"])


def units(name: str = "x") -> list[int]:
    """Load an attribute."""
    return load(config.load(Path("owner.toml")).dataset("patients")).columns[name].tolist()


def write(kind: str, table: pd.DataFrame) -> tuple[str, str]:
    """Write a table and return the source with its further keys."""
    if kind == "csv":
        table.to_csv("x.csv", index=False)
    elif kind == "parquet":
        table.to_parquet("x.parquet", index=False)
    else:
        with sqlite3.connect("x.db") as connection:
            table.to_sql("x", connection, index=False)
        connection.close()
        return "sqlite:///x.db", 'query = "select * from x"'
    return f"x.{kind}", ""


@pytest.mark.parametrize("kind", ["csv", "parquet", "sqlite"])
def test_a_code_of_one_column_is_a_value_of_another(capsys, kind):
    """SPSS has 99 for a question that was not answered, and for an age; both are counted by their reason."""
    table = pd.DataFrame({"age": [99, 34, 99, 120, 7], "asked": [99, 1, None, 98, 5]})
    source, more = write(kind, table)
    attributes = {"age": NUMBER, "asked": NUMBER + "na_values = [98, 99]"}
    assert check(source, attributes, more=more) == 0
    (document,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (document["records"], document["dropped"]) == (2, 3)
    assert document["dropped_by"] == {"asked": {"na_values": 2, "empty": 1}}
    assert (units("age"), units("asked")) == ([34, 7], [1, 5])
    assert count_records(config.load(Path("owner.toml")).dataset("patients")) == 2
    assert console.run(application(), "owner-node", ["check"]) == 0
    assert "  column 'asked': 2 na_values, 1 empty" in capsys.readouterr().out


DATE = 'type = "date"\nmin = 1970-01-01\nmax = 2026-12-31\n'
WARD = 'type = "category"\ncategories = ["A", "B"]\n'
KINDS: list[tuple[str, str, list[Any], list[int]]] = [
    (NUMBER, "[99]", ["99", "99.0", " 99 ", "+99", "9", "34"], [9, 34]),
    (NUMBER, "99", ["99", "34"], [34]),
    (NUMBER, "[99.0]", [99, 34], [34]),
    (NUMBER, "[-8, -9]", [-8.0, 34.0, -9.0], [34]),
    (NUMBER, '["refused"]', ["refused", "34"], [34]),
    ('type = "number"\nmin = 0\nmax = 120\ndecimals = 1\n', "[99.9]", [99.9, 99.8], [998]),
    (DATE, '["9999-12-31", 1970-01-03]', ["9999-12-31", "1970-01-02", "1970-01-03"], [1]),
    (WARD, '["unknown", 9]', ["A", "9", "unknown", "B"], [0, 1]),
    ('type = "boolean"\n', "[9]", ["1", "9", "0"], [1, 0]),
]


@pytest.mark.parametrize("kind", ["csv", "parquet", "sqlite"])
@pytest.mark.parametrize(("attribute", "codes", "column", "expected"), KINDS)
def test_every_type_has_codes(kind, attribute, codes, column, expected):
    """Numbers by their value, texts as they are written; what they leave is read as ever."""
    source, more = write(kind, pd.DataFrame({"x": column, "y": 1}))
    assert check(source, {"x": f"{attribute}na_values = {codes}"}, more=more) == 0
    assert units() == expected


def test_codes_with_a_decimal_comma():
    """They are numbers of the file."""
    Path("x.csv").write_text("x;y\n99,0;1\n34;1\n")
    more = '[dataset.csv]\ndelimiter = ";"\ndecimal = ","'
    assert check("x.csv", {"x": f"{NUMBER}na_values = [99]"}, more=more) == 0
    assert units() == [34]


@pytest.mark.parametrize(
    ("codes", "form", "written", "expected"),
    [
        ("[9999]", 'thousands = ","', '"9,999";"9999";"9,999.0";"999"', [999]),
        ('["9,999"]', 'thousands = ","', '"9,999";9999;999', [999]),
        ("[9999.5]", 'decimal = ","\nthousands = "."', "9.999,5;9999,50;1,5", [2]),
        ("[1000]", "", "1e3;1E+3;01000;10.00e2;1e4", [10000]),
        ("[1e3]", "", "1000;1000.0;7", [7]),
        ("[99]", "", "099;+99.;990e-1;98", [98]),
        ("[-0.5]", "", "-.5;-0.50;-5e-1;-5;0.5", [-5, 0]),
        ("[0]", "", "-0.0;00;0e5;.0;1", [1]),
        ("[99999999999999999999]", "", "99999999999999999999.0;1", [1]),
    ],
)
def test_codes_of_numbers_are_compared_by_their_value(codes, form, written, expected):
    """In whatever way a file writes the number, also with a null beside it."""
    values = written.replace(";", "|1\n")
    Path("x.csv").write_text(f"x|y\n{values}|1\n|1\n")
    attribute = 'type = "number"\nmin = -10\nmax = 10000\ndecimals = 0\n'
    more = f'[dataset.csv]\ndelimiter = "|"\n{form}'
    assert check("x.csv", {"x": f"{attribute}na_values = {codes}"}, more=more) == 0
    assert units() == expected


def test_labels_that_look_like_numbers_are_texts():
    """A leading zero or an E belongs to a category, as in codes of diagnoses or places."""
    Path("x.csv").write_text("x,y\n099,1\n1E3,1\n99.0,1\n")
    labels = 'type = "category"\ncategories = ["099", "1E3"]\n'
    assert check("x.csv", {"x": f"{labels}na_values = [99, 1000]"}) == 0
    assert units() == [0, 1]


def test_values_of_several_types_in_one_column():
    """SQLite stores what it is given."""
    with sqlite3.connect("x.db") as connection:
        connection.execute("create table x (x)")
        connection.executemany(
            "insert into x values (?)", [(99,), ("99",), (99.0,), (34.0,), ("7",), (None,)]
        )
    connection.close()
    assert check("sqlite:///x.db", {"x": f"{NUMBER}na_values = 99"}, more='query = "select x from x"') == 0
    assert units() == [34, 7]


@pytest.mark.parametrize(("missing", "expected"), [("category", [0, 2, 1]), ("error", None)])
def test_codes_are_kept_or_reported_as_missing_values_are(capsys, missing, expected):
    """A code is what an empty field is."""
    Path("x.csv").write_text("x,y\nA,1\n9,1\nB,1\n")
    code = check("x.csv", {"x": f"{WARD}na_values = [9]"}, missing=missing)
    if expected is None:
        assert code == 2
        (problem,) = json.loads(capsys.readouterr().out)["error"]["details"]["problems"]
        assert problem == {"column": "x", "problem": "missing value", "count": 1}
    else:
        assert (code, units()) == (0, expected)


@pytest.mark.parametrize("codes", ["true", "[[1]]", "[true]", '["A"]', '[" A "]', "[7]", "[7.00]"])
def test_what_is_no_code(capsys, codes):
    """A label that is declared is a value."""
    Path("x.csv").write_text("x,y\nA,1\n")
    labels = 'type = "category"\ncategories = ["A", "7.0"]\n'
    assert check("x.csv", {"x": f"{labels}na_values = {codes}"}) == 2
    assert "attributes.x.na_values" in capsys.readouterr().out


def test_a_notebook_knows_them_and_the_index(tmp_path):
    """The records that are left have their index."""
    frame = pd.DataFrame({"x": [99, *range(60)]}, index=[f"r{n}" for n in range(61)])
    schema = {"x": {"type": "integer", "min": 0, "max": 99, "na_values": [99, 3]}}
    workspace = Workspace(tmp_path / "workspace", budget="b", total_epsilon=Decimal(5))
    masked = workspace.mask(frame, schema, epsilon="5", k=5, missing="drop", anyway=True)
    assert masked.frame.index.tolist() == [f"r{n}" for n in range(1, 61) if n != 4]
