"""What can be asked about an attribute, how it is written, and what is promised."""

from decimal import Decimal

import pytest

from common.errors import TesseraError, UsageError
from common.model.schema import Attribute, AttributeType
from owner_node.masking.questions import (
    Question,
    QuestionKind,
    Range,
    counted_range,
    histogram_ranges,
    promises,
    range_texts,
    units_of,
)

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
PAY = Attribute("pay", AttributeType.NUMBER, -100, 90_000, 2)
DAY = Attribute("day", AttributeType.DATE, 16_436, 20_818)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("A", "B, C"))
LAB = Attribute("lab", AttributeType.NUMBER, 0, 90, 1, keeps_missing=True)
STAGE = Attribute("stage", AttributeType.CATEGORY, 0, 2, categories=("mild", "bad", "worse"), ordered=True)
FLAG = Attribute("flag", AttributeType.BOOLEAN, 0, 1)


@pytest.mark.parametrize(
    ("attribute", "text", "units"),
    [
        (AGE, "17", 17), (PAY, "-1", -100), (PAY, "12.5", 1250), (DAY, "2020-01-01", 18_262),
        (WARD, "B, C", 1), (LAB, "9.0", 90), (LAB, "(missing)", 91), (STAGE, "worse", 2), (FLAG, "true", 1),
    ],
)  # fmt: skip
def test_values_as_people_write_them(attribute, text, units):
    """Text to units and back is the same value."""
    assert units_of(attribute, text) == units
    assert units_of(attribute, attribute.text(units)) == units


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (AGE, "121"),
        (AGE, "-1"),
        (AGE, "1.5"),
        (PAY, "0.001"),
        (PAY, "(missing)"),
        (LAB, "9.1"),
        (DAY, "2020-02-30"),
        (WARD, "a"),
        (FLAG, "1"),
    ],
)
def test_values_that_are_none(attribute, text):
    """A value that the domain does not have is a usage error that says what is accepted."""
    with pytest.raises(UsageError) as caught:
        units_of(attribute, text)
    assert caught.value.hint


def test_ranges_of_counts():
    """Conditions become half-open ranges of units."""
    assert counted_range(AGE, None, "18", None) == (Range(18, 121),)
    assert counted_range(AGE, None, None, "18") == (Range(0, 18),)
    assert counted_range(PAY, None, "1", "2") == (Range(100, 200),)
    assert counted_range(WARD, "B, C", None, None) == (Range(1, 2),)
    assert counted_range(STAGE, None, "bad", None) == (Range(1, 3),)
    assert counted_range(AGE, None, None, None) == ()
    assert counted_range(LAB, "(missing)", None, None) == (Range(91, 92),)
    assert counted_range(LAB, None, "0", None) == (Range(0, 91),)


@pytest.mark.parametrize(
    ("attribute", "conditions"),
    [(AGE, ("5", "4", None)), (AGE, (None, "5", "5")), (AGE, (None, "9", "5")), (WARD, (None, "A", None))],
)
def test_conditions_that_do_not_fit(attribute, conditions):
    """Nothing in the range, an order that is not there, a value and a range together."""
    with pytest.raises(UsageError):
        counted_range(attribute, *conditions)


def test_ranges_of_histograms():
    """They cut the domain: every value is in one of them, so the counts are of all records."""
    assert histogram_ranges(AGE, ["20", "40"]) == (Range(0, 20), Range(20, 40), Range(40, 121))
    assert histogram_ranges(AGE, ["0", "20"]) == (Range(0, 20), Range(20, 121))
    assert histogram_ranges(LAB, ["5"]) == (Range(0, 50), Range(50, 91), Range(91, 92))
    assert histogram_ranges(FLAG, []) == (Range(0, 1), Range(1, 2))
    for bins in (["40", "20"], ["20", "20"]):
        with pytest.raises(UsageError):
            histogram_ranges(AGE, bins)
    with pytest.raises(UsageError):
        histogram_ranges(WARD, ["A"])


@pytest.mark.parametrize(
    ("kind", "attribute", "ranges"),
    [
        (QuestionKind.MEDIAN, WARD, ()),
        (QuestionKind.MAXIMUM, FLAG, ()),
        (QuestionKind.MEAN, LAB, ()),
        (QuestionKind.COUNT, AGE, ()),
        (QuestionKind.COUNT, AGE, (Range(0, 121),)),
        (QuestionKind.HISTOGRAM, AGE, (Range(0, 121),)),
    ],
)
def test_questions_without_an_answer(kind, attribute, ranges):
    """No order, or nothing but the number of all records, which is not protected anyway."""
    with pytest.raises(UsageError):
        Question(kind, attribute, Decimal(1), 1, ranges)


def test_ranges_as_they_are_told():
    """Categories by their labels, ranges by their first and last value."""
    cells = histogram_ranges(STAGE, [])
    assert range_texts(Question(QuestionKind.HISTOGRAM, STAGE, Decimal(1), 1, cells))[1] == {"equals": "bad"}
    cells = histogram_ranges(PAY, ["10"])
    assert range_texts(Question(QuestionKind.HISTOGRAM, PAY, Decimal(1), 1, cells)) == (
        {"first": "-1.00", "last": "9.99"},
        {"first": "10.00", "last": "900.00"},
    )
    present, missing = range_texts(
        Question(QuestionKind.HISTOGRAM, LAB, Decimal(1), 1, histogram_ranges(LAB, []))
    )
    assert (present, missing) == ({"first": "0.0", "last": "9.0"}, {"equals": "(missing)"})


def test_promises():
    """A statistic gets individual differential privacy, a count differential privacy, by person."""
    median = " ".join(promises(Question(QuestionKind.MEDIAN, AGE, Decimal("0.25"), 3)))
    assert median.startswith("Individual differential privacy")
    assert "up to 3 records" in median
    assert "ε = 0.25" in median
    assert "it is not reported" in median
    count = " ".join(promises(Question(QuestionKind.COUNT, AGE, Decimal(1), 1, (Range(0, 5),))))
    assert count.startswith("Differential privacy: whatever the original data are")
    assert "scale of 1/ε" in count
    cells = (Range(0, 5), Range(5, 121))
    assert "scale of 6/ε" in " ".join(promises(Question(QuestionKind.HISTOGRAM, AGE, Decimal(1), 3, cells)))


def test_errors_are_of_the_catalogue():
    """A question that cannot be asked ends in the exit code of a usage error."""
    with pytest.raises(TesseraError) as caught:
        Question(QuestionKind.COUNT, AGE, Decimal(1))
    assert caught.value.exit_code == 2


def test_what_the_noise_of_a_maximum_can_hide():
    """Whoever asks for a maximum is told that the answer may be no more than the end of the domain."""
    told = {
        kind: " ".join(promises(Question(kind, AGE, Decimal(1), 1)))
        for kind in (QuestionKind.MAXIMUM, QuestionKind.MEDIAN)
    }
    assert "to the end of the domain" in told[QuestionKind.MAXIMUM]
    assert "to the end of the domain" not in told[QuestionKind.MEDIAN]
