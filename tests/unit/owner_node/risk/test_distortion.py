"""Distorted attributes are flagged to their owner: means, zeros and most frequent values."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import SystemBits
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.distortion import distortions, warnings
from owner_node.risk.trials import sorted_records

N = 4_000


def tried(attribute, values, mechanism, k):
    """The distortion of one attribute."""
    tasks, bits = [AttributeTask(attribute, Decimal(1), k, mechanism)], SystemBits()
    records = sorted_records({attribute.name: np.asarray(values, dtype=np.int64)}, tasks, bits)
    (found,) = distortions(records, tasks, bits)
    return found


def test_skewed_attributes_are_flagged():
    """Where most values are 0 and few are large, clusters give many records small values: it is said."""
    rng = np.random.default_rng(1)
    gains = np.where(rng.random(N) < 0.92, 0, rng.integers(1_000, 99_999, N))
    found = tried(Attribute("gain", AttributeType.INTEGER, 0, 99_999), gains, "idp-joint", 40)
    assert "zeros" in found["distorted"]
    assert found["zeros"]["before"] == pytest.approx((gains == 0).mean())
    assert found["zeros"]["after"] < found["zeros"]["before"] - 0.05
    (said,) = warnings([found])
    assert said.startswith("gain ")
    assert f"zeros {100 * found['zeros']['before']:.1f} % →" in said


def test_what_is_kept_is_not_flagged():
    """Counts keep the same attribute's zeros and mean, so nothing is said."""
    rng = np.random.default_rng(2)
    attribute = Attribute("children", AttributeType.INTEGER, 0, 9)
    found = tried(attribute, np.minimum(rng.geometric(0.7, N) - 1, 9), "dp-hist", None)
    assert found["distorted"] == []
    assert warnings([found]) == []


def test_means_are_of_present_values():
    """A missing value is no number; where no value is present there is no mean."""
    lab = Attribute("lab", AttributeType.INTEGER, 0, 99, keeps_missing=True)
    values = np.append(np.full(N // 2, 10), np.full(N // 2 + 1, lab.highest))
    found = tried(lab, values, "dp-hist", None)
    assert found["mean"]["before"] == 10
    assert found["most_frequent"]["value"] == "(missing)"
    assert tried(lab, np.full(N, lab.highest), "dp-hist", None)["mean"] is None


def test_labels_and_numbers_are_shown_as_they_are_written():
    """A mean has the attribute's unit; a category is named by its label and has neither mean nor zeros."""
    dose = Attribute("dose", AttributeType.NUMBER, 1_000, 9_000, decimals=3)
    found = tried(dose, np.linspace(1_000, 9_000, N), "idp-joint", 20)
    assert found["mean"]["before"] == pytest.approx(5, abs=0.01)
    assert found["zeros"] is None
    ward = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("north", "south"))
    found = tried(ward, np.arange(N) % 10 > 0, "dp-hist", None)
    assert (found["mean"], found["zeros"]) == (None, None)
    assert found["most_frequent"]["value"] == "south"
