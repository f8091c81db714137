"""A small disk of a test's own, which can be full or read-only; only root can mount one (needs "tmpfs")."""

import errno
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM_FOR_A_DATABASE = 96 * 1024
"""Bytes for what a database writes, not for a fragment or a release."""


def _sockets_and_pipes(folder: str, names: list[str]) -> list[str]:
    paths = [Path(folder) / name for name in names]
    return [path.name for path in paths if path.is_socket() or path.is_fifo()]


class SmallDisk:
    """A file system of our own.

    Args:
        place: The folder over which it is mounted; made if absent.
        megabytes: Its size.
    """

    def __init__(self, place: Path, megabytes: int) -> None:
        self.place = place
        """Where it is mounted."""
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = f"size={megabytes}m,mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)

    def unmount(self, *, keep: bool = False) -> None:
        """Remove the disk, whoever has files of it open.

        Args:
            keep: Whether its files stay, in the folder over which it was mounted.
        """
        kept = self.place.with_name(f"{self.place.name}-kept")
        if keep:
            shutil.copytree(self.place, kept, ignore=_sockets_and_pipes)
        subprocess.run(["umount", "-l", self.place], check=True)
        if keep:
            self.place.rmdir()
            kept.rename(self.place)

    @contextmanager
    def full(self, leave: int = ROOM_FOR_A_DATABASE) -> Iterator[None]:
        """Leave room for so many bytes."""
        filler = self.place / "filler"
        with filler.open("wb", buffering=0) as stream:
            try:
                while stream.write(b"x" * 65536):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            stream.truncate(max(stream.tell() - leave, 0))
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write; nobody may have a file open for writing."""
        subprocess.run(["mount", "-o", "remount,ro", self.place], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.place], check=True)
