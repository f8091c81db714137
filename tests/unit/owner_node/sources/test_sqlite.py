"""A query on a SQLite file: values of any kind in any column, a file that stays as it is, limits."""

import json
import re
import sqlite3
import traceback
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import DataError, SourceUnreachableError
from common.model.schema import Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.loading import count_records, load
from owner_node.sources import sql
from tests.unit.owner_node.sources.conftest import AGE, SEX

NUMBER = Attribute("x", AttributeType.NUMBER, -(10**18), 10**18, decimals=17)
ENDLESS = "with recursive n(age) as (select 1 union all select age from n) select * from n"


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    """Return a maker of data sets: `ask(query, attribute, ..., **settings)`."""
    path = tmp_path / "all of it?.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table people (age, sex, note)")
        connection.execute("insert into people values (34, 'male', 'Zq7Qz')")
    connection.close()

    def made(query: str, *attributes: Attribute, **settings: Any) -> DatasetConfig:
        known: dict[str, Any] = {"name": "people", "budget": "people", "total_epsilon": Decimal(1)}
        known |= {"source": f"sqlite:///{path}", "query": query, "attributes": attributes}
        return DatasetConfig(**(known | settings))

    return made


def told(settings: DatasetConfig, kind: type[Exception] = DataError) -> str:
    """Load and return the error's message, after checking that it gives away no value."""
    with pytest.raises(kind) as caught:
        load(settings)
    error: Any = caught.value
    assert error.__context__ is None
    assert error.hint
    assert "Zq7Qz" not in "".join(traceback.format_exception(error)) + json.dumps(error.to_document())
    return str(error)


def test_one_column_may_hold_values_of_many_kinds(ask):
    """SQLite stores what it is given: integers, floats and text of one column are the numbers they show."""
    query = "select column1 as x from (values (1), (0.1), ('2.50'), (0.1 + 0.2), ('1e2'), (1e-3))"
    expected = [10**17, 10**16, 25 * 10**16, 30000000000000004, 10**19, 10**14]
    clamped = replace(NUMBER, upper=10**19 - 1 - 10**19 // 10, outside="clamp")
    expected[4] = clamped.upper
    assert load(ask(query, clamped)).columns["x"].tolist() == expected


def test_integers_and_missing_values_beside_text(ask):
    """NULL is missing in a column of many kinds, too, and text that is no number is counted."""
    query = "select column1 as age from (values (1), (null), ('seven'), (2.0))"
    message = told(ask(query, AGE))
    assert "missing value (1 record)" in message
    assert "not an integer (1 record)" in message


@pytest.mark.parametrize("sex", ["cast(x'5a713751707aff' as text)", "x'5a713751707aff'"])
@pytest.mark.parametrize("other", ["'male'", "7"])
def test_text_that_is_not_unicode_is_counted(ask, sex, other):
    """The driver's message would quote the text; ours has the column and the count, whatever is beside it."""
    third = "x'6d616c65'" if sex.startswith("x") else other
    query = f"select 1 as age, {sex} as sex union all select 1, {sex} union all select 1, {third}"
    message = told(ask(query, AGE, SEX))
    assert "column 'sex': not in the encoding utf-8 (2 records)" in message
    assert load(ask(query, AGE)).n_records == 3


def test_bytes_are_texts(ask):
    """A blob that holds UTF-8 is read as in Parquet files; blobs beside numbers are no column of one type."""
    assert load(ask("select x'6d616c65' as sex", SEX)).columns["sex"].tolist() == [1]
    message = told(ask("select x'37' as age union all select 7", AGE))
    assert "column 'age': values of type bytes and int cannot be read (2 records)" in message


def test_the_file_is_only_read(ask):
    """Loading leaves the file as it was and makes none beside it."""
    settings = ask("select age from people", AGE)
    path = Path(settings.source.removeprefix("sqlite:///"))
    before = path.read_bytes()
    assert load(settings).columns["age"].tolist() == [34]
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select age from peopel", "SQLITE_ERROR), at 'peopel'"),
        ("select aeg from people", "at 'aeg'"),
        ("delete from people", "at 'delete'"),
        ("select 1 as age) as x; delete from people; --", "more than one statement"),
        ("select 1 as age); delete from people; select * from (select 1 as age", "more than one statement"),
    ],
)
def test_what_it_does_not_take_is_explained(ask, query, problem):
    """A word of the configured query is named where SQLite points at it, and nothing is changed."""
    assert problem in told(ask(query, AGE))
    assert load(ask("select age from people", AGE)).n_records == 1


def test_no_option_lets_the_file_be_written(ask):
    """A path is taken literally: what looks like SQLite's options is part of the file's name."""
    settings = ask("select age from people", AGE)
    assert "there is no such file" in told(replace(settings, source=f"{settings.source}?mode=rw"))


def test_a_query_has_only_so_much_time(ask):
    """A query that never ends is stopped, for loading and for counting."""
    settings = ask(ENDLESS, AGE, query_timeout=timedelta(seconds=1))
    assert "stopped after 1 s" in told(settings)
    with pytest.raises(DataError):
        count_records(settings)


def test_files_that_are_none(ask, tmp_path):
    """An absent file is not made; a folder, and a file of something else, are told apart."""
    settings = ask("select age from people", AGE)
    absent = tmp_path / "absent.db"
    assert "there is no such file" in told(replace(settings, source=f"sqlite:///{absent}"))
    assert not absent.exists()
    assert "this is a folder" in told(replace(settings, source=f"sqlite:///{tmp_path}"))
    other = tmp_path / "other.db"
    other.write_text("Zq7Qz" * 1000)
    assert "not a SQLite database" in told(replace(settings, source=f"sqlite:///{other}"))


def test_a_locked_file_is_waited_for(ask, monkeypatch):
    """Whoever writes to the file ends no release; the owner node comes back."""
    monkeypatch.setattr(sql, "CONNECT_SECONDS", 0)
    settings = ask("select age from people", AGE)
    connection = sqlite3.connect(settings.source.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("begin exclusive")
    assert "SQLITE_BUSY" in told(settings, SourceUnreachableError)
    connection.close()
    assert load(settings).n_records == 1


def test_hints_are_about_a_file(ask, monkeypatch):
    """There is no server, user, port, firewall or log whose settings could be corrected."""
    monkeypatch.setattr(sql, "CONNECT_SECONDS", 0)
    hints = []
    for query in ("select age from peopel", "select 1 as age) as x; delete from people; --"):
        with pytest.raises(DataError) as caught:
            load(ask(query, AGE))
        hints.append(caught.value.hint + str(caught.value))
    settings = ask("select age from people", AGE)
    with closing(sqlite3.connect(settings.source.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(SourceUnreachableError) as away:
            load(settings)
    hints.append(away.value.hint)
    hints += [sql.explain(_error(name), settings.origin, DAY).hint for name in ("SQLITE_PERM", "22021")]
    for hint in hints:
        assert not re.search(r"\b(host|port|firewall|user that|log may|client_encoding|tools)\b", hint), hint


def _error(name: str) -> Exception:
    error: Any = sqlite3.OperationalError("Zq7Qz")
    error.sqlite_errorname = name
    return error


DAY = timedelta(days=1)
