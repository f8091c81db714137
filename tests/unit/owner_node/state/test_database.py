"""owner.db: one file, private, append-only where it must be, one writer at a time."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common.errors import ConfigurationError, IntegrityError, InternalError
from owner_node.state.database import SCHEMA_VERSION, Database

_INSERT = (
    "INSERT INTO history (sequence, time, aggregator, release, event, decision, rule, purpose, epsilon, "
    "plan_digest, details, previous, hash) VALUES (?, '', 'a', 'r', '', '', '', '', '', '', '', '', '')"
)


def test_private_and_durable(tmp_path: Path) -> None:
    """Nobody else can read the state, and a commit waits for the disk."""
    with Database(tmp_path / "state") as db:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in db.state_dir.iterdir()}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(db.state_dir.stat().st_mode) == 0o700
        assert db.rows("PRAGMA journal_mode")[0][0] == "wal"
        assert db.rows("PRAGMA synchronous")[0][0] == 2
        assert db.rows("PRAGMA foreign_keys")[0][0] == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE history SET event = 'other'",
        "DELETE FROM history",
        "INSERT OR REPLACE INTO history SELECT * FROM history",
        _INSERT.replace("?", "7"),
    ],
    ids=["update", "delete", "replace", "gap"],
)
def test_append_only(tmp_path: Path, statement: str) -> None:
    """No statement changes, deletes, replaces or leaves out an entry."""
    with Database(tmp_path / "state") as db:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
        with pytest.raises(InternalError), db.transaction() as tx:
            tx.execute(statement)
        assert [tuple(row)[:4] for row in db.rows("SELECT * FROM history")] == [(1, "", "a", "r")]


def test_all_or_nothing(tmp_path: Path) -> None:
    """An error in the block leaves nothing of it, and the next transaction works."""

    def fail() -> None:
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            raise RuntimeError

    with Database(tmp_path / "state") as db:
        with pytest.raises(RuntimeError):
            fail()
        assert db.rows("SELECT * FROM history") == []
        with db.transaction() as tx:
            tx.execute(_INSERT, (1,))
            assert len(db.rows("SELECT * FROM history")) == 1


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
        assert db.rows("SELECT * FROM history") == []


def test_threads_share_it(tmp_path: Path) -> None:
    """Transactions of several threads come one after another."""
    next_one = "SELECT coalesce(max(sequence), 0) + 1 AS n FROM history"

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
        assert [row[0] for row in db.rows("SELECT sequence FROM history")] == list(range(1, 21))


def test_processes_open_it_together(tmp_path: Path) -> None:
    """Several processes that make the same new database at once all get it."""
    program = (
        "import sys; from pathlib import Path; from owner_node.state.database import Database\n"
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
    with Database(tmp_path / "state", make=False) as db:
        assert db.rows("SELECT * FROM sessions") == []
    assert list(tmp_path.iterdir()) == []


def test_open_folder_is_refused(tmp_path: Path) -> None:
    """A state directory that others can enter is told, not used."""
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigurationError, match="open to other users"):
        Database(tmp_path)


def test_newer_version_is_refused(tmp_path: Path) -> None:
    """An older program does not work on a newer program's state."""
    Database(tmp_path / "state").close()
    raw = sqlite3.connect(tmp_path / "state" / "owner.db")
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    with pytest.raises(ConfigurationError, match="newer version"):
        Database(tmp_path / "state")


def test_damaged_file(tmp_path: Path) -> None:
    """A file that is no database is an integrity error, without SQLite's text."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "owner.db").write_bytes(os.urandom(8192))
    with pytest.raises(IntegrityError, match="damaged"):
        Database(state)
