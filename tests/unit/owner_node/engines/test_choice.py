"""Which engine people are told that a data set gets."""

import socket
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from common.model.schema import Attribute, AttributeType
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.dataset import MatchTable
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.engines.choice import engine_of
from owner_node.values.match_keys import SUGGESTED

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
WORKSPACE = Workspace(256 * 10**6, Path("scratch"), 2)


def dataset(source: str) -> DatasetConfig:
    """A data set of one attribute."""
    return DatasetConfig(
        name="cohort", source=source, budget="people", total_epsilon=Decimal(3), attributes=(AGE,)
    )


@pytest.mark.parametrize(
    ("kind", "n_records", "engine", "writes"),
    [
        (EngineKind.AUTO, 8 * 10**6, EngineKind.MEMORY, False),
        (EngineKind.AUTO, 9 * 10**6, EngineKind.DISK, True),
        (EngineKind.MEMORY, 10**9, EngineKind.MEMORY, False),
        (EngineKind.DISK, 10, EngineKind.DISK, True),
    ],
)
def test_four_tables_have_to_fit_into_memory(kind, n_records, engine, writes):
    """As `pin` decides; a named engine is taken whatever the size is."""
    section = OwnerEngineSection(memory_limit=WORKSPACE.memory, threads=2, kind=kind)
    found = engine_of(dataset("cohort.csv"), section, WORKSPACE, n_records)
    assert found.engine is engine
    assert bool(found.scratch_bytes) == writes
    assert ("to scratch" in found.text) == writes


def test_the_size_of_a_file_is_a_guess_and_that_of_a_database_is_not_known(tmp_path):
    """No record is read for it, and the text says so."""
    section = OwnerEngineSection(memory_limit=WORKSPACE.memory, threads=2)
    named = replace(section, kind=EngineKind.DISK)
    (tmp_path / "cohort.csv").write_bytes(b"1" * 1000)
    for each in (section, named):
        assert "guessed" in engine_of(dataset(str(tmp_path / "cohort.csv")), each, WORKSPACE).text
        assert "guessed" not in engine_of(dataset("cohort.csv"), each, WORKSPACE, 10).text
    assert "guessed" not in engine_of(dataset("sqlite:///cohort.db"), named, WORKSPACE).text
    found = engine_of(dataset("sqlite:///cohort.db"), section, WORKSPACE)
    assert (found.engine, found.scratch_bytes) == (None, None)
    assert "while it is loaded" in found.text


MATCHED = replace(
    dataset("cohort.csv"), match=tuple(MatchTable(name, tuple(keys)) for name, keys in SUGGESTED.items())
)


@pytest.mark.parametrize(
    ("kind", "n_records", "too_large"),
    [
        (EngineKind.AUTO, 190_000, False),
        (EngineKind.AUTO, 240_000, True),
        (EngineKind.DISK, 240_000, True),
        (EngineKind.MEMORY, 10**9, False),
    ],
)
def test_match_keys_are_made_in_memory_whatever_the_engine(kind, n_records, too_large):
    """It is said before a release, with both sizes; named memory has no limit, as for other data sets."""
    section = OwnerEngineSection(memory_limit=WORKSPACE.memory, threads=2, kind=kind)
    found = engine_of(MATCHED, section, WORKSPACE, n_records)
    assert found.text.startswith("memory: match keys need all records, ")
    assert "engine.memory_limit is 256 MB" in found.text
    assert (found.engine, found.scratch_bytes) == (EngineKind.MEMORY, 0)
    assert found.too_large == too_large == ("releases are refused" in found.text)
    assert found.to_document()["too_large"] == too_large


def test_what_spark_lacks_is_said_before_a_release(tmp_path, monkeypatch):
    """`check` and `status` start nothing: they look for Java, and whether a master answers."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("owner_node.sources.spark_session.find_spec", lambda _: object())
    section = OwnerEngineSection(memory_limit=WORKSPACE.memory, threads=2, kind=EngineKind.SPARK)
    found = engine_of(dataset("cohort.csv"), section, WORKSPACE, 10**6)
    assert found.engine is EngineKind.SPARK
    assert found.text.startswith('spark: engine.kind = "spark", master local[2]; there is no Java')
    assert found.scratch_bytes
    monkeypatch.setattr("owner_node.engines.choice.missing", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = replace(section, master=f"spark://127.0.0.1:{server.getsockname()[1]}")
        assert "answers" not in engine_of(dataset("cohort.csv"), away, WORKSPACE, 10).text
    assert (
        "no Spark master answers at spark://127.0.0.1:"
        in engine_of(dataset("cohort.csv"), away, WORKSPACE, 10).text
    )
