"""The Spark engine gives the fragment of the memory engine, byte for byte, from the same key and source.

Partitions of a few records have their borders inside clusters, inside ties and inside persons.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common.errors import CancelledError, InternalError
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import PinnedData, pin
from owner_node.engines.spark import Cluster
from owner_node.masking.mask import mask_with
from owner_node.masking.tasks import AttributeTask
from owner_node.sources.spark_session import SparkSettings
from tests.fakes.bits import SeededBits
from tests.properties.test_engines import (
    ATTRIBUTES,
    COLOURS,
    MEMORY,
    NAMES,
    RELEASE_KEY,
    SOURCE_KEY,
    TAXONOMY,
    fragment,
    outcome,
    tables,
    tasks,
)
from tests.spark_cluster import QUIET, SMALL

pytestmark = QUIET


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSettings]:
    """One session for all examples: batches and partitions of a few records."""
    from owner_node.sources import spark_session

    with TemporaryDirectory() as folder:
        workspace = Workspace(MEMORY, Path(folder), 2)
        few = {
            "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
            "spark.sql.files.maxPartitionBytes": "900",
        }
        yield SparkSettings("local[2]", workspace, SMALL | few)
        spark_session.stop()


def test_a_plan_that_needs_one_task_for_all_records_is_refused(spark, tmp_path):
    """A window without partitions would bring a cluster's records to one machine."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    cluster = Cluster(spark, tmp_path)
    with closing(cluster), cluster.work() as session:
        records = session.range(9)
        cluster.written(records.orderBy("id").zipWithIndex("place"))
        numbered = records.select(sql.row_number().over(Window.orderBy("id")).alias("place"))
        with pytest.raises(InternalError, match="all records to one task"):
            cluster.written(numbered)


def test_a_job_that_begins_after_the_end_writes_nothing(spark, tmp_path):
    """Work that was cancelled between two jobs begins no other, and no folder is there again."""
    folder = tmp_path / "records"
    folder.mkdir()
    cluster = Cluster(spark, folder)

    def write_late() -> None:
        with cluster.work() as session:
            cluster.close()
            folder.rmdir()
            session.range(9).write.parquet(f"file://{folder / '0.spark'}")

    with pytest.raises(CancelledError, match="was cancelled"):
        write_late()
    assert not folder.exists()
    # The next work in this thread is not cancelled with it.
    folder.mkdir()
    with closing(Cluster(spark, folder)) as other, other.work() as session:
        assert session.range(9).count() == 9


def test_cancelled_work_ends_after_its_tasks(spark, tmp_path):
    """A task that is being killed would make the folder again that is removed then."""
    started = tmp_path / "started"

    def endless(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            started.touch()
            time.sleep(60)
        yield from ()

    cluster = Cluster(spark, tmp_path)

    def write() -> None:
        with cluster.work() as session:
            session.range(9).mapInArrow(endless, "id long").write.parquet(f"file://{tmp_path / 'written'}")

    with cluster.work() as session, ThreadPoolExecutor(1) as thread:
        tracker = session.sparkContext.statusTracker()
        writing = thread.submit(write)
        while not started.exists():
            assert not writing.done()
            time.sleep(0.1)
        stages = tracker.getActiveStageIds()
        cluster.close()
        with pytest.raises(CancelledError):
            writing.result()
        assert [tracker.getStageInfo(each).numActiveTasks for each in stages] == [0]
    assert not tmp_path.exists()


FIXED = {
    "age": ("dp-hist", "0.05"),
    "pay": ("idp-quantiles", "0.05"),
    "far": ("idp-joint", "0.5"),
    "born": ("dp", "0"),
    "lab": ("dp-hist", "0.05"),
    "colour": ("dp-quantiles", "0"),
    "often": ("idp-ls", "0.01"),
    "drawn": ("exponential", "0.05"),
}


def test_every_kind_of_mechanism_gives_the_same_fragment(spark, tmp_path):
    """One table with ties everywhere: lists of clusters, of counts, of places, and noise for each record."""
    draw = random.Random(1)
    rows = [
        f"p{row},{draw.randint(-3, 9)},{draw.randint(0, 999)}.5,{draw.randint(-5, 2**40)},"
        f"19{draw.randint(70, 99)}-01-01,{draw.choice(('', '7.5'))},{draw.choice(COLOURS)},"
        f"{draw.choice(COLOURS[:2])},{draw.choice((*COLOURS, ''))}"
        for row in range(57)
    ]
    (tmp_path / "cohort.csv").write_text("\n".join([",".join(("id", *NAMES)), *rows, ""]))
    dataset = DatasetConfig(
        name="cohort", source=str(tmp_path / "cohort.csv"), budget="people", total_epsilon=Decimal(3),
        identifier=("id",), attributes=ATTRIBUTES, missing="drop", missing_in={"lab": "category"},
        taxonomies={"drawn": TAXONOMY}, spark=spark,
    )  # fmt: skip
    chosen = []
    for attribute in ATTRIBUTES:
        mechanism, noise = FIXED[attribute.name]
        taxonomy = TAXONOMY if attribute.name == "drawn" else None
        k = None if mechanism in ("dp", "dp-hist") else 5
        chosen.append(
            AttributeTask(attribute, Decimal(1), k, mechanism, taxonomy=taxonomy, rank_noise=Decimal(noise))
        )
    workspace = Workspace(MEMORY, tmp_path / "scratch", 2)
    memory = pin(dataset, NAMES, EngineKind.MEMORY, workspace, RELEASE_KEY, SOURCE_KEY)
    clustered = pin(dataset, NAMES, EngineKind.SPARK, workspace, RELEASE_KEY, SOURCE_KEY, 7)
    with closing(clustered.records):
        expected = fragment(memory, tuple(chosen), 9, aligned=True)
        assert fragment(clustered, tuple(chosen), 9, aligned=True) == expected


@settings(
    deadline=None,
    max_examples=4,
    # An example takes seconds: a failing one is shown as it was found.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(table=tables(), chosen=tasks(), seed=st.integers(1, 2**32), batch_records=st.integers(1, 9))
def test_spark_masks_as_memory_does(spark, table, chosen, seed, batch_records):
    """Digests, tokens and masked columns are equal, for every mechanism, with rank noise or not."""
    dataset, text = table
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cohort.csv"
        path.write_text(text)
        dataset = replace(dataset, source=str(path), spark=spark)
        workspace = Workspace(MEMORY, Path(folder) / "scratch", 2)

        def pinned(kind: EngineKind) -> PinnedData:
            return pin(dataset, NAMES, kind, workspace, RELEASE_KEY, SOURCE_KEY, batch_records)

        memory = outcome(lambda: pinned(EngineKind.MEMORY))
        clustered = outcome(lambda: pinned(EngineKind.SPARK))
        if isinstance(memory, tuple):
            assert clustered == memory
            return
        with closing(clustered.records):
            assert (clustered.digest, clustered.known_by) == (memory.digest, memory.known_by)
            assert clustered.records.token_list().read_bytes() == memory.records.token_list()
            for task in chosen[seed % 5 : seed % 5 + 3]:
                expected = outcome(partial(masked, memory, task, seed))
                assert outcome(partial(masked, clustered, task, seed)) == expected
        assert not list((Path(folder) / "scratch").iterdir())


def masked(data: PinnedData, task: AttributeTask, seed: int) -> list[int]:
    """Mask an attribute under a key that follows from a number."""
    data.records.engine.check([task])
    column = mask_with(data.records.engine, task, SeededBits(seed))
    return column.tolist() if isinstance(column, np.ndarray) else np.concatenate(list(column)).tolist()
