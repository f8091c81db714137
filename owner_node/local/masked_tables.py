"""Masked tables that were made for the owner itself: kept whole, the answers to their ids for ever.

`state_dir/masked/` holds protected values only. What a user asked for is copied from here, so that a result
that was paid for is not lost with a process that died, and never drawn a second time. A draw has a hidden
name until it is recorded, and is deleted before another takes its place: one charge never has two draws here.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from common.arrays import Int64Array
from common.canonical import canonical
from common.durable import (
    atomic_writer,
    exclusive_lock,
    private_directory,
    remove_leftovers,
    sync_directory,
    write_atomic,
)
from common.errors import IntegrityError, UsageError
from common.release_table import from_units, release_type
from common.schema import Attribute


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
