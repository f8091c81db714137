"""Before anything is spent: the source loaded once, pinned, checked for all that masking could fail on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, TokenArray, sortable
from common.errors import DataChangedError
from common.plan import Plan
from common.task import Assignment
from owner_node.config import DatasetConfig
from owner_node.ledger.budget_terms import Column
from owner_node.linking.normalisation import normalise
from owner_node.linking.tokens import tokens
from owner_node.mask_tasks import mask_tasks
from owner_node.masking.checks import check_table
from owner_node.masking.tasks import AttributeTask
from owner_node.sources import load, schema_of
from owner_node.sources.columns import columns_of

if TYPE_CHECKING:
    from owner_node.sources import LoadedData


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """A loaded data set that can be masked for one plan. Lives in memory only."""

    columns: Mapping[str, Int64Array]
    """Original values in resolution units by attribute, each of shape (n_records,)."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    tokens: TokenArray | None
    """Tokens, shape (n_records, 16), in record order; None where the plan wants none."""
    n_records: int
    """Exact number of records."""
    source_digest: str
    """Digest of the loaded data; what an owner keeps of it is keyed (`owner_node.consent.appraisal`)."""
    known_by: tuple[Column, ...] = ()
    """What all declared columns, the identifiers among them, are recognised by."""
    dropped: int = 0
    """Records that were left out for a missing value."""

    def by_token(self) -> Int64Array:
        """Return the record positions in the order of their tokens, shape (n_records,)."""
        if self.tokens is None:
            raise ValueError("a plan without tokens has no such order")
        return np.argsort(sortable(self.tokens), kind="stable").astype(np.int64, copy=False)

    def selected(self, chosen: NDArray[np.bool_]) -> "Prepared":
        """Return the same with some of the records, checked once more for all that masking could fail on.

        Args:
            chosen: Whether each record stays, in the order of their tokens; shape (n_records,).

        Raises:
            UnusableDataError: If so few cannot be masked as planned.
        """
        if self.tokens is None:
            raise ValueError("records are selected by their tokens")
        kept = np.sort(self.by_token()[chosen])
        columns = {name: values[kept] for name, values in self.columns.items()}
        check_table(columns, self.tasks)
        return replace(self, columns=columns, tokens=self.tokens[kept], n_records=len(kept))

    def token_list(self) -> bytes:
        """Return the sorted tokens, one after another: a list whose order says nothing about the records."""
        return b"" if self.tokens is None else self.tokens[self.by_token()].tobytes()


def prepare(
    dataset: DatasetConfig,
    plan: Plan,
    assignment: Assignment,
    release_key: bytes | None,
    source_key: bytes | None = None,
) -> Prepared:
    """Load a data set for what is masked of it.

    Args:
        dataset: Settings of the data set.
        plan: The accepted plan.
        assignment: What this owner masks in it.
        release_key: Key of the release's tokens; None where the plan wants none.
        source_key: Key that the data are recognised under; None where nothing is to be charged.

    Raises:
        DataError: If the source cannot be used.
        DataChangedError: If it has more records than its joint bounds were planned for.
        UnusableDataError: If it cannot be masked as planned, fewer than k records included.
    """
    names = [attribute.name for attribute in assignment.attributes]
    loaded = load(dataset, names, others=source_key is not None)
    if assignment.most_records is not None and loaded.n_records > assignment.most_records:
        # The number of clusters, and with it a joint bound, was planned for no more than that.
        raise DataChangedError(
            f"data set {dataset.name!r} has more records than the joint bounds were planned for",
            "start the release again, or with a mechanism whose bound does not count clusters; with "
            'missing = "drop" there are more records for some of the attributes than for all',
            {"records": loaded.n_records, "planned": assignment.records_rounded},
        )
    tasks = mask_tasks(plan, assignment.attributes, dataset.taxonomies)
    check_table(loaded.columns, tasks)
    return Prepared(
        loaded.columns,
        tasks,
        _tokens(dataset, loaded, release_key),
        loaded.n_records,
        loaded.digest,
        _known_by(dataset, loaded, source_key),
        loaded.counts.dropped,
    )


def _known_by(dataset: DatasetConfig, loaded: "LoadedData", key: bytes | None) -> tuple[Column, ...]:
    if key is None:
        return ()
    identifiers = dict(zip(dataset.identifier, loaded.identifiers, strict=True))
    attributes = schema_of(dataset, None, loaded.n_records).attributes
    return columns_of({**loaded.columns, **loaded.others}, attributes, key, identifiers)


def _tokens(dataset: DatasetConfig, loaded: "LoadedData", release_key: bytes | None) -> TokenArray | None:
    if release_key is None:
        return None
    return tokens(normalise(loaded.identifiers, dataset.normal_forms), release_key)
