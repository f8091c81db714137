"""Databases that are files, through `owner-node check`: none is made, changed, or left with other files."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from common.cli import console
from common.errors import SourceUnreachableError
from common.progress import Progress
from owner_node import config
from owner_node.cli import application
from owner_node.loading import load
from owner_node.sources import sql, texts
from owner_node.sources.findings import Findings
from owner_node.sources.options import SourceOptions
from owner_node.sources.query import Query
from owner_node.sources.sql_values import arrow
from tests.unit.owner_node.cli.test_check import OWNER

DATASET = """
[[dataset]]
name = "patients"
source = "{source}"
query = "select age from people"
total_epsilon = 1
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""


class FileDialect(SQLiteDialect_pysqlite):
    """Stands for the driver of another kind of files; like many, it makes a file that is not there."""

    supports_statement_cache = True

    def create_connect_args(self, url: sa.URL) -> Any:
        """Open what the URL names, and wait for no lock."""
        return [url.database], {"timeout": 0}

    def connect(self, *args: Any, **options: Any) -> Any:
        """Hold it as a program that reads does, which a lock refuses."""
        connection = super().connect(*args, **options)
        connection.execute("select * from sqlite_schema").fetchall()
        return connection


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the configuration, in which the command is run, with a driver for other files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sql, "CONNECT_SECONDS", 0)
    registry.register("otherfile", __name__, "FileDialect")
    return tmp_path


def check(folder: Path, source: str) -> int:
    """Run the command on a source and return its exit code."""
    owner = OWNER[: OWNER.index("[[dataset]]")] + DATASET.format(source=source)
    (folder / "owner.toml").write_text(owner)
    return console.run(application(), "owner-node", ["check"])


def fill(path: Path, mode: str = "delete", held: ExitStack | None = None) -> sqlite3.Connection:
    """Make a database of one person; `held` keeps it open."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma journal_mode = {mode}")
    connection.execute("create table people (age, note)")
    connection.execute("insert into people values (34, 'Zq7Qz')")
    (held or ExitStack()).enter_context(closing(connection))
    if held is None:
        connection.close()
    return connection


@pytest.mark.parametrize(
    "source",
    [
        "sqlite:///data/absent.db",
        "duckdb:///data/absent.db",
        "duckdb:///{}/absent.db",
        "otherfile:///{}/absent.db",
    ],
)
def test_no_file_is_made(folder, capsys, source):
    """A driver that makes a missing file is not asked; the folder stays as it was."""
    (folder / "data").mkdir()
    assert check(folder, source.format(folder / "data")) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert list((folder / "data").iterdir()) == []


def plain(path: Path, held: ExitStack) -> None:
    """A file that no program has open."""
    fill(path)


def closed_log(path: Path, held: ExitStack) -> None:
    """WAL mode, closed by the last program."""
    fill(path, "wal")


def empty_log(path: Path, held: ExitStack) -> None:
    """WAL mode, with an empty log and no index."""
    fill(path, "wal")
    path.with_name(f"{path.name}-wal").touch()


def open_log(path: Path, held: ExitStack) -> None:
    """WAL mode, while a program has it open with changes in the log."""
    fill(path, "wal", held)


def left_log(path: Path, held: ExitStack) -> None:
    """WAL mode, with log and index of a program that was killed."""
    with ExitStack() as running:
        fill(path.with_name("running"), "wal", running)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(path.with_name(f"running{suffix}"), path.with_name(path.name + suffix))
    path.with_name("running").unlink()


def copied_log(path: Path, held: ExitStack) -> None:
    """WAL mode, copied with its log and without the index."""
    left_log(path, held)
    path.with_name(f"{path.name}-shm").unlink()


def unfinished(path: Path, held: ExitStack) -> None:
    """A program ended in the middle of a change."""
    connection = fill(running := path.with_name("running"), held=held)
    connection.execute("pragma cache_size = 1")
    connection.execute("begin")
    connection.executemany("insert into people values (1, ?)", [("x" * 900,)] * 1000)
    for suffix in ("", "-journal"):
        shutil.copy(f"{running}{suffix}", f"{path}{suffix}")
    connection.execute("rollback")


def locked(path: Path, held: ExitStack) -> None:
    """Another program writes."""
    fill(path, held=held).execute("begin exclusive")


def other(path: Path, held: ExitStack) -> None:
    """Something else."""
    path.write_text("Zq7Qz" * 1000)


WRITER = """
import duckdb, sys
with duckdb.connect(sys.argv[1]) as connection:
    connection.execute("create table people as select 33 as age")
    if sys.argv[2:]:
        print("open", flush=True)
        sys.stdin.read()
"""


def of_duckdb(path: Path, held: ExitStack) -> None:
    """A file of DuckDB that no program has open."""
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True)


def open_in_duckdb(path: Path, held: ExitStack) -> None:
    """Another program has it open to write."""
    command = [sys.executable, "-c", WRITER, str(path), "stay"]
    process = held.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert process.stdin is not None
    held.callback(process.stdin.close)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"


LOCKED = "check the file that source names and its disk, and which other program writes to it"
STATES: list[tuple[str, Callable[[Path, ExitStack], None], int, str]] = [
    ("sqlite", plain, 0, ""),
    ("sqlite", closed_log, 0, ""),
    ("sqlite", empty_log, 0, ""),
    ("sqlite", open_log, 0, ""),
    ("sqlite", left_log, 0, ""),
    ("sqlite", copied_log, 2, "its last changes are only in people.db-wal"),
    ("sqlite", unfinished, 2, "a program ended in the middle of a change"),
    ("sqlite", locked, 6, LOCKED),
    ("sqlite", other, 2, "not a SQLite database"),
    ("duckdb", of_duckdb, 0, ""),
    ("duckdb", open_in_duckdb, 6, "another program has locked it"),
    ("duckdb", open_in_duckdb, 6, LOCKED),
    ("duckdb", other, 2, "not a DuckDB database"),
    ("otherfile", locked, 6, LOCKED),
]


@pytest.mark.parametrize(("dialect", "state", "code", "words"), STATES)
def test_a_file_is_read_as_it_is_or_the_cause_is_named(folder, capsys, dialect, state, code, words):
    """In every state that programs leave files in; what lies in the folder stays as it is."""
    path = folder / "data" / "people.db"
    path.parent.mkdir()
    with ExitStack() as held:
        state(path, held)
        before = {each.name: each.stat().st_size for each in path.parent.iterdir()}
        assert check(folder, f"{dialect}:///{path}") == code
        captured = capsys.readouterr()
        assert words in captured.err
        for word in ("firewall", "host", "Zq7Qz", "cast what is unusual"):
            assert word not in captured.err
        assert {each.name: each.stat().st_size for each in path.parent.iterdir()} == before


def test_a_file_that_changes_while_it_is_read(folder, monkeypatch):
    """What is read without locks is read again if a program wrote to it meanwhile."""
    fill(path := folder / "people.db", "wal")
    assert check(folder, f"sqlite:///{path}") == 0
    patients = config.load(folder / "owner.toml").dataset("patients")

    def write(array: Any, kind: str = "") -> Any:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("insert into people values (35, '')")
        return arrow(array, kind)

    monkeypatch.setattr("owner_node.sources.sql.arrow", write)
    with pytest.raises(SourceUnreachableError, match="changed while it was read"):
        load(patients)


def test_a_link_is_read_with_the_log_of_its_file(folder):
    """SQLite keeps the log beside the file that a link leads to: changes in it are read."""
    with ExitStack() as held:
        (folder / "real").mkdir()
        fill(path := folder / "real" / "people.db", "wal", held)
        (folder / "link.db").symlink_to(path)
        found = []
        for each in (path, folder / "link.db"):
            assert check(folder, f"sqlite:///{each}") == 0
            found.append(load(config.load(folder / "owner.toml").dataset("patients")).n_records)
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("source", ["duckdb://", "duckdb:///:memory:", "sqlite:///:memory:"])
def test_a_database_in_memory_is_no_source(folder, capsys, source):
    """It would be empty: the path of a file is asked for."""
    assert check(folder, source) == 2
    assert "expected the path of its file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["access_mode=READ_WRITE", "ACCESS_MODE=AUTOMATIC", "read_only=false"])
def test_a_duckdb_file_is_never_opened_to_be_written(folder, capsys, option):
    """An option of the address would override it."""
    of_duckdb(folder / "people.duckdb", ExitStack())
    assert check(folder, f"duckdb:///people.duckdb?threads=1&{option}") == 2
    assert f"leave out the option {option.partition('=')[0].lower()}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        "copy (select 1) to 'hacked.csv'",
        "attach 'hacked.duckdb' as hacked; create table hacked.hacked (i int)",
        "create table hacked (i int)",
    ],
)
def test_several_statements_for_duckdb_do_not_run(folder, capsys, monkeypatch, change):
    """One that the configuration takes for a text could write other files than the one that is read."""
    of_duckdb(path := folder / "people.duckdb", ExitStack())
    query = rf"select 33 as age, E'\\'') x; {change}; select * from (select 33 as age, 'b' --'"
    monkeypatch.setattr(sys.modules[__name__], "DATASET", DATASET.replace("select age from people", query))
    before = path.read_bytes()
    assert check(folder, "duckdb:///people.duckdb") == 2
    assert "more than one statement" in capsys.readouterr().err
    assert not list(folder.glob("hacked*"))
    assert path.read_bytes() == before


def test_a_database_of_a_service_is_no_file():
    """Its name goes to the driver as it is."""
    assert Query("patients", "duckdb:///md:clinic", SourceOptions(query="select 1")).files == ()


def test_duckdb_gives_the_values_that_were_stored(folder):
    """Of every type, as text: numbers exactly, moments on the clock of the session, and what Arrow lacks."""
    with duckdb.connect(path := folder / "people.duckdb") as connection:
        connection.execute(
            "create table people as select unnest([9223372036854775808::hugeint, null]) as big, "
            "unnest([340282366920938463463374607431768211455::uhugeint, 0]) as most, "
            "unnest([12345678901234567890123456789012345.678::decimal(38, 3), 0.1]) as exact, "
            "unnest([0.1::float, 'nan'::float]) as single, unnest([0.1::double, 1e300]) as double, "
            "unnest([true, false]) as yes, unnest([date '2020-01-31', null]) as day, "
            "unnest([timestamptz '2020-06-30 23:30:00+00', null]) as moment, "
            "unnest([timestamp_ns '2020-01-01 10:00:00.123456789', null]) as fine, "
            "unnest(['x'::enum('x', 'y'), 'y']) as label, unnest(['101'::bit, null]) as bits, "
            "unnest([18446744073709551615::ubigint, 0]) as wide, "
            "unnest([uuid '0a000000-0000-0000-0000-00000000000b', null]) as person, "
            "unnest([time '10:00', null]) as hour, unnest([[1], [2]]) as list"
        )
    options = SourceOptions(query="select *, moment::timestamp as clock from people")
    source = Query("patients", f"duckdb:///{path}?threads=1", options)
    findings = Findings()
    reader = source.open(findings, Progress())
    assert reader is not None
    (arrays,) = reader.batches(reader.names, findings)
    reader.close()
    read = dict(zip(reader.names, arrays, strict=True))
    unreadable = [name for name, array in read.items() if not texts.is_readable(array.type)]
    assert unreadable == ["hour", "list"]
    values = {name: texts.as_text(read[name]).to_pylist() for name in read if name not in unreadable}
    assert values.pop("moment") == values.pop("clock")
    assert values == {
        "big": ["9223372036854775808", None],
        "most": ["340282366920938463463374607431768211455", "0"],
        "exact": ["12345678901234567890123456789012345.678", "0.100"],
        "single": ["0.1", "nan"],
        "double": ["0.1", "1e+300"],
        "yes": ["true", "false"],
        "day": ["2020-01-31", None],
        "fine": ["2020-01-01 10:00:00.123456789", None],
        "label": ["x", "y"],
        "bits": ["101", None],
        "wide": ["18446744073709551615", "0"],
        "person": ["0a000000-0000-0000-0000-00000000000b", None],
    }


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nothing from people", "the database does not accept the query: BinderException"),
        ("select age from nowhere", "the database does not accept the query: CatalogException"),
        ("select age frm people", "the database does not accept the query: ParserException"),
        ("select 'Zq7Qz'::integer as age from people", "a value does not fit what the query does with it"),
    ],
)
def test_errors_of_duckdb_name_no_value(folder, capsys, monkeypatch, query, words):
    """A wrong query and a value that it cannot convert are told apart; the database's words are not shown."""
    of_duckdb(folder / "people.duckdb", ExitStack())
    monkeypatch.setattr(sys.modules[__name__], "DATASET", DATASET.replace("select age from people", query))
    assert check(folder, "duckdb:///people.duckdb") == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert "Zq7Qz" not in shown
