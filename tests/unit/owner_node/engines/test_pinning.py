"""What is pinned in scratch, when it is removed, and what is said where it cannot be."""

import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import CancelledError, CannotStoreError, DataError, UnusableDataError
from common.files import disk_reason
from common.model.schema import Attribute, AttributeType
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import MemoryRecords, PinnedData, pin
from owner_node.engines.sampling import sampled
from owner_node.engines.snapshot import SnapshotRecords
from owner_node.engines.sorting import Sorter
from owner_node.loading import open_reading
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.forecast import forecast
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from tests.small_disk import SmallDisk

MEMORY = 256 * 10**6
AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
TASK = AttributeTask(AGE, Decimal(1), 25, "idp-quantiles", rank_noise=Decimal("0.03"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The smallest memory that a configuration may name."""
    return Workspace(MEMORY, tmp_path / "scratch", 2)


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetConfig:
    """Ten thousand records in three Parquet files of a folder."""
    folder = tmp_path / "cohort"
    folder.mkdir()
    ages = np.random.default_rng(1).integers(0, 121, 10_000)
    for number, part in enumerate(np.array_split(ages, 3)):
        first = number * 5000
        people = [f"p{first + row}" for row in range(part.size)]
        pq.write_table(pa.table({"id": people, "age": part}), folder / f"part-{number}.parquet")
    return DatasetConfig(
        name="cohort", source=str(folder), budget="people", total_epsilon=Decimal(3), identifier=("id",),
        attributes=(AGE,),
    )  # fmt: skip


def in_scratch(dataset: DatasetConfig, workspace: Workspace) -> PinnedData:
    """Pin on disk, in batches that do not divide the number of records."""
    return pin(dataset, None, EngineKind.DISK, workspace, b"r" * 32, batch_records=999)


def test_a_folder_is_read_in_the_order_of_its_files(dataset, workspace):
    """Both engines number the records alike, file after file."""
    memory = pin(dataset, None, EngineKind.MEMORY, workspace)
    streamed = in_scratch(dataset, workspace)
    with closing(streamed.records):
        assert streamed.digest == memory.digest
        assert streamed.records.engine.n_records == 10_000


def test_scratch_is_private_and_empty_afterwards(dataset, workspace):
    """Only the owner node's account can read original values; they go with the release."""
    with closing(in_scratch(dataset, workspace).records) as records:
        mask_table(records.engine, [TASK])
        made = list(workspace.scratch.rglob("*"))
        assert made
        for path in [workspace.scratch, *made]:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077 or path.parent.parent != workspace.scratch
        for folder in workspace.scratch.iterdir():
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not list(workspace.scratch.iterdir())


def test_no_identifier_stays_in_scratch(dataset, workspace):
    """Identifiers serve to make tokens and digests; none of them is left once these are made."""
    with closing(in_scratch(dataset, workspace).records):
        for path in workspace.scratch.rglob("*"):
            assert not path.is_file() or b"p9999" not in path.read_bytes()


def test_what_a_killed_process_left_is_removed_at_the_next_start(dataset, workspace):
    """Every program clears the folder before it uses it, but for what a running one has pinned."""
    records = in_scratch(dataset, workspace).records
    (own,) = workspace.scratch.iterdir()
    shutil.copytree(own, own.with_name(f"{own.name}-left"))
    workspace.clear()
    assert list(workspace.scratch.iterdir()) == [own]
    records.close()
    assert not list(workspace.scratch.iterdir())


def test_what_fits_stays_in_memory_and_the_rest_goes_to_scratch(dataset, workspace):
    """`auto` decides while the source is read: four tables have to fit."""
    small = pin(dataset, None, EngineKind.AUTO, workspace)
    assert isinstance(small.records, MemoryRecords)
    large = pin(dataset, None, EngineKind.AUTO, replace(workspace, memory=400_000), b"r" * 32)
    assert isinstance(large.records, SnapshotRecords)
    with closing(large.records):
        assert large.digest == small.digest


def test_files_of_other_columns_are_refused(dataset, workspace, tmp_path):
    """The folder as a whole is the data set: no file of another form is left out, or read in part."""
    pq.write_table(pa.table({"id": ["p1"], "age": ["forty"]}), tmp_path / "cohort" / "part-9.parquet")
    with pytest.raises(DataError, match=r"files with other columns than 'part-0\.parquet'"):
        in_scratch(dataset, workspace)
    assert not workspace.scratch.exists() or not list(workspace.scratch.iterdir())


def test_a_source_with_problems_leaves_nothing(dataset, workspace, tmp_path):
    """Values outside the domain are found file after file, and the snapshot is removed."""
    pq.write_table(pa.table({"id": ["q"], "age": [500]}), tmp_path / "cohort" / "part-9.parquet")
    with pytest.raises(DataError, match=r"outside the declared domain \(1 record\)"):
        in_scratch(dataset, workspace)
    assert not list(workspace.scratch.iterdir())


def test_persons_with_too_many_records_are_counted(dataset, workspace, tmp_path):
    """As in memory: persons and their records, whichever batches they are in."""
    pq.write_table(
        pa.table({"id": ["p1", "p1", "p5000"], "age": [1, 2, 3]}), tmp_path / "cohort" / "part-9.parquet"
    )
    errors = []
    for kind in (EngineKind.MEMORY, EngineKind.DISK):
        with pytest.raises(DataError, match="2 persons have more than 1") as caught:
            pin(dataset, None, kind, workspace, b"r" * 32, batch_records=7)
        errors.append(caught.value.message)
    assert errors[0] == errors[1]


def test_too_little_memory_for_the_clusters_is_said_before_anything_is_spent(dataset, workspace):
    """Statistics of the clusters are in memory; the limit is compared with their size."""
    little = replace(workspace, memory=100_000)
    with closing(in_scratch(dataset, little).records) as records:
        records.engine.check([replace(TASK, k=500)])
        with pytest.raises(UnusableDataError, match=r"needs .* of memory, a fourth of engine\.memory_limit"):
            records.engine.check([replace(TASK, k=3, mechanism="idp-joint")])
        # Counts need memory for each declared value, however many records there are.
        records.engine.check([replace(TASK, k=None, mechanism="dp-hist")])
    less = in_scratch(dataset, replace(workspace, memory=4000)).records
    with closing(less), pytest.raises(UnusableDataError, match=r"records of \d+ possible values needs"):
        less.engine.check([replace(TASK, k=None, mechanism="dp-hist")])


def test_a_closed_snapshot_stops_what_works_on_it(dataset, workspace):
    """Cancelling a release ends its sorts."""
    records = in_scratch(dataset, workspace).records
    records.close()
    with pytest.raises((CancelledError, OSError)):
        mask_table(records.engine, [TASK])


def test_a_sort_that_runs_is_interrupted(workspace):
    """Closing the records while they are taken in ends the work with an error that says so."""
    sorter = Sorter(workspace, 1000)
    schema = pa.schema([("key", pa.int64())])
    begun = Event()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            begun.set()
            yield pa.record_batch([pa.array(range(1000))], schema=schema)

    with ThreadPoolExecutor(1) as thread:
        sorting = thread.submit(lambda: list(sorter.sort(endless(), schema, ["key"])))
        assert begun.wait(30)
        sorter.close()
        with pytest.raises(CancelledError, match="was cancelled"):
            sorting.result(30)


def test_a_sample_keeps_the_number_of_clusters_and_their_noise(dataset, workspace):
    """The product of k and epsilon stays, and so does the share of the records that a cluster has."""
    spiked = replace(TASK, k=100, epsilon_spikes=Decimal("0.1"))
    with closing(in_scratch(dataset, workspace).records) as records:
        sample, (task,) = sampled(records.engine, [spiked], most=2000)
    assert sample.n_records == 2000
    assert task.epsilon_spikes == task.epsilon / 10
    assert task.k == 20
    assert task.k * task.epsilon == 100
    assert np.all(np.diff(np.sort(sample.columns["age"])) >= 0)


@pytest.mark.parametrize(
    ("mechanism", "g", "least"),
    [("idp-quantiles", 1, 5), ("idp-quantiles", 3, 9), ("idp-cbls", 2, 5), ("dp-quantiles", 1, 3)],
)
def test_a_sample_keeps_the_least_k_of_its_mechanism(mechanism, g, least):
    """A small part of small clusters can be forecast and tried; less than the least k cannot be trimmed."""
    values = np.random.default_rng(1).integers(0, 121, 5000)
    task = replace(TASK, mechanism=mechanism, k=10, max_records_per_person=g)
    sample, (scaled,) = sampled(MemoryEngine({"age": values}), [task], most=500)
    assert scaled.k == least
    assert round(least * scaled.epsilon, 6) == 10 * task.epsilon
    sample.check([scaled])
    assert 0 <= forecast(sample.columns, [scaled]).unchanged_values < 1


@pytest.mark.needs("tmpfs")
def test_a_full_scratch_is_named(dataset, workspace, monkeypatch):
    """Whether pinned or masked records do not fit: the error names the folder, and all of them go."""
    disk = SmallDisk(workspace.scratch, 16)
    try:
        with disk.full(leave=8192), pytest.raises(OSError, match="No space left on device") as caught:
            in_scratch(dataset, workspace)
        assert str(workspace.scratch) in disk_reason(caught.value)
        assert not list(workspace.scratch.iterdir())
        with closing(in_scratch(dataset, workspace).records) as records:
            # The room that was foreseen is gone by the time that it is needed.
            monkeypatch.setattr("owner_node.engines.streamed.masking_bytes", lambda *_: 0)
            with disk.full(leave=8192), pytest.raises(OSError, match="No space left on device") as caught:
                mask_table(records.engine, [TASK])
            assert str(workspace.scratch) in disk_reason(caught.value)
        assert not list(workspace.scratch.iterdir())
    finally:
        disk.unmount()


def test_a_file_that_changes_while_the_folder_is_read(dataset, workspace, tmp_path):
    """A folder was opened with one form of files, and a later file has another by the time it is read."""
    cohort = tmp_path / "cohort"

    def read() -> None:
        with open_reading(dataset, examples=True) as reading:
            for number, _ in enumerate(reading.batches()):
                if not number:
                    pq.write_table(pa.table({"id": ["p1"]}), cohort / "part-1.parquet")
                    (cohort / "part-2.parquet").unlink()

    with pytest.raises(DataError, match="changed while it was read") as caught:
        read()
    assert "part-1.parquet" in caught.value.message


def test_too_little_room_in_scratch_is_said_before_anything_is_spent(dataset, workspace, monkeypatch):
    """The daemon waits for room; the error names both numbers and the setting."""
    with closing(in_scratch(dataset, workspace).records) as records:
        usage = shutil.disk_usage(workspace.scratch)._replace(free=1000)
        monkeypatch.setattr("owner_node.engines.streamed.disk_usage", lambda _: usage)
        with pytest.raises(CannotStoreError, match=r"needs 1 MB in scratch, 0 MB are free"):
            records.engine.check([TASK])
