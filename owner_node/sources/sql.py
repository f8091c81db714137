"""A query on a database as a source of records, through SQLAlchemy.

The query is the inner part of every statement. Its columns are selected by name, so columns that are not
declared are not read. The database itself counts. All statements run in one transaction.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from owner_node.config import DatasetConfig
from owner_node.config.database import SQLITE, parse_database_url
from owner_node.sources import sql_faults
from owner_node.sources.findings import Findings
from owner_node.sources.loaded import Source, Tally
from owner_node.sources.sql_connection import TIME_LIMIT, connect
from owner_node.sources.sql_values import arrow

BATCH_RECORDS = 2**14
"""Records fetched at a time: as Python objects they take many times the memory of an array."""
_WIDEST_IDENTIFIER = 1000
_T = TypeVar("_T")


def open_query(dataset: DatasetConfig, findings: Findings) -> Source | None:
    """Connect to a database and get the column names of the query, without reading a record.

    Returns:
        The source, or None if the query cannot be used; `findings` says why.
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


class SqlSource(Source):
    """The result of a query."""

    ordered = False
    """A database may return records in a different order every time."""

    def __init__(self, dataset: DatasetConfig, connection: sa.Connection) -> None:
        self.names: Sequence[str] = ()
        self._dataset = dataset
        self._connection = connection
        self._time_limit = connection.info.get(TIME_LIMIT, dataset.query_timeout)
        # SQLAlchemy interprets ":name" as a parameter, unless it is escaped by a backslash.
        query = (dataset.query or "").replace(":", "\\:")
        self._query = sa.text(f"(\n{query}\n) tessera_source")

    def describe(self, findings: Findings) -> bool:
        """Get the names of all columns; return whether the database accepts the query."""

        def names() -> tuple[str, ...]:
            statement = sa.select(sa.text("*")).select_from(self._query).where(sa.text("1 = 0"))
            with self._connection.execute(statement) as result:
                return tuple(str(column[0]) for column in result.cursor.description or ())

        columns = self._try(names, findings)
        self.names = columns or ()
        return columns is not None

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns as the database's types (see `Source`)."""
        statement = sa.select(*map(_column, columns)).select_from(self._query)
        streaming = self._connection.execution_options(yield_per=BATCH_RECORDS)
        result = self._try(lambda: streaming.execute(statement), findings)
        if result is None:
            return
        records = result.partitions()
        # psycopg knows the names of types; without them those of Python are used.
        kinds = [getattr(column, "type_display", "") for column in result.cursor.description or ()]
        try:
            while batch := self._try(lambda: next(records, []), findings):
                yield list(map(arrow, zip(*batch, strict=True), kinds))
        finally:
            with suppress(Exception):  # as in `close`
                result.close()

    def tally(
        self,
        columns: Sequence[str],
        identifiers: Sequence[str],
        dropping: Collection[str],
        findings: Findings,
    ) -> Tally | None:
        """Let the database count (see `Source`)."""
        present = {name: _column(name) for name in columns}
        for name in identifiers:
            written = sa.func.trim(sa.cast(_column(name), sa.String(_WIDEST_IDENTIFIER)))
            present[name] = sa.func.nullif(written, "")
        needed = (value.is_not(None) for name, value in present.items() if name in dropping)
        kept = sa.and_(sa.true(), *needed)
        absent = (sa.and_(kept, value.is_(None)) for value in present.values())
        counts = [sa.func.sum(sa.case((condition, 1), else_=0)) for condition in (kept, *absent)]

        def count() -> Tally:
            statement = sa.select(sa.func.count(), *counts).select_from(self._query)
            answer = self._connection.execute(statement).one()
            n_records, n_kept, *missing = (int(number or 0) for number in answer)
            return Tally(n_records, n_kept, dict(zip(present, missing, strict=True)))

        return self._try(count, findings) or Tally(0, 0, dict.fromkeys(present, 0))

    def close(self) -> None:
        """Close the connection, which ends the transaction."""
        with suppress(Exception):  # a connection that broke cannot be closed properly, and need not be
            self._connection.close()

    def _try(self, action: Callable[[], _T], findings: Findings) -> _T | None:
        """Call `action`; an error becomes a finding, unless the database is unavailable."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - a driver's error can be of any class, and quote a value
            fault = sql_faults.explain(error, self._dataset, self._time_limit)
        if isinstance(fault, sql_faults.Fault):
            findings.add(None, fault.problem, 1, fault.hint, counted="")
            return None
        raise fault


def _column(name: str) -> Any:
    return sa.column(sa.quoted_name(name, quote=True))
