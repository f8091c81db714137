"""`aggregator history`: what operators asked for, when, and what came of it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggregator.cli.connection import daemon, pieces
from aggregator.cli.inspect import moment
from aggregator.cli.outcome import iso
from common import console

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ActionView

ReleaseOption = Annotated[
    str,
    typer.Option(
        "--release", help="Only what was asked about this release.", metavar="ID", show_default=False
    ),
]


def history(
    release: ReleaseOption = "", config: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Show what operators asked for, oldest first: who, when, with which arguments, and what came of it."""
    from common.wire.v1.control_pb2 import ListActionsRequest

    with daemon(config) as calls:
        answers = pieces(calls.ListActions, ListActionsRequest(release=release))
        actions: list[ActionView] = [action for answer in answers for action in answer.actions]
    if as_json:
        console.print_json({"actions": [_document(each) for each in actions]})
        return
    console.table(
        "",
        ("time", "user", "action", "release", "outcome"),
        [
            (moment(each.time), each.user or None, each.action, each.release or None, each.outcome)
            for each in actions
        ],
    )


def _document(action: "ActionView") -> dict[str, Any]:
    return {
        "time": iso(action.time),
        "user": action.user or None,
        "action": action.action,
        "release": action.release or None,
        "arguments": json.loads(action.arguments),
        "outcome": action.outcome,
    }
