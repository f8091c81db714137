"""From the fragments of a release to its records in random order, within the memory of a workspace.

Fragments are read one after another, whatever the number of owners: a fragment is checked as it is read, and
checking needs its dictionaries. With one group of attributes they are stacked. With several groups they first
become runs of records, in memory if all fit and else in a scratch file, and the runs are read side by side.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from aggregator.release.joining import align, stack
from aggregator.release.records import fragment_type, joined_type, pack
from aggregator.release.shuffling import n_buckets, shuffle
from common.model.plan import Plan
from common.runs import ArrayRun, Records, Run, RunFile
from common.wire.fragment_layout import BATCH_RECORDS, TOKEN_BYTES
from common.workspace import Workspace

_SHARE_OF_MEMORY = 4
"""The runs in memory, or what is held of them at once, take one part in so many of the memory."""
_BLOCK_RECORDS = 1 << 17
"""Most records that are aligned at once: a processor's cache holds not many more."""
_COPIES = 4
"""How often a record that is being joined is there: in a block, in its rest, joined, and in orders."""


def assemble(
    plan: Plan,
    fragments: Mapping[str, Iterable[pa.RecordBatch]],
    counts: Mapping[str, int],
    n_records: int,
    workspace: Workspace,
    advance: Callable[[int], None] = lambda _n_records: None,
) -> Generator[Records]:
    """Join fragments and put their records into a uniformly random order.

    Args:
        fragments: The batches of every owner's fragment (`common.wire.decoding.decode_batches`), by owner.
        counts: The number of records of every fragment.
        n_records: How many records the release has.
        advance: Called with the number of records of fragments that were read, again and again.

    Yields:
        Joined records (`aggregator.release.records.joined_type`) in their released order.
    """
    whole: dict[str, Records] = {}
    if plan.n_groups > 1 and sum(counts.values()) <= _at_once(plan, workspace):
        whole = {o: np.empty(counts[o], fragment_type(plan, a)) for o, a in plan.assignments.items()}
    packed = {
        owner: _count(pack(plan, assignment, fragments[owner], whole.get(owner)), advance)
        for owner, assignment in plan.assignments.items()
    }
    with ExitStack() as open_files:
        if plan.n_groups == 1:
            joined = stack(plan, packed)
        else:
            runs = _runs(plan, packed, whole, workspace, open_files)
            joined = align(plan, runs, min(_at_once(plan, workspace), _BLOCK_RECORDS))
        yield from shuffle(joined, n_records, joined_type(plan), workspace)


def needed_in_memory(plan: Plan) -> int:
    """Return the bytes of memory that `assemble` takes at least: it reads fragments a batch at a time."""
    widest = max(len(assignment.attributes) for assignment in plan.assignments.values())
    # As it arrives, as 64-bit integers, as records.
    batch = BATCH_RECORDS * 3 * (8 * widest + TOKEN_BYTES)
    return _SHARE_OF_MEMORY * batch


def needed_on_disk(plan: Plan, counts: Mapping[str, int], n_records: int, workspace: Workspace) -> int:
    """Return the bytes that `assemble` writes to the scratch folder."""
    needed = 0
    if plan.n_groups > 1 and sum(counts.values()) > _at_once(plan, workspace):
        needed += sum(counts[o] * fragment_type(plan, a).itemsize for o, a in plan.assignments.items())
    width = joined_type(plan).itemsize
    return needed + (n_records * width if n_buckets(n_records, width, workspace.memory) > 1 else 0)


def _count(pieces: Iterable[Records], advance: Callable[[int], None]) -> Iterator[Records]:
    for piece in pieces:
        yield piece
        advance(len(piece))


def _at_once(plan: Plan, workspace: Workspace) -> int:
    """Return how many records of all fragments are held at once."""
    types = [fragment_type(plan, assignment) for assignment in plan.assignments.values()]
    largest = max(kind.itemsize for kind in (*types, joined_type(plan)))
    return max(workspace.memory // _SHARE_OF_MEMORY // (_COPIES * largest), 1)


def _runs(
    plan: Plan,
    packed: Mapping[str, Iterable[Records]],
    whole: Mapping[str, Records],
    workspace: Workspace,
    open_files: ExitStack,
) -> dict[str, Run]:
    """Read all fragments; return the records of all owners as runs: `whole` if they are written there."""
    if whole:
        # `FragmentCheck` counts them: they have the number of records that each array has room for.
        for pieces in packed.values():
            deque(pieces, maxlen=0)
        return {owner: ArrayRun(records) for owner, records in whole.items()}
    spool = RunFile(open_files.enter_context(workspace.file()))
    types = {owner: fragment_type(plan, assignment) for owner, assignment in plan.assignments.items()}
    return {owner: spool.append(pieces, types[owner]) for owner, pieces in packed.items()}
