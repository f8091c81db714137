"""`aggregator export`: a verified release as a file of SPSS or Stata, anywhere, without a configuration."""

from pathlib import Path
from typing import Annotated

import typer

from aggregator.cli.verify import CaOption
from common.analysis.reading import read_release
from common.cli import console
from common.cli.release_options import KeyPins, Published, parse_pins
from common.errors import UsageError
from common.release.labelled import format_of, write_labelled

OutOption = Annotated[
    Path, typer.Option("--out", help="New file, .sav, .zsav or .dta.", metavar="FILE", show_default=False)
]


def export(
    path: Published,
    out: OutOption,
    ca: CaOption = None,
    owner: KeyPins = None,
    as_json: console.JsonOption = False,
) -> None:
    """Verify a release folder, and write its records as a file of SPSS or Stata with labels."""
    format_of(out)  # before the release is verified, which can take long
    release = read_release(path, ca=ca, owners=parse_pins(owner or []))
    if release.verified.plan.events is not None:
        raise UsageError(
            f"release {release.id} has a table of events beside that of persons, and this writes one table",
            "read events.parquet or events.csv, or in Python read_release(...).events",
        )
    names = write_labelled(out, release.table, release.verified.plan.columns)
    renamed = {name: short for name, short in names.items() if name != short}
    if as_json:
        n_records = release.table.num_rows
        console.print_json(
            {"release": release.id, "file": str(out), "records": n_records, "renamed": renamed}
        )
        return
    console.print_line(f"release {release.id} verified; {release.table.num_rows:,} records written to {out}")
    for name, short in renamed.items():
        console.print_line(f"column {name!r} is {short}")
    for line in release.caveats:
        console.print_line(line)
