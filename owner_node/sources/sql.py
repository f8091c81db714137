"""A query on a database as a source of records, through SQLAlchemy.

The query is the inner part of every statement: its columns are asked for by name, so columns that are not
declared are not read, and the database itself counts. All statements run in one transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from owner_node.config import DatasetConfig
from owner_node.config.database import SQLITE, parse_database_url
from owner_node.sources import sql_faults
from owner_node.sources.findings import Findings
from owner_node.sources.loaded import Source, Tally
from owner_node.sources.sql_connection import connect
from owner_node.sources.sql_values import arrow

BATCH_RECORDS = 2**14
"""Records that are fetched at a time: as Python objects they take many times the space of an array."""
_WIDEST_IDENTIFIER = 1000
_T = TypeVar("_T")


def open_query(dataset: DatasetConfig, findings: Findings) -> Source | None:
    """Connect to a database and find out which columns the query has, without reading a record.

    Returns:
        The source, or None if the query cannot be used; `findings` says why.

    Raises:
        SourceUnreachableError: If the database cannot be used now.
        ConfigurationError: If it does not let the owner node in.
    """
    place = parse_database_url(dataset.source)
    if place.dialect == SQLITE:
        from owner_node.sources.files import first_bytes

        if first_bytes(Path(place.database), findings) is None:
            return None
    source = SqlSource(dataset, connect(dataset))
    if source.describe(findings):
        return source
    source.close()
    return None


class SqlSource:
    """The result of a query.

    Args:
        dataset: The settings of the data set.
        connection: A connection to its database.
    """

    ordered = False
    """A database may return records in another order every time."""

    def __init__(self, dataset: DatasetConfig, connection: sa.Connection) -> None:
        self.names: Sequence[str] = ()
        self._dataset = dataset
        self._connection = connection
        # SQLAlchemy takes ":name" for a parameter, unless there is a backslash before it.
        query = (dataset.query or "").replace(":", "\\:")
        self._query = sa.text(f"(\n{query}\n) tessera_source")

    def describe(self, findings: Findings) -> bool:
        """Find out the names of all columns; whether the database takes the query."""

        def names() -> tuple[str, ...]:
            statement = sa.select(sa.text("*")).select_from(self._query).where(sa.text("1 = 0"))
            with self._connection.execute(statement) as result:
                return tuple(str(column[0]) for column in result.cursor.description or ())

        found = self._try(names, findings)
        self.names = found or ()
        return found is not None

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns as the database's types (see `Source`)."""
        statement = sa.select(*map(_column, columns)).select_from(self._query)
        streaming = self._connection.execution_options(yield_per=BATCH_RECORDS)
        result = self._try(lambda: streaming.execute(statement), findings)
        if result is None:
            return
        records = result.partitions()
        try:
            while batch := self._try(lambda: next(records, []), findings):
                yield [arrow(values) for values in zip(*batch, strict=True)]
        finally:
            with suppress(Exception):  # as in `close`
                result.close()

    def tally(self, columns: Sequence[str], identifiers: Sequence[str], findings: Findings) -> Tally | None:
        """Let the database count (see `Source`)."""
        present = {name: _column(name) for name in columns}
        for name in identifiers:
            written = sa.func.trim(sa.cast(_column(name), sa.String(_WIDEST_IDENTIFIER)))
            present[name] = sa.func.nullif(written, "")
        complete = sa.and_(*(value.is_not(None) for value in present.values()))
        counts = (
            sa.func.count(),
            sa.func.sum(sa.case((complete, 1), else_=0)),
            *map(sa.func.count, present.values()),
        )

        def counted() -> Tally:
            statement = sa.select(*counts).select_from(self._query)
            answer = self._connection.execute(statement).one()
            n_records, n_complete, *found = (int(each or 0) for each in answer)
            missing = {name: n_records - n for name, n in zip(present, found, strict=True)}
            return Tally(n_records, n_complete, missing)

        return self._try(counted, findings) or Tally(0, 0, dict.fromkeys(present, 0))

    def close(self) -> None:
        """Let go of the connection, and with it of the transaction."""
        with suppress(Exception):  # a connection that broke cannot be closed properly, and need not be
            self._connection.close()

    def _try(self, action: Callable[[], _T], findings: Findings) -> _T | None:
        """Do something with the database; a fault becomes a finding, unless the database is not there."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - a driver's error can be of any class, and quote a value
            fault = sql_faults.explain(error, self._dataset)
        if isinstance(fault, sql_faults.Fault):
            findings.add(None, fault.problem, 1, fault.hint, counted="")
            return None
        raise fault


def _column(name: str) -> Any:
    """Return a column by its name, letter by letter."""
    return sa.column(sa.quoted_name(name, quote=True))
