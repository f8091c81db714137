"""Files that are not CSV or Parquet are called what they are; CSV files are read as programs write them."""

import bz2
import gzip
import io
import lzma
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

from common.errors import DataError
from owner_node.loading import count_records, load
from owner_node.sources.guessing import guess
from owner_node.sources.options import CsvOptions
from tests.unit.owner_node.sources.conftest import AGE, SEX

CSV = b"age,sex\n12,male\n13,female\n"
TABLE = pa.table({"age": [12, 13], "sex": ["male", "female"]})
FRAME = TABLE.to_pandas()


def zipped(*names: str) -> bytes:
    """Return a zip archive."""
    with io.BytesIO() as made:
        with zipfile.ZipFile(made, "w") as archive:
            for name in names:
                archive.writestr(name, "x")
        return made.getvalue()


def made_by(write: Callable[[str], object]) -> Callable[[Path], bytes]:
    """Return the bytes that a program writes into a file."""

    def make(folder: Path) -> bytes:
        path = folder / "made"
        write(str(path))
        return path.read_bytes()

    return make


def _stream(path: str) -> None:
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE)


def _sqlite(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table people (age)")
    connection.close()


def _duckdb(path: str) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("create table people (age int)")


KINDS = {
    "gzip": (gzip.compress(CSV), "packed with gzip", "gunzip"),
    "zstd": (pa.Codec("zstd").compress(CSV, asbytes=True), "packed with zstd", "unzstd"),
    "bzip2": (bz2.compress(CSV), "packed with bzip2", "bunzip2"),
    "xz": (lzma.compress(CSV), "packed with xz", "unxz"),
    "lz4": (pa.Codec("lz4").compress(CSV, asbytes=True), "packed with lz4", "unlz4"),
    "zip": (zipped("people.csv"), "packed with zip", "unzip"),
    "damaged zip": (zipped("people.csv")[:-30], "packed with zip", "unzip"),
    "7-Zip": (b"7z\xbc\xaf\x27\x1c\0\4", "packed with 7-Zip", "7z"),
    "xlsx": (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook", "as CSV in UTF-8"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(90), "an Excel workbook (.xls)", "as CSV in UTF-8"),
    "ods": (zipped("mimetype", "content.xml"), "a LibreOffice document", "as CSV in UTF-8"),
    "feather": (made_by(lambda path: pa.feather.write_feather(TABLE, path)), "Feather", "read_feather"),
    "arrow stream": (made_by(_stream), "an Arrow stream", "as Parquet"),
    "orc": (made_by(lambda path: pa.orc.write_table(TABLE, path)), "an ORC file", "read_orc"),
    "spss portable": (b" " * 200 + b"ASCII SPSS PORT FILE", "an SPSS file (.por)", "CSV or Parquet"),
    "r": (b"RDX3\nX\n\0\0\0\3", "an R file", "write_parquet"),
    "hdf5": (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file", "read_hdf"),
    "avro": (b"Obj\x01\4\x14avro.codec", "an Avro file", "as Parquet"),
    "pickle": (made_by(FRAME.to_pickle), "a Python pickle", "read_pickle"),
    "sqlite": (made_by(_sqlite), "a SQLite database", "sqlite:///"),
    "duckdb": (made_by(_duckdb), "a DuckDB database", "duckdb:///FILE"),
    "access": (b"\0\1\0\0Standard ACE DB\0", "an Access database", "CSV or Parquet"),
    "pdf": (b"%PDF-1.7\n", "a PDF document", "CSV or Parquet"),
    "web page": (b"<html><table><tr><td>age</td></tr></table></html>", "a web page", "as CSV in UTF-8"),
    "xml": (b"\xef\xbb\xbf<?xml version='1.0'?>", "a web page or an XML document", "as CSV in UTF-8"),
    "json": (b' [\n {"age": 12}, {"age": 13}]', "a JSON document", "read_json"),
    "json lines": (b'{"age": 12}\n{"age": 13}\n', "a JSON document", "read_json"),
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_files_are_called_what_they_are(dataset, tmp_path, kind, suffix):
    """Whatever the file is called, loading, counting and `init` name its kind, and say what to do."""
    content, name, advice = KINDS[kind]
    settings = dataset(content if isinstance(content, bytes) else content(tmp_path), suffix)
    for read in (load, count_records, lambda each: guess(Path(each.source))):
        with pytest.raises(DataError) as caught:
            read(settings)
        (problem,) = caught.value.details["problems"]
        assert name in problem["problem"]
        assert "neither CSV nor Parquet" in problem["problem"]
        assert advice in caught.value.hint


@pytest.mark.parametrize(
    "name", ["ORC", "ORCID", "PARENT", "PAR1", "FEA1", "BZh9", "x;DUCK", "ARROW1", "RDX2", "PK"]
)
def test_a_column_may_be_called_like_a_file(dataset, name):
    """A header is not taken for the first bytes of another kind of file."""
    assert load(dataset(f"{name},age\n1,12\n")).columns["age"].tolist() == [12]
    assert load(dataset(f"age,{name}\n12,1\n")).columns["age"].tolist() == [12]


FORMS = {
    "utf-8": CSV,
    "utf-8 with a mark": b"\xef\xbb\xbf" + CSV,
    "sep": b"sep=,\n" + CSV,
    "sep of Excel": b'"sep=,"\r\n' + CSV.replace(b"\n", b"\r\n"),
    "a mark and sep": b"\xef\xbb\xbfSEP=,\r\n" + CSV,
    "Ctrl-Z": CSV + b"\x1a",
    "Ctrl-Z in a line": CSV.removesuffix(b"\n") + b"\x1a",
    "several of them": CSV + b"\x1a" * 3,
    "sep and Ctrl-Z": b"sep=,\n" + CSV + b"\x1a",
}
ENCODED = {
    "cp1252": ("cp1252", "", CSV.decode()),
    "utf-16 with a mark": ("utf-16", "utf-16", CSV.decode()),
    "utf-16-le with a mark": ("utf-16-le", "utf-16", "\ufeff" + CSV.decode()),
    "utf-16-be with a mark": ("utf-16-be", "utf-16", "\ufeff" + CSV.decode()),
    "utf-16-le": ("utf-16-le", "utf-16-le", CSV.decode()),
    "utf-16-be": ("utf-16-be", "utf-16-be", CSV.decode()),
    "utf-32 with a mark": ("utf-32", "utf-32", CSV.decode()),
    "utf-16 with all": ("utf-16", "utf-16", f"sep=,\r\n{CSV.decode()}\x1a"),
}


def check(settings, path):
    """The records are those of the plain file, and `init` finds the form by itself."""
    plain = load(settings)
    assert {name: column.tolist() for name, column in plain.columns.items()} == {
        "age": [12, 13],
        "sex": [1, 0],
    }
    assert count_records(settings) == 2
    found = guess(path)
    assert [(column.name, column.type) for column in found.columns] == [
        ("age", "integer"),
        ("sex", "category"),
    ]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_what_programs_write_around_a_table(dataset, form):
    """Marks, a first line for spreadsheets and the end of a file of DOS are no records and no columns."""
    settings = dataset(FORMS[form], attributes=(AGE, SEX))
    found = check(settings, Path(settings.source))
    assert (found.form.delimiter, found.form.encoding) == (",", "utf-8")


@pytest.mark.parametrize("form", ENCODED)
def test_what_programs_write_around_a_table_in_other_encodings(dataset, form):
    """The same in encodings in which a character is not one byte."""
    encoding, guessed, text = ENCODED[form]
    settings = dataset(text.encode(encoding), attributes=(AGE, SEX), csv=CsvOptions(encoding=encoding))
    found = check(settings, Path(settings.source))
    assert found.form.encoding == (guessed or "utf-8")


def test_ctrl_z_in_a_file_of_one_column(dataset):
    """It is the end there, too, and no value; inside the file it is a value that is no number."""
    assert load(dataset(b"age\r\n12\r\n13\r\n\x1a")).columns["age"].tolist() == [12, 13]
    with pytest.raises(DataError, match=r"not an integer \(1 record\)"):
        load(dataset(b"age\n12\n\x1a\n13\n"))


def test_the_delimiter_that_the_file_names_is_found_or_required(dataset):
    """`init` takes it, and another declared delimiter is an error."""
    settings = dataset(b"sep=;\nage;note\n12;a,b\n13;c,d\n")
    assert guess(Path(settings.source)).form.delimiter == ";"
    with pytest.raises(DataError, match="the first line says that the delimiter is ';', not ','") as caught:
        load(settings)
    assert "csv.delimiter" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "declared", "marked"),
    [
        (CSV.decode().encode("utf-16"), "utf-8", "utf-16"),
        (CSV.decode().encode("utf-16"), "cp1252", "utf-16"),
        (("\ufeff" + CSV.decode()).encode("utf-16-be"), "utf-16-le", "utf-16"),
        (CSV.decode().encode("utf-32"), "utf-16", "utf-32"),
        (CSV.decode().encode("utf-8-sig"), "cp1252", "utf-8"),
    ],
)
def test_a_mark_of_another_encoding_is_named(dataset, content, declared, marked):
    """What the file says about itself is the hint."""
    with pytest.raises(DataError, match=f"the file is in {marked}, as its byte order mark says") as caught:
        load(dataset(content, csv=CsvOptions(encoding=declared)))
    assert f'"{marked}"' in caught.value.hint


def test_nul_characters_are_named(dataset):
    """In the header they mean another encoding; in values they are counted, and no identifier has any."""
    with pytest.raises(DataError, match="the header has NUL characters") as caught:
        load(dataset(CSV.decode().encode("utf-16-le")))
    assert "utf-16-le" in caught.value.hint
    settings = dataset(b"id,age\np\0,12\nq,13\nr\0\0,14\n", identifier=("id",))
    with pytest.raises(DataError, match=r"column 'id': text with NUL characters \(2 records\)"):
        load(settings)
    stored = dataset(None, ".parquet", identifier=("id",))
    for ids in (pa.array(["p\0", "q"]), pa.array(["p\0", "q"]).dictionary_encode(), pa.array([b"p\0", b"q"])):
        pa.parquet.write_table(pa.table({"id": ids, "age": [1, 2]}), stored.source)
        with pytest.raises(DataError, match=r"column 'id': text with NUL characters \(1 record\)"):
            load(stored)
    assert "NUL" in guess(Path(stored.source)).columns[0].reason
