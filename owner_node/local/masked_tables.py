"""A masked table as a pandas DataFrame, in types that people compute with."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from common.arrays import Int64Array
from common.canonical import canonical
from common.errors import IntegrityError, UsageError
from common.files import (
    atomic_writer,
    exclusive_lock,
    private_directory,
    remove_leftovers,
    sync_directory,
    write_atomic,
)
from common.model.schema import Attribute, AttributeType
from common.release.table import from_units, release_type, to_units

_MOST_DIGITS = 15
"""Decimal texts of so many digits come back unchanged from the nearest double."""


def to_frame(table: pa.Table, attributes: Sequence[Attribute], index: pd.Index) -> pd.DataFrame:
    """Return a table of release types as a DataFrame.

    Integers become int64 and dates datetime64[s]; booleans stay booleans; categories become a Categorical
    with all declared categories, ordered if they are. A number becomes the double nearest to it, which prints
    as the number itself; where its domain has too many digits for that, an exact decimal of Arrow.

    Args:
        table: The table.
        attributes: Its attributes, in the order of its columns.
        index: The index of the DataFrame.
    """
    columns = {each.name: _column(each, table.column(each.name)) for each in attributes}
    return pd.DataFrame(columns, columns=list(columns), copy=False).set_axis(index)


def _column(attribute: Attribute, column: pa.ChunkedArray) -> pd.Series:
    units = to_units(attribute, column).to_numpy()
    match attribute.type:
        case AttributeType.INTEGER:
            return pd.Series(units)
        case AttributeType.NUMBER:
            if max(abs(attribute.lower), abs(attribute.upper)) < 10**_MOST_DIGITS:
                return pd.Series(units / np.float64(10**attribute.decimals))
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(release_type(attribute))))
        case AttributeType.DATE:
            return pd.Series(units.astype("datetime64[D]").astype("datetime64[s]"))
        case AttributeType.CATEGORY:
            labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
            return pd.Series(pd.Categorical.from_codes(units, dtype=labels))
        case AttributeType.BOOLEAN:
            return pd.Series(units == 1)


class MaskedTables:
    """The folder of masked tables.

    Args:
        state_dir: The owner's state directory.
    """

    def __init__(self, state_dir: Path) -> None:
        self._directory = private_directory(state_dir / "masked")

    @contextmanager
    def claimed(self, holder: str) -> Iterator[None]:
        """Let one process at a time draw noise, and delete what an interrupted one left.

        Raises:
            UsageError: If another process is at it.
        """
        with exclusive_lock(self._directory / "lock", holder):
            remove_leftovers(self._directory)
            yield

    def table_path(self, work_id: str) -> Path:
        """Return where a masked table is, in Parquet."""
        return self._directory / f"{work_id}.parquet"

    def _report_path(self, work_id: str) -> Path:
        return self._directory / f"{work_id}.json"

    def _drawn_path(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.drawn")

    def discard(self, work_id: str) -> None:
        """Delete what was drawn for work whose result is not recorded, before it is drawn anew.

        To be called while `claimed`.
        """
        for path in (self.table_path(work_id), self._report_path(work_id)):
            path.unlink(missing_ok=True)
            self._drawn_path(path).unlink(missing_ok=True)
        sync_directory(self._directory)

    def put(self, work_id: str, table: pa.Table, report: Mapping[str, Any]) -> dict[str, str]:
        """Keep a table and its report, under hidden names until what is returned was recorded.

        Args:
            work_id: Id of the work.
            table: The masked table.
            report: Its report, of what has a canonical form.

        Returns:
            The SHA-256 of both files, for the record.
        """
        drawn, text = self._drawn_path(self.table_path(work_id)), canonical(report)
        with atomic_writer(drawn) as stream:
            pq.write_table(table, stream, compression="zstd")
        write_atomic(self._drawn_path(self._report_path(work_id)), text)
        return {"table": _digest(drawn), "report": hashlib.sha256(text).hexdigest()}

    def report(self, work_id: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the report of a recorded table, once both have their names and are what was recorded.

        Args:
            work_id: Id of the work.
            recorded: What `put` returned.

        Raises:
            UsageError: If the files were deleted.
            IntegrityError: If they were changed.
        """
        paths = {"table": self.table_path(work_id), "report": self._report_path(work_id)}
        for what, path in paths.items():
            self._show(path)
            if not path.exists():
                raise UsageError(
                    f"the result of {work_id!r} was made and charged, and {path} was deleted since",
                    "use the copy that was given out; to draw anew, and pay again, give another id",
                    {"id": work_id},
                )
            if _digest(path) != recorded[what]:
                raise IntegrityError(
                    f"{path} is not what was recorded for {work_id!r}",
                    "put back the file as it was, or draw anew, and pay again, under another id",
                    {"id": work_id, "recorded": recorded[what]},
                )
        report: dict[str, Any] = json.loads(paths["report"].read_bytes())
        return report

    def _show(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # it was shown before, or by another process just now
            self._drawn_path(path).replace(path)
            sync_directory(self._directory)


def released_table(attributes: tuple[Attribute, ...], columns: Mapping[str, Int64Array]) -> pa.Table:
    """Return masked columns as a table of release types.

    Args:
        attributes: The attributes, in the order of the columns.
        columns: Masked values in resolution units, `(n_records,)` each.
    """
    fields = [pa.field(each.name, release_type(each), nullable=False) for each in attributes]
    arrays = [from_units(each, columns[each.name]) for each in attributes]
    return pa.table(arrays, schema=pa.schema(fields))


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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

    from common.release.table import write_csv

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
