"""`aggregator schema`: a schema file offered to owners, with or without the daemon."""

from pathlib import Path
from typing import Annotated

import typer

from aggregator.config import load
from aggregator.store.schemas import OfferedSchemas
from common.cli import console
from common.errors import UsageError
from common.model.schema import LARGEST_SCHEMA

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Schema file, as an owner exports it.", show_default=False)
]
DatasetOption = Annotated[str, typer.Option("--dataset", help="Name of the data set.", show_default=False)]


def schema(
    file: FileArgument,
    dataset: DatasetOption,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Offer a schema file to owners, who fetch it with owner-node schema fetch and check it themselves."""
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST_SCHEMA + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "name a schema file") from None
    OfferedSchemas(load(config).aggregator.state_dir).offer(dataset, text)
    if as_json:
        console.print_json({"dataset": dataset, "bytes": len(text)})
        return
    console.print_line(f"owners fetch it: owner-node schema fetch FILE --dataset {dataset}")
