"""`aggregator verify`: re-check a release folder offline, anywhere, without a configuration."""

from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.cli.progress_bar import shown_progress
from common.release.verification import parse_pins, verify_release

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Release folder.", show_default=False)]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="CA certificates that all identities must chain to (PEM).",
        metavar="FILE",
        show_default=False,
    ),
]
OwnerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", help="Fingerprint that an owner's key must have; repeatable.",
        metavar="ID=FINGERPRINT", show_default=False,
    ),
]  # fmt: skip


def verify(
    folder: FolderArgument,
    ca: CaOption = None,
    owner: OwnerOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Re-check signatures, consents, numbers and digests of a release; name the first that does not hold."""
    with shown_progress(silent=as_json) as progress:
        verified = verify_release(folder, ca, parse_pins(owner or []), progress=progress)
    if as_json:
        console.print_json(verified.to_document())
        return
    for line in verified.to_lines():
        console.print_line(line)
