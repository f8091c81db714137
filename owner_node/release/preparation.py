"""Preparation and sealing of a fragment: load the source, select its common records, mask, write to disk.

Before anything is spent, `prepare` loads the source once, pins it, and checks all that masking could fail on.
`read_selection` reads which of the owner's records all groups hold: bits in the order of its sorted tokens,
checked as untrusted input against the digest in the signed addendum. `seal` masks the prepared records into a
fragment on disk; it is called only once the charge is spent.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, TokenArray, random_order, sortable
from common.canonical import digest
from common.errors import DataChangedError, IntegrityError
from common.model.plan import Plan
from common.model.task import Assignment
from common.wire.decoding import decode
from common.wire.encoding import encode, has_tokens
from owner_node.config import DatasetConfig
from owner_node.ledger.budget_terms import Column
from owner_node.ledger.columns import columns_of
from owner_node.linking.tokens import tokens
from owner_node.masking.engine import Engine, MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.release.trial import placed
from owner_node.sources import load, schema_of
from owner_node.state.outbox import Outbox
from owner_node.values.normal_forms import normalise

if TYPE_CHECKING:
    from owner_node.sources import LoadedData


def size_of(n_records: int) -> int:
    """Return the size in bytes of a selection of `n_records` records."""
    return (n_records + 7) // 8


def read_selection(
    selection: bytes, n_records: int, n_selected: int, expected_digest: str
) -> NDArray[np.bool_]:
    """Read a selection.

    Args:
        selection: One bit per record, the first in the highest bit of the first byte; unused bits of the last
            byte are 0.
        n_records: Number of the owner's records.
        n_selected: Number of selected records, from the addendum.
        expected_digest: SHA-256 of the selection, from the addendum.

    Returns:
        Whether each record is selected, in the order of their tokens; shape (n_records,).

    Raises:
        IntegrityError: If its digest, length or number of selected records differs.
    """
    if digest(selection) != expected_digest:
        raise _other("its digest differs from the addendum's")
    if len(selection) != size_of(n_records):
        raise _other(f"it has {len(selection)} bytes for {n_records} records")
    bits = np.unpackbits(np.frombuffer(selection, dtype=np.uint8)).astype(np.bool_)
    chosen, rest = bits[:n_records], bits[n_records:]
    if rest.any() or int(chosen.sum()) != n_selected:
        raise _other(f"it does not select {n_selected} of {n_records} records")
    return chosen


def _other(what: str) -> IntegrityError:
    return IntegrityError(
        f"the selection of common records does not fit the addendum: {what}",
        "both sides must run compatible versions; nothing was spent",
    )


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """A loaded data set that can be masked for one plan. Lives in memory only."""

    records: Engine
    """The original records."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    tokens: TokenArray | None
    """Tokens, shape (n_records, 16), in record order; None where the plan has none."""
    source_digest: str
    """Digest of the loaded data; owners store a keyed form of it (`owner_node.release.appraisal`)."""
    known_by: tuple[Column, ...] = ()
    """Digests that identify all declared columns, including the identifiers."""
    dropped: int = 0
    """Number of records that were left out for a missing value."""

    @property
    def n_records(self) -> int:
        """Exact number of records."""
        return self.records.n_records

    def by_token(self) -> Int64Array:
        """Return the record positions in the order of their tokens, shape (n_records,)."""
        if self.tokens is None:
            raise ValueError("a plan without tokens has no such order")
        return np.argsort(sortable(self.tokens), kind="stable").astype(np.int64, copy=False)

    def selected(self, chosen: NDArray[np.bool_]) -> "Prepared":
        """Return a copy with the selected records, checked again for all that masking could fail on.

        Args:
            chosen: Whether each record stays, in the order of their tokens; shape (n_records,).

        Raises:
            UnusableDataError: If too few records are left to be masked as planned.
        """
        if self.tokens is None:
            raise ValueError("records are selected by their tokens")
        kept = np.sort(self.by_token()[chosen])
        records = self.records.select(kept)
        records.check(self.tasks)
        return replace(self, records=records, tokens=self.tokens[kept])

    def token_list(self) -> bytes:
        """Return the concatenated sorted tokens: their order discloses nothing about the record order."""
        return b"" if self.tokens is None else self.tokens[self.by_token()].tobytes()


def prepare(
    dataset: DatasetConfig,
    plan: Plan,
    assignment: Assignment,
    release_key: bytes | None,
    source_key: bytes | None = None,
) -> Prepared:
    """Load a data set, and check that it can be masked as planned.

    Args:
        dataset: Settings of the data set.
        plan: The accepted plan.
        assignment: This owner's share of it.
        release_key: Key of the release's tokens; None where the plan has none.
        source_key: Key of the column digests; None where nothing is to be charged.

    Raises:
        DataError: If the source cannot be used.
        DataChangedError: If it has more records than its joint bounds were planned for.
        UnusableDataError: If it cannot be masked as planned, fewer than k records included.
    """
    names = [attribute.name for attribute in assignment.attributes]
    dataset = placed(dataset, plan, assignment.owner)
    loaded = load(dataset, names, others=source_key is not None)
    if assignment.most_records is not None and loaded.n_records > assignment.most_records:
        # The number of clusters, and with it the joint bound, was planned for at most that many records.
        raise DataChangedError(
            f"data set {dataset.name!r} has more records than the joint bounds were planned for",
            "start the release again, or use a mechanism whose bound does not count clusters; with "
            'missing = "drop", some attributes have more records than all of them together',
            {"records": loaded.n_records, "planned": assignment.records_rounded},
        )
    tasks = mask_tasks(plan, assignment.attributes, dataset.taxonomies)
    records = MemoryEngine(loaded.columns)
    records.check(tasks)
    return Prepared(
        records,
        tasks,
        _tokens(dataset, loaded, release_key),
        loaded.digest,
        () if source_key is None else known_by(dataset, loaded, source_key),
        loaded.counts.dropped,
    )


def known_by(dataset: DatasetConfig, loaded: "LoadedData", key: bytes) -> tuple[Column, ...]:
    """Return digests that identify all declared columns of loaded data, including the identifiers.

    Args:
        dataset: Settings of the data set.
        loaded: Its data, loaded with the other declared columns.
        key: Key of the digests.
    """
    identifiers = dict(zip(dataset.identifier, loaded.identifiers, strict=True))
    attributes = schema_of(dataset, None, loaded.n_records).attributes
    return columns_of({**loaded.columns, **loaded.others}, attributes, key, identifiers)


def _tokens(dataset: DatasetConfig, loaded: "LoadedData", release_key: bytes | None) -> TokenArray | None:
    if release_key is None:
        return None
    return tokens(normalise(loaded.identifiers, dataset.normal_forms), release_key)


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A fragment under its final name."""

    path: Path
    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Size in bytes."""
    n_records: int
    """Number of records in it."""


def seal(
    outbox: Outbox, aggregator: str, plan: Plan, assignment: Assignment, prepared: Prepared
) -> SealedFile:
    """Draw noise and write the fragment, once the charge is spent and only then.

    The file of an earlier, interrupted attempt is destroyed first: its noise was never disclosed.

    Raises:
        OSError: If it cannot be written; no partial file stays.
    """
    outbox.destroy(aggregator, plan.release)
    masked = mask_table(prepared.records, prepared.tasks)
    aligned = has_tokens(plan)
    order = prepared.by_token() if aligned else random_order(prepared.n_records)
    with outbox.begin(aggregator, plan.release) as stream:
        encode(stream, assignment, masked, order, prepared.tokens if aligned else None)
    path = outbox.path(aggregator, plan.release)
    return SealedFile(path, file_digest(path), path.stat().st_size, prepared.n_records)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as lower-case hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def drop_tokens(
    outbox: Outbox, aggregator: str, plan: Plan, assignment: Assignment, sealed: SealedFile
) -> str:
    """Write a published fragment anew without its tokens, in random order; it serves to verify the release.

    Args:
        outbox: Where it is.
        aggregator: Name of the aggregator.
        plan: Its plan.
        assignment: This owner's share of it.
        sealed: The fragment as it was sealed. If the file is another one by now, it was written anew before.

    Returns:
        The digest of the new file.
    """
    if file_digest(sealed.path) == sealed.digest:
        table = decode(sealed.path, plan, assignment, sealed.n_records)
        columns = {each.name: table.column(each.name).to_numpy() for each in assignment.attributes}
        with outbox.begin(aggregator, plan.release) as stream:
            encode(stream, assignment, columns, random_order(sealed.n_records))
    return file_digest(sealed.path)
