"""The types of loading: an opened source in, integer columns out."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from owner_node.sources.findings import Findings

if TYPE_CHECKING:
    from common.arrays import Int64Array


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a source that counts by itself."""

    n_records: int
    n_kept: int
    """Number of records that are not dropped for a missing value."""
    missing: Mapping[str, int]
    """Number of missing values by column, in the kept records."""


class Source(ABC):
    """An opened source of records: a file, or a query on a database."""

    names: Sequence[str]
    """Names of all columns, in their order; a name may occur twice."""
    ordered: bool = True
    """Whether unchanged data always have the same order of records."""

    @abstractmethod
    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns, some records at a time.

        Args:
            columns: Names of columns; each occurs once in `names`.
            findings: Collects problems of records that cannot be yielded.

        Yields:
            One Arrow array per column, all of the same length; missing values are nulls.
        """

    def expected(self) -> int | None:
        """Return about how many records it has, without reading them; None if that is not known."""
        return None

    def tally(
        self,
        columns: Sequence[str],
        identifiers: Sequence[str],
        dropping: Collection[str],
        findings: Findings,
    ) -> Tally | None:
        """Count records without reading them, if the source can.

        Args:
            identifiers: Names of identifier columns; a blank text there counts as missing, too.
            dropping: Those of both whose missing values drop the record.

        Returns:
            The counts, or None if records have to be read to be counted.
        """
        return None

    def close(self) -> None:  # noqa: B027 - only some sources keep something open
        """Close what is open, if anything is."""


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """Counts of values and records that loading changed or dropped, but not which ones."""

    rounded: Mapping[str, int] = field(default_factory=dict)
    """Values rounded to the declared grid, by attribute; attributes without any are absent."""
    clamped: Mapping[str, int] = field(default_factory=dict)
    """Values moved to the nearest end of the domain, by attribute; attributes without any are absent."""
    dropped: int = 0
    """Records left out for a missing value."""
    numerals: Mapping[str, int] = field(default_factory=dict)
    """Texts such as 17.0 and 1.5E+10 in columns that persons are recognised by; columns without any are
    absent."""


@dataclass(frozen=True, slots=True)
class LoadedData:
    """A loaded data set: the only form in which original data live in this program."""

    columns: Mapping[str, "Int64Array"]
    """Values by attribute, in declared order; shape (n_records,), in units of `common.model.schema`."""
    identifiers: tuple[Any, ...]
    """One Arrow string array per column of `DatasetConfig.person_columns`, as in the source; shape
    (n_records,). Missing values are errors in an identifier, and empty in a column of match keys."""
    n_records: int
    counts: LoadCounts
    """What loading rounded, clamped and dropped."""
    digest: str
    """SHA-256 over attributes and identifiers, the same for any encoding of the same data; in record order,
    or independent of it if the source has none. It must not be stored: values could be guessed and tested
    against it."""

    others: Mapping[str, "Int64Array"] = field(default_factory=dict)
    """Declared attributes that were not requested (or all, if records may be dropped), if all of their values
    can be read; without missing values, in resolution units; shape (n_present,) each. Only to recognise the
    data, never to be masked."""

    def __repr__(self) -> str:
        """Show counts only, so that no log or debugger line can show a value."""
        return f"LoadedData(attributes={len(self.columns)}, n_records={self.n_records})"
