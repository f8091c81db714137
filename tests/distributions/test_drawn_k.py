"""The k that is chosen for categories drawn from a taxonomy, judged by the exact forecast."""

from decimal import Decimal

import numpy as np
import pytest

from common.model.mechanisms import MECHANISMS, PublicNumbers
from common.model.schema import Attribute, AttributeType, TaxonomyMethod
from owner_node.masking.forecast import forecast
from owner_node.masking.tasks import AttributeTask
from owner_node.values.taxonomy import Taxonomy

N_RECORDS = 7000
FACTORS = (0.25, 0.4, 0.55, 0.75, 1, 1.3, 1.7, 2.4, 4)


def tree(*branches):
    """A tree with as many children at each level."""
    paths: list[tuple[str, ...]] = [("*",)]
    for n_children in branches:
        paths = [(*path, f"{path[-1]}.{child}") for path in paths for child in range(n_children)]
    return Taxonomy(tuple(paths))


def error(taxonomy, values, epsilon, k):
    """The expected squared distance, as a share of what the best single category has."""
    n_values = taxonomy.n_categories
    attribute = Attribute(
        "job", AttributeType.CATEGORY, 0, n_values - 1, categories=tuple(path[-1] for path in taxonomy.paths),
        taxonomy=taxonomy.digest, method=TaxonomyMethod.EXPONENTIAL,
    )  # fmt: skip
    task = AttributeTask(attribute, Decimal(epsilon), k, "exponential", taxonomy=taxonomy)
    foreseen = forecast({"job": values}, [task]).attributes[0].error
    return 0.0 if foreseen is None else float(foreseen)


@pytest.mark.parametrize("branches", [(14,), (4, 4, 4), (2,) * 6, (5, 20)], ids=str)
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_k_is_near_the_best(branches, skewed, epsilon):
    """Within half as much again of the error of the best k that looking at the data finds, for several data
    sets together: for a single one a k is best by chance, where its clusters end as categories do.
    """
    taxonomy, rng = tree(*branches), np.random.default_rng(6)
    n_values = taxonomy.n_categories
    several = []
    for _ in range(4):
        weights = rng.permutation(1 / np.arange(1, n_values + 1) ** (1.2 * skewed))
        several.append(rng.choice(n_values, N_RECORDS, p=weights / weights.sum()))
    k = MECHANISMS["exponential"].choose_k(PublicNumbers(N_RECORDS, n_values, Decimal(epsilon)), 3)
    assert k is not None

    def mean_error(size):
        return sum(error(taxonomy, values, epsilon, size) for values in several)

    errors = {factor: mean_error(int(k * factor)) for factor in FACTORS}
    assert errors[1] <= 1.5 * min(errors.values())
    # A k four times as large or as small would be found out.
    assert max(errors.values()) > 1.5 * min(errors.values())
