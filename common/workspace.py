"""How much memory a long step may take, and the folder where it writes what does not fit.

The folder is private (0700). Every entry that is made in it begins with `tessera-`, and only such entries are
ever removed, so that a folder that holds other files loses none of them.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from common.errors import CannotStoreError, ConfigurationError
from common.files import lock_folder, naming, private_directory

PREFIX = "tessera-"
"""What the names of all entries begin with."""
_LIMIT_FILES = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}
"""Where a control group states its limit, by the type of the file system: version 2, and version 1."""


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory of this machine, or of what this process is limited to.

    Containers, and services with `MemoryMax=`, are control groups. The limits of all groups above one count.

    References:
        cgroups(7); proc_pid_mountinfo(5).
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limit_files(root):
        # "max" for none, and nothing in the group that is the root of all.
        with suppress(OSError, ValueError):
            limits.append(int(file.read_text(encoding="ascii")))
    return min(limits)


def _limit_files(root: Path) -> Iterator[Path]:
    """Return the files that state limits of this process's control groups and of those above them."""
    groups: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, system = line.partition(" - ")
        within, place = mount.split()[3:5]
        kind, _, options = system.split(" ", 2)
        if kind not in groups or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        # A container may see its own group alone, mounted as if it was the root.
        group = Path(groups[kind])
        below = group.relative_to(within) if group.is_relative_to(within) else Path()
        top = root / place.lstrip("/")
        for folder in (below, *below.parents):
            yield top / folder / _LIMIT_FILES[kind]


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none where there is no such system."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def processors() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a long step may use."""

    memory: int
    """Bytes of memory, on top of what the process takes without any step."""
    scratch: Path
    """The folder for what does not fit; made when it is first needed."""
    threads: int = 1
    """Threads that computations may use."""

    def clear(self) -> None:
        """Remove what processes left that were killed; folders that are in use stay."""
        with lock_folder(self._scratch_folder()):
            self._clear()

    def _scratch_folder(self) -> Path:
        """Make or check the scratch folder; one that cannot be used may be a disk that is not mounted yet."""
        try:
            return private_directory(self.scratch)
        except ConfigurationError as error:
            raise CannotStoreError(error.message, hint=error.hint) from None

    def _clear(self) -> None:
        for left in self.scratch.glob(f"{PREFIX}*"):
            if left.is_symlink() or not left.is_dir():
                left.unlink(missing_ok=True)
                continue
            with suppress(BlockingIOError, FileNotFoundError), lock_folder(left, fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)

    def free(self) -> int:
        """Return the bytes that are free in the scratch folder, or where it would be made."""
        if self.scratch.exists():
            private_directory(self.scratch)
        place = next(folder for folder in (self.scratch, *self.scratch.absolute().parents) if folder.exists())
        return shutil.disk_usage(place).free

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """Make a private folder for a block, and remove it afterwards, with those that killed processes left.

        Raises:
            CannotStoreError: If the scratch folder cannot be used, or others can enter it.
        """
        with ExitStack() as held:
            with lock_folder(self._scratch_folder()):
                self._clear()
                made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=self.scratch))
                held.enter_context(lock_folder(made))
            try:
                yield made
            finally:
                shutil.rmtree(made, ignore_errors=True)

    @contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """Open a file without a name, unbuffered: the system removes it, however the process ends.

        Yields:
            The file, to write and to read. Errors of the disk name the scratch folder.
        """
        with (
            naming(self.scratch),
            tempfile.TemporaryFile(prefix=PREFIX, dir=self._scratch_folder(), buffering=0) as stream,
        ):
            yield stream


@contextmanager
def temporary_workspace() -> Iterator[Workspace]:
    """Make a workspace for commands: half of the memory, and a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        yield Workspace(machine_memory() // 2, Path(name), processors())
