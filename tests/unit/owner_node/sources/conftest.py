"""Data sets over files that a test writes."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.config import DatasetConfig

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
WEIGHT = Attribute("weight", AttributeType.NUMBER, 0, 20_000, decimals=2)
SEEN = Attribute("seen", AttributeType.DATE, 0, 30_000)
SEX = Attribute("sex", AttributeType.CATEGORY, 0, 1, categories=("female", "male"))
SMOKER = Attribute("smoker", AttributeType.BOOLEAN, 0, 1)
STAGE = Attribute("stage", AttributeType.CATEGORY, 0, 2, categories=("I", "II", "III"), ordered=True)
ALL = (AGE, WEIGHT, SEEN, SEX, SMOKER, STAGE)

MakeDataset = Callable[..., DatasetConfig]


@pytest.fixture
def dataset(tmp_path: Path) -> MakeDataset:
    """Return a maker of data sets: `dataset(content, **settings)`, content being text or bytes of a file."""

    def make(content: str | bytes | None, suffix: str = ".csv", **settings) -> DatasetConfig:
        path = tmp_path / f"patients{suffix}"
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        defaults: dict[str, Any] = {
            "name": "patients",
            "source": str(path),
            "budget": "patients",
            "total_epsilon": Decimal(1),
            "attributes": (AGE,),
        }
        return DatasetConfig(**(defaults | settings))

    return make
