"""The workspace: private, without leftovers, and never another program's files."""

import errno
import os
import stat
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from common.errors import CannotStoreError
from common.workspace import Workspace, machine_memory, processors


def test_scratch_is_private_and_folders_go(tmp_path):
    """Only its user can enter the folder; a step's own folder is gone when the step ends, however it ends."""
    workspace = Workspace(1 << 30, tmp_path / "scratch")

    def failing():
        with workspace.folder("session") as made:
            assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE(made.parent.stat().st_mode) == 0o700
            (made / "spilled").write_bytes(b"x")
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert list(workspace.scratch.iterdir()) == []


def test_folders_in_use_stay(tmp_path):
    """A second process clears the folder of one that was killed, and never that of one that is at work."""
    workspace = Workspace(1 << 30, tmp_path / "scratch")
    with workspace.folder("mine") as mine:
        program = (
            "import sys; from pathlib import Path; from common.workspace import Workspace\n"
            "with Workspace(2**30, Path(sys.argv[1])).folder('other') as made:\n"
            "    print(made, flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", program, str(workspace.scratch)]
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=Path(__file__).parents[3]) as other:
            assert other.stdout is not None
            theirs = Path(other.stdout.readline().strip())
            assert mine.exists()
            workspace.clear()
            assert mine.exists()
            assert theirs.exists()
            other.kill()
        with workspace.folder("next"):
            assert not theirs.exists()
            assert mine.exists()


def test_clearing_removes_what_a_killed_process_left_and_nothing_else(tmp_path):
    """A folder that somebody else uses too loses none of their files."""
    workspace = Workspace(1 << 30, tmp_path)
    tmp_path.chmod(0o700)
    for name in ("tessera-session-1", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    (tmp_path / "tessera-link").symlink_to(tmp_path / "theirs")
    workspace.clear()
    assert [each.name for each in tmp_path.iterdir()] == ["theirs"]
    assert (tmp_path / "theirs" / "file").exists()


@pytest.mark.parametrize("use", [lambda it: it.file().__enter__(), lambda it: it.folder("a").__enter__(),
                                 Workspace.clear])  # fmt: skip
def test_others_must_not_enter(tmp_path, use):
    """A folder that others can read is used for nothing; it may be a disk that is not mounted yet."""
    tmp_path.chmod(0o755)
    with pytest.raises(CannotStoreError, match="open to other users") as caught:
        use(Workspace(1 << 30, tmp_path))
    assert "chmod 700" in caught.value.hint


def test_a_file_has_no_name(tmp_path):
    """What is written cannot stay behind, not even after SIGKILL."""
    workspace = Workspace(1 << 30, tmp_path / "scratch")
    with workspace.file() as stream:
        stream.write(b"abc")
        assert os.pread(stream.fileno(), 3, 0) == b"abc"
        assert list(workspace.scratch.iterdir()) == []


def test_a_full_disk_is_named(tmp_path):
    """The error of a full disk says which folder has no room."""
    workspace = Workspace(1 << 30, tmp_path / "scratch")
    with pytest.raises(OSError, match=str(workspace.scratch)) as caught, workspace.file():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (caught.value.errno, Path(caught.value.filename)) == (errno.ENOSPC, workspace.scratch)


def test_the_machine_has_memory_and_processors():
    """The defaults are numbers that a step can work with."""
    assert machine_memory() > 1 << 28
    assert processors() >= 1
