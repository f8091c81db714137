"""The data files of a release folder, read with suspicion: columns, number of records, values."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.errors import IntegrityError
from common.plan import Plan
from common.release_table import release_schema, to_units

PARQUET_FILE = "data.parquet"
CSV_FILE = "data.csv"
DATA_FILES = (PARQUET_FILE, CSV_FILE)
"""The data files a release may have, the one with types first."""
_CSV_RECORDS = 1 << 18


def check_data(path: Path, plan: Plan, n_records: int) -> None:
    """Check that a data file has the columns of the plan and as many records as the owners stated.

    Args:
        path: `data.parquet` or `data.csv`.
        plan: The plan.
        n_records: Number of records of the release.

    Raises:
        IntegrityError: If it has not.
    """
    schema = release_schema(plan)
    try:
        if path.name == PARQUET_FILE:
            with pq.ParquetFile(path) as file:
                names, found, types = file.schema_arrow.names, file.metadata.num_rows, file.schema_arrow.types
        else:
            names, types, found = [], schema.types, 0
            for table in _csv_tables(path):
                names, found = table.column_names, found + table.num_rows
    except (pa.ArrowException, OSError, ValueError) as problem:
        # Arrow's own words can quote values.
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    if (names, types) != (schema.names, schema.types):
        raise IntegrityError(f"the columns of {path.name} are not those of the plan")
    if found != n_records:
        raise IntegrityError(f"{path.name} has {found} records, the owners stated {n_records}")


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
        if path.name == PARQUET_FILE:
            table = pq.read_table(path, columns=list(names))
        else:
            table = pa.concat_tables(each.select(list(names)) for each in _csv_tables(path))
        columns = [to_units(plan.attribute(name), table.column(name)) for name in names]
    except (pa.ArrowException, OSError, ValueError, KeyError) as problem:
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    return pa.table(columns, names=list(names))


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
