"""Write transactions of SQLite, alike in every database of both sides."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def all_or_nothing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write all of a block, or nothing of it, whatever ends it.

    Args:
        connection: Without a transaction of its own (`isolation_level=None`).

    Yields:
        The connection, with a write transaction open.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
