"""A DataFrame as a source: the values and problems of a file with the same records."""

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from common.errors import DataError
from owner_node.config import DatasetConfig
from owner_node.loading.reading import Reading, gather
from owner_node.sources.findings import Findings
from owner_node.sources.frames import BATCH_RECORDS, FrameReader
from owner_node.values.normal_forms import NormalForm
from tests.unit.owner_node.sources.conftest import AGE, ALL, SEX, WEIGHT
from tests.unit.owner_node.sources.test_every_source import GOOD, UNITS


def settings(**changes) -> DatasetConfig:
    """A data set whose source is not looked at."""
    known: dict[str, Any] = {
        "name": "patients", "source": "x", "budget": "b", "total_epsilon": Decimal(1), "attributes": (AGE,),
    }  # fmt: skip
    return DatasetConfig(**(known | changes))


def loaded(frame: pd.DataFrame, **changes):
    """Load a frame."""
    dataset, findings = settings(**changes), Findings()
    result = gather(Reading(dataset, dataset.attributes, FrameReader(frame), findings))
    findings.check("patients", "the DataFrame")
    return result


def problems(frame: pd.DataFrame, **changes) -> list[tuple]:
    """What is wrong with a frame; no error quotes a value or carries another that does."""
    with pytest.raises(DataError) as caught:
        loaded(frame, **changes)
    assert "secret" not in caught.value.message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return [(each["column"], each["problem"], each["count"]) for each in caught.value.details["problems"]]


@pytest.mark.parametrize("kind", ["object", "inferred", "pandas", "arrow", "text"])
def test_the_same_records_are_the_same_values(kind):
    """Whatever types pandas keeps them in."""
    frame = pd.DataFrame({name: pd.Series(np.array(values, dtype=object)) for name, values in GOOD.items()})
    if kind == "inferred":
        frame = frame.infer_objects()
        frame["seen"], frame["sex"] = pd.to_datetime(frame["seen"]), frame["sex"].astype("category")
        frame["weight"] = frame["weight"].astype(float)
    elif kind == "pandas":
        frame = frame.convert_dtypes()
    elif kind == "arrow":
        frame = frame.convert_dtypes(dtype_backend="pyarrow")
    elif kind == "text":
        frame = frame.astype("string")
    found = loaded(frame, attributes=ALL, identifier=("id",))
    assert {name: column.tolist() for name, column in found.columns.items()} == UNITS
    assert found.counts.rounded == {"weight": 1}


def test_what_is_wrong_is_told_by_column_and_count():
    """Wrong values, unknown categories, missing ones and absent columns, in the words of a file."""
    frame = pd.DataFrame({"age": ["secret", "7", "400"], "sex": ["Male", "secret", None]})
    assert problems(frame, attributes=(AGE, SEX, WEIGHT)) == [
        ("weight", "not in the source", None),
        ("sex", "missing value", 1),
        ("age", "not an integer", 1),
        ("age", "outside the declared domain", 1),
        ("sex", "differs from a declared category only in case or blanks", 1),
        ("sex", "unknown category", 1),
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([1, "secret"], dtype=object), "object"),
        (pd.Series([10**30, 1], dtype=object), "object"),
        (pd.Series([{"secret": 1}, {"secret": 2}], dtype=object), "struct"),
        (pd.Series([1 + 2j, 2]), "complex128"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "pandas.period"),
    ],
)
def test_columns_that_cannot_be_read(values, kind):
    """Mixed and foreign types are the one problem of a column; nothing is said to be missing."""
    expected = [("age", f"values of type {kind} cannot be read", 2)]
    frame = pd.DataFrame({"age": values})
    assert problems(frame) == expected
    source, findings = FrameReader(frame, dropping=list(frame.columns)), Findings()
    assert [len(array) for (array,) in source.batches(("age",), findings)] == [2]
    assert source.kept.tolist() == [True, True]


def test_names_that_are_no_text_and_names_that_occur_twice():
    """Columns that cannot be declared do no harm; a declared one has to be unique."""
    frame = pd.DataFrame([[1, 2, 3]], columns=["age", 0, "x"])
    assert loaded(frame).columns["age"].tolist() == [1]
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    assert problems(twice) == [("age", "occurs more than once", 2)]


def test_who_is_identified_by_nothing_is_left_out_too():
    """As in a file: a blank identifier is a missing one, by the normal form that was declared."""
    frame = pd.DataFrame({"id": ["a1", " ", "b2", None, "--"], "age": [1, 2, 3, 4, 5]})
    for steps, kept in (((), [0, 2, 4]), (("digits-only",), [0, 2])):
        source = FrameReader(frame, dropping=["id", "age"], identifiers={"id": NormalForm(steps)})
        list(source.batches(("id", "age"), Findings()))
        assert np.flatnonzero(source.kept).tolist() == kept


def test_records_with_missing_values_are_left_out_and_known():
    """In every batch: the kept records can be found in the frame again."""
    ages = np.arange(BATCH_RECORDS + 10, dtype=float) % 100
    ages[[3, BATCH_RECORDS + 4]] = np.nan
    frame = pd.DataFrame({"age": ages, "other": None})
    source, dataset = FrameReader(frame, dropping=list(frame.columns)), settings()
    result = gather(Reading(dataset, dataset.attributes, source, findings := Findings()))
    findings.check("patients", "the DataFrame")
    assert result.n_records == len(frame) - 2
    assert np.flatnonzero(~source.kept).tolist() == [3, BATCH_RECORDS + 4]
    assert result.columns["age"].tolist() == ages[source.kept].tolist()
