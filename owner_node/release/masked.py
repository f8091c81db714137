"""The product of masked records at an owner: mask the prepared records, write them to disk, find them again.

`produce` masks into a fragment on disk; it is called only once the charge is spent.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from common.arrays import Int64Array
from common.errors import InternalError
from common.files import file_digest
from common.model.plan import Plan
from common.model.task import Assignment
from common.progress import MASKING, Progress
from common.wire.decoding import decode_batches
from common.wire.fragment_layout import has_tokens
from common.workspace import Workspace
from owner_node.engines.fragments import count_missing, write_in_random_order
from owner_node.engines.sharing import TURNS
from owner_node.masking.arrays import SystemBits
from owner_node.masking.mask import mask_table
from owner_node.release.product import OwnerProduct, Prepared, SealedFile
from owner_node.state.outbox import Outbox


class Masked(OwnerProduct):
    """A fragment of masked records."""

    def produce(
        self,
        outbox: Outbox,
        aggregator: str,
        plan: Plan,
        assignment: Assignment,
        prepared: Prepared,
        progress: Progress | None = None,
    ) -> SealedFile:
        """Mask into a fragment on disk; `progress` shows how far that is."""
        outbox.destroy(aggregator, plan.release)
        progress = progress or Progress()
        shuffle = None if has_tokens(plan) else SystemBits()
        # Records that are not in memory have a turn for each attribute.
        with TURNS.turn() if prepared.records.in_memory else nullcontext():
            progress.begin(MASKING, prepared.n_records * len(prepared.tasks))
            masked = mask_table(prepared.records, prepared.tasks, progress.reach)
            # Streamed records pass into a sort, and out of it.
            progress.begin("sealing", 2 * prepared.n_records)
            with outbox.begin(aggregator, plan.release) as stream:
                prepared.pinned.write_fragment(stream, assignment, masked, shuffle)
        path = outbox.path(aggregator, plan.release)
        return SealedFile(path, file_digest(path), path.stat().st_size, prepared.n_records)

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
        """Write a published fragment again without its tokens, in random order."""
        if not has_tokens(plan):
            return ""
        if file_digest(sealed.path) == sealed.digest:
            batches = decode_batches(sealed.path, plan, assignment, sealed.n_records)
            with outbox.begin(aggregator, plan.release) as stream:
                write_in_random_order(stream, assignment, batches, sealed.n_records, workspace, progress)
        return file_digest(sealed.path)

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
        """Return how many records of a fragment are not in a release, counted with their multiplicity."""
        own = decode_batches(fragment, plan, assignment, n_records, tokens=None if tokens else False)
        names = [attribute.name for attribute in assignment.attributes]
        return count_missing(own, released, names, workspace, progress)

    def answer(self, *_arguments: object, **_named: object) -> Int64Array:
        """Refuse: owners of masked releases answer no rounds."""
        raise InternalError("a masked release has no rounds")


MASKED = Masked()
