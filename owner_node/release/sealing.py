"""Mask a prepared data set into a fragment on disk. Called once the charge is spent, and only then."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from common.plan import Plan
from common.shuffle import random_order
from common.task import Assignment
from common.wire.arrow import encode, has_tokens
from owner_node.masking.mask import mask_table
from owner_node.release.preparation import Prepared
from owner_node.state.outbox import Outbox


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A fragment under its final name."""

    path: Path
    """Where it is."""
    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Its size in bytes."""


def seal(
    outbox: Outbox, aggregator: str, plan: Plan, assignment: Assignment, prepared: Prepared
) -> SealedFile:
    """Draw noise and write the fragment.

    What an earlier, interrupted attempt left is destroyed first: nobody has seen its noise.

    Raises:
        OSError: If it cannot be written; nothing half-written stays.
    """
    outbox.destroy(aggregator, plan.release)
    masked = mask_table(prepared.columns, prepared.tasks)
    aligned = has_tokens(plan)
    order = prepared.by_token() if aligned else random_order(prepared.n_records)
    with outbox.begin(aggregator, plan.release) as stream:
        encode(stream, assignment, masked, order, prepared.tokens if aligned else None)
    path = outbox.path(aggregator, plan.release)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return SealedFile(path, digest, path.stat().st_size)
