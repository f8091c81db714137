"""How many persons the match keys of a data set distinguish, for its owner alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from owner_node.config import DatasetConfig
from owner_node.linking.match_tokens import PassTokens, all_passes, key_columns

if TYPE_CHECKING:
    import pyarrow as pa

_FEW_TOLD_APART = 0.5
_FEW_COMPLETE = 0.5
_LOW_ENTROPY_BITS = 16
"""Below, a dictionary of the key values in use is a file of a few kilobytes."""
_CERTAIN_PAIRS = 3
"""Pairs of persons with the same key value from which on an entropy is more than a guess."""


@dataclass(frozen=True, slots=True)
class PassCheck:
    """How many persons one pass distinguishes."""

    name: str
    complete: int
    """Persons with every part of the key."""
    told_apart: int
    """Those whose key value nobody else has: only they are linked by this pass."""
    same: int
    """Pairs of persons with the same key value."""
    entropy_bits: float
    """Collision entropy of the key values; a lower bound where no two persons share one."""
    n_records: int

    @property
    def warning(self) -> str:
        """What is wrong with the pass; empty if nothing is."""
        if self.complete < _FEW_COMPLETE * self.n_records:
            return "a part of its keys is missing or unreadable in most records"
        if self.told_apart < _FEW_TOLD_APART * self.complete:
            return "distinguishes fewer than half of the persons; add a key"
        if self.same >= _CERTAIN_PAIRS and self.entropy_bits < _LOW_ENTROPY_BITS:
            return "low entropy: anyone who has the linkage key can try all its values; add a key"
        return ""

    def to_document(self) -> dict[str, Any]:
        """Return the document of `--json`."""
        return {
            "name": self.name,
            "complete": self.complete,
            "told_apart": self.told_apart,
            "same": self.same,
            "entropy_bits": f"{self.entropy_bits:.1f}",
            "warning": self.warning,
        }


HEADINGS = ("pass", "complete", "distinguished", "pairs alike", "entropy", "warning")


def row(document: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the cells of a pass under `HEADINGS`, from its `PassCheck.to_document`."""
    at_least = "" if document["same"] else "≥ "
    counts = document["complete"], document["told_apart"], document["same"]
    return document["name"], *counts, f"{at_least}{document['entropy_bits']} bits", document["warning"]


def tokens_to_try(
    dataset: DatasetConfig, columns: Sequence["pa.Array"], n_records: int, key: bytes
) -> Iterator[PassTokens]:
    """Yield the tokens of every pass for trying it out, under a key that no release has.

    Args:
        columns: Its columns, in the order of `DatasetConfig.person_columns`.
        key: 32 bytes.
    """
    import numpy as np

    return all_passes(key_columns(dataset, columns, n_records), dataset.passes, key, np.arange(n_records))


def check_passes(
    dataset: DatasetConfig, passes: Sequence[PassTokens], n_records: int
) -> tuple[PassCheck, ...]:
    """Return how many persons each pass distinguishes."""
    return tuple(
        PassCheck(
            match.name,
            tokens.sent.complete,
            len(tokens.sent.tokens),
            tokens.same,
            tokens.entropy_bits,
            n_records,
        )
        for match, tokens in zip(dataset.match, passes, strict=True)
    )
