"""SQLite files: private, append-only where they must be, one writer at a time, errors of the catalogue."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from common.database import FIRST_VERSION, SqliteDatabase, append_only, copies_before
from common.errors import CannotStoreError, ConfigurationError, IntegrityError, InternalError

_INSERT = "INSERT INTO log (sequence, event) VALUES (?, 'first')"


class Database(SqliteDatabase):
    """A database with one table, whose entries stay."""

    schema = (
        "CREATE TABLE log (sequence INTEGER PRIMARY KEY, event TEXT NOT NULL)",
        *append_only("log"),
    )

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        super().__init__(folder / "log.db", create=create)


def test_private_and_durable(tmp_path: Path) -> None:
    """Nobody else can read the state, and a commit waits for the disk."""
    with Database(tmp_path / "state") as db:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in db.path.parent.iterdir()}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(db.path.parent.stat().st_mode) == 0o700
        assert db.rows("PRAGMA journal_mode")[0][0] == "wal"
        assert db.rows("PRAGMA synchronous")[0][0] == 2
        assert db.rows("PRAGMA foreign_keys")[0][0] == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET event = 'other'",
        "DELETE FROM log",
    ],
    ids=["update", "delete"],
)
def test_append_only(tmp_path: Path, statement: str) -> None:
    """No statement changes or deletes an entry."""
    with Database(tmp_path / "state") as db:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        with pytest.raises(InternalError), db.transaction() as tx:
            tx.execute(statement)
        assert [tuple(row) for row in db.rows("SELECT * FROM log")] == [(1, "first")]


def test_all_or_nothing(tmp_path: Path) -> None:
    """An error in the block leaves nothing of it, and the next transaction works."""

    def fail() -> None:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            raise RuntimeError

    with Database(tmp_path / "state") as db:
        with pytest.raises(RuntimeError):
            fail()
        assert db.rows("SELECT * FROM log") == []
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            assert len(db.rows("SELECT * FROM log")) == 1


def test_no_nesting(tmp_path: Path) -> None:
    """A transaction inside another is our fault, told, and undoes the outer one."""

    def nest() -> None:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            with db.transaction():
                pass

    with Database(tmp_path / "state") as db:
        with pytest.raises(InternalError):
            nest()
        assert db.rows("SELECT * FROM log") == []


def test_threads_share_it(tmp_path: Path) -> None:
    """Transactions of several threads come one after another."""
    next_one = "SELECT coalesce(max(sequence), 0) + 1 AS n FROM log"

    def write() -> None:
        for _ in range(5):
            with db.transaction() as tx:
                tx.execute(_INSERT, (tx.execute(next_one).fetchone()["n"],))

    with Database(tmp_path / "state") as db:
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row[0] for row in db.rows("SELECT sequence FROM log")] == list(range(1, 21))


def test_processes_open_it_together(tmp_path: Path) -> None:
    """Several processes that make the same new database at once all get it."""
    program = (
        "import sys; from pathlib import Path; from tests.unit.common.test_database import Database\n"
        "print('ready', flush=True); sys.stdin.readline(); Database(Path(sys.argv[1])).close()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "state")]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 4


def test_looking_makes_nothing(tmp_path: Path) -> None:
    """A command that only looks finds an empty state and leaves no file."""
    with Database(tmp_path / "state", create=False) as db:
        assert db.rows("SELECT * FROM log") == []
    assert list(tmp_path.iterdir()) == []


def test_open_folder_is_refused(tmp_path: Path) -> None:
    """A state directory that others can enter is told, not used."""
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="open to other users"):
        Database(tmp_path)


@pytest.mark.parametrize(
    ("version", "message"), [(FIRST_VERSION + 1, "newer version"), (9, "development version.*schema 9")]
)
def test_other_versions_are_refused(tmp_path: Path, version: int, message: str) -> None:
    """A database of a newer version, or of one before the first release, is left as it is."""
    Database(tmp_path / "state").close()
    path = tmp_path / "state" / "log.db"
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=message) as caught:
        Database(tmp_path / "state")
    assert caught.value.hint
    assert path.read_bytes() == before


class Second(Database):
    """The next version, which counts."""

    schema = (*Database.schema, "CREATE TABLE counts (n INTEGER NOT NULL)")
    migrations: ClassVar[Sequence[Sequence[str]]] = (
        ("CREATE TABLE counts (n INTEGER NOT NULL)", "INSERT INTO counts SELECT count(*) FROM log"),
    )


class Third(Second):
    """The one after that, with a statement that fails."""

    migrations = (*Second.migrations, ("CREATE TABLE more (n INTEGER)", "INSERT INTO nowhere VALUES (1)"))


def written(folder: Path) -> Path:
    """Return a database of the first version with one entry."""
    with Database(folder) as db, db.transaction() as tx:
        tx.execute(_INSERT, (1,))
    return folder / "log.db"


def test_conversion(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An older database is converted once; its copy is private, is what was there, and opens in the older
    version. The converted one has the tables of a new one, and the older version refuses it.
    """
    state = tmp_path / "state"
    path, tables = written(state), []
    for _ in range(2):
        with Second(state) as db:
            assert [tuple(row) for row in db.rows("SELECT n FROM counts")] == [(1,)]
            assert db.rows("PRAGMA journal_mode")[0][0] == "wal"
            assert db.rows("PRAGMA busy_timeout")[0][0] == 30000
            tables = [tuple(row) for row in db.rows("SELECT name, sql FROM sqlite_master ORDER BY name")]
    (copy,) = copies_before(path)
    assert sorted(each.name for each in state.iterdir()) == ["log.db", "log.db.before-102"]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    (entry,) = [each for each in caplog.records if each.getMessage() == "database converted"]
    assert (entry.from_schema, entry.to_schema, entry.copy) == (101, 102, str(copy))  # type: ignore[attr-defined]
    with Second(tmp_path / "new") as new:
        assert [tuple(row) for row in new.rows("SELECT name, sql FROM sqlite_master ORDER BY name")] == tables
    with pytest.raises(ConfigurationError, match="newer version"):
        Database(state)
    copy.replace(path)
    with Database(state) as back:
        assert [tuple(row) for row in back.rows("SELECT * FROM log")] == [(1, "first")]


def test_a_conversion_that_fails_changes_nothing(tmp_path: Path) -> None:
    """All steps are one transaction: the older version goes on, and a later try succeeds."""
    written(tmp_path / "state")
    with pytest.raises(IntegrityError):
        Third(tmp_path / "state")
    with Database(tmp_path / "state") as db:
        assert [tuple(row) for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'")] == [
            ("log",)
        ]
        assert db.rows("PRAGMA journal_mode")[0][0] == "wal"
    with Second(tmp_path / "state") as db:
        assert db.rows("SELECT n FROM counts")[0][0] == 1


def test_nothing_is_converted_under_another_process(tmp_path: Path) -> None:
    """The daemon of the older version works on; the newer program says what to do."""
    path = written(tmp_path / "state")
    hold = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM log').fetchall()"
    command = [sys.executable, "-c", f"{hold}; print(flush=True); sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ConfigurationError, match="another process uses it") as caught:
            Second(tmp_path / "state")
        other.communicate()
    assert "stop the daemon" in caught.value.hint
    assert copies_before(path) == []
    Second(tmp_path / "state").close()


def test_damaged_file(tmp_path: Path) -> None:
    """A file that is no database is an integrity error, without SQLite's text."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "log.db").write_bytes(os.urandom(8192))
    with pytest.raises(IntegrityError, match="damaged") as caught:
        Database(state)
    assert caught.value.details["sqlite"] == "SQLITE_NOTADB"


def test_a_full_disk_passes(tmp_path: Path) -> None:
    """A full disk is an error of its own kind, leaves nothing behind, and a retry succeeds later."""
    with Database(tmp_path / "state") as db:
        used = db.rows("PRAGMA page_count")[0][0]
        db.rows(f"PRAGMA max_page_count = {used}")
        write = "INSERT INTO log SELECT coalesce(max(sequence), 0) + 1, ? FROM log"
        with pytest.raises(CannotStoreError, match="SQLITE_FULL"), db.transaction() as tx:
            tx.executemany(write, [("x",), ("x" * 100_000,)])
        assert db.rows("SELECT * FROM log") == []
        db.rows(f"PRAGMA max_page_count = {used + 1000}")
        with db.transaction() as tx:
            tx.execute(write, ("x" * 100_000,))
        assert len(db.rows("SELECT * FROM log")) == 1


def test_a_locked_file_can_be_tried_again(tmp_path: Path) -> None:
    """While another process writes, readers go on, and the error of a second writer says to retry."""
    with Database(tmp_path / "state") as db, Database(tmp_path / "state") as other:
        other.rows("PRAGMA busy_timeout = 0")
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            assert other.rows("SELECT * FROM log") == []
            with pytest.raises(CannotStoreError, match="in use by another process"), other.transaction():
                pass
        before = other.changes()
        with other.transaction() as tx:
            tx.execute(_INSERT, (2,))
        assert other.changes() == before
        with db.transaction() as tx:
            tx.execute(_INSERT, (3,))
        assert other.changes() != before


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A read-only file is an error that names it; nothing is written."""
    with Database(tmp_path / "state") as db:
        db.rows("PRAGMA query_only = ON")
        with pytest.raises(CannotStoreError, match="SQLITE_READONLY") as caught, db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        assert str(db.path) in caught.value.message


class Notes(SqliteDatabase):
    """A database whose entries can be removed."""

    schema = ("CREATE TABLE notes (text TEXT NOT NULL)",)


def _old_pages(path: Path) -> None:
    """Fill a database, and give it pages as 0.1.0 did."""
    with Notes(path) as db, db.transaction() as tx:
        tx.executemany("INSERT INTO notes VALUES (?)", [(f"{n} {'x' * 1500}",) for n in range(200)])
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute("PRAGMA page_size = 4096")
        raw.execute("VACUUM")


def _pages(db: SqliteDatabase) -> tuple[int, str]:
    return db.rows("PRAGMA page_size")[0][0], db.rows("PRAGMA journal_mode")[0][0]


def test_small_pages_become_large_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of an older version gets its new pages once, and loses nothing."""
    path = tmp_path / "state" / "notes.db"
    _old_pages(path)
    caplog.set_level("INFO", "common")
    with Notes(path) as db:
        before = db.rows("SELECT text FROM notes ORDER BY text")
        assert _pages(db) == (4096, "wal")
        db.compact()
        db.compact()
        assert _pages(db) == (16384, "wal")
        assert db.rows("SELECT text FROM notes ORDER BY text") == before
        assert db.rows("PRAGMA user_version")[0][0] == FIRST_VERSION
    assert [each.message for each in caplog.records] == ["database compacted"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_unused_pages_are_returned(tmp_path: Path) -> None:
    """What was removed from a database does not take room for ever."""
    path = tmp_path / "state" / "notes.db"
    with Notes(path) as db:
        with db.transaction() as tx:
            tx.executemany("INSERT INTO notes VALUES (?)", [(f"{n} {'x' * 5000}",) for n in range(200)])
        db.forget_removed()
        full = path.stat().st_size
        with db.transaction() as tx:
            tx.execute("DELETE FROM notes WHERE rowid > 10")
        db.compact()
        assert path.stat().st_size < full / 5
        assert len(db.rows("SELECT text FROM notes")) == 10


def test_a_file_in_use_is_not_compacted(tmp_path: Path) -> None:
    """A command that works beside the daemon is not disturbed; the next start tries again."""
    path = tmp_path / "state" / "notes.db"
    _old_pages(path)
    with Notes(path) as other, Notes(path) as db:
        other.rows("SELECT text FROM notes LIMIT 1")
        db.compact()
        assert _pages(db) == (4096, "wal")
        with db.transaction() as tx:
            tx.execute("INSERT INTO notes VALUES ('more')")
        assert len(other.rows("SELECT text FROM notes")) == 201
