"""`owner-node linkage-key`: make the owners' linkage key and pass it on, sealed and signed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from common.canonical import canonical
from common.cli import console
from common.cli.console import ConfigOption, JsonOption
from common.errors import UsageError
from common.files import write_atomic
from common.trust.credentials import read_identity
from common.trust.identity import spoken
from owner_node import config as configuration
from owner_node.linking import key_exchange, linkage_key

app = typer.Typer(help="Make the owners' linkage key, and exchange it sealed.", no_args_is_help=True)

ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace the existing key.")]
FingerprintOption = Annotated[
    str, typer.Option("--fingerprint", help="Fingerprint of the recipient's key, compared by telephone.")
]
FromFingerprintOption = Annotated[
    str, typer.Option("--from-fingerprint", help="Fingerprint of the sender's key, compared by telephone.")
]


@app.command()
def new(config: ConfigOption = None, replace: ReplaceOption = False, json: JsonOption = False) -> None:
    """Make a linkage key; the other owners import it. With --replace, the next generation of it."""
    made = linkage_key.new(configuration.load(config).owner.state_dir, replace=replace)
    if json:
        console.print_json({"generation": made.generation, "check": made.check})
        return
    console.print_line(f"linkage key made, generation {made.generation}, check value {made.check}")
    if made.generation > 1:
        console.print_line("releases under way keep the key that they were agreed with; for new ones every")
        console.print_line("other owner has to import this one: owner-node linkage-key export")


@app.command()
def show(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show the generation of the linkage key, and a value that is the same at every owner that has it."""
    key = linkage_key.load(configuration.load(config).owner.state_dir)
    if json:
        console.print_json({"generation": key.generation, "check": key.check})
    else:
        console.print_line(f"linkage key of generation {key.generation}, check value {key.check}")


@app.command()
def recipient(
    config: ConfigOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the public key to this file.")] = None,
    json: JsonOption = False,
) -> None:
    """Print the public key that a linkage key is exported to, and its fingerprint."""
    document, fingerprint = key_exchange.recipient(configuration.load(config).owner.state_dir)
    if out is not None:
        _write(out, document, mode=0o644)
    if json:
        console.print_json({"recipient": document, "fingerprint": fingerprint})
        return
    if out is None:
        console.print_line(canonical(document).decode())
    console.note(f"fingerprint, to read to the sender on the telephone: {spoken(fingerprint)}")


@app.command()
def export(
    to: Annotated[Path, typer.Option("--to", help="Public key file of the recipient.")],
    fingerprint: FingerprintOption,
    out: Annotated[Path, typer.Option("--out", help="File to write the sealed key to.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Seal the linkage key to one recipient, sign it, and write it to a file."""
    settings = configuration.load(config)
    signer = read_identity(settings.tls).signer
    document = key_exchange.export(settings.owner.state_dir, signer, to, fingerprint)
    _write(out, document, mode=0o600)
    generation = int(document["generation"])
    if json:
        console.print_json({"file": out, "fingerprint": signer.fingerprint, "generation": generation})
    else:
        console.print_line(f"generation {generation}, sealed to the recipient: {out}")
        console.print_line(
            f"fingerprint, to read to the recipient on the telephone: {spoken(signer.fingerprint)}"
        )


@app.command(name="import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File with the sealed key.", show_default=False)
    ],
    from_fingerprint: FromFingerprintOption,
    config: ConfigOption = None,
    replace: ReplaceOption = False,
    json: JsonOption = False,
) -> None:
    """Check and open a sealed linkage key, and keep it."""
    state_dir = configuration.load(config).owner.state_dir
    done = key_exchange.import_export(state_dir, file, from_fingerprint, replace=replace)
    if json:
        about = {"from": done.sender.name, "generation": done.key.generation, "check": done.key.check}
        console.print_json({**about, "changed": done.changed})
    else:
        state = "imported" if done.changed else "was in place already"
        what = f"generation {done.key.generation}, check value {done.key.check}"
        console.print_line(f"linkage key of {done.sender.name}, {what}: {state}")


def _write(out: Path, document: Mapping[str, Any], mode: int) -> None:
    try:
        write_atomic(out, canonical(document) + b"\n", mode)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from None
