"""`owner-node requests`, `show`, `approve` and `refuse`: a person decides about plans."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from common import console
from common.errors import ExitCode, UsageError
from owner_node import config
from owner_node.config import OwnerConfig
from owner_node.consent.decisions import Decisions, this_person
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import Database
from owner_node.state.doorbell import ring
from owner_node.state.presence import Presence
from owner_node.state.sessions import Session

_LONGEST_REASON = 400
_VALID = "24h"

ReleaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Release id; AGGREGATOR/ID where two aggregators use the same.", show_default=False
    ),
]
DigestOption = Annotated[
    str,
    typer.Option(
        "--digest", help="Digest of the plan that you have seen, or its first 12 digits or more.",
        metavar="D", show_default=False,
    ),
]  # fmt: skip
ValidOption = Annotated[
    str, typer.Option("--valid", help="How long the approval holds: 30m, 24h, 7d.", metavar="TIME")
]
ReasonOption = Annotated[
    str,
    typer.Option("--reason", help="Why, for this owner's history alone.", metavar="TEXT", show_default=False),
]
PreviewOption = Annotated[
    bool, typer.Option("--preview/--no-preview", help="Try a plan that waits on the data that it asks for.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Every release, not only what waits for a person.")]


def requests(
    every: AllOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """List the plans that wait for a person."""
    owner = config.load(config_file)
    with _opened(owner) as (db, decisions):
        sessions = decisions.all() if every else decisions.waiting()
        found = [_summary(each, owner, db, decisions) for each in sessions]
        outdated = Presence(db, _now).state().outdated(owner.digest)
    if outdated:
        console.note(f"warning: {outdated}")
    if as_json:
        console.print_json({"requests": found})
        return
    if not found:
        console.print_line("nothing waits for a person")
        return
    columns = ("aggregator", "release", "state", "purpose", "epsilon", "charge", "deadline", "approved until")
    keys = (*columns[:-1], "approved_until")
    console.table("Requests", columns, [[each[key] or None for key in keys] for each in found])
    console.print_line(
        "owner-node show ID says what would leave; owner-node approve ID, refuse ID --reason TEXT"
    )


def show(
    release: ReleaseArgument,
    preview: PreviewOption = True,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show exactly what a plan would let leave, for what, and what it would charge."""
    from owner_node.cli.request_preview import preview_of
    from owner_node.cli.request_text import show_request

    owner = config.load(config_file)
    with _opened(owner) as (db, decisions):
        session = decisions.find(release)
        document = _document(session, owner, db, decisions)
    document["preview"] = preview_of(session, owner) if preview else None
    if as_json:
        console.print_json(document)
    else:
        show_request(document)


def approve(
    release: ReleaseArgument,
    digest: DigestOption = "",
    valid: ValidOption = _VALID,
    yes: console.YesOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> int:
    """Agree to the plan that waits: to this plan digest alone, and for a limited time.

    Without --digest it asks whether the plan that waits is meant, and needs --yes where there is no terminal.
    """
    from common.setting_types import parse_duration

    owner = config.load(config_file)
    try:
        duration = parse_duration(valid)
    except ValueError as problem:
        raise UsageError(f"--valid {valid}: {problem}", "for example --valid 24h") from None
    with _opened(owner) as (db, decisions):
        if not digest:
            session = decisions.awaiting(release)
            # Agreed to is what was shown: another plan that comes while the person reads is a conflict.
            digest = session.plan_digest
            if not (yes or _means(_document(session, owner, db, decisions))):
                console.note("nothing was approved")
                return ExitCode.REFUSED
        session, approval = decisions.approve(release, digest, this_person(), duration)
    told = ring(owner.owner.state_dir)
    if as_json:
        until = approval.until.isoformat()
        console.print_json({**_named(session), "by": approval.by, "until": until, "daemon_told": told})
        return ExitCode.DONE
    what = f"release {session.release} of {session.aggregator}"
    console.print_line(f"{approval.by} approved {what} until {_moment(approval.until)}")
    console.print_line(f"plan digest: {session.plan_digest}")
    console.print_line("the daemon goes on with it" if told else "the daemon is not running: owner-node run")
    return ExitCode.DONE


def _means(document: dict[str, Any]) -> bool:
    """Ask whether the plan that waits is the one that a person has seen."""
    name = f"{document['aggregator']}/{document['release']}"
    charge = document.get("charge", "what is not known")
    return console.confirm(
        f"Approve plan {document['plan_digest'][:12]} of {name}, which charges {charge} "
        f"(all of it: owner-node show {name})?"
    )


def refuse(
    release: ReleaseArgument,
    reason: ReasonOption,
    digest: DigestOption = "",
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Refuse the plan that waits. The aggregator hears that a person refused, and not why."""
    owner = config.load(config_file)
    if not reason.strip() or len(reason) > _LONGEST_REASON:
        raise UsageError(
            f"--reason has 1 to {_LONGEST_REASON} characters", "it is kept in this owner's history"
        )
    with _opened(owner) as (_, decisions):
        session = decisions.refuse(release, digest, this_person(), reason.strip())
    told = ring(owner.owner.state_dir)
    if as_json:
        console.print_json({**_named(session), "reason": session.reason, "daemon_told": told})
        return
    console.print_line(f"release {session.release} of {session.aggregator} is refused; nothing was reserved")
    if not told:
        console.print_line("the daemon is not running; the aggregator hears of it when it does")


@contextmanager
def _opened(owner: OwnerConfig) -> Iterator[tuple[Database, Decisions]]:
    with Database(owner.owner.state_dir, make=False) as db:
        yield db, Decisions(db, _now)


def _now() -> datetime:
    return datetime.now(UTC)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _named(session: Session) -> dict[str, Any]:
    names = {"release": session.release, "aggregator": session.aggregator, "state": str(session.state)}
    return {**names, "plan_digest": session.plan_digest}


def _summary(session: Session, owner: OwnerConfig, db: Database, decisions: Decisions) -> dict[str, Any]:
    document = _document(session, owner, db, decisions)
    kept = ("aggregator", "release", "state", "dataset", "purpose", "epsilon", "charge", "deadline",
            "plan_digest", "rule")  # fmt: skip
    approval = document["approval"] or {}
    return {key: document.get(key) for key in kept} | {"approved_until": approval.get("until")}


def _document(session: Session, owner: OwnerConfig, db: Database, decisions: Decisions) -> dict[str, Any]:
    from owner_node.consent.request_view import request_view

    approval = decisions.approvals.newest(session)
    known: dict[str, Any] = {
        "rule": decisions.asked_by(session),
        "approval": None
        if approval is None
        else {
            "by": approval.by,
            "given": approval.given.isoformat(),
            "until": approval.until.isoformat(),
            "valid": decisions.approvals.holds(approval),
        },
    }
    if session.plan is None:
        about = {"reason": session.reason, "dataset": session.dataset, "purpose": session.purpose}
        return {**_named(session), **about, **known}
    configured = {each.name: each for each in owner.datasets}.get(session.dataset)
    remaining = None
    if configured is not None:
        remaining = Ledger(db, _now).balance(configured.budget, configured.total_epsilon).remaining
    budget = None if configured is None else configured.budget
    return {**request_view(session, owner, remaining), "budget": budget, **known}
