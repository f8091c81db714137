"""The table of formats of files: those that are read, and those that are known and refused with advice.

A name says little: spreadsheets and archives come as `.csv`, and reading one as text ends in errors that say
nothing about the file. So most formats are recognised by their first bytes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from zipfile import BadZipFile, ZipFile

from owner_node.sources.csv_files import open_csv
from owner_node.sources.files import StoredFile
from owner_node.sources.findings import Findings
from owner_node.sources.labelled_files import is_labelled, open_labelled
from owner_node.sources.options import CsvOptions
from owner_node.sources.parquet_files import is_parquet, open_parquet
from owner_node.sources.source import Reader


@dataclass(frozen=True, slots=True)
class RefusedFormat:
    """A format that is not read."""

    name: str
    """Its name, as in "this is …"."""
    hint: str
    """Hint what to do with it."""


def _packing(name: str, program: str) -> RefusedFormat:
    return RefusedFormat(f"a file packed with {name}", f"unpack it, for example with {program}")


def _pandas(name: str, reader: str) -> RefusedFormat:
    call = f'pandas.{reader}("FILE").to_parquet("FILE.parquet")'
    return RefusedFormat(name, f"convert it to Parquet, for example in Python: {call}")


_SHEET = "save the sheet as CSV in UTF-8 with the program that made it"
_EXPORT = "export the table as CSV or Parquet with the program that made it"
_ZIP = b"PK\x03\x04"
# A name of columns may begin like such a file ("ORCID", "PARENT"), but has no NUL character.
_BINARY = rb"(?s:.*)\x00"
_REFUSED = {
    rb"\x1f\x8b": _packing("gzip", "gunzip"),
    rb"\x28\xb5\x2f\xfd": _packing("zstd", "unzstd"),
    rb"BZh[1-9]1AY&SY": _packing("bzip2", "bunzip2"),
    rb"\xfd7zXZ\x00": _packing("xz", "unxz"),
    rb"\x04\x22\x4d\x18": _packing("lz4", "unlz4"),
    rb"\xff\x06\x00\x00sNaPpY": _packing("snappy", "snzip -d"),
    rb"7z\xbc\xaf\x27\x1c": _packing("7-Zip", "7z x"),
    rb"Rar!\x1a\x07": _packing("RAR", "unrar"),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": RefusedFormat(
        "an Excel workbook (.xls) or a file of Office", _SHEET
    ),
    rb"ARROW1\x00|FEA1" + _BINARY: _pandas("an Arrow or Feather file", "read_feather"),
    rb"\xff{4}..\x00\x00": RefusedFormat(
        "an Arrow stream", "write it as Parquet, for example with pyarrow.ipc.open_stream and pyarrow.parquet"
    ),
    rb"ORC" + _BINARY: _pandas("an ORC file", "read_orc"),
    rb"(?s:.{0,400})ASCII SPSS PORT FILE": RefusedFormat("an SPSS file (.por)", _EXPORT),
    rb"RDX[23]\n[XB]\n|X\n\x00\x00\x00[\x02\x03]|B\n[\x02\x03]\x00\x00\x00": RefusedFormat(
        "an R file", "write it as Parquet in R: arrow::write_parquet"
    ),
    rb"\x89HDF\r\n\x1a\n": _pandas("an HDF5 file", "read_hdf"),
    rb"Obj\x01": RefusedFormat(
        "an Avro file", "write it as Parquet, or let Spark read it: spark:avro?path=FILE"
    ),
    rb"PARE" + _BINARY: RefusedFormat(
        "an encrypted Parquet file", "write it without encryption of its footer"
    ),
    rb"\x93NUMPY": RefusedFormat("a NumPy file", _EXPORT),
    rb"\x80[\x02-\x05](?:\x95|[c}\x5d(])": _pandas("a Python pickle", "read_pickle"),
    rb"SQLite format 3\x00": RefusedFormat(
        "a SQLite database", 'name it as a database: source = "sqlite:///FILE" with a query'
    ),
    rb"(?s:.{8})DUCK" + _BINARY: RefusedFormat(
        "a DuckDB database", 'name it as a database: source = "duckdb:///FILE" with a query'
    ),
    rb"\x00\x01\x00\x00Standard (?:Jet|ACE) DB": RefusedFormat("an Access database", _EXPORT),
    rb"%PDF-": RefusedFormat("a PDF document", _EXPORT),
    rb"\{\\rtf": RefusedFormat("a text document (RTF)", _EXPORT),
    rb"(?i)(?:\xef\xbb\xbf)?\s*<(?:\?xml|!doctype|html|table)": RefusedFormat(
        "a web page or an XML document", _SHEET
    ),
    rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*\"|\[\s*(?:\{|\[))": _pandas("a JSON document", "read_json"),
}
"""By a regular expression for the first bytes."""


def _refused(path: StoredFile, head: bytes) -> RefusedFormat | None:
    if head.startswith(_ZIP):
        return _in_zip(path)
    return next((form for pattern, form in _REFUSED.items() if re.match(pattern, head)), None)


def _in_zip(path: StoredFile) -> RefusedFormat:
    try:
        with path.open("rb") as file, ZipFile(file) as archive:
            names = archive.namelist()
    except (BadZipFile, OSError, NotImplementedError, ValueError):
        names = []
    if any(name.startswith("xl/") for name in names):
        return RefusedFormat("an Excel workbook", _SHEET)
    if "content.xml" in names:
        return RefusedFormat("a LibreOffice document", _SHEET)
    return _packing("zip", "unzip")


def _refuse(path: StoredFile, head: bytes, _form: CsvOptions, findings: Findings) -> None:
    if (form := _refused(path, head)) is not None:
        findings.fail(f"this is {form.name}, neither CSV nor Parquet", form.hint)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files."""

    accepts: Callable[[StoredFile, bytes], bool]
    """Recognises a file by its path and its first `HEAD_BYTES` bytes."""
    open: Callable[[StoredFile, bytes, CsvOptions, Findings], Reader | None]
    """Opens such a file; None if it cannot be read, and the findings say why."""


FORMATS = (
    Format(lambda path, head: _refused(path, head) is not None, _refuse),
    Format(is_labelled, open_labelled),
    Format(is_parquet, open_parquet),
    Format(lambda _path, _head: True, open_csv),
)
"""The first that accepts a file opens it."""


def open_file(file: StoredFile, head: bytes, form: CsvOptions, findings: Findings) -> Reader | None:
    """Open a file in the format that its first bytes, or its name, tell."""
    if not head:
        findings.fail("the file is empty", "export the data again")
        return None
    return next(each for each in FORMATS if each.accepts(file, head)).open(file, head, form, findings)
