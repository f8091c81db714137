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


MOUNTS = {
    "v2": "31 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
    "v1": "40 32 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 32 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
    "v1, own group alone": "40 32 0:35 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
    "hybrid": "40 32 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "42 32 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    "none": "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
}
LARGE = "9223372036854771712"


@pytest.mark.parametrize(
    ("mounts", "groups", "limits", "expected"),
    [
        ("v2", "0::/", {"memory.max": "1000"}, 1000),
        ("v2", "0::/", {}, None),
        ("v2", "0::/system.slice/a.service", {"system.slice/a.service/memory.max": "1000"}, 1000),
        ("v2", "0::/system.slice/a.service",
         {"system.slice/a.service/memory.max": "max", "system.slice/memory.max": "2000"}, 2000),
        ("v2", "0::/a/b/c",
         {"a/memory.max": "1000", "a/b/memory.max": "3000", "a/b/c/memory.max": "2000"}, 1000),
        ("v2", "0::/../elsewhere", {"memory.max": "1000"}, 1000),
        ("v2", "0::/a", {"a/memory.max": "max", "b/memory.max": "1000"}, None),
        ("v1", "4:memory:/docker/ab\n3:cpu:/docker/ab\n0::/",
         {"memory/docker/ab/memory.limit_in_bytes": "1000", "memory/memory.limit_in_bytes": LARGE}, 1000),
        ("v1", "4:memory:/docker/ab",
         {"memory/docker/ab/memory.limit_in_bytes": LARGE, "memory/docker/memory.limit_in_bytes": "5"}, 5),
        ("v1", "4:cpu,memory:/", {"memory/memory.limit_in_bytes": "1000"}, 1000),
        ("v1", "4:memory:/a", {"cpu/a/memory.limit_in_bytes": "1000"}, None),
        ("v1, own group alone", "4:memory:/docker/ab", {"memory/memory.limit_in_bytes": "1000"}, 1000),
        ("v1, own group alone", "4:memory:/", {"memory/memory.limit_in_bytes": "1000"}, 1000),
        ("v1, own group alone", "4:memory:/docker/ab/c", {"memory/c/memory.limit_in_bytes": "1000"}, 1000),
        ("hybrid", "4:memory:/a\n0::/a", {"memory/a/memory.limit_in_bytes": "1000"}, 1000),
        ("hybrid", "4:memory:/a\n0::/a",
         {"memory/a/memory.limit_in_bytes": LARGE, "unified/a/memory.max": "1000"}, 1000),
        ("none", "0::/", {"memory.max": "1000"}, None),
    ],
)  # fmt: skip
def test_limits_of_control_groups(tmp_path, mounts, groups, limits, expected):
    """The smallest limit of any group that the process is in counts, in both versions, and no other."""
    process = tmp_path / "proc" / "self"
    process.mkdir(parents=True)
    (process / "mountinfo").write_text(MOUNTS[mounts] + "\n")
    (process / "cgroup").write_text(groups + "\n")
    for name, limit in limits.items():
        file = tmp_path / "sys" / "fs" / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine_memory(tmp_path) == (expected or physical)


def test_a_system_without_control_groups(tmp_path):
    """It has what the machine has."""
    assert machine_memory(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
