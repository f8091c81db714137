"""CSV and Parquet files as sources of records.

Error texts of libraries are not passed on, since they quote values.
"""

import codecs
import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from common.errors import check_resources, did_you_mean
from owner_node.config import CsvOptions
from owner_node.sources.findings import Findings
from owner_node.sources.folders import NOT_PARQUET, UNREADABLE, data_files
from owner_node.sources.loaded import Source
from owner_node.sources.texts import unreadable, valid_utf8

BLOCK_BYTES = 4 * 2**20
"""Bytes of a CSV file parsed at a time; the largest size of a record."""
BATCH_RECORDS = 2**16
"""Records of a Parquet file read at a time."""
_LONGEST_CELL = 2**17
"""Characters of a cell that are read as one, the default of Python's csv: a quote may never be closed."""
READ_BYTES = 2**20
"""Bytes of each column of a Parquet file that are read at a time."""
_CHARACTERS = 2**16
_PARQUET_MARK = b"PAR1"
_PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_FOREIGN_TYPES = ("BSON", "INTERVAL", "GEOMETRY", "GEOGRAPHY")
"""Types of Parquet that Arrow does not have."""
_REPLACED = "\ufffd"


def csv_rows(text: Iterable[str], delimiter: str, *, strict: bool = False) -> Iterator[list[str]]:
    """Read the rows of a CSV text.

    Args:
        text: Its lines.
        delimiter: What separates cells.
        strict: Whether a quote in the wrong place is an error.

    Raises:
        csv.Error: If a cell is too long, or with `strict` is quoted wrongly.
    """
    # Python has one limit for the whole process, and libraries raise it for themselves.
    csv.field_size_limit(_LONGEST_CELL)
    return csv.reader(text, delimiter=delimiter, strict=strict)


def open_file(path: Path, form: CsvOptions, findings: Findings) -> Source | None:
    """Open a file: as Parquet by its magic bytes or name, otherwise as CSV; or a folder of Parquet files.

    Args:
        path: The file or folder.
        form: Format of a CSV file.
        findings: Collects problems of the file as a whole.

    Returns:
        The source, or None if it cannot be read; `findings` says why.
    """
    if path.is_dir():
        return _open_folder(path, findings)
    mark = first_bytes(path, findings)
    if mark is None:
        return None
    if not mark:
        findings.add(None, "the file is empty", 1, "export the data again", counted="")
        return None
    if mark == _PARQUET_MARK or path.suffix.lower() in _PARQUET_SUFFIXES:
        return _open_parquet(path, findings)
    return _open_csv(path, form, findings)


def first_bytes(path: Path, findings: Findings) -> bytes | None:
    """Return the first bytes of a file, which identify its type; None if unreadable, with a finding."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET_MARK))
    except FileNotFoundError:
        hint = "correct the path; one in owner.toml is relative to the folder of that file"
        findings.add(None, "there is no such file", 1, hint, "", lambda: filter(None, [_close_to(path)]))
        return None
    except IsADirectoryError:
        problem, hint = "this is a folder, not a file", "name the file"
    except PermissionError:
        problem, hint = "the file may not be read", "let the account of the owner node read the file"
    except OSError as fault:
        check_resources(fault)
        problem, hint = f"the file cannot be read: {fault.strerror}", "check the path and the disk"
    findings.add(None, problem, 1, hint, counted="")
    return None


def _close_to(path: Path) -> str:
    """Return a question with the most similar name in the folder; empty if there is none."""
    try:
        return did_you_mean(path.name, (each.name for each in path.parent.iterdir()))
    except OSError:
        return ""


class ParquetSource(Source):
    """Parquet files with the same columns, one after the other. One file is open at a time."""

    def __init__(self, paths: Sequence[Path], names: Sequence[str]) -> None:
        self._paths = paths
        self.names = names

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the files' own types (see `Source`)."""
        try:
            for path in self._paths:
                # A buffer per column chunk would hold a whole row group, which can be the whole file.
                # INT96 in nanoseconds would wrap before 1677 and after 2262.
                with pa.parquet.ParquetFile(
                    path, buffer_size=READ_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us"
                ) as file:
                    if tuple(file.schema_arrow.names) != tuple(self.names):
                        self._find_change(path, findings)
                        return
                    foreign = _foreign_types(file)
                    for batch in file.iter_batches(batch_size=BATCH_RECORDS, columns=list(columns)):
                        yield [
                            unreadable(len(batch), foreign[name]) if name in foreign else batch.column(name)
                            for name in columns
                        ]
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            hint = "the file is damaged or uses a feature that is not supported; write it again"
            findings.add(None, NOT_PARQUET, 1, hint, counted="")

    @staticmethod
    def _find_change(path: Path, findings: Findings) -> None:
        hint = "export the data into another folder, and rename it when it is complete"
        findings.add(None, "changed while it was read", 1, hint, "file", lambda: [path.name])

    def expected(self) -> int | None:
        """Return the number that the files state; None if they cannot be read any more."""
        try:
            return sum(int(pa.parquet.read_metadata(path).num_rows) for path in self._paths)
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            return None


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
            name = field.metadata.get(b"ARROW:extension:name", b"").decode(errors="replace")
            foreign |= {field.name: name} if name else {}
    return foreign


def _open_parquet(path: Path, findings: Findings) -> Source | None:
    try:
        return ParquetSource([path], tuple(pa.parquet.read_schema(path).names))
    except (pa.ArrowException, OSError) as fault:
        check_resources(fault)
        hint = "write the file again, or give a CSV file a name that does not end in .parquet"
        findings.add(None, NOT_PARQUET, 1, hint, counted="")
        return None


def _open_folder(folder: Path, findings: Findings) -> Source | None:
    """Open the Parquet files of a folder, in the order of their names."""
    try:
        names = data_files(((each.name, each.is_dir()) for each in folder.iterdir()), findings)
    except OSError as fault:
        check_resources(fault)
        hint = "let the account of the owner node read the folder"
        findings.add(None, f"the folder cannot be read: {fault.strerror}", 1, hint, counted="")
        return None
    damaged, other, first = [], [], None
    for path in (paths := [folder / name for name in names]):
        try:
            schema = pa.parquet.read_schema(path).remove_metadata()
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
    return None if findings or first is None else ParquetSource(paths, tuple(first.names))


class CsvSource(Source):
    """A CSV file, every column read as text."""

    def __init__(self, path: Path, form: CsvOptions, names: Sequence[str], *, has_records: bool) -> None:
        self.names = names
        self._path = path
        self._form = form
        self._has_records = has_records
        self._utf8 = _is_utf8(form.encoding)

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns as text (see `Source`)."""
        if not self._has_records:
            return
        uneven: list[int | None] = []
        positions = [str(self.names.index(name)) for name in columns]
        try:
            with _bytes_of(self._path, self._form.encoding) as stream:
                for batch in self._open(stream, positions, uneven):
                    yield self._decoded(batch, columns, findings)
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            hint = "check csv.delimiter; quotes inside values are doubled, and no record is over 4 MiB"
            findings.add(None, "not readable as CSV", 1, hint, counted="")
        problem = "wrong number of fields"
        if uneven and uneven[0] is not None:
            problem += f", first in record {uneven[0] - 1:,}"
        hint = "check csv.delimiter; a value that holds the delimiter or a line break has to be in quotes"
        findings.add(None, problem, len(uneven), hint)
        if _unclosed(self._path, self._form):
            hint = "close every quote, and double quotes inside values"
            findings.add(None, "a quote that is never closed", 1, hint, counted="")

    def expected(self) -> int | None:
        """Return a guess from the size of the file and the lines at its beginning."""
        try:
            with self._path.open("rb") as file:
                size, beginning = self._path.stat().st_size, file.read(READ_BYTES)
        except OSError:
            return None
        return size * beginning.count(b"\n") // len(beginning) if beginning else 0

    def _open(self, stream: Any, positions: list[str], uneven: list[int | None]) -> Any:
        """Open the file with columns named by position, so that names may repeat and hold line breaks."""

        def skip(row: Any) -> str:
            uneven.append(row.number)
            return "skip"

        return pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(
                use_threads=False,  # otherwise uneven records have no number
                block_size=BLOCK_BYTES,
                column_names=[str(position) for position in range(len(self.names))],
                skip_rows_after_names=1,
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self._form.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self.names) > 1,  # with one column it is a missing value
                invalid_row_handler=skip,
            ),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False,  # checked per value, to be counted
                column_types=dict.fromkeys(positions, pa.binary()),
                include_columns=positions,
                null_values=list(self._form.na_values),
                strings_can_be_null=True,
            ),
        )

    def _decoded(self, batch: Any, columns: Sequence[str], findings: Findings) -> list[Any]:
        """Decode bytes to text; records that cannot be decoded are counted and left out."""
        good = None
        hint = "set csv.encoding to the encoding that the file was written in, for example cp1252"
        for name, array in zip(columns, batch.columns, strict=True):
            valid = self._valid(array)
            if valid is not None:
                bad = len(array) - pc.sum(valid).as_py()
                findings.add(name, f"not in the encoding {self._form.encoding}", bad, hint)
                good = valid if good is None else pc.and_(good, valid)
        if good is not None:
            batch = batch.filter(good)
        return [array.cast(pa.string()) for array in batch.columns]

    def _valid(self, array: Any) -> Any | None:
        """Return where the bytes of a column are valid text; None if everywhere."""
        if not self._utf8:
            broken = pc.fill_null(pc.match_substring(array, _REPLACED), False)
            return pc.invert(broken) if pc.any(broken, min_count=0).as_py() else None
        try:
            array.cast(pa.string())
        except pa.ArrowInvalid:
            return valid_utf8(array)
        return None


def _open_csv(path: Path, form: CsvOptions, findings: Findings) -> Source | None:
    try:
        "".encode(form.encoding)
    except LookupError:
        hint = "set csv.encoding to one that Python knows, for example utf-8 or cp1252"
        findings.add(None, f"unknown encoding {form.encoding!r}", 1, hint, counted="")
        return None
    encoding = "utf-8-sig" if _is_utf8(form.encoding) else form.encoding
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        try:
            names = next(csv_rows(file, form.delimiter), [])
            has_records = next(file, "") != ""
        except (csv.Error, UnicodeError):
            hint = "check csv.encoding and csv.delimiter, and that every quote is closed"
            findings.add(None, "the header cannot be read", 1, hint, counted="")
            return None
    if any(_REPLACED in name or "\0" in name for name in names):
        hint = "set csv.encoding to the encoding that the file was written in"
        problem = f"the header is not in the encoding {form.encoding}"
        findings.add(None, problem, 1, hint, counted="")
        return None
    if not names:
        hint = "the first line has to name the columns"
        findings.add(None, "there is no header", 1, hint, counted="")
        return None
    return CsvSource(path, form, tuple(names), has_records=has_records)


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _unclosed(path: Path, form: CsvOptions) -> bool:
    """Return whether a quote is never closed, which silently hides every record after it."""
    with path.open("rb") as file:
        n_quotes = sum(block.count(b'"') for block in iter(lambda: file.read(BLOCK_BYTES), b""))
    if n_quotes % 2 == 0:
        return False
    with path.open(encoding=form.encoding, errors="replace", newline="") as text:
        try:
            deque(csv_rows(text, form.delimiter, strict=True), maxlen=0)
        except csv.Error:
            return True
    return False


class _Utf8Stream(io.RawIOBase):
    """The bytes of a file in another encoding, as UTF-8; undecodable bytes become U+FFFD."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._text = io.TextIOWrapper(file, encoding, errors="replace", newline="")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = self._text.read(_CHARACTERS).encode(errors="replace")
        n_bytes = min(len(buffer), len(self._left))
        buffer[:n_bytes], self._left = self._left[:n_bytes], self._left[n_bytes:]
        return n_bytes

    def close(self) -> None:
        self._text.close()
        super().close()


def _bytes_of(path: Path, encoding: str) -> Any:
    if _is_utf8(encoding):
        return pa.OSFile(str(path), "rb")
    return pa.PythonFile(_Utf8Stream(path.open("rb"), encoding), mode="r")
