"""Parquet files, and folders of them.

Error texts of libraries are not passed on, since they quote values.
"""

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from common.errors import check_resources
from owner_node.sources.files import NOT_PARQUET, UNREADABLE, StoredFile, arrow_file, data_files
from owner_node.sources.findings import Findings
from owner_node.sources.options import CsvOptions
from owner_node.sources.source import Reader
from owner_node.sources.texts import unreadable

BATCH_RECORDS = 2**16
"""Records of a Parquet file read at a time."""
READ_BYTES = 2**20
"""Bytes of each column of a Parquet file that are read at a time."""
_PARQUET_MARK = b"PAR1"
_PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_STORED_SCHEMA = re.compile(rb"(?P<key>ARROW:schema\x18[\x80-\xff]*[\x00-\x7f])(?P<schema>[A-Za-z0-9+/]+=*)")
"""Arrow's own schema in the footer of a file: a key and a value in Thrift's compact protocol."""
_EXTENSION, _IGNORED_EXTENSION = b"ARROW:extension:name", b"ARROW:extension:NAME"
_FOREIGN_TYPES = ("BSON", "INTERVAL", "GEOMETRY", "GEOGRAPHY", "UNDEFINED")
"""Types of Parquet that Arrow does not have; the last is of a version of Parquet after Arrow's."""


class ParquetReader(Reader):
    """Parquet files with the same columns, one after the other. One file is open at a time."""

    def __init__(self, paths: Sequence[StoredFile], names: Sequence[str]) -> None:
        self._paths = paths
        self.names = names

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the files' own types (see `Reader`)."""
        try:
            for path in self._paths:
                with _open(path) as file:
                    if tuple(file.schema_arrow.names) != tuple(self.names):
                        hint = "export the data into another folder, and rename it when it is complete"
                        changed: Callable[[], list[str]] = partial(list, [path.name])
                        findings.add(None, "changed while it was read", 1, hint, "file", changed)
                        return
                    foreign = _foreign_types(file)
                    for batch in file.iter_batches(batch_size=BATCH_RECORDS, columns=list(columns)):
                        yield [
                            unreadable(len(batch), foreign[name]) if name in foreign else batch.column(name)
                            for name in columns
                        ]
                path.open("rb").close()  # which fails for an object that was changed while it was read
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            for path in self._paths:
                if not isinstance(path, Path):
                    path.open("rb").close()
            hint = "the file is damaged or uses a feature that is not supported; write it again"
            findings.fail(NOT_PARQUET, hint)

    def expected(self) -> int | None:
        """Return the number that the files state; None if they cannot be read any more."""
        try:
            return sum(_rows(path) for path in self._paths)
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            return None


def _open(path: StoredFile) -> Any:
    """Open a file; one with an extension type that Arrow knows and cannot make, without extension types."""
    # A buffer per column chunk would hold a whole row group, which can be the whole file.
    # INT96 in nanoseconds would wrap before 1677 and after 2262.
    open_with = partial(
        pa.parquet.ParquetFile, buffer_size=READ_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us"
    )
    source = path if isinstance(path, Path) else arrow_file(path)
    try:
        return open_with(source)
    except pa.ArrowException:
        with path.open("rb") as file:
            end = file.seek(0, io.SEEK_END)
            file.seek(max(0, end - 8))
            size, mark = int.from_bytes(file.read(4), "little"), file.read()
            if mark != _PARQUET_MARK or size + 8 > end:
                raise
            file.seek(end - 8 - size)
            footer = file.read()
        if (plain := _STORED_SCHEMA.sub(_without_extensions, footer)) == footer:
            raise
        metadata = pa.parquet.read_metadata(pa.BufferReader(_PARQUET_MARK + plain))
        return open_with(source, metadata=metadata)


def _without_extensions(stored: re.Match[bytes]) -> bytes:
    """Return Arrow's schema of a footer, as long as before, with extensions under a key that it ignores."""
    schema = b64decode(stored["schema"]).replace(_EXTENSION, _IGNORED_EXTENSION)
    return stored["key"] + b64encode(schema)


def _rows(path: StoredFile) -> int:
    with _open(path) as file:
        return int(file.metadata.num_rows)


def _foreign_types(file: Any) -> dict[str, str]:
    """Return the columns whose types Arrow would read as mere bytes or integers, with the types' names."""
    foreign = {}
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        for kind in (column.logical_type.type, column.converted_type):
            if kind in _FOREIGN_TYPES:
                foreign[column.path] = kind.lower()
    for field in file.schema_arrow:
        # An extension type that no library of this process knows.
        if not isinstance(field.type, pa.BaseExtensionType) and field.metadata is not None:
            stated = field.metadata.get(_EXTENSION) or field.metadata.get(_IGNORED_EXTENSION) or b""
            name = stated.decode(errors="replace")
            foreign |= {field.name: name} if name else {}
    return foreign


def is_parquet(path: StoredFile, head: bytes) -> bool:
    """Return whether a file is Parquet, by its magic bytes or its name."""
    return (head.startswith(_PARQUET_MARK) and b"\0" in head) or path.suffix.lower() in _PARQUET_SUFFIXES


def open_parquet(path: StoredFile, _head: bytes, _form: CsvOptions, findings: Findings) -> Reader | None:
    """Open a file and read its columns' names."""
    try:
        with _open(path) as file:
            return ParquetReader([path], tuple(file.schema_arrow.names))
    except (pa.ArrowException, OSError) as fault:
        check_resources(fault)
        hint = "write the file again, or give a CSV file a name that does not end in .parquet"
        findings.fail(NOT_PARQUET, hint)
        return None


def open_folder(listed: Callable[[], Sequence[tuple[StoredFile, bool]]], findings: Findings) -> Reader | None:
    """Open the Parquet files of a folder, in the order of their names.

    Args:
        listed: Lists what the folder holds, and whether each is a folder.
    """
    try:
        entries = {file.name: (file, is_folder) for file, is_folder in listed()}
        names = data_files(((name, is_folder) for name, (_, is_folder) in entries.items()), findings)
    except OSError as fault:
        check_resources(fault)
        hint = "let the account of the owner node read the folder"
        findings.fail(f"the folder cannot be read: {fault.strerror}", hint)
        return None
    damaged, other, first = [], [], None
    for path in (paths := [entries[name][0] for name in names]):
        try:
            if isinstance(path, Path) and not path.is_file():
                damaged.append(path.name)
                continue
            with _open(path) as file:
                schema = file.schema_arrow.remove_metadata()
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            damaged.append(path.name)
            continue
        first = schema if first is None else first
        if not schema.equals(first):
            other.append(path.name)
    findings.add(None, NOT_PARQUET, len(damaged), UNREADABLE, "files", lambda: damaged)
    hint = "write all files with the same columns, in the same order and of the same types"
    if other:
        problem = f"files with other columns than {names[0]!r}"
        findings.add(None, problem, len(other), hint, "files", lambda: other)
    return None if findings or first is None else ParquetReader(paths, tuple(first.names))
