"""Parts of a schema as documents, as the aggregator reads them from owners whom it does not trust."""

from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from common.canonical import canonical
from common.model.schema import Attribute, AttributeType, Limits, fault_of_rules
from common.model.structural_zeros import ExcludedValues, StructuralZero


@pytest.mark.parametrize("listed", [None, (), ("idp-joint", "dp-hist")])
def test_an_empty_list_is_not_everything(listed: tuple[str, ...] | None) -> None:
    """A document tells a policy that lists nothing from one that sets no limit."""
    limits = Limits(mechanisms=listed, layouts=listed)
    assert Limits.from_bytes(limits.to_bytes()) == limits


@pytest.mark.parametrize("value", ["oint", "", None, True, ["joint"], {"joint": "joint"}])
def test_another_accounting_is_malformed(value: Any) -> None:
    """It is refused as such: any other error would count as the aggregator's own."""
    document = Limits(min_k=10, accounting="per-centroid").to_document()
    assert Limits.from_bytes(canonical(document)).accounting == "per-centroid"
    with pytest.raises(ValueError, match="not a valid Limits"):
        Limits.from_bytes(canonical(document | {"accounting": value}))


def test_many_rules_of_many_labels_are_checked_in_time():
    """Whoever reads a schema looks labels up: a search for each took a minute."""
    labels = tuple(f"l{each}" for each in range(40_000))
    attribute = Attribute("c", AttributeType.CATEGORY, 0, len(labels) - 1, categories=labels)
    rules = [
        StructuralZero((ExcludedValues("c", tuple((each, each) for each in labels[-first - 100 :][:100])),))
        for first in range(100)
    ]
    begun = process_time()
    assert fault_of_rules(rules, [attribute]) is None
    assert process_time() - begun < 4


def test_too_many_ranges_together_are_refused_before_they_are_read():
    """A rule of many attributes can have a hundred ranges of each, which took twenty seconds to look up."""
    ranges = tuple((str(each), str(each)) for each in range(100))
    attributes = [Attribute(f"a{each:02}", AttributeType.INTEGER, 0, 999) for each in range(30)]
    rule = StructuralZero(tuple(ExcludedValues(each.name, ranges) for each in attributes))
    rules = [rule, *(replace(rule, values=rule.values[: 29 - each]) for each in range(8))]
    begun = process_time()
    said = "structural zeros have 23,400 values and ranges, at most 20,000 can be"
    assert fault_of_rules(rules, attributes) == said
    assert process_time() - begun < 1
