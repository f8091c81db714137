"""Files are whole or absent, private from the first moment, and locks say who holds them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import ConfigurationError, UsageError
from common.files import (
    atomic_writer,
    exclusive_lock,
    private_directory,
    read_private,
    read_secret,
    remove_leftovers,
    synced_writer,
    whole_folder,
    write_atomic,
)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_write_replaces_whole_files(tmp_path: Path) -> None:
    """A file is replaced as a whole, private, and nothing else stays in the folder."""
    path = tmp_path / "state"
    write_atomic(path, b"long content")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert _mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_mode_of_public_files(tmp_path: Path) -> None:
    """A file for others gets its mode whatever the umask, and only when it is complete."""
    path, before = tmp_path / "public", os.umask(0o077)
    try:
        with atomic_writer(path, 0o644) as stream:
            stream.write(b"x")
            [partial] = tmp_path.iterdir()
            assert _mode(partial) == 0o600
    finally:
        os.umask(before)
    assert _mode(path) == 0o644


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """If writing fails half-way the old content stays and the half is deleted."""
    path = tmp_path / "state"
    write_atomic(path, b"old")

    def write_half() -> None:
        with atomic_writer(path) as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


_KILLED_WHILE_WRITING = """
import os, sys, signal
from pathlib import Path
from common.files import atomic_writer
with atomic_writer(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_while_writing(tmp_path: Path) -> None:
    """After kill -9 the old content is there, and what was left behind is found and deleted."""
    path = tmp_path / "state"
    write_atomic(path, b"old")
    subprocess.run([sys.executable, "-c", _KILLED_WHILE_WRITING, str(path)], cwd=Path.cwd())
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    assert remove_leftovers(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [path]
    assert remove_leftovers(tmp_path) == 0


def test_private_directory(tmp_path: Path) -> None:
    """A state directory is made 0700 with its parents, and taken again if it is one."""
    path = tmp_path / "a" / "b"
    assert private_directory(path) == path
    assert _mode(path) == 0o700
    assert private_directory(path) == path


def test_open_directory(tmp_path: Path) -> None:
    """A folder that others can enter is refused, with the command that closes it."""
    tmp_path.chmod(0o750)
    with pytest.raises(ConfigurationError) as caught:
        private_directory(tmp_path)
    assert caught.value.hint == f"close it: chmod 700 {tmp_path}"


def test_no_directory(tmp_path: Path) -> None:
    """A file in the place of a folder, or of its parent, is a configuration error."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match="is not a folder"):
            private_directory(path)


def test_parents_of_a_private_folder_are_private(tmp_path: Path) -> None:
    """A scratch folder that is made first makes the state folder, which has to be private as well."""
    private_directory(tmp_path / "state" / "scratch")
    assert _mode(private_directory(tmp_path / "state")) == 0o700


def test_read_private(tmp_path: Path) -> None:
    """A secret is read if only its user can read it; open, absent or a folder, it is refused."""
    path = tmp_path / "secret"
    write_atomic(path, b"content")
    assert read_private(path) == b"content"
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="mode 0640"):
        read_private(path)
    for wrong in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read_private(wrong)


def test_read_secret(tmp_path: Path) -> None:
    """A secret is the first line of its file; a file without one is refused, and its content not shown."""
    path = tmp_path / "secret"
    write_atomic(path, b" Geheim7\r\na second line\n")
    assert read_secret(path) == "Geheim7"
    for wrong in (b"", b"\nGeheim7", b"  \n", b"Geheim7\xff"):
        write_atomic(path, wrong)
        with pytest.raises(ConfigurationError, match="holds no secret") as caught:
            read_secret(path)
        assert "Geheim7" not in str(caught.value)


_HOLD = """
import sys
from pathlib import Path
from common.files import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "owner-node run"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_between_processes(tmp_path: Path) -> None:
    """Only one process holds a lock; the second is told which; after kill -9 the lock is free."""
    path = tmp_path / "lock"
    arguments = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="owner-node run") as caught, exclusive_lock(path, "second"):
            pass
        assert caught.value.details == {"holder": "owner-node run", "pid": holder.pid}
        holder.kill()
    with exclusive_lock(path, "second"):
        assert b"second" in path.read_bytes()
    assert path.read_bytes() == b""


def test_lock_without_a_name(tmp_path: Path) -> None:
    """A lock whose holder has not written its name yet is held all the same."""
    path = tmp_path / "lock"
    with exclusive_lock(path, "first"):
        path.write_bytes(b"")
        with pytest.raises(UsageError, match="another process"), exclusive_lock(path, "second"):
            pass


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_of_a_folder_are_set(tmp_path: Path, umask: int) -> None:
    """Whatever the umask is, everybody can read a release, and nobody else can change it."""
    before = os.umask(umask)
    try:
        with whole_folder(tmp_path / "r1") as folder, synced_writer(folder / "data.csv") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r1").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "r1" / "data.csv").stat().st_mode) == 0o644
