"""The product of masked records at the aggregator: fragments, which are joined into one table."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from aggregator.release.assembly import assemble, needed_in_memory, needed_on_disk
from aggregator.release.product import AggregatorProduct, Material
from aggregator.release.records import to_release
from common.model.plan import Plan
from common.model.task import Assignment
from common.wire.decoding import FragmentCheck, decode_batches
from common.wire.fragment_layout import size_limit
from common.workspace import Workspace

_SHARE_OF_PIECE = 8
"""A piece of the released table takes one part in so many of the memory."""


class Masked(AggregatorProduct):
    """Fragments of masked values, which are joined into one table."""

    def needed_memory(self, plan: Plan) -> int:
        """Return the bytes of memory that `join` takes at least."""
        return needed_in_memory(plan)

    def needed_room(self, plan: Plan, counts: Mapping[str, int], n_records: int, workspace: Workspace) -> int:
        """Return the bytes that `join` writes to the scratch folder."""
        return needed_on_disk(plan, counts, n_records, workspace)

    def most_bytes(self, assignment: Assignment, n_records: int) -> int:
        """Return the largest size in bytes of a fragment."""
        return size_limit(assignment, n_records)

    def check(self, plan: Plan, assignment: Assignment, n_records: int, size: int) -> FragmentCheck:
        """Return what checks every byte of a fragment as it arrives."""
        return FragmentCheck(plan, assignment, n_records, size)

    def join(
        self, material: Material, workspace: Workspace, advance: Callable[[int], None]
    ) -> Generator[pa.Table]:
        """Join fragments into the released table, in random order.

        Raises:
            IntegrityError: If a fragment cannot be used, or they do not fit together.
            OSError: If the scratch folder cannot be used.
        """
        plan, counts = material.plan, material.counts

        def batches(assignment: Assignment) -> Iterator[pa.RecordBatch]:
            path = material.fragments[assignment.owner]()
            yield from decode_batches(path, plan, assignment, counts[assignment.owner])

        decoded = {owner: batches(assignment) for owner, assignment in plan.assignments.items()}
        with closing(assemble(plan, decoded, counts, material.n_records, workspace, advance)) as records:
            yield from to_release(plan, records, workspace.memory // _SHARE_OF_PIECE)


MASKED = Masked()
