"""`aggregator history`: the log of the operators' actions."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggregator.cli.inspect import moment
from aggregator.control.connection import daemon, pages
from aggregator.control.documents import action_document, state
from common.cli import console
from common.wire.v1.control_pb2 import ListActionsRequest, ListReleasesRequest

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ActionView


ReleaseOption = Annotated[
    str,
    typer.Option("--release", help="Only actions on this release.", metavar="ID", show_default=False),
]


def history(
    release: ReleaseOption = "", config: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Show the operators' actions, oldest first: who, when, with which arguments, and with which outcome.

    An action on a release is shown with the present state of that release.
    """
    with daemon(config) as calls:
        answers = pages(calls.ListActions, ListActionsRequest(release=release))
        actions: list[ActionView] = [action for answer in answers for action in answer.actions]
        listed = pages(calls.ListReleases, ListReleasesRequest())
        states = {view.release: state(view) for answer in listed for view in answer.releases}
    found = [action_document(each, states) for each in actions]
    if as_json:
        console.print_json({"actions": found})
        return
    console.table(
        "",
        ("time", "user", "action", "release", "arguments", "outcome", "release is"),
        [
            (
                moment(action.time), each["user"], each["action"], each["release"],
                _text(each["arguments"]) or None, each["outcome"], each["release_state"],
            )
            for action, each in zip(actions, found, strict=True)
        ],
    )  # fmt: skip


def _text(arguments: dict[str, Any]) -> str:
    """Return arguments in one line."""
    return ", ".join(f"{key} {_value(value)}" for key, value in arguments.items() if value != "")


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
