"""`owner-node schema`: attributes and domains written down once, and used by every owner of a release."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.clock import utc_now
from common.errors import UsageError
from common.files import write_atomic
from common.settings import locate
from owner_node import config
from owner_node.config.editing import set_schema
from owner_node.config.shared_schema import export_schema, present, read_schema, with_schema_of
from owner_node.connection.command_client import connected_client
from owner_node.connection.credentials import own_credentials
from owner_node.loading import column_names

_PUBLIC_FILE = 0o644

app = typer.Typer(help="Write, fetch or apply the schema that owners share.", no_args_is_help=True)

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Where to write the schema.", show_default=False)
]
SchemaArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema, exported or fetched.", show_default=False)
]
DatasetOption = Annotated[str, typer.Option("--dataset", help="Name of the data set.", show_default=False)]
AggregatorOption = Annotated[
    str | None,
    typer.Option(
        "--aggregator", help="Which aggregator offers it, if there are several.", show_default=False
    ),
]


@app.command()
def export(
    file: FileArgument,
    dataset: DatasetOption,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Write attributes, domains and identifier rules of a data set for other owners; no value of the data."""
    _write(file, export_schema(config.load(config_file), dataset), dataset, as_json=as_json)


@app.command()
def fetch(
    file: FileArgument,
    dataset: DatasetOption,
    aggregator: AggregatorOption = None,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Fetch the schema that an aggregator offers for a data set, for owner-node init DATA --schema FILE.

    Of owner.toml it needs identity and connection; a data set need not be there.
    """
    owner = config.load_identity(config_file)
    known = {section.name: section for section in owner.aggregators}
    if aggregator is None and len(known) == 1:
        (aggregator,) = known
    if aggregator not in known:
        raise UsageError(
            "it is not clear which aggregator is meant", f"--aggregator is one of {', '.join(known)}"
        )

    async def fetch_schema() -> bytes:
        identity = own_credentials(owner, utc_now).current
        async with connected_client(owner, known[aggregator], identity) as client:
            return await client.schema(dataset)

    _write(file, asyncio.run(fetch_schema()).decode(errors="replace"), dataset, as_json=as_json)


@app.command()
def apply(
    file: SchemaArgument,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Write a changed schema into the data set of its name; its source, budget and form stay."""
    path = locate(config_file, config.FILE_NAME)
    schema = read_schema(file)
    before, dataset = with_schema_of(path, schema)
    # Spark starts slowly: `check` says what its source lacks.
    declared = (
        schema if dataset.origin.needs_spark else present(schema, column_names(dataset), dataset.origin.shown)
    )
    set_schema(path, declared)
    old, new = before.get("attributes", {}), declared["attributes"]
    changes = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
        "absent": [name for name in schema["attributes"] if name not in new],
    }
    if as_json:
        console.print_json({"file": path, "dataset": schema["name"]} | changes)
        return
    console.print_line(f"{path}: data set {schema['name']!r} has the schema of {file}, {len(new)} attributes")
    changes["no column of the source, so not declared"] = changes.pop("absent")
    for what, names in changes.items():
        if names:
            console.print_line(f"{what}: {', '.join(names)}")
    console.print_line(f"then: owner-node check --config {path}, and restart the daemon")


def _write(file: Path, text: str, dataset: str, *, as_json: bool) -> None:
    if file.exists():
        raise UsageError(f"{file} already exists", "name another file; nothing was changed")
    try:
        write_atomic(file, text.encode(), _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from None
    if as_json:
        console.print_json({"file": file.absolute(), "dataset": dataset})
        return
    console.print_line(f"{file}: schema of {dataset!r}; use it with owner-node init DATA --schema {file}")
