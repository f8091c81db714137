"""Counts in documents of other parties are counts of records, not numbers that arithmetic cannot hold."""

from typing import Any

import pytest

from common.model.schema import Attribute, AttributeType, Schema
from common.model.task import PlannedAttribute

PLANNED: dict[str, Any] = {
    "name": "age", "mechanism": "idp-joint", "epsilon": "1", "k": 5, "epsilon_joint": "1",
    "expected_error": "0.1",
}  # fmt: skip
SCHEMA = Schema((Attribute("age", AttributeType.INTEGER, 0, 120),), records_rounded=60).to_document()


@pytest.mark.parametrize("k", [0, -1, 2**40, 10**300])
def test_a_plan_with_an_impossible_k_is_malformed(k: int) -> None:
    """Before any arithmetic is done with it."""
    assert PlannedAttribute.from_document(PLANNED).k == 5
    with pytest.raises(ValueError, match="positive number of records"):
        PlannedAttribute.from_document({**PLANNED, "k": k})


@pytest.mark.parametrize("key", ["records_rounded", "max_records_per_person", "min_k"])
def test_a_schema_with_an_impossible_count_is_malformed(key: str) -> None:
    """What an owner states about itself reaches the planner's decimals."""
    assert Schema.from_document(SCHEMA).records_rounded == 60
    changed = SCHEMA | {key: 10**300}
    if key == "min_k":
        changed = SCHEMA | {"limits": {**SCHEMA["limits"], "min_k": 10**300}}
    with pytest.raises(ValueError, match="larger than any data set"):
        Schema.from_document(changed)
