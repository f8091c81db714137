"""Fragments that are read again: without their tokens, and compared with the release that they are in.

Both read fragments some records at a time, so that neither needs memory for all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from common.arrays import order_of
from common.model.task import Assignment
from common.progress import Progress
from common.wire.encoding import encode
from common.workspace import Workspace
from owner_node.engines.sharing import TURNS
from owner_node.engines.sizes import TABLES_IN_MEMORY
from owner_node.engines.snapshot import count_progress, write_shuffled
from owner_node.engines.sorting import RunSums, Sorter
from owner_node.engines.streamed import SortingFolder
from owner_node.masking.arrays import Purpose, SystemBits


def write_in_random_order(
    stream: BinaryIO,
    assignment: Assignment,
    batches: Iterable[Any],
    n_records: int,
    workspace: Workspace,
    progress: Progress,
) -> None:
    """Write a fragment again, in a random order and without tokens.

    Args:
        batches: Its record batches, in resolution units.
    """
    progress.begin("removing tokens", 3 * n_records)
    names = [attribute.name for attribute in assignment.attributes]
    shuffle = SystemBits()
    if TABLES_IN_MEMORY * 8 * n_records * len(names) <= workspace.memory:
        with TURNS.turn():
            table = pa.Table.from_batches(list(batches))
            columns = {name: table.column(name).to_numpy() for name in names}
            encode(stream, assignment, columns, order_of(shuffle.of(Purpose.SHUFFLE).words(n_records)))
        return
    with workspace.folder("fragment") as folder:
        desk = SortingFolder.at(folder, workspace, progress=progress)
        writers = [desk.column(pa.int64(), distinct=True) for _ in names]
        for batch in batches:
            for writer, name in zip(writers, names, strict=True):
                writer.write(batch.column(name))
            progress.advance(len(batch))
        written = [writer.finish() for writer in writers]
        with closing(desk.sorter):
            write_shuffled(stream, assignment, written, desk, shuffle)


def count_missing(
    own: Iterable[Any],
    released: Iterable[Any],
    names: Sequence[str],
    workspace: Workspace,
    progress: Progress | None = None,
) -> int:
    """Count records that are missing from others; equal records are counted as often as they occur.

    Args:
        own: Record batches of integers.
        progress: Advanced by the records of both.
    """
    keys = [str(number) for number in range(len(names))]
    schema = pa.schema([(key, pa.int64()) for key in (*keys, "weight")])
    sums, missing = RunSums(), 0

    def weigh() -> Iterator[Any]:
        for batches, weight in ((own, 1), (released, -1)):
            for batch in count_progress(batches, progress or Progress()):
                columns = [batch.column(name).cast(pa.int64()) for name in names]
                weights = pa.array(np.full(len(batch), weight))
                yield pa.record_batch([*columns, weights], schema=schema)

    with closing(Sorter(workspace)) as sorter:
        for batch in sorter.sort(weigh(), schema, keys):
            *columns, weights = (column.to_numpy() for column in batch.columns)
            missing += int(np.maximum(sums.add(columns, weights), 0).sum())
    return missing + max(0, int(sums.finish()[0]))
