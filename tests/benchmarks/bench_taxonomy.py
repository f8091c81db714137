"""Time of drawing categories from a taxonomy, as a ratio to `idp-ls` on the same places."""

from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from common.model.schema import Attribute, AttributeType, TaxonomyMethod
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask
from owner_node.values.taxonomy import Taxonomy
from tests.benchmarks.result import Result, medians

LIMIT = 5.0
N_RECORDS = 10**6
N_CATEGORIES = 100
K = 50


def run() -> Iterable[Result]:
    """Measure 10^6 records of 100 categories in a tree of four levels, by both methods."""
    tree = Taxonomy(tuple(("*", f"{i // 20}", f"{i // 20}.{i // 5}", f"c{i}") for i in range(N_CATEGORIES)))
    values = np.random.default_rng(1).integers(0, N_CATEGORIES, N_RECORDS)

    def mask(method: TaxonomyMethod, mechanism: str) -> None:
        labels = tuple(path[-1] for path in tree.paths)
        attribute = Attribute(
            "code", AttributeType.CATEGORY, 0, N_CATEGORIES - 1, categories=labels, taxonomy=tree.digest,
            method=method,
        )  # fmt: skip
        mask_table(
            MemoryEngine({"code": values}), [AttributeTask(attribute, Decimal(1), K, mechanism, 1, tree)]
        )

    drawn, ranked = medians(
        7,
        lambda: mask(TaxonomyMethod.EXPONENTIAL, "exponential"),
        lambda: mask(TaxonomyMethod.RANK, "idp-ls"),
    )
    detail = f"{drawn * 1e3:.0f} ms against {ranked * 1e3:.0f} ms, k = {K}"
    name = f"exponential, {N_RECORDS:,} records of {N_CATEGORIES} categories / idp-ls"
    yield Result(name, drawn / ranked, LIMIT, detail)
