"""The measure that the set-ups are judged by."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking.arrays import SystemBits
from owner_node.masking.tasks import AttributeTask, frequency_order
from owner_node.risk.measures import mean_sse
from tests.fakes.records import mask_attribute
from tests.papers.run_setup import Part, sse_by_attribute

LABELS = tuple("abcdefgh")
NUMBER = Attribute("income", AttributeType.NUMBER, 0, 100_000, decimals=2)
DECLARED = Attribute("job", AttributeType.CATEGORY, 0, len(LABELS) - 1, categories=LABELS)
FREQUENCY = Attribute(
    "town", AttributeType.CATEGORY, 0, len(LABELS) - 1, categories=LABELS, order=CategoryOrder.FREQUENCY
)


def values(attribute: Attribute, n_records: int, draw: np.random.Generator) -> np.ndarray:
    """Return skewed values of an attribute."""
    return np.minimum(draw.geometric(3 / attribute.n_values, n_records), attribute.upper).astype(np.int64)


@pytest.mark.parametrize("attribute", [NUMBER, DECLARED, FREQUENCY], ids=lambda each: each.name)
def test_records_need_not_be_matched(attribute):
    """Comparing sorted values gives exactly the error between each record and its own masked value, in every
    masking order, for several owners at once.
    """
    draw, parts, squares = np.random.default_rng(5), [], 0.0
    originals = [values(attribute, size, draw) for size in (400, 250)]
    everything = np.concatenate(originals)
    if attribute is FREQUENCY:
        # Owners whose own order differs from that of all values.
        originals[1] = attribute.upper - originals[1]
        everything = np.concatenate(originals)
        places = frequency_order(everything, attribute.n_values).place_of
    else:
        places = np.arange(attribute.n_values)
    for original in originals:
        task = AttributeTask(attribute, Decimal("0.5"), 20, "idp-joint")
        masked = mask_attribute(original, task, SystemBits()).by_record()
        squares += float(np.square((places[masked] - places[original]).astype(float)).sum())
        shuffled = masked[draw.permutation(masked.size)]
        parts.append(Part({attribute.name: original}, {attribute.name: shuffled}))
    assert squares > 0
    expected = squares / (everything.size * float(np.var(places[everything].astype(float), ddof=1)))
    assert sse_by_attribute([attribute], parts)[attribute.name] == pytest.approx(expected)


def test_mean_as_the_benchmark():
    """An attribute replaced by its mean has error 1, so that l such attributes have mean SSE 1/l: the value
    above which a release is worth less than its means.
    """
    original = {"income": np.arange(1001, dtype=np.int64), "job": np.tile(np.arange(8, dtype=np.int64), 3)}
    masked = {"income": np.full(1001, 500, dtype=np.int64), "job": original["job"].copy()}
    errors = sse_by_attribute([NUMBER, DECLARED], [Part(original, masked)])
    assert errors["income"] == pytest.approx(1000 / 1001)
    assert errors["job"] == 0
    assert mean_sse([*errors.values()]) == pytest.approx(1000 / 1001 / 4)


def test_attribute_without_variation():
    """It counts nothing if it left unchanged, and is reported as infinite otherwise."""
    same = {"job": np.full(30, 2, dtype=np.int64)}
    moved = {"job": np.full(30, 3, dtype=np.int64)}
    assert sse_by_attribute([DECLARED], [Part(same, same)]) == {"job": 0}
    assert sse_by_attribute([DECLARED], [Part(same, moved)]) == {"job": float("inf")}
