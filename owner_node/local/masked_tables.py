"""Protected tables that were made for the owner itself: stored, delivered as files, and as DataFrames.

*Stored.* `state_dir/masked/` holds protected values only. It keeps every masked table whole, with its report:
the permanent result of an id. Requested files are copied from here. So a result that was charged is not lost
if a process dies, and it is never drawn a second time. A draw has a hidden name until it is recorded, and is
deleted before another draw replaces it: there are never two draws of one charge.

*Delivered.* `deliver` writes a CSV or Parquet file and, beside it, the report of how it was made, and the
noisy counts of a synthetic table.
"""

import hashlib
import json
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from common.arrays import Int64Array
from common.canonical import canonical
from common.errors import IntegrityError, UsageError
from common.files import (
    atomic_writer,
    check_writable,
    exclusive_lock,
    file_digest,
    private_directory,
    remove_leftovers,
    sync_directory,
    write_atomic,
)
from common.model.plan import Plan
from common.progress import Progress
from common.release.synthetic_table import counts_path, report_path
from common.release.table import RECORD_COLUMN, in_pieces, release_schema, write_csv_header, write_csv_records
from common.release.values import columns_of
from owner_node.local.charge import LocalWork, Standing

_GROUP_RECORDS = 1 << 20
"""Most records of a row group of the Parquet file."""
_GROUP_VALUES = 1 << 23
"""Most values of a row group, which is written and read as a whole."""


class MaskedTables:
    """The folder of masked tables."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = private_directory(state_dir / "masked")

    @contextmanager
    def claim(self, holder: str) -> Iterator[None]:
        """Let only one process draw noise at a time, and delete what an interrupted process left.

        Raises:
            UsageError: If another process is drawing.
        """
        with exclusive_lock(self._directory / "lock", holder):
            remove_leftovers(self._directory)
            yield

    def table_path(self, work_id: str) -> Path:
        """Return the path of a masked table, a Parquet file."""
        return self._directory / f"{work_id}.parquet"

    def fragment_path(self, work_id: str) -> Path:
        """Return the path of the fragment that a table is made from; `discard` deletes it, too."""
        return self._drawn_path(self._directory / f"{work_id}.fragment")

    def counts_path(self, work_id: str) -> Path:
        """Return the path of the noisy counts of a synthetic table, a Parquet file."""
        return counts_path(self.table_path(work_id))

    def _paths(self, work_id: str) -> dict[str, Path]:
        """Return the paths of all files that a result can have, by their names in its record."""
        return {
            "table": self.table_path(work_id),
            "report": self._directory / f"{work_id}.json",
            "counts": self.counts_path(work_id),
        }

    def _drawn_path(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.drawn")

    def discard(self, work_id: str) -> None:
        """Delete a draw whose result was not recorded, before it is drawn again.

        Call this within `claim`.
        """
        for path in self._paths(work_id).values():
            path.unlink(missing_ok=True)
            self._drawn_path(path).unlink(missing_ok=True)
        self.fragment_path(work_id).unlink(missing_ok=True)
        sync_directory(self._directory)

    def put(self, work_id: str, made: "MadeTable") -> dict[str, str]:
        """Store a table, its report and its counts, under hidden names until the digests are recorded.

        Args:
            made: What was made; all values of the report have a canonical form.

        Returns:
            The SHA-256 of the files, for the record.
        """
        drawn = {name: self._drawn_path(path) for name, path in self._paths(work_id).items()}
        first = next(made.pieces)
        group = min(_GROUP_RECORDS, max(1, _GROUP_VALUES // first.num_columns))
        with (
            atomic_writer(drawn["table"]) as stream,
            pq.ParquetWriter(stream, first.schema, compression="zstd") as writer,
        ):
            for piece in in_pieces(chain([first], made.pieces), group):
                writer.write_table(piece)
        write_atomic(drawn["report"], canonical(made.report))
        if made.counts is None:
            del drawn["counts"]
        else:
            with atomic_writer(drawn["counts"]) as stream:
                pq.write_table(made.counts, stream, compression="zstd")
        return {name: file_digest(path) for name, path in drawn.items()}

    def report(self, work_id: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Give a recorded table and its report their final names, verify both, and return the report.

        Args:
            recorded: What `put` returned.

        Raises:
            UsageError: If the files were deleted.
            IntegrityError: If they were changed.
        """
        paths = self._paths(work_id)
        for what, path in paths.items():
            if what not in recorded:
                continue
            with suppress(FileNotFoundError):  # it has its name already, or another process just gave it
                self._drawn_path(path).replace(path)
                sync_directory(self._directory)
            if not path.exists():
                raise UsageError(
                    f"the result of {work_id!r} was drawn and charged, but {path} has been deleted",
                    "use the delivered copy; to draw again, with another charge, give another id",
                    {"id": work_id},
                )
            if file_digest(path) != recorded[what]:
                raise IntegrityError(
                    f"{path} differs from the recorded result of {work_id!r}",
                    "restore the original file, or draw again, with another charge, under another id",
                    {"id": work_id, "recorded": recorded[what]},
                )
        report: dict[str, Any] = json.loads(paths["report"].read_bytes())
        return report


@dataclass(frozen=True, slots=True)
class MadeTable:
    """A protected table as it is made."""

    report: Mapping[str, Any]
    """How it was made, what is promised and what is not hidden."""
    pieces: Generator[pa.Table]
    """The table, some records at a time."""
    counts: pa.Table | None = None
    """The noisy counts that a synthetic table was made of (`common.release.counts`)."""


class TableJob(Protocol):
    """A protected table that is planned and possible."""

    @property
    def work(self) -> LocalWork:
        """Its charge, and the data."""

    def make(self, fragment: Path, progress: Progress) -> MadeTable:
        """Draw the noise, once the charge is spent."""


def make_table(
    job: TableJob, tables: MaskedTables, holder: str, progress: Progress | None = None
) -> dict[str, Any]:
    """Spend the charge, draw the noise once, and store the table.

    Idempotent: finished work is not repeated, and work that was interrupted after its charge is not charged
    again.

    Args:
        tables: The store of tables; it has the table under the work's id afterwards.
        holder: Name of this process, shown to another process that finds the store locked.

    Returns:
        The report.

    Raises:
        BalanceError: If the budget does not cover it.
        ConflictError: If the id was used for other work.
        UsageError: If another process is at work, or the stored table was deleted.
        IntegrityError: If the stored table was changed.
    """
    work = job.work
    if work.standing() is not Standing.DELIVERED:
        with tables.claim(holder):
            work.pay()
            if work.standing() is Standing.SPENT:
                # An interrupted process may have left a draw, and one charge must never give two draws.
                tables.discard(work.id)
                made = job.make(tables.fragment_path(work.id), progress or Progress())
                # Closed in every case: that removes the fragment.
                with closing(made.pieces):
                    kept = tables.put(work.id, made)
                work.deliver(kept)
    return tables.report(work.id, work.result())


def released_table(plan: Plan, columns: Mapping[str, Int64Array]) -> pa.Table:
    """Return masked columns as a table of release types, with the descriptions of a release.

    Args:
        columns: Masked values in resolution units, `(n_records,)` each.
    """
    schema = release_schema(plan)
    arrays = columns_of(plan.released, columns)
    return pa.table(arrays, schema=schema.remove(schema.get_field_index(RECORD_COLUMN)))


SUFFIXES = (".csv", ".parquet")
"""Suffixes of the supported files."""
_READ_BYTES = 1 << 20
_LONGEST_NAME = 200
"""Bytes; the suffixes of the temporary file and of the report fit into the remaining 55."""


def check_out(out: Path) -> None:
    """Check, before any charge, that a file can be written and has a supported suffix.

    Raises:
        UsageError: If the suffix is not supported, the name is too long, or the folder does not exist or is
            not writable.
    """
    if len(out.name.encode()) > _LONGEST_NAME:
        raise UsageError("the name of the file is too long", f"use at most {_LONGEST_NAME} letters")
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{out} is neither CSV nor Parquet", f"name a file that ends in {' or '.join(SUFFIXES)}"
        )
    check_writable(out.parent)


def check_free(out: Path) -> None:
    """Check that a result that is not drawn yet would overwrite nothing."""
    for path in (out, report_path(out), counts_path(out)):
        if path.exists() or path.is_symlink():
            raise UsageError(
                f"{path} exists", "name another file, or move this one away; nothing was charged"
            )


def deliver(table: Path, report: Mapping[str, Any], out: Path, counts: Path | None = None) -> dict[str, Any]:
    """Write a table, its noisy counts and its report, each atomically and readable by this user only.

    Idempotent: an existing file with the same bytes is kept.

    Args:
        table: The stored table, in Parquet.
        out: The file to write, CSV or Parquet by its suffix.
        counts: The stored noisy counts of a synthetic table.

    Returns:
        The report as it was written, with the digests of the files.

    Raises:
        UsageError: If a different file exists.
        OSError: If a file cannot be written.
    """
    delivered = {**report, "file": _deliver_file(table, out)}
    if counts is not None:
        delivered["counts"] = _deliver_file(counts, counts_path(out))
    text = json.dumps(json.loads(canonical(delivered)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomic(report_path(out), text.encode())
    document: dict[str, Any] = json.loads(text)
    return document


def _deliver_file(stored: Path, out: Path) -> dict[str, Any]:
    """Write one file, and return what the report says of it."""
    if not out.exists():
        with atomic_writer(out) as stream:
            _write(stored, out, stream)
        written = file_digest(out)
    else:
        written = file_digest(out)
        if written != _rendered_digest(stored, out):
            raise UsageError(
                f"{out} exists and differs from this result", "name another file, or move this one away"
            )
    return {"name": out.name, "sha256": written, "bytes": out.stat().st_size}


def _write(table: Path, out: Path, stream: BinaryIO) -> None:
    if out.suffix.lower() == ".parquet":
        with table.open("rb") as source:
            shutil.copyfileobj(source, stream, _READ_BYTES)
        return
    with pq.ParquetFile(table, pre_buffer=False) as kept:
        write_csv_header(stream, kept.schema_arrow)
        for number in range(kept.num_row_groups):
            write_csv_records(stream, kept.read_row_group(number))


def _rendered_digest(table: Path, out: Path) -> str:
    """Return the digest of the bytes that `_write` would write."""
    if out.suffix.lower() == ".parquet":
        return file_digest(table)
    state = _Digesting()
    _write(table, out, state)  # type: ignore[arg-type]
    return state.state.hexdigest()


class _Digesting:
    """A stream that keeps only the digest of its data."""

    def __init__(self) -> None:
        self.state = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.state.update(data)
        return len(data)
