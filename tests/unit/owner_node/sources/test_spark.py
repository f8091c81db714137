"""Sources that Spark reads: the same data set whatever order its records come in, and clear errors."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import DataError, SourceUnreachableError
from common.model.schema import Attribute, AttributeType
from common.workspace import Workspace
from owner_node import doctor
from owner_node.config import DatasetConfig
from owner_node.loading import count_records, load, probe
from owner_node.sources.spark_session import SparkSettings
from tests.spark_cluster import QUIET, SMALL
from tests.unit.owner_node.sources.test_folders import FOLDERS, check, write

pytestmark = QUIET
AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
PAY = Attribute("pay", AttributeType.NUMBER, 0, 10**6, 2)
BORN = Attribute("born", AttributeType.DATE, 0, 30000)
TABLE = pa.table(
    {
        "id": ["c", "a", "b", "a"],
        "age": pa.array([30, 20, 20, 20], pa.int16()),
        "pay": [Decimal("1.25"), Decimal("0.50"), None, Decimal("0.50")],
        "born": [date(1970, 1, 2)] * 4,
        "unread": [{"x": 1}] * 4,
    }
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory) -> Iterator[SparkSettings]:
    """One session for all tests."""
    from owner_node.sources import spark_session

    workspace = Workspace(256 * 10**6, tmp_path_factory.mktemp("session"), 2)
    yield SparkSettings("local[2]", workspace, SMALL)
    spark_session.stop()


@pytest.fixture
def dataset(spark: SparkSettings) -> DatasetConfig:
    """Three attributes; records without a value are dropped, persons may have two."""
    return DatasetConfig(
        name="cohort", source="", budget="people", total_epsilon=Decimal(3), identifier=("id",),
        max_records_per_person=2, missing="drop", attributes=(AGE, PAY, BORN), spark=spark,
    )  # fmt: skip


def folder(path: Path, *parts: pa.Table) -> str:
    """Write a folder of Parquet files, and return the source."""
    path.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, path / f"part-{number}.parquet")
    return f"spark:parquet:{path}"


def test_the_order_of_files_and_records_means_nothing(dataset, spark, tmp_path):
    """Files, a table and another format give one digest and one numbering of the records."""
    from owner_node.sources import spark_session

    sources = [
        folder(tmp_path / "one", TABLE),
        folder(tmp_path / "two", TABLE.slice(2), TABLE.slice(0, 2)),
    ]
    session = spark_session.session(spark)
    stored = session.read.parquet(str(tmp_path / "one")).write.format("orc")
    stored.option("path", str(tmp_path / "orc")).saveAsTable("people")
    sources += ["spark:table:people", f"spark:orc?path={tmp_path}/orc"]
    found = [load(replace(dataset, source=source)) for source in sources]
    assert len({each.digest for each in found}) == 1
    for each in found:
        assert each.columns["age"].tolist() == found[0].columns["age"].tolist()
        assert sorted(each.columns["pay"].tolist()) == [50, 50, 125]
        assert each.columns["born"].tolist() == [1, 1, 1]
        assert each.counts.dropped == 1
        assert not [path for path in spark.workspace.scratch.iterdir() if "source" in path.name]
    assert count_records(replace(dataset, source=sources[0])) == 3
    kept = replace(PAY, keeps_missing=True)
    keeping = replace(dataset, attributes=(AGE, kept), missing_in={"pay": "category"}, source=sources[1])
    assert sorted(load(keeping).columns["pay"].tolist()) == [50, 50, 125, kept.highest]
    assert count_records(keeping) == 4


@pytest.mark.parametrize("kind", ["float64", "decimal", "timestamp", "string"])
def test_persons_have_the_texts_of_every_other_source(dataset, tmp_path, kind):
    """What Spark reads gives the identifiers that files and databases give, whatever type it has."""
    numbers = [1234567890123450, 10**10, 17]
    values, expected = {
        "float64": (pa.array([float(each) for each in numbers]), list(map(str, numbers))),
        "decimal": (pa.array([Decimal(f"{each}.00") for each in numbers]), list(map(str, numbers))),
        "string": (pa.array(map(str, numbers)), list(map(str, numbers))),
        "timestamp": (
            pa.array([0, 5 * 3600, -86400], pa.timestamp("s")).cast(pa.timestamp("us")),
            ["1970-01-01", "1970-01-01 05:00:00", "1969-12-31"],
        ),
    }[kind]
    table = pa.table({"id": values, "age": [1, 2, 3]})
    settings = replace(dataset, source=folder(tmp_path / "typed", table), attributes=(AGE,))
    assert sorted(load(settings).identifiers[0].to_pylist()) == sorted(expected)


def test_bytes_are_texts_and_sorted_as_texts(dataset, tmp_path):
    """Identifiers that were written without being marked as texts are those of other files."""
    written = TABLE.set_column(0, "id", TABLE["id"].cast(pa.binary()))
    sources = [
        folder(tmp_path / "text", TABLE),
        folder(tmp_path / "bytes", written.slice(1), written.slice(0, 1)),
    ]
    assert len({load(replace(dataset, source=source)).digest for source in sources}) == 1


OWNER = """
[owner]
id = "north"
state_dir = "state"
trust_domain = "hospitals.example"
[engine]
kind = "spark"
master = "local[2]"
memory_limit = "256MB"
threads = 2
scratch = "{scratch}"
conf = {{ {conf} }}
[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"
[[dataset]]
name = "adult"
source = "adult.csv"
total_epsilon = 2
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""


def test_a_session_in_use_is_neither_ended_nor_replaced(spark, tmp_path):
    """`doctor` in the daemon's process, and pages after owner.toml was edited, leave it to a release."""
    from owner_node.sources import spark_session

    conf = ", ".join(f'"{key}" = "{value}"' for key, value in SMALL.items())
    path = tmp_path / "owner.toml"
    path.write_text(OWNER.format(scratch=spark.workspace.scratch, conf=conf))
    with spark_session.using(spark) as session:
        found = [str(each) for each in doctor.examination(path, examples=True)]
        assert any("Spark starts, master local[2]" in each for each in found)
        assert spark_session.running(spark) is session
        with pytest.raises(SourceUnreachableError, match="with other settings is in use"):
            spark_session.session(replace(spark, master="local[1]"))
        assert session.range(3).count() == 3


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("spark:parquet:{folder}/nowhere", "there is no such file or folder"),
        ("spark:table:nobody", "there is no such table"),
        ("spark:nosuchformat?path=x", "Spark has no such format"),
        ("spark:parquet:{folder}/types", "Parquet files with different columns"),
        ("spark:parquet:{folder}/names", "Parquet files with different columns"),
    ],
)
def test_a_source_that_cannot_be_used_is_one_clear_error(dataset, tmp_path, source, problem):
    """Nothing is filled in where files differ, and no value is quoted."""
    folder(tmp_path / "types", TABLE, TABLE.set_column(1, "age", pa.array(["x"] * 4)))
    folder(tmp_path / "names", TABLE.drop(["pay"]), TABLE)
    with pytest.raises(DataError, match=problem):
        probe(replace(dataset, source=source.format(folder=tmp_path)))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_spark_reads(dataset, tmp_path, name):
    """Spark would take partitions for columns and pass over folders; its answer is that of other readers."""
    names, expected = FOLDERS[name]
    write(tmp_path / "data", names)
    settings = replace(
        dataset, source=f"spark:parquet:{tmp_path}/data", attributes=(AGE,), identifier=(), missing=None,
        max_records_per_person=1,
    )  # fmt: skip
    check(settings, expected, tmp_path / "scratch")


def test_no_value_of_a_failing_view_is_shown_anywhere(dataset, spark, capfd):
    """Spark quotes the value that it cannot cast, and pyspark would log that by loggers of its own."""
    from owner_node.sources import spark_session

    session = spark_session.session(spark)
    session.sql(
        "CREATE TEMPORARY VIEW mistaken AS SELECT CAST(concat('Smith ', id) AS INT) AS age FROM range(9)"
    )
    source = replace(dataset, source="spark:table:mistaken", attributes=(AGE,), identifier=())
    with pytest.raises(DataError, match="CAST_INVALID_INPUT") as caught:
        load(source)
    shown = f"{caught.value.details}{caught.value}{capfd.readouterr()}"
    assert "Smith" not in shown


def test_an_error_without_its_java_process_is_a_passing_one():
    """Errors of Java are asked for their text, which fails then; a release waits, and is not lost."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.errors.exceptions.captured import CapturedException

    from owner_node.sources.spark_session import explain

    ended = CapturedException.__new__(CapturedException)
    with pytest.raises((AssertionError, AttributeError)):
        str(ended)
    missing = PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})
    for error in (ended, missing):
        assert isinstance(explain(error), SourceUnreachableError)


def test_java_that_was_too_slow_once_is_asked_again(spark, tmp_path, monkeypatch):
    """A busy machine refuses Spark for the moment, not until the daemon is started again."""
    from owner_node.sources import spark_session

    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "does not start" in str(spark_session.unreachable(spark))
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    assert spark_session.unreachable(spark) is None


def test_an_idle_session_ends_and_the_next_one_starts_after_a_passing_error(spark, monkeypatch):
    """Executors are free for others then. Java ends while it starts, here since it cannot have two garbage
    collectors, as on a machine without memory for it, and is asked again. pyspark would replace Ctrl-C when
    it starts in the main thread. This test is the last one: a new session is slow at first.
    """
    from owner_node.sources import spark_session

    monkeypatch.setattr(spark_session, "IDLE_SECONDS", 0)
    with spark_session.using(spark), spark_session.using(spark):
        pass
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert spark_session.running(spark) is None
    before = signal.getsignal(signal.SIGINT)
    conf = {**SMALL, "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}
    with pytest.raises(SourceUnreachableError, match="ended while it started"):
        spark_session.session(replace(spark, conf=conf))
    assert spark_session.session(spark).range(3).count() == 3
    assert signal.getsignal(signal.SIGINT) is before
