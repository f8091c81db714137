"""A source of records: as it is declared (`Source`), and opened to be read (`Reader`).

A configuration makes sources without opening one, so nothing here, and nothing that the module of a kind
imports at its top, is a library of arrays or databases.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from common.progress import Progress
from owner_node.sources.findings import Findings
from owner_node.sources.options import SourceOptions
from owner_node.sources.spark_session import SparkSettings


class Source(ABC):
    """A kind of source, and one source of it.

    Args:
        dataset: Name of its data set, for errors.
        address: The key `source`.
        options: The other keys.
        spark: How the Spark session is started.

    Raises:
        ValueError: If the address is malformed or contains a secret; the text quotes nothing of it.
    """

    begins: ClassVar[re.Pattern[str]]
    """Matches the beginning of the addresses of the kind."""
    refused: ClassVar[Mapping[str, str]]
    """Keys of `[[dataset]]` that do not go with the kind, each with the reason."""
    needs_spark: ClassVar[bool] = False
    """True if it is read by the Spark session, which starts slowly."""

    def __init__(
        self, dataset: str, address: str, options: SourceOptions, spark: SparkSettings | None = None
    ) -> None:
        self.dataset, self.address, self.options, self.spark = dataset, address, options, spark
        self.parse()

    def parse(self) -> None:  # noqa: B027 - some addresses have no parts
        """Take the address apart; raise as the constructor does."""

    @classmethod
    @abstractmethod
    def normal(cls, address: str, full: Callable[[str], Path]) -> str:
        """Return an address with its paths made absolute by `full`; raise as the constructor does."""

    @classmethod
    def contradictions(cls, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the keys of `[[dataset]]`, as it was read, that do not go with its source, and why."""
        yield from ((key, reason) for key, reason in cls.refused.items() if key in table)

    @property
    def shown(self) -> str:
        """The source for printing and logging, without secrets."""
        return self.address

    @property
    @abstractmethod
    def place(self) -> str:
        """Its location, one for all ways to write it, without credentials and the text of a query."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The file or folder of this machine that is read, if there is one."""
        return ()

    def size(self) -> int | None:
        """Return the bytes that its records take where they are; None if that is not known."""
        return None

    @abstractmethod
    def open(self, findings: Findings, progress: Progress) -> "Reader | None":
        """Open it, without reading a record.

        Returns:
            What reads it, or None if it cannot be used; `findings` says why.

        Raises:
            SourceUnreachableError: If a database, or Spark, cannot be used now.
            ConfigurationError: If a database does not let the owner node in, or Spark cannot be started.
        """


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a source that counts by itself."""

    n_records: int
    n_kept: int
    """Number of records that are not dropped for a missing value."""
    missing: Mapping[str, int]
    """Number of missing values by column, in the kept records."""


class Reader(ABC):
    """An opened source."""

    names: Sequence[str]
    """Names of all columns, in their order; a name may occur twice."""
    ordered: bool = True
    """True if unchanged data always have the same order of records."""
    is_text: bool = False
    """True if its values are texts as `CsvOptions` describes them."""
    opt_out: str = ""
    """Digest of the identifiers of persons who opted out; empty without such a list."""
    listed: int | None = None
    """Number of persons in the list of those who opted out; None without one."""
    left_out: int = 0
    """Number of persons who opted out and were found, once all records were read."""
    persons: Any = None
    """Counts of the events of a person table (`loading.PersonCounts`), once all were read."""
    descriptions: Mapping[str, str] = MappingProxyType({})
    """Descriptions that the source has of its columns, by name."""
    labels: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Labels that the source declares, by column, also of values that no record has."""

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
