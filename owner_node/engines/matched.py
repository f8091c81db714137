"""Records that are linked by match keys: in memory, since every pass reads all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array
from common.canonical import digest
from common.errors import IntegrityError, UnusableDataError
from common.matching.lists import encode_lists
from common.model.plan import Plan
from common.model.task import Assignment
from common.progress import Progress
from common.words.numbers import size_text
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import MemoryRecords, PinnedData, known_by
from owner_node.engines.sharing import TABLES, TURNS
from owner_node.engines.sizes import match_bytes
from owner_node.linking.match_tokens import all_passes, key_columns, secret_order
from owner_node.linking.tokens import TOKEN_SIZE
from owner_node.loading import open_reading
from owner_node.loading.reading import Gathered
from owner_node.masking.arrays import BitSource
from owner_node.masking.engine import MemoryEngine
from owner_node.values.match_keys import KeyColumns

PERSON_BYTES = 4
_LEFT_OUT = 2**32 - 1


@dataclass(frozen=True, slots=True, repr=False)
class MatchedRecords:
    """Records whose persons match keys link (`owner_node.engines.pinned.PinnedRecords`)."""

    engine: MemoryEngine
    """The original records."""
    columns: KeyColumns
    """Makes the match keys."""
    plan: Plan
    release_key: bytes
    handles: Int64Array
    """Handle of every record, shape (n_records,)."""
    counted: int
    """Bytes that were added to `TABLES` for them."""
    progress: Progress = field(default_factory=Progress)
    """Shows how far the token lists are."""

    def token_list(self) -> bytes:
        """Return the token lists of all passes (`common.matching.lists`); computing them takes long."""
        with TURNS.turn():
            self.progress.begin("linking", len(self.plan.passes))
            sent = []
            for linking in all_passes(self.columns, self.plan.passes, self.release_key, self.handles):
                sent.append(linking.sent)
                self.progress.advance(1)
            return encode_lists(sent)

    def token_order(self) -> Int64Array:
        """Refuse: records without one token each have no such order."""
        raise ValueError("records that match keys link have no one token each")

    def selected(self, chosen: NDArray[np.bool_]) -> MemoryRecords:
        """Refuse: records without one token each have no such order."""
        raise ValueError("records that match keys link are selected by their numbers")

    def numbered(self, persons: NDArray[np.uint32]) -> MemoryRecords:
        """Return the records whose persons have a number, which is their token.

        Args:
            persons: Numbers of the persons in the order of their handles, shape (n_records,).
        """
        of_records = persons[self.handles]
        kept = np.flatnonzero(of_records != _LEFT_OUT)
        numbers = of_records[kept].astype(">u4").view(np.uint8).reshape(-1, PERSON_BYTES)
        tokens = np.zeros((len(kept), TOKEN_SIZE), dtype=np.uint8)
        tokens[:, -PERSON_BYTES:] = numbers
        return MemoryRecords(self.engine.select(kept), tokens)

    def write_fragment(
        self,
        stream: BinaryIO,
        assignment: Assignment,
        masked: Mapping[str, Int64Array],
        shuffle: BitSource | None,
    ) -> None:
        """Write all records, shuffled: as `PinnedRecords.write_fragment`."""
        MemoryRecords(self.engine).write_fragment(stream, assignment, masked, shuffle)

    def close(self) -> None:
        """Stop counting them; memory is freed when nothing refers to it."""
        TABLES.add(-self.counted)


def pin_to_match(
    dataset: DatasetConfig,
    attributes: Sequence[str],
    kind: EngineKind,
    workspace: Workspace,
    plan: Plan,
    release_key: bytes,
    source_key: bytes,
    progress: Progress | None = None,
) -> PinnedData:
    """Load a data set once, to be linked by match keys.

    Args:
        kind: The engine that is set; the records are in memory in any case.
        source_key: Key of the column digests; handles are derived from it, too.

    Raises:
        UnusableDataError: If match keys of so many records do not fit into the memory limit.
    """
    progress = progress or Progress()
    with open_reading(dataset, attributes, others=True, progress=progress) as reading:
        gathered, n_records = Gathered(reading), 0
        progress.expect(reading.expected or progress.total)
        for batch in reading.batches():
            progress.advance(batch.n_records)
            gathered.add(batch)
            n_records += batch.n_records
            _check_memory(dataset, gathered.n_bytes, n_records, kind, workspace)
        loaded = gathered.loaded()
    records = MatchedRecords(
        MemoryEngine(loaded.columns),
        key_columns(dataset, loaded.identifiers, loaded.n_records),
        plan,
        release_key,
        secret_order(source_key, plan.digest, loaded.n_records),
        gathered.n_bytes,
        progress,
    )
    TABLES.add(records.counted)
    return PinnedData(records, loaded.digest, known_by(dataset, loaded, source_key), loaded.counts)


def _check_memory(
    dataset: DatasetConfig, table: int, n_records: int, kind: EngineKind, workspace: Workspace
) -> None:
    """Check that the match keys of all records fit into the memory limit; `memory` has none.

    Args:
        table: Size of the loaded table in bytes.
    """
    needed = match_bytes(table, n_records, len(dataset.match))
    if kind is not EngineKind.MEMORY and needed > workspace.memory:
        raise UnusableDataError(
            f"data set {dataset.name!r}: match keys need all records in memory, at least "
            f"{size_text(needed)}; engine.memory_limit is {size_text(workspace.memory)}",
            "raise engine.memory_limit in owner.toml, link by an identifier, or bring fewer records; "
            "nothing was spent",
            {"dataset": dataset.name, "needed": needed, "memory_limit": workspace.memory},
        )


def read_persons(numbers: bytes, n_records: int, n_selected: int, expected_digest: str) -> NDArray[np.uint32]:
    """Read the numbers that linking gave an owner's persons, as input from a stranger.

    Args:
        numbers: Four big-endian bytes per record, in the order of their handles; 2^32 - 1 leaves one out.
        n_selected: Number of records that are not left out, from the addendum.
        expected_digest: SHA-256 of the numbers, from the addendum.

    Returns:
        Numbers in the order of the handles, shape (n_records,).

    Raises:
        IntegrityError: If digest, length or number of records differs, or two records have one number.
    """
    if digest(numbers) != expected_digest:
        raise _other("their digest differs from the addendum's")
    if len(numbers) != PERSON_BYTES * n_records:
        raise _other(f"they have {len(numbers)} bytes for {n_records} records")
    persons = np.frombuffer(numbers, dtype=">u4").astype(np.uint32)
    chosen = persons[persons != _LEFT_OUT]
    if len(chosen) != n_selected or len(np.unique(chosen)) != n_selected:
        raise _other(f"they do not name {n_selected} different persons for {n_records} records")
    return persons


def _other(what: str) -> IntegrityError:
    return IntegrityError(
        f"the numbers of linked persons do not fit the addendum: {what}",
        "both sides must run compatible versions; nothing was spent",
    )
