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
from common.files import naming, private_directory

PREFIX = "tessera-"
"""What the names of all entries begin with."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this process is in."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(physical, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    return physical


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
        """Remove what processes left that were killed; folders that are in use stay.

        Raises:
            CannotStoreError: If the folder cannot be used, or others can enter it.
        """
        with _locked(self._made()):
            self._clear()

    def _made(self) -> Path:
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
            with suppress(BlockingIOError, FileNotFoundError), _locked(left, fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)

    def free(self) -> int:
        """Return the bytes that are free in the scratch folder, or where it would be made.

        Raises:
            ConfigurationError: If the folder is there and cannot be used, or others can enter it.
        """
        if self.scratch.exists():
            private_directory(self.scratch)
        place = next(each for each in (self.scratch, *self.scratch.absolute().parents) if each.exists())
        return shutil.disk_usage(place).free

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """Make a private folder for a block, and remove it afterwards, with those that killed processes left.

        Args:
            name: Part of its name; letters, digits, ".", "-" and "_".

        Raises:
            CannotStoreError: If the scratch folder cannot be used, or others can enter it.
        """
        with ExitStack() as held:
            with _locked(self._made()):
                self._clear()
                made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=self.scratch))
                held.enter_context(_locked(made))
            try:
                yield made
            finally:
                shutil.rmtree(made, ignore_errors=True)

    @contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """Open a file without a name, unbuffered: the system removes it, however the process ends.

        Yields:
            The file, to write and to read. Errors of the disk name the scratch folder.

        Raises:
            OSError, CannotStoreError: If it cannot be made.
        """
        with (
            naming(self.scratch),
            tempfile.TemporaryFile(prefix=PREFIX, dir=self._made(), buffering=0) as stream,
        ):
            yield stream


@contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    """Hold the lock of a folder, which the system lets go of if the process dies."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def temporary_workspace() -> Iterator[Workspace]:
    """Make a workspace for commands without a configuration: half of the memory, and a temporary folder.

    Yields:
        The workspace; its folder is removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        yield Workspace(machine_memory() // 2, Path(name), processors())
