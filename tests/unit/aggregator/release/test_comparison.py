"""What differs between two declarations is told setting by setting."""

from dataclasses import replace

import pytest

from aggregator.release.conflicts import differences
from common.model.schema import Attribute, AttributeType, TaxonomyMethod

ONE, OTHER = "0123456789ab" + 52 * "0", "ba9876543210" + 52 * "0"
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("u", "v"), taxonomy=ONE)


@pytest.mark.parametrize(
    ("expected", "seen", "told"),
    [
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
        (WARD, replace(WARD, method=TaxonomyMethod.EXPONENTIAL), ["method is exponential, rank"]),
    ],
)
def test_taxonomies_are_compared_by_digest(expected, seen, told):
    """Owners of a group mask in one order and way: another hierarchy, method, or none is a conflict."""
    assert list(differences(expected, seen)) == told
