"""Whole folders: made beside their place, flushed, then renamed into it; a reader sees none or all of it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from common.durable import sync_directory
from common.errors import UsageError


def check_out(out: Path) -> None:
    """Check before anything is started that a finished copy can be put into a folder.

    Raises:
        UsageError: If it is there and not an empty folder, or cannot be made.
    """
    hint = "name a folder that is empty or absent"
    if out.is_symlink() or out.exists():
        if not out.is_dir():
            raise UsageError(f"{out} is not a folder", hint)
        if any(out.iterdir()):
            raise UsageError(f"{out} is not empty", hint)
    parent = next(each for each in (out.absolute().parents) if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{parent} is not writable", "name a folder in a place you can write to")


def _beside(final: Path) -> Path:
    """Return where a folder is made; no release and no `--out` can be called that by accident."""
    return final.with_name(f".{final.name}.partial")


def remove_leftover(final: Path) -> None:
    """Delete what an interrupted attempt left."""
    if _beside(final).exists():
        shutil.rmtree(_beside(final))


def remove_folder(final: Path) -> None:
    """Remove a folder: its name at once, then what is in it; a second call goes on where one was interrupted.

    Raises:
        OSError: If it cannot be removed.
    """
    doomed = final.with_name(f".{final.name}.deleted")
    if final.exists():
        if doomed.exists():
            shutil.rmtree(doomed)
        final.rename(doomed)
        sync_directory(final.parent)
    if doomed.exists():
        shutil.rmtree(doomed)
        sync_directory(final.parent)


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """Make a folder that takes its name only when the block ends without an error.

    Args:
        final: Where it is to appear; absent, or an empty folder.

    Yields:
        The folder to fill.
    """
    remove_leftover(final)
    folder = _beside(final)
    folder.mkdir()
    try:
        yield folder
        sync_directory(folder)
        folder.rename(final)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_directory(final.parent)


@contextmanager
def flushed(path: Path) -> Iterator[BinaryIO]:
    """Write a new file that is on the disk when the block ends."""
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
