"""What `backup` and `restore` of both programs take and print."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from common.cli import console
from common.daemon.backup import Backup
from common.errors import ConfigurationError
from common.settings import locate

TargetArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file to write; must not exist.", show_default=False)
]
SourceArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file that backup made.", show_default=False)
]


def place_of(chosen: Path | None, file_name: str) -> Path:
    """Return the configuration file that a restore uses, or writes where there is none."""
    try:
        return locate(chosen, file_name)
    except ConfigurationError:
        return chosen or Path(file_name)


def show_made(backup: Backup, target: Path, missing: Sequence[str], *, as_json: bool) -> None:
    """Print what was backed up.

    Args:
        missing: What the file does not hold and has to be backed up by itself, a sentence each.
    """
    if as_json:
        console.print_json({**asdict(backup), "file": target, "not_included": missing})
        return
    console.print_line(
        f"{target}: {backup.party} at {backup.made}, {backup.files} files, {backup.size:,} bytes"
    )
    console.note(
        "it holds private keys and is as secret as the state directory: encrypt it, and keep it inside"
    )
    for text in missing:
        console.note(f"not in it: {text}")


def show_restored(backup: Backup, following: Sequence[str], *, as_json: bool) -> None:
    """Print what was restored."""
    if as_json:
        console.print_json({**asdict(backup), "next": following})
        return
    console.print_line(f"restored {backup.party} as of {backup.made}: {backup.files} files")
    for path in backup.kept:
        console.note(f"kept: {path} is there with another content than in the backup")
    for step in following:
        console.print_line(f"next: {step}")
