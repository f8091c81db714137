"""CSV files as sources of records.

Error texts of libraries are not passed on, since they quote values.
"""

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from common.errors import check_resources
from owner_node.sources.files import StoredFile, arrow_file
from owner_node.sources.findings import Findings
from owner_node.sources.options import CsvOptions
from owner_node.sources.source import Reader
from owner_node.sources.texts import valid_utf8

BLOCK_BYTES = 4 * 2**20
"""Bytes of a CSV file parsed at a time; the largest size of a record."""
_GUESSED_BYTES = 2**20
"""Bytes at the beginning from which the number of records is guessed."""
_LONGEST_CELL = 2**17
"""Characters of a cell that are read as one, the default of Python's csv: a quote may never be closed."""
_CHARACTERS = 2**16
_REPLACED = "\ufffd"
_MARKS = {
    b"\xef\xbb\xbf": ("utf-8", "utf-8-sig"),
    b"\xff\xfe\x00\x00": ("utf-32-le", "utf-32"),
    b"\x00\x00\xfe\xff": ("utf-32-be", "utf-32"),
    b"\xff\xfe": ("utf-16-le", "utf-16"),
    b"\xfe\xff": ("utf-16-be", "utf-16"),
}
"""Byte order marks, with the encoding of what follows and the encoding that includes the mark."""
_LITTLE_ENDIAN = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
"""What encodings mean without a mark."""
_SEPARATOR_LINE = re.compile(r'(?i)"?sep=(.)"?[ \t,;]*(?:\r\n|\n|\r)')
_LONGEST_SEPARATOR_LINE = 64
_END_OF_FILE = "\x1a"


def csv_rows(text: Iterable[str], delimiter: str, *, strict: bool = False) -> Iterator[list[str]]:
    """Read the rows of a CSV text.

    Args:
        strict: Whether a quote in the wrong place is an error.

    Raises:
        csv.Error: If a cell is too long, or with `strict` is quoted wrongly.
    """
    # Python has one limit for the whole process, and libraries raise it for themselves.
    csv.field_size_limit(_LONGEST_CELL)
    return csv.reader(text, delimiter=delimiter, strict=strict)


@dataclass(frozen=True, slots=True)
class CsvText:
    """The header and the records of a CSV file, without what programs write around them."""

    path: StoredFile
    encoding: str
    start: int
    """Where the header begins: after a byte order mark, and a line "sep=;" that spreadsheets write."""
    end: int
    """Where the records end: before the character Ctrl-Z, which programs for DOS wrote."""
    delimiter: str
    """The delimiter that the line "sep=;" names; empty without one."""

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes need not be decoded to be parsed."""
        return _name(self.encoding) == "utf-8"

    def bytes(self) -> Any:
        """Open it for reading bytes."""
        return arrow_file(self.path).get_stream(self.start, self.end - self.start)

    def lines(self) -> io.TextIOWrapper:
        """Open it for reading lines; bytes that cannot be decoded become U+FFFD."""
        return io.TextIOWrapper(self.bytes(), self.encoding, errors="replace", newline="")

    def utf8(self) -> Any:
        """Open it for reading its bytes in UTF-8."""
        return self.bytes() if self.is_utf8 else pa.PythonFile(_Utf8Stream(self.lines()), mode="r")


def csv_text(path: StoredFile, encoding: str) -> CsvText:
    """Find header and records of a file in an encoding."""
    with path.open("rb") as file:
        head = file.read(_LONGEST_SEPARATOR_LINE)
        end = file.seek(0, io.SEEK_END)
        file.seek(max(end - _LONGEST_SEPARATOR_LINE, 0))
        tail = file.read()
    mark, (unmarked, _) = marked_encoding(head)
    start, encoding = len(mark), unmarked or _LITTLE_ENDIAN.get(_name(encoding), _name(encoding))
    line = _SEPARATOR_LINE.match(head[start:].decode(encoding, errors="replace"))
    if line is not None:
        start += len(line[0].encode(encoding))
    stop = _END_OF_FILE.encode(encoding)
    while end - start >= len(stop) and tail.endswith(stop):
        tail, end = tail.removesuffix(stop), end - len(stop)
    return CsvText(path, encoding, start, end, line[1] if line is not None else "")


def marked_encoding(head: bytes) -> tuple[bytes, tuple[str, str]]:
    """Return the byte order mark of a text and its encodings as in `_MARKS`, all empty without one."""
    return next(((mark, names) for mark, names in _MARKS.items() if head.startswith(mark)), (b"", ("", "")))


def _name(encoding: str) -> str:
    name = codecs.lookup(encoding).name
    return "utf-8" if name == "utf-8-sig" else name


class CsvReader(Reader):
    """A CSV file, every column read as text."""

    is_text = True

    def __init__(self, text: CsvText, form: CsvOptions, names: Sequence[str], *, has_records: bool) -> None:
        self.names = names
        self._text = text
        self._form = form
        self._has_records = has_records

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns as text (see `Reader`)."""
        if not self._has_records:
            return
        uneven: list[int | None] = []
        first = {name: str(place) for place, name in reversed([*enumerate(self.names)])}
        positions = [first[name] for name in columns]
        try:
            with self._text.utf8() as stream:
                for batch in self._open(stream, positions, uneven):
                    yield self._decode(batch, columns, findings)
        except (pa.ArrowException, OSError) as fault:
            check_resources(fault)
            hint = "check csv.delimiter; quotes inside values are doubled, and no record is over 4 MiB"
            findings.fail("not readable as CSV", hint)
        problem = "wrong number of fields"
        if uneven and uneven[0] is not None:
            problem += f", first in record {uneven[0] - 1:,}"
        hint = "check csv.delimiter; a value that holds the delimiter or a line break has to be in quotes"
        findings.add(None, problem, len(uneven), hint)
        if _has_open_quote(self._text, self._form):
            hint = "close every quote, and double quotes inside values"
            findings.fail("a quote that is never closed", hint)

    def expected(self) -> int | None:
        """Return a guess from the size of the file and the lines at its beginning."""
        try:
            with self._text.bytes() as stream:
                beginning = stream.read(_GUESSED_BYTES)
        except OSError:
            return None
        size = self._text.end - self._text.start
        return int(size * beginning.count(b"\n") // len(beginning)) if beginning else 0

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

    def _decode(self, batch: Any, columns: Sequence[str], findings: Findings) -> list[Any]:
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
        if not self._text.is_utf8:
            broken = pc.fill_null(pc.match_substring(array, _REPLACED), False)
            return pc.invert(broken) if pc.any(broken, min_count=0).as_py() else None
        try:
            array.cast(pa.string())
        except pa.ArrowInvalid:
            return valid_utf8(array)
        return None


def open_csv(path: StoredFile, head: bytes, form: CsvOptions, findings: Findings) -> Reader | None:
    """Open a CSV file and read its header."""
    try:
        "".encode(form.encoding)
    except LookupError:
        hint = "set csv.encoding to one that Python knows, for example utf-8 or cp1252"
        findings.fail(f"unknown encoding {form.encoding!r}", hint)
        return None
    mark, encodings = marked_encoding(head)
    if mark and codecs.lookup(form.encoding).name not in encodings:
        marked = encodings[1].removesuffix("-sig")
        problem = f"the file is in {marked}, as its byte order mark says, and not in {form.encoding}"
        findings.fail(problem, f'set csv.encoding = "{marked}"')
        return None
    text = csv_text(path, form.encoding)
    if text.delimiter not in ("", form.delimiter):
        problem = f"the first line says that the delimiter is {text.delimiter!r}, not {form.delimiter!r}"
        findings.fail(problem, "set csv.delimiter to it")
        return None
    names, has_records = _header(text, form, findings)
    return CsvReader(text, form, names, has_records=has_records) if names else None


def _header(text: CsvText, form: CsvOptions, findings: Findings) -> tuple[tuple[str, ...], bool]:
    """Return the names of the columns, and whether anything follows; no names if they cannot be read."""
    with text.lines() as lines:
        try:
            names = next(csv_rows(lines, form.delimiter), [])
            has_records = next(lines, "") != ""
        except (csv.Error, UnicodeError):
            hint = "check csv.encoding and csv.delimiter, and that every quote is closed"
            findings.fail("the header cannot be read", hint)
            return (), False
    problem = hint = ""
    if any("\0" in name for name in names):
        problem = "the header has NUL characters, as texts in UTF-16 have"
        hint = 'set csv.encoding, for example to "utf-16-le", or export the data again'
    elif any(_REPLACED in name for name in names):
        problem = f"the header is not in the encoding {form.encoding}"
        hint = "set csv.encoding to the encoding that the file was written in"
    elif not names:
        problem, hint = "there is no header", "the first line has to name the columns"
    if problem:
        findings.fail(problem, hint)
        return (), False
    return tuple(names), has_records


def _has_open_quote(text: CsvText, form: CsvOptions) -> bool:
    """Return whether a quote is never closed, which silently hides every record after it."""
    with text.bytes() as stream:
        n_quotes = sum(block.count(b'"') for block in iter(lambda: stream.read(BLOCK_BYTES), b""))
    if n_quotes % 2 == 0:
        return False
    with text.lines() as lines:
        try:
            deque(csv_rows(lines, form.delimiter, strict=True), maxlen=0)
        except csv.Error:
            return True
    return False


class _Utf8Stream(io.RawIOBase):
    """A text as its bytes in UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
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
