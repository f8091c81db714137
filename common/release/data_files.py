"""The data files of a release, read as untrusted input: columns, number of records, numbering and values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common import __version__
from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.plan import Plan
from common.model.schema import Attribute
from common.release.counts import COLUMNS
from common.release.page_headers import unpacked_size
from common.release.step import step
from common.release.table import RECORD_COLUMN, file_metadata, release_schema
from common.release.values import to_units, with_derived_units

PARQUET_FILE = "data.parquet"
CSV_FILE = "data.csv"
DATA_FILES = (PARQUET_FILE, CSV_FILE)
"""The data files a release may have, the one with types first."""
_CSV_RECORDS = 1 << 18
PIECE_RECORDS = 1 << 16
"""Records that are read at a time."""
_VALUE_BYTES = 32
"""Of one value in a Parquet page: 16 of a decimal, and what encodings add."""
_PAGES_BYTES = 1 << 16
"""Of page headers and statistics in a column of a row group."""
_LONGEST_LIST = 50_000
"""Of row groups or columns in a footer: memory for a list is taken before its items are read."""


def read_data(path: Path, plan: Plan, n_records: int) -> pa.Table:
    """Read a whole data file; see `data_pieces`."""
    return pa.concat_tables(data_pieces(path, plan, n_records))


def data_pieces(path: Path, plan: Plan, n_records: int) -> Iterator[pa.Table]:
    """Read a data file that has the columns of the plan and as many records as the owners stated.

    Yields:
        Pieces of the file as it is: from CSV, texts. How many records the file has is checked after the
        last one: what a footer states is only a claim.
    """
    try:
        if path.name == PARQUET_FILE:
            check_footer(path, plan, n_records)
            with open_parquet(path) as file:
                check_sizes(path, file.metadata, label_bytes(plan.columns))
            pieces = parquet_pieces(path)
        else:
            pieces = _csv_pieces(path, plan)
        count = 0
        for piece in pieces:
            count += piece.num_rows
            if count <= n_records:
                yield piece
        _check_count(path, count, n_records)
    except (pa.ArrowException, OSError, ValueError) as problem:
        # Arrow's own words can quote values.
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None


def check_footer(path: Path, plan: Plan, n_records: int) -> pa.Schema:
    """Return the schema of a Parquet file that states the columns and the number of records it has to have.

    Raises:
        IntegrityError: If it has other columns or another number of records.
    """
    expected = release_schema(plan)
    try:
        with open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        if (schema.names, schema.types) != (expected.names, expected.types):
            raise IntegrityError(f"the columns of {path.name} are not those of the plan")
        _check_count(path, metadata.num_rows, n_records)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    return schema


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file that anybody may have written."""
    return pq.ParquetFile(path, thrift_container_size_limit=_LONGEST_LIST, pre_buffer=False)


def _check_count(path: Path, count: int, n_records: int) -> None:
    if count != n_records:
        raise IntegrityError(f"{path.name} has {count} records, the owners stated {n_records}")


def parquet_pieces(path: Path) -> Iterator[pa.Table]:
    """Read a Parquet file whose footer was checked, some rows at a time."""
    with open_parquet(path) as file:
        for batch in file.iter_batches(PIECE_RECORDS):
            yield pa.Table.from_batches([batch])


def _csv_pieces(path: Path, plan: Plan) -> Iterator[pa.Table]:
    names = release_schema(plan).names
    for piece in csv_tables(path, plan.released):
        if piece.column_names != names:
            raise IntegrityError(f"the columns of {path.name} are not those of the plan")
        yield piece


def check_descriptions(
    schema: pa.Schema, columns: pa.Schema, plan: Plan, manifest: Mapping[str, Any]
) -> bool:
    """Check what a Parquet file says about its release and its columns.

    Args:
        schema: The file's.
        columns: The schema of its table by the plan.

    Returns:
        Whether it describes the columns as this version does, word by word.

    Raises:
        IntegrityError: If it names another release or manifest, or was written by this version and describes
            a column otherwise than the plan.
    """
    expected = columns.with_metadata(file_metadata(plan, manifest))
    if not expected.metadata.items() <= (schema.metadata or {}).items():
        raise IntegrityError("it names another release or manifest than the folder's")
    # The wording may change between versions, as in `check_derived`.
    same: bool = schema.equals(expected, check_metadata=True)
    if manifest["version"] == __version__ and not same:
        raise IntegrityError("it describes its columns otherwise than the plan")
    return same


def label_bytes(attributes: Sequence[Attribute]) -> dict[str, int]:
    """Return how many bytes the labels of each attribute take once."""
    return {a.name: sum(len(label.encode()) + 4 for label in a.categories) for a in attributes}


def check_sizes(path: Path, metadata: pq.FileMetaData, text_bytes: Mapping[str, int]) -> None:
    """Check, before pages are unpacked, that columns have as many values as rows, of a plausible size."""
    with path.open("rb") as stream:
        if not _are_plausible(stream, metadata, text_bytes):
            raise IntegrityError(f"{path.name} states numbers or sizes that such columns do not have")


def _are_plausible(stream: BinaryIO, metadata: pq.FileMetaData, text_bytes: Mapping[str, int]) -> bool:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    chunks = [(group.num_rows, group.column(i)) for group in groups for i in range(group.num_columns)]
    # A footer could have pages read many times, or give one group more records than the file has.
    n_bytes = sum(chunk.total_compressed_size for _, chunk in chunks)
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows or n_bytes > stream.seek(0, SEEK_END):
        return False
    for n_rows, chunk in chunks:
        # Arrow passes over this number. Other readers may not, and would read other records.
        if chunk.num_values != n_rows:
            return False
        most = _PAGES_BYTES + _VALUE_BYTES * n_rows + text_bytes.get(chunk.path_in_schema, 0)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        if unpacked_size(stream, start, chunk.total_compressed_size, n_rows) > most:
            return False
    return True


def check_values(pieces: Mapping[str, pa.Table], plan: Plan, start: int) -> dict[str, Int64Array]:
    """Check that pieces of all data files hold the same records, numbered and within the declared domains.

    Args:
        pieces: The same records of every data file, by its name.
        start: How many records come before them.

    Returns:
        Their values by attribute, in resolution units.

    Raises:
        IntegrityError: If one does not.
    """
    for name, piece in pieces.items():
        expected = np.arange(start + 1, start + piece.num_rows + 1, dtype=np.int64)
        if not _numbers(name, piece).equals(pa.chunked_array([expected])):
            raise IntegrityError(f"the records of {name} are not numbered from 1")
    values = {}
    for attribute in plan.columns:
        first: pa.ChunkedArray | None = None
        for name, piece in pieces.items():
            units = units_within(name, piece, attribute)
            if first is not None and not units.equals(first):
                raise IntegrityError(f"{name} does not hold the same records as {next(iter(pieces))}")
            first = units
        if first is not None:
            values[attribute.name] = first.to_numpy()
    if values:
        check_derived_values(plan.released, values)
    return values


def check_derived_values(released: Sequence[Attribute], units: Mapping[str, Int64Array]) -> None:
    """Check that the values of derived attributes follow from those of others.

    Raises:
        IntegrityError: If one does not.
    """
    expected = with_derived_units(released, units)
    for name in (each.name for each in released if each.base):
        if not np.array_equal(units[name], expected[name]):
            raise IntegrityError(f"values of {name} are not those that follow from the other attribute")


def units_within(name: str, table: pa.Table, attribute: Attribute) -> pa.ChunkedArray:
    """Return the values of an attribute in resolution units.

    Args:
        name: Of the file, for errors.
        table: Columns as they were read.

    Raises:
        IntegrityError: If one is none, or is outside the declared domain.
    """
    units = _units(name, table, attribute)
    ends = pc.min_max(units).as_py()
    if units.null_count or (
        len(units) and not attribute.lower <= ends["min"] <= ends["max"] <= attribute.highest
    ):
        raise IntegrityError(f"{name} holds values of {attribute.name} that were not declared")
    return units


def _numbers(name: str, table: pa.Table) -> pa.ChunkedArray:
    try:
        return pc.cast(table.column(RECORD_COLUMN), pa.int64())
    except (pa.ArrowException, ValueError, KeyError) as problem:
        raise IntegrityError(f"{name} cannot be read ({type(problem).__name__})") from None


def _units(name: str, table: pa.Table, attribute: Attribute) -> pa.ChunkedArray:
    try:
        return to_units(attribute, table.column(attribute.name))
    except (pa.ArrowException, ValueError, KeyError) as problem:
        raise IntegrityError(f"{name} cannot be read ({type(problem).__name__})") from None


def unit_batches(path: Path, plan: Plan, names: Sequence[str], n_records: int) -> Iterator[pa.RecordBatch]:
    """Read attributes of a release back into resolution units, some records at a time.

    Yields:
        int64 columns without nulls.

    Raises:
        IntegrityError: If the file holds something else.
    """
    for piece in data_pieces(path, plan, n_records):
        units = pa.table({name: _units(path.name, piece, plan.attribute(name)) for name in names})
        if any(column.null_count for column in units.columns):
            raise IntegrityError(f"{path.name} has null values, which the plan does not allow")
        yield from units.combine_chunks().to_batches()


def csv_tables(path: Path, released: Iterable[Attribute]) -> Iterator[pa.Table]:
    """Read a CSV file in pieces, every column as text: what it must be is known from the plan.

    Of an attribute that keeps missing values an empty field is one.

    By pandas: Arrow's reader loses the line break of a quoted value where its blocks meet within CR LF.
    """
    import pandas as pd

    optional = {each.name for each in released if each.keeps_missing}
    with pd.read_csv(
        path, chunksize=_CSV_RECORDS, dtype="string", keep_default_na=False, index_col=False
    ) as pieces:
        for piece in pieces:
            table = pa.Table.from_pandas(piece, preserve_index=False)
            # No released value is an empty text, so an empty one was missing in the file.
            whole = table.drop_columns([name for name in table.column_names if name in optional])
            if any(column.null_count or pc.any(pc.equal(column, "")).as_py() for column in whole.columns):
                raise ValueError("a record has fewer values than there are columns")
            yield table


_MOST_COUNTS = 1 << 21
"""Most counts of all tables: labels of categories, and cells of the tables of pairs."""
_CELL_BYTES = 100
"""Most bytes of the text of a range of numbers."""


def read_counts(path: Path, attributes: Sequence[Attribute]) -> pa.Table:
    """Read a file of noisy counts; what it says is not checked yet."""
    hint = "do not use these files; get them again from who made them"
    with step(path.name, hint, (OSError, pa.ArrowException, ArithmeticError)):
        with open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        if (schema.names, schema.types) != (COLUMNS.names, COLUMNS.types):
            raise IntegrityError("it has other columns")
        if metadata.num_rows > _MOST_COUNTS:
            raise IntegrityError("it has more counts than a release can have")
        # Each label stands in a cell of its own, and in one of several.
        texts = 3 * sum(label_bytes(attributes).values()) + _CELL_BYTES * metadata.num_rows + (1 << 16)
        check_sizes(path, metadata, dict.fromkeys(COLUMNS.names, texts))
        return pa.concat_tables(parquet_pieces(path)).unify_dictionaries()
