"""The data files of a release folder, read with suspicion: columns, number of records, values."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from common.errors import IntegrityError
from common.plan import Plan
from common.release_table import release_schema, to_units

PARQUET_FILE = "data.parquet"
CSV_FILE = "data.csv"
DATA_FILES = (PARQUET_FILE, CSV_FILE)
"""The data files a release may have, the one with types first."""


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
            names, types = schema.names, schema.types
            with _open_csv(path) as batches:
                names = batches.schema.names
                found = sum(batch.num_rows for batch in batches)
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
            with _open_csv(path, names) as batches:
                table = batches.read_all()
        columns = [to_units(plan.attribute(name), table.column(name)) for name in names]
    except (pa.ArrowException, OSError, ValueError, KeyError) as problem:
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    return pa.table(columns, names=list(names))


def _open_csv(path: Path, names: Sequence[str] | None = None) -> pyarrow.csv.CSVStreamingReader:
    """Read every column as text: what it must be is known from the plan, nothing is guessed."""
    with path.open("rb") as stream:
        header = pyarrow.csv.open_csv(stream, parse_options=_PARSE).schema.names
    texts = dict.fromkeys(header, pa.string())
    convert = pyarrow.csv.ConvertOptions(
        column_types=texts, include_columns=list(names or header), strings_can_be_null=False
    )
    return pyarrow.csv.open_csv(path, parse_options=_PARSE, convert_options=convert)


_PARSE = pyarrow.csv.ParseOptions(newlines_in_values=True)
