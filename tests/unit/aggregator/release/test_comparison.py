"""What differs between two declarations is told setting by setting."""

from dataclasses import replace

import pytest

from aggregator.release.conflicts import differences
from common.model.schema import Attribute, AttributeType, TaxonomyMethod

ONE, OTHER = "0123456789ab" + 52 * "0", "ba9876543210" + 52 * "0"
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("u", "v"), taxonomy=ONE)

MISSING = replace(WARD, categories=("u", "v", "(missing)"), upper=2)


AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
KEPT = replace(AGE, keeps_missing=True)


@pytest.mark.parametrize(
    ("expected", "seen", "told"),
    [
        (AGE, KEPT, ['missing = "category" is declared, but not']),
        (KEPT, replace(AGE, upper=121), ["max is 121, 120", 'missing = "category" is not declared, but']),
        (WARD, WARD, []),
        (
            WARD,
            replace(WARD, taxonomy=OTHER),
            [f"the taxonomy is the hierarchy with digest {OTHER[:12]}, the hierarchy with digest {ONE[:12]}"],
        ),
        (
            WARD,
            replace(WARD, taxonomy=""),
            [f"the taxonomy is not declared, the hierarchy with digest {ONE[:12]}"],
        ),
        (WARD, MISSING, ['missing = "category" is declared, but not']),
        (MISSING, WARD, ['missing = "category" is not declared, but']),
        (WARD, replace(WARD, method=TaxonomyMethod.EXPONENTIAL), ["method is exponential, rank"]),
    ],
)
def test_settings_of_categories_are_compared(expected, seen, told):
    """Another hierarchy, method or treatment of missing values is a conflict, in terms of the settings."""
    assert list(differences(expected, seen)) == told
