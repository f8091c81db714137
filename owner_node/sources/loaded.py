"""What loading takes and gives: an opened source in, integer columns out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from owner_node.sources.findings import Findings

if TYPE_CHECKING:
    from common.arrays import Int64Array


class Source(Protocol):
    """An opened place that records come from: a file now, a database later."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all columns, in their order; a name may occur twice."""

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns, some records at a time.

        Args:
            columns: Names of columns, each of which occurs once in `names`.
            findings: Takes what is wrong with records that cannot be handed on.

        Yields:
            One Arrow array per column, all of the same length; missing values are nulls.
        """


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """What loading did to values and records: how often, never to which."""

    rounded: Mapping[str, int] = field(default_factory=dict)
    """Values rounded to the declared decimals, by attribute; attributes with none are absent."""
    clamped: Mapping[str, int] = field(default_factory=dict)
    """Values moved to the nearest end of the domain, by attribute; attributes with none are absent."""
    dropped: int = 0
    """Records left out for a missing value."""


@dataclass(frozen=True, slots=True)
class LoadedData:
    """A loaded data set: the only form in which original data live in this program."""

    columns: Mapping[str, "Int64Array"]
    """Values by attribute, in declared order; shape (n_records,), in resolution units of `common.schema`."""
    identifiers: tuple[Any, ...]
    """One Arrow string array per identifier column, as found in the source; shape (n_records,)."""
    n_records: int
    """Number of records."""
    counts: LoadCounts
    """What loading rounded, clamped and dropped."""
    digest: str
    """SHA-256 over attributes and identifiers in record order, the same for any encoding of the same data."""

    def __repr__(self) -> str:
        """Show counts only, so that no log or debugger line can show a value."""
        return (
            f"LoadedData(attributes={len(self.columns)}, n_records={self.n_records}, digest={self.digest!r})"
        )
