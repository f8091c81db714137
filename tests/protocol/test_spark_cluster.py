"""Masking on a standalone cluster: the same bytes whatever fails, cancelled at once, and no key anywhere.

One master and one worker run on this machine; the worker has two executors with one core each.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import CancelledError, ConfigurationError, SourceUnreachableError
from common.model.schema import Attribute, AttributeType
from common.progress import Progress, StepStoppedError
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import PinnedData, pin
from owner_node.engines.spark import Cluster
from owner_node.loading import count_records
from owner_node.masking.mask import mask_with
from owner_node.masking.tasks import AttributeTask
from owner_node.sources.spark_session import SparkSettings
from tests.fakes.bits import SeededBits
from tests.spark_cluster import QUIET, SMALL, StandaloneCluster, free_port, standalone_cluster

pytestmark = QUIET
N_RECORDS = 20_000
MEMORY = 256 * 10**6
AGE = Attribute("age", AttributeType.INTEGER, 0, 120, spikes=(0, 60))
TASK = AttributeTask(
    AGE, Decimal(1), 25, "idp-quantiles", rank_noise=Decimal("0.03"), epsilon_spikes=Decimal("0.1")
)
WAIT_SECONDS = 240
LEAST_STRUCK = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[StandaloneCluster]:
    """One cluster for all tests, since it takes seconds to start."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    """What Spark writes of the events of a session."""
    made: Path = tmp_path_factory.mktemp("events")
    return made


@pytest.fixture(scope="module")
def settings(cluster, logs, tmp_path_factory) -> SparkSettings:
    """One session for the tests that mask: a driver and its executors take as long as their work."""
    logging = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{logs}",
    }
    made: SparkSettings = cluster.settings(tmp_path_factory.mktemp("session"), **logging)
    return made


def declared(folder: Path, settings: SparkSettings | None) -> DatasetConfig:
    """One attribute in a Parquet file."""
    ages = np.random.default_rng(1).integers(0, 121, N_RECORDS)
    pq.write_table(pa.table({"age": ages}), folder / "cohort.parquet")
    return DatasetConfig(
        name="cohort", source=str(folder / "cohort.parquet"), budget="people", total_epsilon=Decimal(3),
        attributes=(AGE,), spark=settings,
    )  # fmt: skip


def pinned(dataset: DatasetConfig, folder: Path) -> PinnedData:
    """Pin for Spark."""
    return pin(dataset, None, EngineKind.SPARK, Workspace(MEMORY, folder / "scratch", 2))


def expected(dataset: DatasetConfig, seed: int) -> list[int]:
    """Mask in memory."""
    data = pin(dataset, None, EngineKind.MEMORY, Workspace(MEMORY, Path(), 2))
    values: list[int] = mask_with(data.records.engine, TASK, SeededBits(seed)).tolist()
    return values


def masked(data: PinnedData, seed: int) -> list[int]:
    """Mask with Spark."""
    values: list[int] = np.concatenate(list(mask_with(data.records.engine, TASK, SeededBits(seed)))).tolist()
    return values


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that other processes bring about; jobs that are asked for take longer than
    the pause.
    """
    ends = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_executors_killed_again_and_again_change_nothing_and_no_key_is_logged(
    cluster, settings, logs, tmp_path
):
    """Tasks that run again draw the same bits; plans and event logs have no key.

    An executor is killed in every third job of an attribute: while ties are drawn, while noise is added to
    sorted records, while extreme values are read and while noisy places are sorted.
    """
    from owner_node.sources import spark_session

    dataset = declared(tmp_path, settings)
    struck: set[int] = set()
    with closing(pinned(dataset, tmp_path).records) as records, ThreadPoolExecutor(1) as thread:
        tracker = spark_session.session(settings).sparkContext.statusTracker()
        masking = thread.submit(masked, PinnedData(records, "", (), None), 7)  # type: ignore[arg-type]

        def strike() -> bool:
            spared = {job for job in tracker.getActiveJobsIds() if job % 3 == 1} - struck
            executors = cluster.executors()
            if spared and len(executors) == cluster.n_executors:
                executors[len(struck) % len(executors)].kill()
                struck.update(spared)
            return masking.done()

        until(strike)
        assert masking.result() == expected(dataset, 7)
    assert len(struck) >= LEAST_STRUCK
    assert not list((tmp_path / "scratch").iterdir())
    written = b"".join(path.read_bytes() for path in logs.rglob("*") if path.is_file())
    assert b"MapInArrow" in written
    key = SeededBits(7).copy_key()
    for form in (key, key.hex().encode(), b64encode(key), repr(key).encode(), str(list(key)).encode()):
        assert form not in written


def test_a_cancelled_release_cancels_its_jobs(request, settings, tmp_path):
    """Closing the records ends the work with an error that says so, and no job is left within seconds."""
    from owner_node.sources import spark_session

    session = spark_session.session(settings)
    batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
    # One record at a time takes minutes; other tests use this session, too.
    before = session.conf.get(batch)
    request.addfinalizer(lambda: session.conf.set(batch, before))
    session.conf.set(batch, "1")
    data = pinned(declared(tmp_path, settings), tmp_path)
    tracker = session.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as thread:
        masking = thread.submit(masked, data, 7)
        until(lambda: bool(tracker.getActiveJobsIds()))
        began = time.monotonic()
        data.records.close()
        with pytest.raises(CancelledError, match="was cancelled"):
            masking.result(WAIT_SECONDS)
        until(lambda: not tracker.getActiveJobsIds())
        assert time.monotonic() - began < 20
    assert not list((tmp_path / "scratch").iterdir())


def test_without_a_free_executor_nothing_waits_for_ever(request, cluster, settings, tmp_path, monkeypatch):
    """Loading for the engine and reading by Spark say so, and a step that is to stop ends.

    The machine of the executors is lost: this test is the last one that uses the cluster.
    """
    from owner_node.sources import spark_session

    spark_session.session(settings)
    request.addfinalizer(spark_session.stop)
    cluster.lose_worker()
    dataset = declared(tmp_path, settings)
    by_spark = replace(dataset, source=f"spark:parquet:{dataset.source}")
    with pytest.raises(StepStoppedError):
        count_records(by_spark, progress=Progress(is_due=lambda: False))
    monkeypatch.setattr(spark_session, "START_SECONDS", 1)
    # As doctor tries a cluster that only reads a source.
    folder = tmp_path / "doctor"
    attempts: list[Callable[[], object]] = [
        lambda: pinned(dataset, tmp_path),
        lambda: count_records(by_spark),
        lambda: Cluster(settings, folder, masks=False),
    ]
    for attempt in attempts:
        with pytest.raises(SourceUnreachableError, match="no executor of the Spark cluster is free"):
            attempt()
    assert not list((tmp_path / "scratch").iterdir())


def test_without_java_or_a_master_nothing_is_loaded(tmp_path, monkeypatch):
    """Both are errors before anything is spent, and no copy of the records stays."""
    place = f"spark://127.0.0.1:{free_port()}"
    settings = SparkSettings(place, Workspace(MEMORY, tmp_path / "session", 2), SMALL)
    dataset = declared(tmp_path, settings)
    with pytest.raises(SourceUnreachableError, match="no Spark master answers at spark://"):
        pinned(dataset, tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is no Java"):
        pinned(dataset, tmp_path)
    assert not list((tmp_path / "scratch").iterdir())
