"""`owner-node status`: the daemon, its connections, open sessions and balances."""

from typing import Annotated, Any

import typer

from common.cli import console
from common.clock import utc_now
from common.errors import NotConnectedError, TesseraError
from common.trust.enrolment import expiry_warning
from common.trust.identity import fingerprint, renewal_begins
from common.trust.signing import load_chain
from owner_node import config
from owner_node.cli.ledger import balances, note_raised, show_balances
from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.state.database import OwnerDatabase
from owner_node.state.presence import DaemonPresence, DaemonState
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions

CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Exit 0 only if the daemon runs and is connected to every aggregator."),
]


def status(
    config_file: console.ConfigOption = None,
    check: CheckOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Show the daemon, its connections, open sessions and budgets."""
    owner = config.load(config_file)
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        daemon, ledger = DaemonPresence(db, utc_now).state(), Ledger(db, utc_now)
        halted = ledger.losses.reason()
        document = {
            "owner": owner.owner.id,
            "running": daemon.running,
            "pid": daemon.pid,
            "version": daemon.version,
            "started": daemon.started,
            "outdated": daemon.outdated(owner.digest) or None,
            "certificate": _certificate(owner),
            "linkage_key": _linkage_key(owner),
            "aggregators": _aggregators(owner, daemon),
            "sessions": [_session(each) for each in Sessions(db, utc_now).live()],
            "balances": balances(owner, ledger),
            "halted": None if halted is None else halted.message,
        }
        if not as_json:
            note_raised(owner, ledger)
    problem = _problem(document) if check else None
    if not as_json:
        _show(document)
    elif problem is None:
        console.print_json(document)
    if problem is not None:
        raise problem


def _certificate(owner: OwnerConfig) -> dict[str, Any]:
    """Return the expiry of the daemon's certificate, and a warning if there is a problem with it."""
    try:
        found = load_chain(owner.tls.cert)[0]
    except TesseraError as error:
        return {"expires": None, "fingerprint": None, "warning": f"there is no certificate: {error.message}"}
    ends = found.not_valid_after_utc
    return {
        "expires": ends.isoformat(),
        "fingerprint": fingerprint(found.public_key()),
        "warning": expiry_warning(f"owner {owner.owner.id}", ends, utc_now(), ends - renewal_begins(found)),
    }


def _linkage_key(owner: OwnerConfig) -> dict[str, Any]:
    """Return generation and check value of the linkage key, which owners compare with one another."""
    try:
        found = linkage_key.load(owner.owner.state_dir)
    except TesseraError as error:
        return {"generation": None, "check": None, "reason": error.message}
    return {"generation": found.generation, "check": found.check, "reason": ""}


def _aggregators(owner: OwnerConfig, daemon: DaemonState) -> list[dict[str, Any]]:
    known = {each.aggregator: each for each in daemon.connections}
    return [
        {
            "name": each.name,
            "address": each.address,
            "connected": each.name in known and known[each.name].connected,
            "since": known[each.name].since if each.name in known else "",
            "reason": known[each.name].reason if each.name in known else "",
        }
        for each in owner.aggregators
    ]


def _session(session: Session) -> dict[str, Any]:
    return {
        "release": session.release,
        "aggregator": session.aggregator,
        "state": str(session.state),
        "dataset": session.dataset,
        "purpose": session.purpose,
        "updated": session.updated,
    }


def _problem(document: dict[str, Any]) -> NotConnectedError | None:
    if not document["running"]:
        return NotConnectedError("the daemon is not running", "start it: owner-node run", document)
    missing = [each["name"] for each in document["aggregators"] if not each["connected"]]
    if missing or not document["aggregators"]:
        return NotConnectedError(
            f"not connected to {', '.join(missing) or 'any aggregator'}",
            "the daemon keeps trying; owner-node status says why it failed last",
            document,
        )
    return None


def _show(document: dict[str, Any]) -> None:
    if document["running"]:
        running = f"running since {document['started']} (process {document['pid']}, {document['version']})"
    else:
        running = "not running"
    console.print_line(f"owner {document['owner']}: the daemon is {running}")
    if document["outdated"]:
        console.note(f"warning: {document['outdated']}")
    if document["certificate"]["warning"]:
        console.note(f"warning: {document['certificate']['warning']}")
    key = document["linkage_key"]
    if key["generation"] is None:
        console.print_line(f"linkage key: none; {key['reason']}")
    else:
        console.print_line(f"linkage key: generation {key['generation']}, check value {key['check']}")
    if document["halted"]:
        console.note(f"no work is done: {document['halted']}; see owner-node ledger recover")
    for title, key, columns in (
        ("Aggregators", "aggregators", ("name", "address", "connected", "since", "reason")),
        ("Sessions under way", "sessions", ("release", "aggregator", "state", "dataset", "updated")),
    ):
        rows = [[None if each[name] == "" else each[name] for name in columns] for each in document[key]]
        if rows:
            console.table(title, columns, rows)
    waiting = sum(each["state"] == SessionState.AWAITING_APPROVAL for each in document["sessions"])
    if waiting:
        console.print_line(f"{waiting} of them wait for a person: owner-node requests")
    show_balances(document["balances"])
