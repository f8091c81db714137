"""`owner-node history`: what was asked of this owner, what it decided and by which rule."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from common import console
from owner_node import config
from owner_node.database import Database
from owner_node.history import History

ReleaseOption = Annotated[
    str | None, typer.Option("--release", help="Only this release.", show_default=False, metavar="ID")
]


def history(
    config_file: console.ConfigOption = None,
    release: ReleaseOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show the history, oldest first. Works with or without the daemon."""
    owner = config.load(config_file)
    with Database(owner.owner.state_dir, make=False) as db:
        lines = History(db, lambda: datetime.now(UTC)).entries(release=release)
    if as_json:
        console.print_json({"history": [asdict(line) for line in lines]})
        return
    columns = ("line", "time", "aggregator", "release", "event", "decision", "epsilon", "purpose", "rule")
    rows = [
        (each.sequence, each.time, each.aggregator, each.release, each.event,
         each.decision or None, each.epsilon or None, each.purpose or None, each.rule or None)
        for each in lines
    ]  # fmt: skip
    console.table("History", columns, rows)
