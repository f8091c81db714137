"""`owner-node init`: a first owner.toml for a data file."""

from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.errors import UsageError

_PUBLIC_FILE = 0o644

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV or Parquet file with the data.", show_default=False)
]
OutOption = Annotated[Path, typer.Option("--out", help="Where to write it.", metavar="FILE")]
IdOption = Annotated[str | None, typer.Option("--id", help="This owner's id.", show_default=False)]
TrustDomainOption = Annotated[
    str | None, typer.Option("--trust-domain", help="The parties' trust domain.", show_default=False)
]
AggregatorOption = Annotated[
    str | None,
    typer.Option("--aggregator", help="The aggregator.", metavar="NAME=HOST:PORT", show_default=False),
]


def init(
    file: FileArgument,
    out: OutOption = Path("owner.toml"),
    owner: IdOption = None,
    trust_domain: TrustDomainOption = None,
    aggregator: AggregatorOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Write a commented owner.toml with guessed types; domains are left for a person to fill in."""
    from common.files import write_atomic
    from owner_node.cli.starting import FILL_IN, starting_configuration
    from owner_node.sources.guessing import guess

    if out.exists():
        raise UsageError(f"{out} is there already", "name another file with --out; nothing was changed")
    name, _, address = (aggregator or f"{FILL_IN}={FILL_IN}").partition("=")
    if not name or not address:
        raise UsageError("--aggregator has another form", "write --aggregator NAME=HOST:PORT")
    found = guess(file)
    text = starting_configuration(
        file, out, found, owner=owner or FILL_IN, trust_domain=trust_domain or FILL_IN, aggregator=name,
        address=address,
    )  # fmt: skip
    try:
        write_atomic(out, text.encode(), _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from None
    declared = {column.name: column.type for column in found.columns if column.type}
    left_out = [column.name for column in found.columns if not column.type]
    if as_json:
        document = {"file": out.absolute(), "records": found.n_records, "attributes": declared}
        console.print_json({**document, "not_declared": left_out})
        return
    console.print_line(
        f"{out}: {len(declared)} of {len(found.columns)} columns declared, {found.n_records} records"
    )
    if left_out:
        console.print_line(f"not declared, and so never read: {', '.join(left_out)}")
    console.print_line(f'fill in what says "{FILL_IN}", then: owner-node check --config {out}')
    console.note("domains are not taken from the data: they would tell everybody its extremes")
