"""A query on a database as a kind of source."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from common.progress import Progress
from owner_node.sources.database import DUCKDB, SQLITE, Database
from owner_node.sources.files import first_bytes
from owner_node.sources.findings import Findings
from owner_node.sources.options import OBJECT_KEYS, SourceOptions
from owner_node.sources.source import Reader


class Query(Database):
    """A query on a database."""

    begins = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
    refused: ClassVar = OBJECT_KEYS | {
        "csv": "goes with a CSV file; what a database holds is converted in the query"
    }

    @classmethod
    def normal(cls, address: str, full: Callable[[str], Path]) -> str:
        """Make the path of a database's file absolute (see `Source`)."""
        parsed = cls("", address, SourceOptions())
        if not parsed.files:
            return address
        scheme, _, rest = address.partition("://")
        _, mark, options = rest.partition("?") if parsed.dialect != SQLITE else ("", "", "")
        return f"{scheme}:///{full(parsed.database)}{mark}{options}"

    @classmethod
    def contradictions(cls, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Find a missing query, and passwords that are too many (see `Source`)."""
        if "query" not in table:
            yield "query", "missing; a database needs one"
        yield from super().contradictions(table)
        passwords = [key for key in ("password_env", "password_file") if key in table]
        if len(passwords) > 1:
            yield "password_env", "password_file is there, too; name one of them"
        if passwords and str(table["source"]).startswith((f"{SQLITE}:", f"{DUCKDB}:")):
            yield "source", "SQLite and DuckDB have no passwords"

    def open(self, findings: Findings, progress: Progress) -> Reader | None:
        """Connect, and get the column names of the query (see `Source`)."""
        if any(first_bytes(path, findings) is None for path in self.files):
            return None
        from owner_node.sources.sql import SqlReader, connect

        reader = SqlReader(self, connect(self))
        if reader.describe(findings):
            return reader
        reader.close()
        return None
