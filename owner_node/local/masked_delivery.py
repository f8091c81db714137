"""Giving out a masked table: a CSV or Parquet file, and beside it the report of how it was made."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from common.canonical import canonical
from common.durable import atomic_writer, write_atomic
from common.errors import UsageError

SUFFIXES = (".csv", ".parquet")
"""Endings of the files that can be written."""
_READ_BYTES = 1 << 20
_LONGEST_NAME = 200
"""Bytes; what is added to it while it is written, and for the report, has room in 255."""


def report_path(out: Path) -> Path:
    """Return where the report of a masked file is."""
    return out.with_name(f"{out.name}.report.json")


def check_out(out: Path) -> None:
    """Check, before anything is charged, that a file can be written, and what kind of file it is to be.

    Raises:
        UsageError: If it has another ending or too long a name, or its folder is not there or not writable.
    """
    if len(out.name.encode()) > _LONGEST_NAME:
        raise UsageError("the name of the file is too long", f"use at most {_LONGEST_NAME} letters")
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{out} is neither CSV nor Parquet", f"name a file that ends in {' or '.join(SUFFIXES)}"
        )
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", "make it, or name a file in another one")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{out.parent} is not writable", "name a file in a folder you can write to")


def check_free(out: Path) -> None:
    """Check that nothing would be overwritten by a result that is still to be made.

    Raises:
        UsageError: If a file is there already.
    """
    for path in (out, report_path(out)):
        if path.exists() or path.is_symlink():
            raise UsageError(
                f"{path} exists", "name another file, or move that one away; nothing was charged"
            )


def deliver(table: Path, report: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Write a masked table and its report, each whole or not at all, for this user alone to read.

    What is there already stays if it is the same, byte by byte; so a second delivery changes nothing.

    Args:
        table: The kept table, in Parquet.
        report: Its report.
        out: The file to write, CSV or Parquet by its ending.

    Returns:
        The report as it was written, with the digest of the file.

    Raises:
        UsageError: If another file is there.
        OSError: If it cannot be written.
    """
    if not out.exists():
        with atomic_writer(out) as stream:
            _write(table, out, stream)
        written = _digest(out)
    else:
        written = _digest(out)
        if written != _rendered_digest(table, out):
            raise UsageError(f"{out} is another file", "name another file, or move that one away")
    told = {**report, "file": {"name": out.name, "sha256": written, "bytes": out.stat().st_size}}
    text = json.dumps(json.loads(canonical(told)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomic(report_path(out), text.encode())
    document: dict[str, Any] = json.loads(text)
    return document


def _write(table: Path, out: Path, stream: BinaryIO) -> None:
    if out.suffix.lower() == ".parquet":
        with table.open("rb") as kept:
            shutil.copyfileobj(kept, stream, _READ_BYTES)
        return
    import pyarrow.parquet as pq

    from common.release_csv import write_csv

    write_csv(stream, pq.read_table(table))


def _rendered_digest(table: Path, out: Path) -> str:
    """Return the digest of what would be written."""
    if out.suffix.lower() == ".parquet":
        return _digest(table)
    state = _Digesting()
    _write(table, out, state)  # type: ignore[arg-type]
    return state.state.hexdigest()


class _Digesting:
    """Takes what is written and keeps its digest alone."""

    def __init__(self) -> None:
        self.state = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.state.update(data)
        return len(data)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
