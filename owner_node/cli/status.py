"""`owner-node status`: the daemon, its connections, open sessions and balances."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from common.cli import console
from common.clock import utc_now
from common.errors import NotConnectedError, TesseraError
from common.words.numbers import bound_cell, delta_text, left_cell, moment_text
from owner_node import config
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase
from owner_node.state.notification_pipe import NO_RESPONSE, NO_RESPONSE_HINT, responds
from owner_node.state.presence import is_running
from owner_node.state.session import SessionState
from owner_node.views.budgets import unrecorded
from owner_node.views.status import status_document

_MOMENTS = ("since", "updated")
"""Columns of times."""

CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Exit 0 only if the daemon responds and is connected to every aggregator."),
]
AliveOption = Annotated[
    bool,
    typer.Option("--alive", help="Print nothing; exit 0 if the daemon responds, connected or not."),
]


def status(
    config_file: console.ConfigOption = None,
    check: CheckOption = False,
    alive: AliveOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Show the daemon, its connections, open sessions, budgets and attempts."""
    owner = config.load(config_file)
    if alive:
        liveness = {"running": is_running(owner.owner.state_dir), "responds": responds(owner.owner.state_dir)}
        if problem := _no_response(liveness):
            raise problem
        if as_json:
            console.print_json(liveness)
        return
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        document, problem = status_document(owner, db), unrecorded(owner, Ledger(db, utc_now))
    document["responds"] = document["running"] and responds(owner.owner.state_dir)
    if problem is not None:
        problem.details = {**problem.details, **document}
    elif check:
        problem = _problem(document)
    if not as_json:
        _show(document)
    elif problem is None:
        console.print_json(document)
    if problem is not None:
        raise problem


def _no_response(document: dict[str, Any]) -> TesseraError | None:
    if not document["running"]:
        return NotConnectedError("the daemon is not running", "start it: owner-node run", document)
    if not document["responds"]:
        return NotConnectedError(NO_RESPONSE, NO_RESPONSE_HINT, document)
    return None


def _problem(document: dict[str, Any]) -> TesseraError | None:
    if problem := _no_response(document):
        return problem
    missing = [
        f"{connection['name']}: {connection['reason'] or 'no attempt has ended yet'}"
        for connection in document["aggregators"]
        if not connection["connected"]
    ]
    if missing or not document["aggregators"]:
        return NotConnectedError(
            f"not connected to {'; '.join(missing) or 'any aggregator'}",
            "the daemon keeps trying" if missing else "add an [[aggregator]] with name and address",
            document,
        )
    return None


def _warnings(document: dict[str, Any]) -> Iterator[str]:
    for connection in document["aggregators"]:
        if connection["reason"]:
            since = moment_text(connection["since"])
            yield f"not connected to {connection['name']} since {since}: {connection['reason']}"
    for text in (document["outdated"], document["certificate"]["warning"]):
        if text:
            yield text
    if document["halted"]:
        yield f"no work is done: {document['halted']}; see owner-node ledger recover"


def _cell(column: str, value: Any) -> Any:
    return moment_text(value) if value and column in _MOMENTS else value if value != "" else None


def _running(document: dict[str, Any]) -> str:
    if not document["running"]:
        return "not running"
    since = moment_text(document["started"])
    running = f"running since {since} (process {document['pid']}, {document['version']})"
    return running if document["responds"] else f"{running}, but does not respond"


def _show(document: dict[str, Any]) -> None:
    console.print_line(f"owner {document['owner']}: the daemon is {_running(document)}")
    for warning in _warnings(document):
        console.note(f"warning: {warning}")
    key = document["linkage_key"]
    if key["generation"] is None:
        console.print_line(f"linkage key: none; {key['reason']}")
    else:
        console.print_line(f"linkage key: generation {key['generation']}, check value {key['check']}")
    for title, key, columns in (
        ("Aggregators", "aggregators", ("name", "address", "connected", "since", "reason")),
        (
            "Sessions under way",
            "sessions",
            ("release", "aggregator", "state", "dataset", "updated"),
        ),
    ):
        rows = [[_cell(name, entry[name]) for name in columns] for entry in document[key]]
        if rows:
            console.table(title, columns, rows)
    for session in document["sessions"]:
        if session["progress"]:
            console.print_line(f"{session['release']}: {session['progress']}")
    waiting = sum(session["state"] == SessionState.AWAITING_APPROVAL for session in document["sessions"])
    if waiting:
        console.print_line(f"{waiting} of them wait for a person: owner-node requests")
    show_balances(document["balances"])
    for engine in document["engines"]:
        console.print_line(f"engine of {engine['dataset']!r}: {engine['text']}")
    for allowance in document["attempts"]:
        console.print_line(allowance["text"])


def show_balances(documents: list[dict[str, Any]]) -> None:
    """Print balances as a table."""
    columns = ("budget", "total", "reserved", "spent", "remaining")
    rows = [
        [
            document["budget"],
            *(
                None if document[key] is None else bound_cell(document[key])
                for key in ("total", "reserved", "spent")
            ),
            None if document["remaining"] is None else left_cell(document["remaining"]),
            bound_cell(document["rank_loss"]),
            document["without_rank_loss"],
            delta_text(document["delta"]) if document["delta"] else None,
        ]
        for document in documents
    ]
    console.table("Budgets (epsilon)", (*columns, "rank loss", "charges without bound", "delta"), rows)
    if any(document["spent"] for document in documents):
        console.print_line(
            "spent: the epsilon, in all, of a person who was in every release and answer so far"
        )
