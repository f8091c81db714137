"""`aggregator verify`: re-check what was published offline, anywhere, without a configuration."""

from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.cli.progress_bar import shown_progress
from common.cli.release_options import KeyPins, Published, parse_pins
from common.release.synthetic_table import VerifiedTable, verify_table
from common.release.verification import Verified, verify_release

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
    path: Published,
    ca: CaOption = None,
    owner: KeyPins = None,
    as_json: console.JsonOption = False,
) -> None:
    """Re-check signatures, consents, numbers and digests of a release; name the first that does not hold.

    Of a synthetic table of one owner, the records are drawn again from its noisy counts.
    """
    pins = parse_pins(owner or [])
    verified: Verified | VerifiedTable
    if path.is_file():
        verified = verify_table(path, ca, pins)
    else:
        with shown_progress(silent=as_json) as progress:
            verified = verify_release(path, ca, pins, progress=progress)
    if as_json:
        console.print_json(verified.to_document())
        return
    for line in verified.to_lines():
        console.print_line(line)
