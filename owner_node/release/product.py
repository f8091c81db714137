"""What every product asks of an owner: load the source, check that it can be used as planned, select records.

Before anything is spent, `prepare` loads the source once, pins it, and checks all that masking could fail on.
`read_selection` reads which of the owner's records all groups hold: bits in the order of its sorted tokens,
checked as untrusted input against the digest in the signed addendum.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array
from common.canonical import digest
from common.errors import DataChangedError, IntegrityError
from common.model.plan import Plan
from common.model.task import Assignment
from common.progress import Progress
from common.synthesis.binning import Attributes
from common.synthesis.schedule import Round
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.matched import PERSON_BYTES, MatchedRecords, pin_to_match, read_persons
from owner_node.engines.pinned import IN_MEMORY, AnyEngine, PinnedRecords, pin
from owner_node.ledger.budget_terms import Column
from owner_node.loading import LoadCounts
from owner_node.masking.tasks import AttributeTask, mask_tasks
from owner_node.release.trial import placed
from owner_node.state.outbox import Outbox
from owner_node.synthesis.crossed import Member


def _size_of_bits(n_records: int) -> int:
    return (n_records + 7) // 8


def read_selection(
    selection: bytes, n_records: int, n_selected: int, expected_digest: str
) -> NDArray[np.bool_]:
    """Read a selection.

    Args:
        selection: One bit per record, the first in the highest bit of the first byte; unused bits of the last
            byte are 0.
        n_selected: Number of selected records, from the addendum.
        expected_digest: SHA-256 of the selection, from the addendum.

    Returns:
        Whether each record is selected, in the order of their tokens; shape (n_records,).

    Raises:
        IntegrityError: If its digest, length or number of selected records differs.
    """
    if digest(selection) != expected_digest:
        raise _other("its digest differs from the addendum's")
    if len(selection) != _size_of_bits(n_records):
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
    """A loaded data set that can be masked for one plan."""

    pinned: PinnedRecords
    """The original records, and their tokens; in record order."""
    tasks: tuple[AttributeTask, ...]
    """How each attribute is masked."""
    source_digest: str
    """Digest of the loaded data; owners store a keyed form of it (`owner_node.release.original_data`)."""
    known_by: tuple[Column, ...] = ()
    """Digests that identify all declared columns, including the identifiers."""
    counts: LoadCounts = field(default_factory=LoadCounts)
    """Counts of values and records that loading changed or left out."""

    @property
    def records(self) -> AnyEngine:
        """The original records."""
        return self.pinned.engine

    @property
    def n_records(self) -> int:
        """Exact number of records."""
        return self.records.n_records

    def selected(self, selection: bytes, n_selected: int, expected_digest: str) -> "Prepared":
        """Return a copy with the selected records, checked again for all that masking could fail on.

        Args:
            selection: As the aggregator sent it: a bit per record, or with match keys its person's number.
            expected_digest: SHA-256 of the selection, from the addendum.

        Raises:
            IntegrityError: If it is not the selection of the addendum.
            UnusableDataError: If too few records are left to be masked as planned.
        """
        expected = self.n_records, n_selected, expected_digest
        records: PinnedRecords
        if isinstance(self.pinned, MatchedRecords):
            records = self.pinned.numbered(read_persons(selection, *expected))
        else:
            records = self.pinned.selected(read_selection(selection, *expected))
        chosen = replace(self, pinned=records)
        chosen.records.check(self.tasks)
        return chosen


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


class OwnerProduct(ABC):
    """What of a release depends on what it is made of, for an owner."""

    @abstractmethod
    def produce(
        self,
        outbox: Outbox,
        aggregator: str,
        plan: Plan,
        assignment: Assignment,
        prepared: Prepared,
        progress: Progress | None = None,
    ) -> SealedFile:
        """Draw noise and write the fragment, once the charge is spent and only then.

        The file of an earlier, interrupted attempt is destroyed first: its noise was never disclosed.

        Raises:
            OSError: If it cannot be written; no partial file stays.
        """

    @abstractmethod
    def drop_tokens(
        self,
        outbox: Outbox,
        aggregator: str,
        plan: Plan,
        assignment: Assignment,
        sealed: SealedFile,
        workspace: Workspace,
        progress: Progress,
    ) -> str:
        """Write a published fragment again without its tokens, in random order, to verify the release by it.

        Args:
            sealed: The fragment as it was sealed. If the file is another one by now, it was rewritten before.

        Returns:
            The digest of the new file; empty where fragments of the plan have no tokens.
        """

    @abstractmethod
    def count_absent(
        self,
        fragment: Path,
        released: Iterable[Any],
        plan: Plan,
        assignment: Assignment,
        n_records: int,
        workspace: Workspace,
        progress: Progress,
        *,
        tokens: bool,
    ) -> int:
        """Return how many records of a fragment are not in a release, counted with their multiplicity.

        Args:
            released: Record batches of the release, in resolution units.
            tokens: Whether the fragment has its tokens still, where the plan has tokens.
        """

    @abstractmethod
    def answer(self, questions: Round, member: Member, across: Mapping[Attributes, Int64Array]) -> Int64Array:
        """Answer a round with the owner's share of its noise, once the charge is spent, `(n_numbers,)`.

        Args:
            member: This owner.
            across: Its part of tables with other groups, by their attributes.
        """

    def prepare(
        self,
        dataset: DatasetConfig,
        plan: Plan,
        assignment: Assignment,
        release_key: bytes | None,
        source_key: bytes | None = None,
        engine: tuple[EngineKind, Workspace] | None = None,
        progress: Progress | None = None,
    ) -> Prepared:
        """Load a data set, and check that it can be masked as planned.

        Args:
            release_key: Key of the release's tokens; None where the plan has none.
            source_key: Key of the column digests; None where nothing is to be charged.
            engine: What holds the records, and what it may use; None for memory.

        Raises:
            DataError: If the source cannot be used.
            DataChangedError: If it has more records than its joint bounds were planned for.
            UnusableDataError: If it cannot be masked as planned, fewer than k records included, or match
                keys of so many records do not fit into memory.
            OSError, CannotStoreError: If memory or scratch do not suffice.
        """
        names = list(assignment.names)
        dataset = placed(dataset, plan, assignment.owner)
        if plan.identifier is not None:
            dataset = replace(dataset, texts_version=plan.identifier.texts)
        kind, workspace = engine or IN_MEMORY
        progress = progress or Progress()
        progress.begin("loading", assignment.records_rounded)
        if plan.passes and release_key is not None and source_key is not None:
            data = pin_to_match(dataset, names, kind, workspace, plan, release_key, source_key, progress)
        else:
            data = pin(dataset, names, kind, workspace, release_key, source_key, progress=progress)
        with ExitStack() as removing:
            removing.callback(data.records.close)
            n_records = data.records.engine.n_records
            if assignment.most_records is not None and n_records > assignment.most_records:
                # The number of clusters, and with it the joint bound, was planned for at most that many.
                raise DataChangedError(
                    f"data set {dataset.name!r} has more records than the joint bounds were planned for",
                    "start the release again, or use a mechanism whose bound does not count clusters; with "
                    'missing = "drop", some attributes have more records than all of them together',
                    {"records": n_records, "planned": assignment.records_rounded},
                )
            tasks = mask_tasks(plan, assignment.attributes, dataset.taxonomies)
            data.records.engine.check(tasks)
            removing.pop_all()
        return Prepared(data.records, tasks, data.digest, data.known_by, data.counts)

    def selection_size(self, n_records: int, plan: Plan) -> int:
        """Return the size in bytes of a selection of `n_records` records, or of their numbers or places."""
        numbered = plan.numbers_persons or plan.linking.unites
        return PERSON_BYTES * n_records if numbered else _size_of_bits(n_records)
