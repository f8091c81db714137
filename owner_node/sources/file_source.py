"""A path as a kind of source: of one file, in any format of `owner_node.sources.formats`, or of a folder."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from common.progress import Progress
from owner_node.sources.files import first_bytes
from owner_node.sources.findings import Findings
from owner_node.sources.options import DATABASE_KEYS, OBJECT_KEYS
from owner_node.sources.source import Reader, Source


class FileSource(Source):
    """A path: of a file, or of a folder of Parquet files."""

    begins = re.compile("")
    refused: ClassVar = DATABASE_KEYS | OBJECT_KEYS

    @classmethod
    def normal(cls, address: str, full: Callable[[str], Path]) -> str:
        """Make the path absolute (see `Source`)."""
        return str(full(address))

    @property
    def place(self) -> str:
        """The real path, with links resolved (see `Source`)."""
        return f"file:{os.path.realpath(self.address)}"

    @property
    def files(self) -> tuple[Path, ...]:
        """The path (see `Source`)."""
        return (Path(self.address),)

    def size(self) -> int | None:
        """Return the size of its files (see `Source`)."""
        path = Path(self.address)
        try:
            files = sorted(path.glob("*.p*q*")) if path.is_dir() else [path]
            return sum(path.stat().st_size for path in files)
        except OSError:
            return None

    def open(self, findings: Findings, progress: Progress) -> Reader | None:
        """Open the file in the format that it has (see `Source`)."""
        from owner_node.sources.formats import open_file
        from owner_node.sources.parquet_files import open_folder

        path = Path(self.address)
        if path.is_dir():
            return open_folder(lambda: [(each, each.is_dir()) for each in path.iterdir()], findings)
        head = first_bytes(path, findings)
        return None if head is None else open_file(path, head, self.options.csv, findings)
