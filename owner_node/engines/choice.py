"""Which engine a data set gets, why, and what it needs of scratch, guessed before it is loaded."""

from dataclasses import dataclass, field
from typing import Any

from common.canonical import Document
from common.words.numbers import size_text
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.engines.sizes import TABLES_IN_MEMORY, TOKEN_BYTES, VALUE_BYTES, masking_bytes, match_bytes
from owner_node.sources.spark_session import missing, unreachable

_IDENTIFIER_BYTES = 24
"""A guess for an identifier, with its length."""


@dataclass(frozen=True, slots=True)
class EngineChoice(Document):
    """The engine of a data set."""

    engine: EngineKind | None = field(metadata={"name": "kind"})
    """Memory, disk or Spark; None if that is decided while the data set is loaded."""
    why: str
    table_bytes: int | None
    """About the size of the loaded table; None if it is not known."""
    scratch_bytes: int | None
    """About the bytes that a release writes to scratch, 0 for none; None if that is not known."""
    too_large: bool = False
    """Whether releases are refused, since match keys would take more than the memory limit."""
    guessed: bool = False
    """Whether the sizes come from the size of the source's files."""

    def to_document(self) -> dict[str, Any]:
        """Return the document that commands print."""
        return Document.to_document(self) | {"text": self.text}

    @property
    def text(self) -> str:
        """The choice in a line."""
        written = size_text(self.scratch_bytes) if self.scratch_bytes else ""
        needs = written and f"; a release writes about {written} to scratch"
        guessed = " (guessed from the size of its files)" if self.guessed else ""
        return f"{self.engine or 'memory or disk'}: {self.why}{needs}{guessed}"


def engine_of(
    dataset: DatasetConfig, section: OwnerEngineSection, workspace: Workspace, n_records: int | None = None
) -> EngineChoice:
    """Say which engine a data set gets, if all of its attributes are masked.

    Args:
        n_records: Number of its records; None to guess from the source, without reading it.
    """
    guess = None
    if n_records is None:
        n_records = guess = _records_in(dataset)
    guessed = guess is not None
    columns = len(dataset.attributes)
    table = scratch = None
    if n_records is not None:
        table = n_records * (VALUE_BYTES * columns + _IDENTIFIER_BYTES * len(dataset.person_columns))
        tokens = 3 * TOKEN_BYTES if dataset.identifier else 0
        scratch = n_records * (VALUE_BYTES * columns + tokens) + masking_bytes(n_records, columns)
    if dataset.match:
        return _to_match(dataset, section.kind, workspace, table, n_records, guessed=guessed)
    if section.kind is EngineKind.MEMORY:
        return EngineChoice(EngineKind.MEMORY, 'engine.kind = "memory"', table, 0)
    if section.kind is EngineKind.SPARK:
        settings = section.spark(workspace)
        lacking = missing(settings) or unreachable(settings)
        why = f'engine.kind = "spark", master {settings.master}' + (f"; {lacking}" if lacking else "")
        return EngineChoice(EngineKind.SPARK, why, table, scratch, guessed=guessed)
    if section.kind is EngineKind.DISK:
        return EngineChoice(EngineKind.DISK, 'engine.kind = "disk"', table, scratch, guessed=guessed)
    if table is None:
        return EngineChoice(None, "decided while it is loaded, by its size", None, None)
    needed = f"a table of {size_text(table)} takes {TABLES_IN_MEMORY} times that in memory"
    limit = f"engine.memory_limit is {size_text(workspace.memory)}"
    if table * TABLES_IN_MEMORY <= workspace.memory:
        return EngineChoice(EngineKind.MEMORY, f"{needed}; {limit}", table, 0, guessed=guessed)
    return EngineChoice(EngineKind.DISK, f"{needed}; {limit}", table, scratch, guessed=guessed)


def _to_match(
    dataset: DatasetConfig,
    kind: EngineKind,
    workspace: Workspace,
    table: int | None,
    n_records: int | None,
    *,
    guessed: bool,
) -> EngineChoice:
    """Return the engine of a data set with match keys: memory, whatever `kind` says."""
    why = "match keys need all records"
    if table is None or n_records is None:
        return EngineChoice(EngineKind.MEMORY, why, None, 0)
    needed = match_bytes(table, n_records, len(dataset.match))
    why = f"{why}, {size_text(needed)}; engine.memory_limit is {size_text(workspace.memory)}"
    too_large = kind is not EngineKind.MEMORY and needed > workspace.memory
    if too_large:
        why += ", so releases are refused: raise it"
    return EngineChoice(EngineKind.MEMORY, why, table, 0, too_large, guessed)


def _records_in(dataset: DatasetConfig) -> int | None:
    """Return about how many records a source has, from the size of its files; None if that is not known."""
    if (size := dataset.origin.size()) is None:
        return None
    # A value takes about as much in a file as in memory: a few digits, or compressed bytes.
    n_columns = len(dataset.attributes) + (len(dataset.person_columns) if dataset.match else 0)
    return size // (VALUE_BYTES * max(1, n_columns))
