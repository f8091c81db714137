"""The published data sets load as their papers describe them."""

import csv
import os
from decimal import Decimal
from pathlib import Path

import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.loading import load
from owner_node.sources.options import CsvOptions

pytestmark = pytest.mark.needs("data")

ADULT_CATEGORIES = (
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country",
)  # fmt: skip


def test_adult_has_its_complete_records(dataset):
    """45,222 records without a "?" remain, with every value as the file has it."""
    path = Path(os.environ["TESSERA_DATA"]) / "adult.csv"
    with path.open(newline="") as file:
        complete = [record for record in csv.DictReader(file) if "?" not in record.values()]
    labels = {name: tuple(sorted({record[name] for record in complete})) for name in ADULT_CATEGORIES}
    numbers = [Attribute(name, AttributeType.INTEGER, 0, 120) for name in ("age", "hours_per_week")]
    categories = [
        Attribute(name, AttributeType.CATEGORY, 0, len(labels[name]) - 1, categories=labels[name])
        for name in ADULT_CATEGORIES
    ]
    settings = dataset(
        None,
        source=str(path),
        attributes=(*numbers, *categories),
        missing="drop",
        csv=CsvOptions(na_values=("", "?")),
    )
    loaded = load(settings)
    assert loaded.n_records == len(complete) == 45_222
    assert loaded.counts.dropped == 48_842 - 45_222
    for attribute in numbers:
        assert loaded.columns[attribute.name].tolist() == [int(record[attribute.name]) for record in complete]
    for attribute in categories:
        written = [labels[attribute.name][index] for index in loaded.columns[attribute.name].tolist()]
        assert written == [record[attribute.name] for record in complete]


def test_wine_quality_loads_exactly(dataset):
    """Every measurement of the 6,497 wines comes out as the decimal that the file has."""
    path = Path(os.environ["TESSERA_DATA"]) / "wine_quality.csv"
    with path.open(newline="") as file:
        records = list(csv.DictReader(file))
    names = [name for name in records[0] if name not in ("quality", "colour")]
    attributes = tuple(Attribute(name, AttributeType.NUMBER, 0, 10**9, decimals=5) for name in names)
    loaded = load(dataset(None, source=str(path), attributes=attributes))
    assert loaded.n_records == 6_497
    for name in names:
        exact = [int(Decimal(record[name]).scaleb(5).to_integral_value()) for record in records]
        assert loaded.columns[name].tolist() == exact
