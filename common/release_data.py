"""The data files of a release folder, read with suspicion: columns, number of records, values."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.errors import IntegrityError
from common.plan import Plan
from common.release_table import RECORD_COLUMN, release_schema, to_units
from common.schema import Attribute

PARQUET_FILE = "data.parquet"
CSV_FILE = "data.csv"
DATA_FILES = (PARQUET_FILE, CSV_FILE)
"""The data files a release may have, the one with types first."""
_CSV_RECORDS = 1 << 18


def read_data(path: Path, plan: Plan, n_records: int) -> pa.Table:
    """Read a data file that has the columns of the plan and as many records as the owners stated.

    Args:
        path: `data.parquet` or `data.csv`.
        plan: The plan.
        n_records: Number of records of the release.

    Returns:
        The file as it is: from CSV, texts.

    Raises:
        IntegrityError: If it has other columns, or another number of records.
    """
    schema = release_schema(plan)
    try:
        if path.name == PARQUET_FILE:
            with pq.ParquetFile(path) as file:
                names, found, types = file.schema_arrow.names, file.metadata.num_rows, file.schema_arrow.types
                table = file.read() if (names, types) == (schema.names, schema.types) else None
        else:
            # Once, although it is looked at in several ways: reading CSV takes longer than all of them.
            table = pa.concat_tables(_csv_tables(path))
            names, found, types = table.column_names, table.num_rows, schema.types
    except (pa.ArrowException, OSError, ValueError) as problem:
        # Arrow's own words can quote values.
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    if (names, types) != (schema.names, schema.types):
        raise IntegrityError(f"the columns of {path.name} are not those of the plan")
    if found != n_records:
        raise IntegrityError(f"{path.name} has {found} records, the owners stated {n_records}")
    return table


def check_values(tables: Mapping[str, pa.Table], plan: Plan) -> None:
    """Check that every data file holds the same records, numbered from 1, within the declared domains.

    Args:
        tables: The data files by name, from `read_data`.
        plan: The plan.

    Raises:
        IntegrityError: If one does not.
    """
    for name, table in tables.items():
        numbers = _numbers(name, table)
        if not numbers.equals(pa.chunked_array([np.arange(1, len(numbers) + 1, dtype=np.int64)])):
            raise IntegrityError(f"the records of {name} are not numbered from 1")
    # One attribute at a time: the values of all would be as large as the files.
    for attribute in plan.attributes:
        first: pa.ChunkedArray | None = None
        for name, table in tables.items():
            units = _units(name, table, attribute)
            ends = pc.min_max(units).as_py()
            outside = len(units) and not attribute.lower <= ends["min"] <= ends["max"] <= attribute.upper
            if units.null_count or outside:
                raise IntegrityError(f"{name} holds values of {attribute.name} that the plan does not have")
            if first is not None and not units.equals(first):
                raise IntegrityError(f"{name} does not hold the same records as {next(iter(tables))}")
            first = units


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


def _columns(path: Path, names: Sequence[str]) -> pa.Table:
    if path.name == PARQUET_FILE:
        return pq.read_table(path, columns=list(names))
    return pa.concat_tables(each.select(list(names)) for each in _csv_tables(path))


def read_units(path: Path, plan: Plan, names: Sequence[str]) -> pa.Table:
    """Read attributes of a release back into resolution units.

    Args:
        path: `data.parquet` or `data.csv`.
        plan: The plan.
        names: Attributes to read.

    Returns:
        int64 columns.

    Raises:
        IntegrityError: If the file holds something else.
    """
    try:
        table = _columns(path, names)
    except (pa.ArrowException, OSError, ValueError, KeyError) as problem:
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    return pa.table({each: _units(path.name, table, plan.attribute(each)) for each in names})


def _csv_tables(path: Path) -> Iterator[pa.Table]:
    """Read a CSV file in pieces, every column as text: what it must be is known from the plan.

    By pandas: Arrow's reader loses the line break of a quoted value where its blocks meet within CR LF.
    """
    import pandas as pd

    with pd.read_csv(
        path, chunksize=_CSV_RECORDS, dtype="string", keep_default_na=False, index_col=False
    ) as pieces:
        for piece in pieces:
            table = pa.Table.from_pandas(piece, preserve_index=False)
            # No released value is an empty text, so an empty one was missing in the file.
            if any(column.null_count or pc.any(pc.equal(column, "")).as_py() for column in table.columns):
                raise ValueError("a record has fewer values than there are columns")
            yield table
