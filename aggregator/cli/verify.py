"""`aggregator verify`: re-check a release folder offline, anywhere, without a configuration."""

from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.cli.progress_bar import shown_progress
from common.cli.release_options import KeyPins, ReleaseFolder
from common.release.verification import parse_pins, verify_release

CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="CA certificates that all identities must chain to (PEM).",
        metavar="FILE",
        show_default=False,
    ),
]


def verify(
    folder: ReleaseFolder,
    ca: CaOption = None,
    owner: KeyPins = None,
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
