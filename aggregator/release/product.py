"""What the aggregator asks of every product.

Documents, signatures, states and the release folder are the same for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from common.errors import InternalError
from common.model.plan import Plan
from common.model.task import Assignment
from common.wire.decoding import FragmentCheck
from common.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Material:
    """What the records of a release are made of."""

    plan: Plan
    counts: Mapping[str, int]
    """The number of records that every owner masked or counted."""
    n_records: int
    """How many records the release has."""
    fragments: Mapping[str, Callable[[], Path]]
    """Returns the file of an owner's fragment, checked again, when its turn comes."""
    sums: Sequence[bytes] = ()
    """The sums of the rounds of a synthetic release, as they were signed."""


class AggregatorProduct(ABC):
    """What of a release depends on what it is made of, for the aggregator."""

    @abstractmethod
    def needed_memory(self, plan: Plan) -> int:
        """Return the bytes of memory that `join` takes at least."""

    @abstractmethod
    def needed_room(self, plan: Plan, counts: Mapping[str, int], n_records: int, workspace: Workspace) -> int:
        """Return the bytes that `join` writes to the scratch folder."""

    def most_bytes(self, _assignment: Assignment, _n_records: int) -> int:
        """Return the largest size in bytes of a fragment; 0 if there are none."""
        return 0

    def check(self, plan: Plan, _assignment: Assignment, _n_records: int, _size: int) -> FragmentCheck:
        """Return what checks every byte of a fragment as it arrives."""
        raise InternalError(f"{plan.product} releases have no fragments")

    def noisy_counts(self, _material: Material) -> pa.Table | None:
        """Return the noisy counts that are released beside the records; None: there are none."""
        return None

    @abstractmethod
    def join(
        self, material: Material, workspace: Workspace, advance: Callable[[int], None]
    ) -> Generator[pa.Table]:
        """Make the released table of what owners sent.

        Raises:
            IntegrityError: If something of it cannot be used, or it does not fit together.
            OSError: If the scratch folder cannot be used.
        """
