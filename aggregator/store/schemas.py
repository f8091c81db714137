"""Schema files that the operator offers to owners, one per data set; public, and checked by each owner."""

import tomllib
from pathlib import Path

from common.daemon.settings import LABEL
from common.errors import UsageError
from common.files import PRIVATE_FILE, private_directory, write_atomic
from common.model.schema import LARGEST_SCHEMA


class OfferedSchemas:
    """The folder of schema files."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "schemas"

    def offer(self, dataset: str, text: bytes) -> None:
        """Store a schema file in the place of an earlier one; a running daemon sends it from now on.

        Raises:
            UsageError: If it is no schema file of that data set.
        """
        hint = "make it at an owner: owner-node schema export FILE --dataset D"
        if len(text) > LARGEST_SCHEMA:
            raise UsageError(
                f"a schema file has at most {LARGEST_SCHEMA:,} bytes, this one has more",
                "declare fewer or shorter categories",
            )
        try:
            document = tomllib.loads(text.decode())
        except (ValueError, RecursionError):
            document = {}
        if not document.get("attributes"):
            raise UsageError("the file is not a schema file", hint)
        if document.get("name") != dataset:
            raise UsageError(f"the file is the schema of {document.get('name')!r}, not of {dataset!r}", hint)
        write_atomic(self._path(dataset), text, PRIVATE_FILE)

    def find(self, dataset: str) -> bytes:
        """Return the schema file of a data set.

        Raises:
            UsageError: If there is none.
        """
        try:
            return self._path(dataset).read_bytes()
        except FileNotFoundError:
            raise UsageError(
                f"no schema is offered for data set {dataset!r}",
                "the aggregator's operator offers one: aggregator schema FILE --dataset D",
            ) from None

    def _path(self, dataset: str) -> Path:
        if not LABEL.fullmatch(dataset):
            raise UsageError("that is no name of a data set", "a name has letters, digits, '.', '-' and '_'")
        return private_directory(self._folder) / f"{dataset}.toml"
