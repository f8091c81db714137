"""Sources that Spark reads: Parquet files, a table of a catalogue, or any other format that it knows.

    spark:parquet:PATH              a file or folder, or the address of one, such as s3a://bucket/folder
    spark:table:CATALOG.DB.TABLE    a table of a catalogue that `[engine] conf` declares
    spark:FORMAT?option=value&...   what `spark.read.format(FORMAT)` takes, options escaped as in a URL

Passwords and tokens are no part of a source, so that it can be shown: set them in `[engine] conf`.

Such a source has no order of its own. Its records are sorted by all columns that are read, so that they have
the same numbers whenever their content is the same: two records that could change places are equal. They
are written once, as Parquet into scratch, and read from there some at a time; the copy is removed with the
source.
"""

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode

from common.errors import ConfigurationError, InternalError
from common.progress import Progress
from owner_node.sources import spark_session
from owner_node.sources.database import SECRET
from owner_node.sources.files import NOT_PARQUET, UNREADABLE, data_files
from owner_node.sources.findings import Findings
from owner_node.sources.options import DATABASE_KEYS, OBJECT_KEYS, SourceOptions
from owner_node.sources.source import Reader, Source, Tally
from owner_node.sources.spark_session import SparkSettings

_SPARK = "spark:"
_PARQUET, _TABLE = "parquet", "table"
_SIGNED_IN = re.compile(r"//[^/@]*:[^/@]*@|:[^/:@]+/[^/:@]+@")
"""User and password before the host of an address, as "//user:password@" or Oracle's ":user/password@"."""
_FORMAT = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_TABLE_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,3}")
_EXPECTED = (
    'expected "spark:parquet:PATH", "spark:table:CATALOG.DB.TABLE" or "spark:FORMAT?option=value", such as '
    '"spark:orc?path=/data/cohort"'
)
_WITHOUT_ORDER = ("array", "map", "struct", "variant", "interval")
"""Types that are not sorted by; no attribute or identifier can be read from one."""
BATCH_RECORDS = 2**16
"""Records that are read from scratch at a time."""
_T = TypeVar("_T")


class SparkSource(Source):
    """Parquet files, a table, or another format."""

    begins = re.compile(_SPARK)
    refused: ClassVar = (
        DATABASE_KEYS
        | OBJECT_KEYS
        | {"csv": "goes with a CSV file; options of a format that Spark reads are part of the source"}
    )
    needs_spark = True

    def parse(self) -> None:
        """Take the address apart (see `Source`)."""
        rest = self.address.removeprefix(_SPARK)
        self.form, _, self.name = rest.partition(":")
        """`_PARQUET` or `_TABLE` with its path, address or name; or a format of `spark.read`."""
        self.format_options: dict[str, str] = {}
        """Options of another format."""
        if self.form == _PARQUET and self.name:
            if "://" in self.name and _SIGNED_IN.search(self.name):
                raise ValueError("its address has a password; set it in [engine] conf")
            return
        if self.form == _TABLE and _TABLE_NAME.fullmatch(self.name):
            return
        self.form, _, written = rest.partition("?")
        if self.form in (_PARQUET, _TABLE) or not _FORMAT.fullmatch(self.form):
            raise ValueError(_EXPECTED)
        self.name, self.format_options = "", dict(parse_qsl(written, keep_blank_values=True))
        if any(map(SECRET.search, self.format_options)) or any(
            "password=" in option.lower() or _SIGNED_IN.search(option)
            for option in self.format_options.values()
        ):
            raise ValueError("one of its options is a secret; set it in [engine] conf")

    @classmethod
    def normal(cls, address: str, full: Callable[[str], Path]) -> str:
        """Make the path of Parquet files absolute, and sort options (see `Source`)."""
        parsed = cls("", address, SourceOptions())
        return f"{_SPARK}{_PARQUET}:{full(parsed.name)}" if parsed.files else parsed.place

    @property
    def place(self) -> str:
        """The address, in one form (see `Source`)."""
        if self.name:
            return f"{_SPARK}{self.form}:{self.name}"
        written = urlencode(sorted(self.format_options.items()), safe="/:,*")
        return f"{_SPARK}{self.form}?{written}" if written else f"{_SPARK}{self.form}"

    @property
    def files(self) -> tuple[Path, ...]:
        """The path of Parquet files of this machine (see `Source`)."""
        return (Path(self.name),) if self.form == _PARQUET and "://" not in self.name else ()

    def open(self, findings: Findings, progress: Progress) -> Reader | None:
        """Let Spark open it; its jobs end when the step is to stop (see `Source`)."""
        if self.spark is None:
            raise ConfigurationError("there are no settings of Spark", [], "declare them in [engine]")
        with ExitStack() as closing:
            opened = SparkReader(self.spark, self, progress)
            closing.callback(opened.close)
            if not opened.describe(findings):
                return None
            closing.pop_all()
            return opened


class SparkReader(Reader):
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
        """Read columns in the types of Parquet (see `Reader`)."""
        import pyarrow.parquet as pq

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
        """Let Spark count (see `Reader`)."""
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
        if self._source.form == _TABLE:
            return reader.table(self._source.name)
        if self._source.form == _PARQUET:
            self._check_folder(session, findings)
            return None if findings else self._parquet(reader)
        return reader.format(self._source.form).options(**self._source.format_options).load()

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
        if self._source.form == _PARQUET:
            reader = spark_session.session(self._settings).read
            merged = self._parquet(reader.option("mergeSchema", "true")).schema
            first = {field.name: field.dataType for field in self._frame.schema}
            if {field.name: field.dataType for field in merged} != first:
                findings.fail(_DIFFERS, _ALIKE)
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
        findings.fail(problem, hint)
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
