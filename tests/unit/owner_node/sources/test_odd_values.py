"""Booleans, dates and bits as programs and databases write them, through `owner-node check`."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from common.cli import console
from owner_node import config
from owner_node.cli import application
from owner_node.loading import load
from tests.unit.owner_node.cli.test_check import OWNER

DATASET = """
[[dataset]]
name = "patients"
source = "{source}"
total_epsilon = 1
missing = "{missing}"
{more}
[dataset.attributes.x]
"""
TYPES = {
    "boolean": 'type = "boolean"',
    "date": 'type = "date"\nmin = 1900-01-01\nmax = 2026-12-31',
    "integer": 'type = "integer"\nmin = 0\nmax = 9',
    "category": 'type = "category"\ncategories = ["False", "True"]',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the command is run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(source: str, kind: str, missing: str = "drop", more: str = "") -> int:
    """Run the command on one attribute and return its exit code."""
    declared = DATASET.format(source=source, missing=missing, more=more) + TYPES[kind] + "\n"
    Path("owner.toml").write_text(OWNER[: OWNER.index("[[dataset]]")] + declared)
    return console.run(application(), "owner-node", ["check", "--json"])


def values() -> list[int]:
    """Load the attribute."""
    return load(config.load(Path("owner.toml")).dataset("patients")).columns["x"].tolist()


def problems(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int]]:
    """Return the problems that the command printed, with their counts."""
    details = json.loads(capsys.readouterr().out)["error"]["details"]
    return [(each["problem"], each["count"]) for each in details["problems"]]


FRAMES: dict[str, Any] = {
    "objects": pd.Series([True, None, False], dtype=object),
    "of floats": pd.Series([1.0, None, 0.0]),
    "nullable": pd.Series([True, None, False], dtype="boolean"),
    "texts": pd.Series(["True", None, "False"]),
    "texts of floats": pd.Series(["1.0", None, "0.0"]),
    "signs": pd.Series(["+1", None, "-0"]),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("frame", FRAMES)
def test_booleans_with_a_missing_one(folder, frame, suffix):
    """Whatever pandas makes of them: objects, floats and their texts."""
    table = pd.DataFrame({"x": FRAMES[frame], "y": 1})
    table.to_csv("x.csv", index=False) if suffix == "csv" else table.to_parquet("x.parquet", index=False)
    assert check(f"x.{suffix}", "boolean") == 0
    assert values() == [1, 0]


@pytest.mark.parametrize("text", ["-1", "1.5", "10", "1.01", "2.0", "0.0.0", ".0", "1e0"])
def test_numbers_that_are_no_booleans(folder, capsys, text):
    """Nothing but 0 and 1 is one."""
    Path("x.csv").write_text(f"x,y\n1.0,1\n{text},1\n")
    assert check("x.csv", "boolean") == 2
    assert problems(capsys) == [("not a boolean", 1)]


def test_booleans_with_a_decimal_comma(folder):
    """They are numbers of the file."""
    Path("x.csv").write_text("x;y\n1,0;1\n0,0;1\n")
    assert check("x.csv", "boolean", more='[dataset.csv]\ndelimiter = ";"\ndecimal = ","') == 0
    assert values() == [1, 0]


def test_a_missing_boolean_can_be_kept_as_a_category(folder, capsys):
    """The hint names the way, and the way works."""
    Path("x.csv").write_text("x,y\nTrue,1\n,1\nFalse,1\n")
    assert check("x.csv", "boolean", missing="error") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert '["False", "True"], and missing = "category"' in error["hint"]
    assert check("x.csv", "category", missing="category") == 0
    assert values() == [1, 2, 0]


def as_pymysql(kind: type[date]) -> Any:
    """Return how PyMySQL converts: a text that is no date of Python stays a text."""

    def convert(written: bytes) -> Any:
        try:
            return kind.fromisoformat(written.decode())
        except ValueError:
            return written.decode()

    return convert


class MariaDialect(SQLiteDialect_pysqlite):
    """Stands for the driver of a MariaDB server: SQLite with the Python values of PyMySQL."""

    supports_statement_cache = True

    def create_connect_args(self, url: sa.URL) -> Any:
        """Open a file instead of a server."""
        return ["people.db"], {"detect_types": sqlite3.PARSE_DECLTYPES}


@pytest.fixture
def server(folder: Path) -> Any:
    """Return a maker of a table: `server(type, values)`."""
    registry.register("mariadb", __name__, "MariaDialect")
    sqlite3.register_converter("maria_date", as_pymysql(date))
    sqlite3.register_converter("maria_datetime", as_pymysql(datetime))
    sqlite3.register_converter("maria_bit", bytes)

    def make(kind: str, column: Sequence[object]) -> None:
        with sqlite3.connect("people.db") as connection:
            connection.execute(f"create table people (x {kind})")
            connection.executemany("insert into people values (?)", [(value,) for value in column])
        connection.close()

    return make


ZERO = "a date with a year, month or day of zero"
BITS = "bytes that are no text, such as bits"
MARIA: list[tuple[str, str, list[object], list[tuple[str, int]] | list[int]]] = [
    ("maria_date", "date", ["1970-01-03", None, "1970-01-01"], [2, 0]),
    ("maria_date", "date", ["1970-01-03", "0000-00-00", None, "1970-00-00", "1970-01-01"], [(ZERO, 2)]),
    ("maria_date", "date", ["0000-00-00"], [(ZERO, 1)]),
    ("maria_datetime", "date", ["1970-01-03 00:00:00", "0000-00-00 00:00:00"], [(ZERO, 1)]),
    ("maria_datetime", "date", ["1970-01-03 00:00:00", "1970-01-01 00:00:00"], [2, 0]),
    ("maria_bit", "boolean", [b"\1", None, b"\0"], [1, 0]),
    ("maria_bit", "integer", [b"\1", None, b"\0"], [1, 0]),
    ("maria_bit", "integer", [b"\5", b"\0", b"\1"], [(BITS, 1)]),
    ("maria_bit", "boolean", [b"\0\5", b"\0\0", b"\1"], [(BITS, 2)]),
]


@pytest.mark.parametrize(("kind", "attribute", "column", "expected"), MARIA)
def test_what_mariadb_stores(server, capsys, kind, attribute, column, expected):
    """Odd values are counted, they alone, with their cause; the others beside them are what they are."""
    server(kind, column)
    code = check("mariadb://x@localhost/people", attribute, more='query = "select x from people"')
    assert (code == 0) == isinstance(expected[0], int)
    assert (values() if code == 0 else problems(capsys)) == expected
