"""Where a data set's source is, so that a second name for the same source is known as one."""

import os
from pathlib import Path

from common.canonical import digest
from owner_node.config import DatasetConfig
from owner_node.config.database_url import SQLITE, parse_database_url


def place_of(dataset: DatasetConfig) -> str:
    """Return where a source is, without credentials, and without what was written of a query.

    Args:
        dataset: Settings of the data set.

    Returns:
        For a file its real path, whatever links lead to it; for a database its address and a digest of the
        query.

    Raises:
        ValueError: If the source is an address that cannot be one.
    """
    if "://" not in dataset.source:
        return f"file:{os.path.realpath(dataset.source)}"
    query = digest(" ".join((dataset.query or "").split()).encode())[:16]
    address = parse_database_url(dataset.source)
    if address.dialect == SQLITE:
        return f"sqlite:{Path(address.database).resolve()}#{query}"
    return f"{address.shown}#{query}"
