"""`owner-node history`: requests to this owner, its decisions and the deciding rules."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

import typer

from common.cli import console
from common.clock import utc_now
from common.words.numbers import bound_cell, bound_text, moment_text
from owner_node import config
from owner_node.loading.advice import left_out_lines
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History, Line

_SHORT_DIGEST = 12
_BOUNDS = ("charge", "rank_loss")
"""Details that are decimals as exact as the ledger's."""

ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release", help="Only this release; AGGREGATOR/ID where two aggregators use the same.",
        show_default=False, metavar="ID",
    ),
]  # fmt: skip
AggregatorOption = Annotated[
    str | None, typer.Option("--aggregator", help="Only requests of this aggregator.", show_default=False)
]


def history(
    config_file: console.ConfigOption = None,
    release: ReleaseOption = None,
    aggregator: AggregatorOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show the history, oldest first: every request, decision, rule and digest. Needs no daemon."""
    owner = config.load(config_file)
    by, _, wanted = (release or "").rpartition("/")
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        lines = History(db, utc_now).entries(by or aggregator, wanted or None)
    if by and aggregator not in (None, by):
        lines = ()
    if as_json:
        console.print_json({"history": [asdict(line) for line in lines]})
        return
    columns = ("line", "time", "aggregator", "release", "event", "decision", "ε", "plan", "about")
    rows = [
        (line.sequence, moment_text(line.time, seconds=True), line.aggregator or None, line.release,
         line.event, line.decision or None, bound_cell(line.amount, "–"),
         line.plan_digest[:_SHORT_DIGEST] or None, _about(line) or None)
        for line in lines
    ]  # fmt: skip
    console.table("History", columns, rows)


def _about(line: Line) -> str:
    """Return the deciding rule, the purpose of a decision, and the details of a line, in short."""
    purpose = f"for: {line.purpose}" if line.purpose and line.decision else ""
    return "; ".join(part for part in (line.rule, purpose, ", ".join(_details(line.details))) if part)


def _details(details: Mapping[str, Any]) -> Iterator[str]:
    yield from map(str.strip, left_out_lines(details.get("left_out", {})))
    for name, value in details.items():
        if isinstance(value, str) and value and value != "None":
            yield f"{name} {_brief(name, value)}"


def _brief(name: str, value: str) -> str:
    if name in _BOUNDS:
        return bound_text(Decimal(value))
    is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return value[:_SHORT_DIGEST] if is_digest else value
