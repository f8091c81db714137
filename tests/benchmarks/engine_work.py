"""One masking from Parquet to Parquet, in a process of its own: prints its seconds and peak memory as JSON.

`make FILE RECORDS ATTRIBUTES` writes the table; `memory|disk|sql|spark|job FILE OUT BYTES` does the work:
`sql` and `job` by hand.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.model.schema import Attribute, AttributeType
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import pin
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from owner_node.sources import spark_session
from owner_node.sources.spark_session import SparkSettings

LARGEST = 10**7
THREADS = 2
MASTER = f"local[{THREADS}]"
BLOCK = 2**20


def make(path: Path, n_records: int, n_attributes: int) -> None:
    """Write random integers, and a column `other` to sort by, some records at a time."""
    draw = np.random.default_rng(1)
    names = [f"value_{number}" for number in range(n_attributes)]
    schema = pa.schema([(name, pa.int64()) for name in (*names, "other")])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, n_records, BLOCK):
            size = min(BLOCK, n_records - first)
            columns = [draw.integers(0, LARGEST, size, endpoint=True) for _ in names]
            columns.append(draw.integers(0, 2**62, size))
            writer.write_table(pa.table(columns, schema=schema))


def mask(path: Path, out: Path, kind: EngineKind, memory: int) -> None:
    """Load, mask every attribute with rank noise, and write the masked columns in record order."""
    names = [name for name in pq.read_schema(path).names if name != "other"]
    attributes = tuple(Attribute(name, AttributeType.INTEGER, 0, LARGEST) for name in names)
    dataset = DatasetConfig(
        name="people", source=str(path), budget="people", total_epsilon=Decimal(9), attributes=attributes
    )
    tasks = [
        AttributeTask(each, Decimal(1), 500, "idp-joint", rank_noise=Decimal("0.03")) for each in attributes
    ]
    schema = pa.schema([(name, pa.int64()) for name in names])
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        workspace = Workspace(memory, Path(folder) / "scratch", THREADS)
        dataset = replace(dataset, spark=SparkSettings(MASTER, workspace))
        data = pin(dataset, names, kind, workspace)
        masked = mask_table(data.records.engine, tasks)
        with pq.ParquetWriter(out, schema) as writer:
            if kind is EngineKind.MEMORY:
                writer.write_table(pa.table(list(masked.values()), schema=schema), row_group_size=BLOCK)
            else:
                for columns in zip(*masked.values(), strict=True):
                    writer.write_table(pa.table(list(columns), schema=schema))
        data.records.close()
        spark_session.stop()


def job_by_hand(path: Path, out: Path, memory: int) -> None:
    """Number every column by value, then by another one, and sort back: what masking has to do at least.

    The session has the settings of the engine's.
    """
    from pyspark.sql import functions as sql

    names = [name for name in pq.read_schema(path).names if name != "other"]
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        settings = SparkSettings(MASTER, Workspace(memory, Path(folder) / "scratch", THREADS))
        table = spark_session.session(settings).read.parquet(str(path))
        for name in names:
            record = sql.col("_metadata.row_index").alias("record")
            by_value = table.select(record, name, "other").orderBy(name, "record").zipWithIndex("place")
            by_other = by_value.orderBy("other", "record").zipWithIndex("position")
            by_other.orderBy("record").select("record", "place", "position").write.parquet(f"{folder}/{name}")
        spark_session.stop()
    out.touch()


def sort_by_hand(path: Path, out: Path, memory: int) -> None:
    """Sort by value, number, sort by another column, number, sort back: what masking has to do at least."""
    import duckdb

    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        database = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{memory // 1024}KiB",
                "threads": THREADS,
                "temp_directory": folder,
                "temp_file_encryption": True,
                "force_mbedtls_unsafe": True,
            },
        )
        database.execute(f"""
            COPY (
                SELECT record, rank, row_number() OVER () AS place FROM (
                    SELECT record, other, row_number() OVER () AS rank FROM (
                        SELECT file_row_number AS record, value_0, other
                        FROM read_parquet('{path}', file_row_number = true) ORDER BY value_0, record
                    ) ORDER BY other
                ) ORDER BY record
            ) TO '{out}' (FORMAT parquet)
        """)


def measured(action: Callable[[], None]) -> None:
    """Print the seconds that an action takes, those of a processor, and the peak resident memory in bytes."""
    began = time.perf_counter()
    action()
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    processor, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "processor": processor, "peak": peak}))


def main(verb: str, file: str, *rest: str) -> None:
    """Do what the command line says."""
    path = Path(file)
    if verb == "make":
        make(path, int(rest[0]), int(rest[1]))
        return
    out, memory = Path(rest[0]), int(rest[1])
    by_hand = {"sql": sort_by_hand, "job": job_by_hand}.get(verb)
    if by_hand is not None:
        measured(lambda: by_hand(path, out, memory))
    else:
        measured(lambda: mask(path, out, EngineKind(verb), memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
