"""What is checked of a loaded source before anything is spent."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from common.errors import DataChangedError, DataError, UnusableDataError
from common.model.schema import Attribute, AttributeType, IdentifierRules, MatchPass
from common.model.task import Assignment
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.sizes import match_bytes
from owner_node.release.masked import MASKED
from tests.fakes.releases import make_plan

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
PLAN = make_plan([(["age"], ["north"])], attributes=(AGE,), max_records_per_person=2)
OWN = PLAN.assignment_of("north")
KEY = b"k" * 32


@pytest.fixture
def dataset(tmp_path) -> DatasetConfig:
    """Twelve records of six persons, two each."""
    path = tmp_path / "cohort.csv"
    path.write_text("id,age\n" + "".join(f"p{row // 2},{20 + row}\n" for row in range(12)))
    return DatasetConfig(
        name="cohort", source=str(path), budget="people", total_epsilon=Decimal(3), identifier=("id",),
        normalise=("trim",), max_records_per_person=2, attributes=(AGE,),
    )  # fmt: skip


def with_k(k, records_rounded=1000, **changes):
    """What the owner masks, with another k."""
    (task,) = OWN.tasks
    attributes = (replace(task.attributes[0], k=k, **changes),)
    return Assignment((replace(task, attributes=attributes, records_rounded=records_rounded),))


def test_several_records_of_a_person_are_prepared_with_one_token(dataset):
    """Each person's records have the same token, and masking is told how many there may be."""
    prepared = MASKED.prepare(dataset, PLAN, with_k(5), KEY)
    assert prepared.n_records == 12
    tokens = prepared.pinned.token_list()
    assert isinstance(tokens, bytes)
    assert len({tokens[start : start + 16] for start in range(0, len(tokens), 16)}) == 6
    assert prepared.tasks[0].max_records_per_person == 2


def test_a_source_that_has_grown_is_not_masked(dataset):
    """Where a joint bound counts clusters, more records than were planned for stop the release; where it does
    not, they make no difference, and no answer tells of them.
    """
    counting = {"mechanism": "idp-cbls", "epsilon_joint": Decimal(2)}
    assert MASKED.prepare(dataset, PLAN, with_k(5, 10, **counting), KEY).n_records == 12
    with pytest.raises(DataChangedError, match="more records than the joint bounds") as caught:
        MASKED.prepare(dataset, PLAN, with_k(5, 9, **counting), KEY)
    assert caught.value.details == {"records": 12, "planned": 9}
    for changes in ({"mechanism": "idp-joint"}, {**counting, "epsilon_joint": None}):
        assert MASKED.prepare(dataset, PLAN, with_k(5, 9, **changes), KEY).n_records == 12


def test_fewer_records_than_k_stop_before_the_spend(dataset):
    """The exact number of records is known only now."""
    with pytest.raises(UnusableDataError, match="12 records, k = 13"):
        MASKED.prepare(dataset, PLAN, with_k(13), KEY)


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([Decimal(f"{each}.00") for each in range(12)], 12),
        ([float(10**10 - 5 + each) for each in range(12)], 7),
        ([datetime(2024, 1, 1, each, tzinfo=UTC) for each in range(12)], 11),
        (list(range(12)), 0),
        (list("abcdefghijkl"), 0),
    ],
    ids=["decimal", "float", "timestamp", "integer", "text"],
)
def test_identifiers_that_the_version_before_writes_otherwise(dataset, tmp_path, values, count):
    """With an owner of that version, only texts are compared that both versions write alike."""
    path = tmp_path / "typed.parquet"
    pa.parquet.write_table(pa.table({"id": values, "age": range(12)}), path)
    typed = replace(dataset, source=str(path))
    old = replace(PLAN, identifier=IdentifierRules(1, ("trim",)))
    new = replace(PLAN, identifier=IdentifierRules(1, ("trim",), texts=2))
    assert MASKED.prepare(typed, new, with_k(5), KEY).n_records == 12
    if not count:
        assert MASKED.prepare(typed, old, with_k(5), KEY).n_records == 12
        return
    with pytest.raises(DataError, match="written otherwise by another version") as caught:
        MASKED.prepare(typed, old, with_k(5), KEY)
    assert [each["count"] for each in caught.value.details["problems"]] == [count]
    assert "upgrade the aggregator and every owner" in (caught.value.hint or "")


def test_match_keys_are_compared_with_the_memory_limit_while_records_are_loaded(dataset):
    """Whatever the engine is called, all records have to fit into memory; else nothing is spent."""
    passes = (MatchPass("id", ("id:fold",)),)
    plan = replace(PLAN, identifier=IdentifierRules(0, passes=passes), max_records_per_person=1)
    matched = replace(dataset, identifier=(), normalise=(), max_records_per_person=1, match=passes)
    needed = match_bytes(0, 12, 1)
    for kind in EngineKind:
        arguments = matched, plan, with_k(5), KEY, KEY
        assert MASKED.prepare(*arguments, (kind, Workspace(2 * needed, Path()))).n_records == 12
        too_small = kind, Workspace(needed, Path())
        if kind is EngineKind.MEMORY:
            assert MASKED.prepare(*arguments, too_small).n_records == 12
            continue
        with pytest.raises(UnusableDataError, match="match keys need all records in memory") as caught:
            MASKED.prepare(*arguments, too_small)
        assert caught.value.details["needed"] > needed == caught.value.details["memory_limit"]
