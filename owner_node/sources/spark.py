"""What Spark reads as a source of records: Parquet files anywhere, tables of a catalogue, other formats.

Such a source has no order of its own. Its records are sorted by all columns that are read, so that they have
the same numbers whenever their content is the same: two records that could change places are equal. They
are written once, as Parquet into scratch, and read from there some at a time; the copy is removed with the
source.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from common.errors import ConfigurationError, InternalError
from common.progress import Progress
from owner_node.config import DatasetConfig
from owner_node.config.engine import SparkSettings
from owner_node.config.spark_source import PARQUET, TABLE, SparkSource
from owner_node.sources import spark_session
from owner_node.sources.files import BATCH_RECORDS
from owner_node.sources.findings import Findings
from owner_node.sources.folders import NOT_PARQUET, UNREADABLE, data_files
from owner_node.sources.loaded import Source, Tally

_WITHOUT_ORDER = ("array", "map", "struct", "variant", "interval")
"""Types that are not sorted by; no attribute or identifier can be read from one."""
_T = TypeVar("_T")


def open_frame(
    dataset: DatasetConfig, source: SparkSource, findings: Findings, progress: Progress
) -> Source | None:
    """Let Spark open a source, without reading a record. Its jobs end when the step is to stop.

    Returns:
        The source, or None if it cannot be used; `findings` says why.
    """
    if dataset.spark is None:
        raise ConfigurationError("there are no settings of Spark", [], "declare them in [engine]")
    with ExitStack() as closing:
        opened = SparkRecords(dataset.spark, source, progress)
        closing.callback(opened.close)
        if not opened.describe(findings):
            return None
        closing.pop_all()
        return opened


class SparkRecords(Source):
    """Records that Spark reads; its session is in use until they are closed."""

    ordered = False
    """Files may be listed, and tables scanned, in a different order every time."""

    def __init__(self, settings: SparkSettings, source: SparkSource, progress: Progress) -> None:
        self.names: Sequence[str] = ()
        self._settings, self._source, self._progress = settings, source, progress
        self._group = f"tessera-{uuid.uuid4().hex}"
        self._frame: Any = None
        self._closing = ExitStack()

    def describe(self, findings: Findings) -> bool:
        """Get the names of all columns; return whether the source can be used."""
        self._frame = self._try(lambda: self._open(findings), findings)
        if self._frame is None:
            return False
        self.names = tuple(self._frame.columns)
        return not findings and self._try(lambda: self._alike(findings), findings) is True

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns in the types of Parquet (see `Source`)."""
        path = self._try(lambda: self._write(columns), findings)
        if path is None:
            return
        for file in sorted(path.glob("part-*.parquet")):
            with pq.ParquetFile(file, pre_buffer=False) as opened:
                for batch in opened.iter_batches(BATCH_RECORDS):
                    yield [batch.column(number) for number in range(len(columns))]

    def tally(
        self,
        columns: Sequence[str],
        identifiers: Sequence[str],
        dropping: Collection[str],
        findings: Findings,
    ) -> Tally | None:
        """Let Spark count (see `Source`)."""
        from pyspark.sql import functions as sql

        def count() -> Tally:
            present = {name: self._column(name).isNotNull() for name in columns}
            for name in identifiers:
                written = sql.trim(self._column(name).cast("string"))
                present[name] = sql.coalesce(written != "", sql.lit(False))
            needed = [there for name, there in present.items() if name in dropping]
            kept = reduce(lambda one, other: one & other, needed, sql.lit(True))
            counts = [sql.count_if(kept), *(sql.count_if(kept & ~there) for there in present.values())]
            n_records, n_kept, *missing = map(int, self._frame.agg(sql.count("*"), *counts).first())
            return Tally(n_records, n_kept, dict(zip(present, missing, strict=True)))

        return self._try(count, findings) or Tally(0, 0, dict.fromkeys((*columns, *identifiers), 0))

    def close(self) -> None:
        """Remove the copy in scratch, and leave the session."""
        self._closing.close()

    def _open(self, findings: Findings) -> Any:
        """Let Spark open the source; None if a folder of Parquet files has what Spark would read wrongly."""
        session = self._closing.enter_context(spark_session.using(self._settings))
        reader = session.read
        if self._source.form == TABLE:
            return reader.table(self._source.name)
        if self._source.form == PARQUET:
            self._check_folder(session, findings)
            return None if findings else self._parquet(reader)
        return reader.format(self._source.form).options(**self._source.options).load()

    @property
    def _address(self) -> str:
        """The address of Parquet files; a path is one of the machine, whatever Spark's file system is."""
        name = self._source.name
        return name if "://" in name else f"file://{name}"

    def _check_folder(self, session: Any, findings: Findings) -> None:
        """Report files that a folder of Parquet files may not hold, local or remote."""
        path = session._jvm.org.apache.hadoop.fs.Path(self._address)  # noqa: SLF001 - pyspark has no such call
        system = path.getFileSystem(session._jsc.hadoopConfiguration())  # noqa: SLF001
        for folder in system.globStatus(path) or ():
            if folder.isDirectory():
                entries = {entry.getPath().getName(): entry for entry in system.listStatus(folder.getPath())}
                names = data_files(((name, entry.isDirectory()) for name, entry in entries.items()), findings)
                # Spark passes over empty files, which are no complete ones.
                empty = [name for name in names if not entries[name].getLen()]
                findings.add(None, NOT_PARQUET, len(empty), UNREADABLE, "files", partial(list, empty))

    def _parquet(self, reader: Any) -> Any:
        """Read Parquet files, and pass over none that is damaged or gone, whatever the session's settings."""
        for option in ("ignoreCorruptFiles", "ignoreMissingFiles"):
            reader = reader.option(option, "false")
        return reader.parquet(self._address)

    def _alike(self, findings: Findings) -> bool:
        """Report Parquet files that differ in columns: Spark would fill or leave out what differs."""
        if self._source.form == PARQUET:
            reader = spark_session.session(self._settings).read
            merged = self._parquet(reader.option("mergeSchema", "true")).schema
            first = {field.name: field.dataType for field in self._frame.schema}
            if {field.name: field.dataType for field in merged} != first:
                findings.add(None, _DIFFERS, 1, _ALIKE, counted="")
                return False
        return True

    def _write(self, columns: Sequence[str]) -> Path:
        folder = self._closing.enter_context(self._settings.workspace.folder("source"))
        chosen = self._frame.select(*(self._column(name).alias(str(n)) for n, name in enumerate(columns)))
        keys = [name for name, kind in chosen.dtypes if not kind.startswith(_WITHOUT_ORDER)]
        path = folder / "records"
        (chosen.orderBy(*keys) if keys else chosen).write.parquet(f"file://{path}")
        return path

    def _column(self, name: str) -> Any:
        """Return a column by its exact name."""
        escaped = name.replace("`", "``")
        return self._frame[f"`{escaped}`"]

    def _try(self, action: Callable[[], _T], findings: Findings) -> _T | None:
        """Run jobs; an error of the source becomes a finding, unless Spark cannot be used now."""
        try:
            with spark_session.jobs(self._settings, self._group, self._progress):
                return action()
        except Exception as error:  # noqa: BLE001 - Spark raises errors of many classes, which quote values
            fault = spark_session.explain(error)
            if not isinstance(fault, InternalError):
                raise fault from None
            text = str(error)
        problem, hint = next(
            (fault_text for sign, fault_text in _FAULTS.items() if sign in text),
            (
                f"Spark cannot read it: {fault.message}",
                "try the same source in a Spark shell with the settings of engine.conf",
            ),
        )
        findings.add(None, problem, 1, hint, counted="")
        return None


_DIFFERS = "Parquet files with different columns"
_ALIKE = "write all files with the same columns and types"
_FAULTS = {
    "PATH_NOT_FOUND": ("there is no such file or folder", "correct the path in source"),
    "TABLE_OR_VIEW_NOT_FOUND": ("there is no such table", "correct source, or the catalogue in engine.conf"),
    "DATA_SOURCE_NOT_FOUND": ("Spark has no such format", "name its archive in engine.extra_jars"),
    "CANNOT_MERGE_SCHEMAS": (_DIFFERS, _ALIKE),
    "UNABLE_TO_INFER_SCHEMA": ("this is a folder without Parquet files", "correct the path in source"),
    "CANNOT_READ_FILE_FOOTER": (NOT_PARQUET, UNREADABLE),
}
