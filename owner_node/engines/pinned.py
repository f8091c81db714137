"""The records of a release, pinned once they are loaded: linking, masking and sealing read nothing else.

`pin` loads a data set into memory or, if it does not fit, into a snapshot in the scratch folder
(`owner_node.engines.snapshot`), from which the disk engine or Spark masks it. All give the same tokens,
digests and fragments.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, TokenArray, order_of, token_order
from common.errors import InternalError
from common.model.task import Assignment
from common.progress import Progress
from common.wire.encoding import encode
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.sharing import TABLES
from owner_node.engines.sizes import TABLES_IN_MEMORY
from owner_node.engines.snapshot import SnapshotWriter
from owner_node.engines.sorting import BATCH_RECORDS
from owner_node.ledger.budget_terms import Column
from owner_node.ledger.columns import columns_of
from owner_node.linking.tokens import tokens
from owner_node.loading import LoadCounts, LoadedData, open_reading, schema_of
from owner_node.loading.reading import Gathered
from owner_node.masking.arrays import BitSource, Purpose
from owner_node.masking.engine import Engine, MemoryEngine
from owner_node.values.normal_forms import normalise

AnyEngine: TypeAlias = Engine[Any, Any, Any]
IN_MEMORY = EngineKind.MEMORY, Workspace(0, Path())
"""The engine of work that is always done in memory; it has no workspace."""


class PinnedRecords(Protocol):
    """The loaded records of a release, in whichever engine."""

    @property
    def engine(self) -> AnyEngine:
        """The original records."""

    def token_list(self) -> bytes | Path:
        """Return the concatenated sorted tokens, or the file that has them; empty where there are none.

        Their order discloses nothing about the order of the records.
        """

    def token_order(self) -> Int64Array:
        """Return the record positions in the order of their tokens, shape (n_records,)."""

    def selected(self, chosen: NDArray[np.bool_]) -> "PinnedRecords":
        """Return some of the records.

        Args:
            chosen: Whether each record stays, in the order of their tokens; shape (n_records,).
        """

    def write_fragment(
        self,
        stream: BinaryIO,
        assignment: Assignment,
        masked: Mapping[str, Any],
        shuffle: BitSource | None,
    ) -> None:
        """Write a fragment of masked columns.

        Args:
            masked: The columns that `engine` wrote, by attribute.
            shuffle: The key of a random order of the records; None to sort them by their tokens, which are
                then part of the fragment.
        """

    def close(self) -> None:
        """Delete the records, wherever they are; whatever works on them fails."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryRecords:
    """Records in memory."""

    engine: MemoryEngine
    """The original records."""
    tokens: TokenArray | None = None
    """Tokens, shape (n_records, 16), in record order; None where the plan has none."""
    counted: int = 0
    """Bytes that were added to `TABLES` for them."""

    def token_order(self) -> Int64Array:
        """As `PinnedRecords.token_order`."""
        return token_order(self._tokens)

    def token_list(self) -> bytes:
        """As `PinnedRecords.token_list`."""
        return b"" if self.tokens is None else self.tokens[self.token_order()].tobytes()

    def selected(self, chosen: NDArray[np.bool_]) -> "MemoryRecords":
        """As `PinnedRecords.selected`."""
        kept = np.sort(self.token_order()[chosen])
        return MemoryRecords(self.engine.select(kept), self._tokens[kept])

    def write_fragment(
        self,
        stream: BinaryIO,
        assignment: Assignment,
        masked: Mapping[str, Int64Array],
        shuffle: BitSource | None,
    ) -> None:
        """As `PinnedRecords.write_fragment`."""
        if shuffle is None:
            encode(stream, assignment, masked, self.token_order(), self._tokens)
        else:
            order = order_of(shuffle.of(Purpose.SHUFFLE).words(self.engine.n_records))
            encode(stream, assignment, masked, order)

    def close(self) -> None:
        """Stop counting them; memory is freed when nothing refers to it."""
        TABLES.add(-self.counted)

    @property
    def _tokens(self) -> TokenArray:
        if self.tokens is None:
            raise ValueError("records of a plan without tokens have no such order")
        return self.tokens


@dataclass(frozen=True, slots=True, repr=False)
class PinnedData:
    """A loaded data set."""

    records: PinnedRecords
    digest: str
    """As `LoadedData.digest`."""
    known_by: tuple[Column, ...]
    """Digests that identify all declared columns, including the identifiers."""
    counts: LoadCounts
    """What loading rounded, clamped and dropped."""

    @property
    def n_records(self) -> int:
        """Exact number of records."""
        return self.records.engine.n_records

    def close(self) -> None:
        """As `PinnedRecords.close`."""
        self.records.close()


def pin(
    dataset: DatasetConfig,
    attributes: Sequence[str] | None,
    kind: EngineKind,
    workspace: Workspace,
    release_key: bytes | None = None,
    source_key: bytes | None = None,
    batch_records: int = BATCH_RECORDS,
    *,
    examples: bool = False,
    progress: Progress | None = None,
) -> PinnedData:
    """Load a data set once.

    Args:
        attributes: Names of the attributes to load; None for all declared ones.
        kind: The engine; `auto` keeps in memory what fits beside the tables that are there already.
        release_key: Key of the release's tokens; None where the plan has none.
        source_key: Key of the column digests; None where nothing is to be charged.
        progress: Shows how far loading is, and later what works on pinned records.

    Raises:
        DataError, SourceUnreachableError, ConfigurationError: As `loading.load` says.
        OSError, CannotStoreError: If the scratch folder is full, or memory does not suffice.
    """
    named = {EngineKind.MEMORY: None, EngineKind.DISK: 0, EngineKind.SPARK: 0}
    most = named.get(kind, workspace.memory // TABLES_IN_MEMORY)
    spark = dataset.spark if kind is EngineKind.SPARK else None
    progress = progress or Progress()
    with ExitStack() as removing:
        with (
            open_reading(
                dataset, attributes, others=source_key is not None, examples=examples, progress=progress
            ) as reading,
            TABLES.loading() as count,
        ):
            gathered, writer = Gathered(reading), None
            progress.expect(reading.expected or progress.total)
            for batch in reading.batches():
                if writer is not None:
                    writer.add(batch)
                else:
                    gathered.add(batch)
                    count(gathered.n_bytes)
                    if most is not None and gathered.n_bytes and TABLES.n_bytes > most:
                        writer = removing.enter_context(
                            SnapshotWriter(reading, workspace, release_key, batch_records, progress, spark)
                        )
                        for earlier in gathered.taken():
                            writer.add(earlier)
                        count(0)
                progress.advance(batch.n_records)
            loaded = gathered.loaded() if writer is None else writer.finish(source_key)
        # Whatever was found wrong with the source was raised at the end of the block.
        if isinstance(loaded, LoadedData):
            return in_memory(dataset, loaded, release_key, source_key)
        if loaded is None:
            raise InternalError("a source without findings gave no snapshot")
        removing.pop_all()
        return PinnedData(loaded.records, loaded.digest, loaded.known_by, reading.counts)


def in_memory(
    dataset: DatasetConfig,
    loaded: LoadedData,
    release_key: bytes | None = None,
    source_key: bytes | None = None,
) -> PinnedData:
    """Return loaded data as they are pinned in memory; arguments as in `pin`."""
    person_tokens = None
    if release_key is not None:
        person_tokens = tokens(normalise(loaded.identifiers, dataset.normal_forms), release_key)
    known = () if source_key is None else known_by(dataset, loaded, source_key)
    n_bytes = sum(column.nbytes for column in loaded.columns.values()) + (
        0 if person_tokens is None else person_tokens.nbytes
    )
    records = MemoryRecords(MemoryEngine(loaded.columns), person_tokens, n_bytes)
    TABLES.add(n_bytes)
    return PinnedData(records, loaded.digest, known, loaded.counts)


def known_by(dataset: DatasetConfig, loaded: LoadedData, key: bytes) -> tuple[Column, ...]:
    """Return digests that identify all declared columns of loaded data, including the identifiers.

    Args:
        loaded: Its data, loaded with the other declared columns.
    """
    identifiers = dict(zip(dataset.person_columns, loaded.identifiers, strict=True))
    # A column of match keys that is an attribute, too, is recognised by its values.
    identifiers = {name: texts for name, texts in identifiers.items() if name not in loaded.columns}
    attributes = schema_of(dataset, None, loaded.n_records).attributes
    return columns_of({**loaded.columns, **loaded.others}, attributes, key, identifiers)
