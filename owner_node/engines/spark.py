"""The engine for tables that do not fit into a machine: Spark sorts, numbers and writes the records.

Columns are files of the snapshot, as for the disk engine; the number of a record is its row. An attribute
with rank noise takes three sorts:

    records with value, tie-breaker and noise  → by (value, tie-breaker, record)   statistics, positions
    records with noisy position and tie        → by (noisy position, tie, record)  places of the list
    records with masked value                  → by record                         the masked column

Every order is total, so that the borders of partitions, a task that runs again and a lost executor change
nothing. What is drawn, and what the first sort gives, is written to scratch before anything is computed from
it: Spark would otherwise draw and sort again where it needs it again. Records are numbered by
`DataFrame.zipWithIndex`; a window without partitions would bring all of them to one task, and a plan that
does so is refused.

What decides anything is computed in this process from one number per cluster or per declared value, by the
same code as in memory. The masked column is read in the order of the records, which is asserted.
"""

import logging
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from common.errors import InternalError
from common.progress import Progress
from owner_node.engines import spark_tasks
from owner_node.engines.column_files import ColumnFile
from owner_node.engines.sorting import ascending_from, cancellation
from owner_node.engines.streamed import StreamedEngine
from owner_node.masking.arrays import BitSource, Int64Array, Purpose
from owner_node.masking.clusters import Clusters, ClusterStatistics
from owner_node.masking.engine import EachMasked
from owner_node.masking.lists import ListMechanism, ReleasedList, Statistics, StreamedList
from owner_node.masking.order import KEY_BITS, TIE_BITS
from owner_node.masking.tasks import AttributeTask, IndexOrder, mechanism_of
from owner_node.sources.spark_session import SparkSettings, explain, jobs, running, session, using

_log = logging.getLogger(__name__)
RECORDS_PER_PARTITION = 2**20
"""Records of a partition that is written in record order, at most."""
_SINGLE = "SinglePartition"


class Cluster:
    """The Spark session as the records of one data set use it.

    It is in use, so that it is not ended, in a block of `work` and while it holds a broadcast: not while the
    records wait for other owners.

    Args:
        folder: A private folder that the driver and all executors read and write.
        masks: Whether executors need the libraries of this package; not where Spark only reads a source.
    """

    def __init__(
        self, settings: SparkSettings, folder: Path, progress: Progress | None = None, *, masks: bool = True
    ) -> None:
        self._settings, self._folder, self._progress = settings, folder, progress or Progress()
        self._group = f"tessera-{uuid.uuid4().hex}"
        self._numbers = count()
        self._lock, self._closed = Lock(), False
        self._broadcasts: dict[Any, ExitStack] = {}
        """With what ends that the session is in use for them."""
        self._probe(masks=masks)

    def session(self) -> Any:
        """Return the session, started again if its driver has ended."""
        self._check()
        return session(self._settings)

    def _check(self) -> None:
        if self._closed:
            raise cancellation()

    def _probe(self, *, masks: bool) -> None:
        """Start the session, and run a task on an executor, which imports what masking needs."""

        def import_package(batches: Iterator[Any]) -> Iterator[Any]:
            import owner_node.engines.spark_tasks  # noqa: F401

            yield from batches

        with self.work() as spark:
            if not self._settings.is_local:
                one = spark.range(1)
                (one.mapInArrow(import_package, "id long") if masks else one).collect()

    @contextmanager
    def work(self) -> Iterator[Any]:
        """Run a block, not nested, whose jobs `close` cancels.

        Raises:
            StepStoppedError: If the step is to stop.
            TesseraError, OSError: As `spark_session.jobs` and `explain` say.
        """
        self._check()
        try:
            with jobs(self._settings, self._group, self._progress) as spark:
                yield spark
        except Exception as error:  # noqa: BLE001 - Spark raises errors of many classes
            if self._closed:
                raise cancellation() from None
            raise explain(error) from None
        finally:
            if self._closed:
                # Spark makes folders that are missing, so this one may be there again.
                shutil.rmtree(self._folder, ignore_errors=True)

    def broadcast(self, value: bytes) -> Any:
        """Within `work`, send bytes to the executors, until they are forgotten."""
        with ExitStack() as use:
            made = use.enter_context(using(self._settings)).sparkContext.broadcast(value)
            with self._lock:
                self._check()
                self._broadcasts[made] = use.pop_all()
        return made

    def forget(self, *broadcasts: Any) -> None:
        """Delete broadcasts everywhere."""
        for broadcast in broadcasts:
            with self._lock:
                use = self._broadcasts.pop(broadcast, None)
            if use is not None:
                with use, suppress(Exception):  # its process may have ended, and the executors with it
                    broadcast.destroy()

    def written(self, frame: Any) -> Path:
        """Within `work`, compute a data frame once, into Parquet files of the folder."""
        if _SINGLE in frame._jdf.queryExecution().executedPlan().toString():  # noqa: SLF001 - no other call
            raise InternalError("a plan of Spark brings all records to one task")
        self._check()
        path = self._folder / f"{next(self._numbers)}.spark"
        frame.write.parquet(f"file://{path}")
        return path

    def read(self, path: Path, columns: Iterable[str]) -> Any:
        """Within `work`, return a data frame of integer columns of Parquet files."""
        # Without a schema, Spark would run a job to find one.
        reader = self.session().read.schema(spark_tasks.spark_schema(columns))
        return reader.parquet(f"file://{path}")

    def close(self) -> None:
        """Cancel what runs and what would run next, and delete what executors keep."""
        with self._lock:
            self._closed = True
            left = tuple(self._broadcasts)
        spark = running(self._settings)
        if spark is not None:
            with suppress(Exception):  # its process may end in this moment
                spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)  # noqa: SLF001 - as above
        self.forget(*left)


@dataclass(frozen=True, slots=True, repr=False)
class SparkEngine(StreamedEngine):
    """Records as column files, masked by a Spark cluster."""

    cluster: Cluster

    def close(self) -> None:
        """As `StreamedEngine.close`; and jobs of Spark are cancelled."""
        self.cluster.close()
        super(SparkEngine, self).close()

    def in_order(self, task: AttributeTask, bits: BitSource) -> "_OrderedFrame":
        """As `Engine.in_order`."""
        with self.cluster.work():
            return _OrderedFrame(self, task, bits, self.order_of(task))

    def write(
        self, task: AttributeTask, released: ReleasedList | StreamedList, assignment: "Assigned"
    ) -> ColumnFile:
        """As `Engine.write`."""
        from pyspark import cloudpickle

        with self.cluster.work():
            recipe = self.cluster.broadcast(cloudpickle.dumps(released.recipe()))
            applied = spark_tasks.apply_list(recipe, assignment.key)
            masked = assignment.frame.mapInArrow(applied, spark_tasks.spark_schema(spark_tasks.MASKED))
            column = self._by_record(task, masked)
            self.cluster.forget(recipe, assignment.key)
        shutil.rmtree(assignment.path, ignore_errors=True)
        return column

    def write_each(self, task: AttributeTask, bits: BitSource, masked: EachMasked) -> ColumnFile:
        """As `Engine.write_each`."""
        with self.cluster.work():
            key = self.cluster.broadcast(bits.copy_key())
            applied = spark_tasks.mask_each(masked, key)
            schema = spark_tasks.spark_schema(spark_tasks.MASKED)
            column = self._by_record(task, self.column(task).mapInArrow(applied, schema))
            self.cluster.forget(key)
        return column

    def column(self, task: AttributeTask) -> Any:
        """Return the original values of an attribute as a data frame of `record` and `column`."""
        from pyspark.sql import functions as sql

        frame = self.cluster.read(self.columns[task.attribute.name].path, ["column"])
        return frame.select(sql.col("_metadata.row_index").alias("record"), sql.col("column"))

    def _by_record(self, task: AttributeTask, masked: Any) -> ColumnFile:
        """Sort masked values by record, and read them into a column file."""
        from pyspark.sql import functions as sql

        n_records = self.n_records
        wanted = self.cluster.session().sparkContext.defaultParallelism
        n_parts = max(2, wanted, -(-n_records // RECORDS_PER_PARTITION))
        # Record numbers are dense: borders between partitions need no sample.
        part = sql.expr(f"CAST(record * {n_parts} DIV {n_records} AS INT)")
        path = self.cluster.written(masked.repartitionById(n_parts, part).sortWithinPartitions("record"))
        with self._masked_column(task) as writer:
            first = 0
            for records, values in _batches(path, self.desk.batch_records, "record", "masked"):
                first += ascending_from(records, first).size
                writer.write(values)
                self.desk.progress.advance(records.size / 2)
        shutil.rmtree(path, ignore_errors=True)
        _log.info("attribute masked", extra={"attribute": task.attribute.name})
        if first != n_records:
            raise InternalError("records are missing from what Spark wrote")
        return writer.result()


@dataclass(frozen=True, slots=True)
class Assigned:
    """The record at every place of a list."""

    frame: Any
    """A data frame of `record` and `place`."""
    path: Path
    """The files that it is computed from."""
    key: Any
    """Broadcast of the key of the masking."""


class _OrderedFrame:
    """The records in the order of one attribute: sorted when the list is made, assigned afterwards."""

    def __init__(
        self, engine: SparkEngine, task: AttributeTask, bits: BitSource, order: IndexOrder | None
    ) -> None:
        self.order = order
        self._engine, self._task, self._cluster = engine, task, engine.cluster
        self._n_records = engine.n_records
        self._record_bits = (self._n_records - 1).bit_length()
        self._key = self._cluster.broadcast(bits.copy_key())
        self._sorted: tuple[Path, list[str]] | None = None

    def release(
        self, mechanism: ListMechanism, bits: BitSource, units: Callable[[Int64Array], Int64Array]
    ) -> ReleasedList | StreamedList:
        """As `OrderedRecords.release`."""
        with self._cluster.work():
            statistics = self._statistics()
        released = mechanism.stream_from(
            statistics, self._task.setting, bits.of(Purpose.LIST), bits.of(Purpose.SHUFFLE)
        )
        return released.mapped(units)

    def assign(self) -> Assigned:
        """As `OrderedRecords.assign`."""
        from pyspark.sql import functions as sql

        with self._cluster.work():
            path, columns = self._by_value()
            frame = self._cluster.read(path, columns)
            record = sql.col("low").bitwiseAND(sql.lit((1 << self._record_bits) - 1)).alias("record")
            if self._task.rank_noise:
                frame = frame.select("noisy", "low").orderBy("noisy", "low").zipWithIndex("place")
            else:
                frame = frame.withColumnRenamed("position", "place")
            return Assigned(frame.select(record, "place"), path, self._key)

    def _by_value(self) -> tuple[Path, list[str]]:
        """Sort by value, tie-breaker and record, number the positions, and add the noise to them.

        Returns:
            The files of that, and their columns.
        """
        if self._sorted is not None:
            return self._sorted
        from pyspark.sql import functions as sql

        task, n_records, noisy = self._task, self._n_records, bool(self._task.rank_noise)
        placed = spark_tasks.place(task, n_records, _placing(task, self.order), self._key)
        schema = spark_tasks.spark_schema(spark_tasks.PLACED)
        # Written before it is sorted: Spark would draw once to find the borders of partitions, and once more.
        made = self._cluster.written(self._engine.column(task).mapInArrow(placed, schema))
        frame = self._cluster.read(made, spark_tasks.PLACED)
        low_bits = self._record_bits + TIE_BITS * noisy
        if (task.attribute.n_values - 1).bit_length() + low_bits <= KEY_BITS:
            # Spark sorts one integer faster than two.
            ordered = frame.orderBy(sql.shiftleft("value", low_bits).bitwiseOR(sql.col("low")))
        else:
            ordered = frame.orderBy("value", "low")
        numbered = ordered.zipWithIndex("position")
        if noisy:
            added = spark_tasks.add_noise(task, n_records, self._key)
            numbered = numbered.mapInArrow(added, spark_tasks.spark_schema(spark_tasks.POSITIONED))
        self._sorted = self._cluster.written(numbered), numbered.columns
        shutil.rmtree(made, ignore_errors=True)
        self._engine.desk.progress.advance(n_records / 2)
        return self._sorted

    def _statistics(self) -> Statistics:
        """Compute what the list is made from: Spark aggregates, and this process gets a row per cluster."""
        mechanism, setting = mechanism_of(self._task), self._task.setting
        depth = mechanism.depth(setting)
        frame = self._cluster.read(*self._by_value())
        if depth is None:
            return self._counts(frame)
        statistics = self._of_clusters(frame, Clusters(self._n_records, setting.k), depth)
        tail = mechanism.tail(setting, self._n_records)
        if setting.spikes:
            statistics = replace(statistics, at_spikes=self._at_spikes(frame, setting.spikes))
        if not tail:
            return statistics
        smallest, largest = (self._between(frame, first, tail) for first in (0, self._n_records - tail))
        return replace(statistics, smallest=smallest, largest=largest)

    def _between(self, frame: Any, first: int, count: int) -> Int64Array:
        """Return the values at some consecutive positions."""
        chosen = frame.where(f"position >= {first}L AND position < {first + count}L")
        values = np.zeros(count, dtype=np.int64)
        for batch_values, positions in self._rows(chosen, "value", "position"):
            values[positions - first] = batch_values
        return values

    def _at_spikes(self, frame: Any, spikes: Sequence[int]) -> Int64Array:
        listed = ", ".join(f"{spike}L" for spike in spikes)
        counts = dict.fromkeys(spikes, 0)
        counted = frame.where(f"value IN ({listed})").groupBy("value").count()
        for values, batch_counts in self._rows(counted, "value", "count"):
            counts |= dict(zip(values.tolist(), batch_counts.tolist(), strict=True))
        return np.array(list(counts.values()), dtype=np.int64)

    def _counts(self, frame: Any) -> Int64Array:
        counts = np.zeros(self._task.attribute.n_values, dtype=np.int64)
        for values, batch_counts in self._rows(frame.groupBy("value").count(), "value", "count"):
            counts[values] = batch_counts
        return counts

    def _of_clusters(self, frame: Any, clusters: Clusters, depth: int) -> ClusterStatistics:
        from pyspark.sql import functions as sql

        last, k = clusters.n_clusters - 1, clusters.k
        placed = frame.select(
            "value", "position", sql.expr(f"LEAST(position DIV {k}, {last}L)").alias("cluster")
        ).withColumn("within", sql.expr(f"position - cluster * {k}L"))
        size = sql.when(sql.col("cluster") == last, clusters.last_size).otherwise(k)
        value, within = sql.col("value"), sql.col("within")
        ends = [sql.max(sql.when(within == index, value)).alias(f"low{index}") for index in range(depth)]
        ends += [
            sql.max(sql.when(within == size - depth + index, value)).alias(f"high{index}")
            for index in range(depth)
        ]
        names = ["cluster", "total", *(f"{end}{index}" for end in ("low", "high") for index in range(depth))]
        grouped = placed.groupBy("cluster").agg(sql.sum("value").alias("total"), *ends)
        sums = np.zeros(clusters.n_clusters, dtype=np.int64)
        end_values = np.zeros((clusters.n_clusters, 2 * depth), dtype=np.int64)
        n_found = 0
        for numbers, totals, *values in self._rows(grouped, *names):
            n_found += numbers.size
            sums[numbers] = totals
            for index, end in enumerate(values):
                end_values[numbers, index] = end
        if n_found != clusters.n_clusters:
            raise InternalError("clusters are missing from what Spark computed")
        return ClusterStatistics(clusters, sums, end_values[:, :depth], end_values[:, depth:])

    def _rows(self, frame: Any, *names: str) -> Iterator[list[Int64Array]]:
        """Let Spark compute a data frame, and read its integer columns, some rows at a time."""
        path = self._cluster.written(frame)
        yield from _batches(path, self._engine.desk.batch_records, *names)
        shutil.rmtree(path, ignore_errors=True)


def _placing(task: AttributeTask, order: IndexOrder | None) -> spark_tasks.Placing:
    """Return what places values, free of anything else of the engine."""
    lower = task.attribute.lower
    if order is None:
        return lambda values: values - lower
    places = order.place_of
    return lambda values: places[values]


def _batches(path: Path, batch_records: int, *names: str) -> Iterator[list[Int64Array]]:
    """Read integer columns of what Spark wrote, in the order of its partitions."""
    for file in sorted(path.glob("part-*.parquet")):
        with pq.ParquetFile(file, pre_buffer=False) as opened:
            for batch in opened.iter_batches(batch_records, columns=list(names), use_threads=False):
                yield [batch.column(name).to_numpy().astype(np.int64, copy=False) for name in names]
