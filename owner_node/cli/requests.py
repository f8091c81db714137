"""`owner-node requests`, `show`, `approve` and `refuse`: plans that wait for a person's decision."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any

import typer

from common.cli import console
from common.cli.brief import PagePart, clip, list_items, page, text
from common.cli.progress_bar import shown_progress
from common.cli.sections import show as show_sections
from common.clock import utc_now
from common.daemon.settings import parse_duration
from common.errors import UsageError
from common.words.numbers import bound_text, cost_text, delta_text, moment_text, rounded_up
from owner_node import config
from owner_node.cli.worth import require_worth
from owner_node.config import OwnerConfig
from owner_node.loading.advice import left_out_lines
from owner_node.masking.foreseen import Forecast
from owner_node.release.decisions import Decisions, this_person
from owner_node.release.request_view import shown_records
from owner_node.risk.distortion import warnings
from owner_node.state.database import OwnerDatabase
from owner_node.state.notification_pipe import notify_daemon
from owner_node.state.presence import DaemonPresence
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from owner_node.views.appraisal import appraise
from owner_node.views.details import attack_sections, charge_text, leaving_line, plan_sections
from owner_node.views.plan import named, plan_document
from owner_node.views.verdict import limit_text


def brief(document: dict[str, Any]) -> list[str]:
    """Return a plan as one page: what decides, for whom, the charge, errors, risk, and what matters most."""
    waits = document["state"] == "awaiting_approval"
    until = f" until {moment_text(document['deadline'])}" if waits and document.get("deadline") else ""
    rule = f", by rule {document['rule']}" if document["rule"] else ""
    name = f"{document['aggregator']}/{document['release']}"
    parts = [text(f"{name}: {document['state']}{until}{rule}")]
    parts += [clip(key, document[key]) for key in ("reason", "purpose") if document[key]]
    if "attributes" not in document:
        return page(parts)
    verdict = document["verdict"]
    n_attributes = len(verdict["attributes"])
    parts += [
        *_first(verdict),
        text(
            f"{document['layout']} {document['product']} release with "
            f"{cost_text(document['release_epsilon'], document['delta'])} of data set {document['dataset']}: "
            f"{shown_records(document['records'])} records, {n_attributes} attributes"
        ),
        *_left_out(document),
        leaving_line(document),
        *_verdict(document, brief=True),
        text(f"charge: {charge_text(document)}"),
    ]
    if verdict["co_owners"]:
        parts.append(list_items("with", verdict["co_owners"]))
    if distorted := warnings((document["attacks"] or {}).get("distortions", ())):
        parts.append(list_items("distorted by masking", distorted))
    parts += [text(line, "- ") for line in document["essentials"]]
    commands = [f"everything: owner-node show {name} --details"]
    if waits:
        commands = [
            f"to agree:   owner-node approve {name} --digest {document['plan_digest'][:12]}",
            f"to refuse:  owner-node refuse {name} --reason TEXT",
            *commands,
        ]
    return page(parts, [text(line) for line in commands])


def _left_out(document: dict[str, Any]) -> Iterator[PagePart]:
    """Yield how many records loading left out, and in one list the columns that are the reason."""
    columns = []
    for line in left_out_lines(document["left_out"]):
        if line.startswith(" "):
            columns.append(line.strip().removeprefix("column "))
        else:
            yield text(line)
    if columns:
        yield list_items("missing values by column", columns)


def _first(verdict: dict[str, Any]) -> list[PagePart]:
    """Return what decides before anything else: data that cannot be used, and limits that are exceeded."""
    return [text(sentence) for sentence in (verdict["unusable"], *verdict["exceeded"]) if sentence]


def _verdict(document: dict[str, Any], *, brief: bool = False) -> Iterator[PagePart]:
    """Yield what leaves unchanged, what intruders find, and what of the data is lost, as far as known."""
    verdict, attacks = document["verdict"], document["attacks"] or {}
    if not brief:
        yield from _first(verdict)
    if verdict["loss"]:
        yield text(verdict["loss"])
    if verdict["unchanged"]:
        yield text(f"leaves unchanged, as expected: {verdict['unchanged']['brief' if brief else 'says']}")
    if verdict["intruder"]:
        intruder = verdict["intruder"]
        said = intruder["brief"] if brief else f"{intruder['says']}; {intruder['judgement']}"
        yield text(f"re-identified, as expected: {said}")
    if verdict["others"]:
        said = "; ".join(other["brief"] for other in verdict["others"])
        yield text(f"re-identified by others, who know: {said}")
    if "problem" in attacks:
        yield text(f"not attacked: {attacks['problem']}")
    elif attacks and attacks["sampled"]:
        yield text(attacks["sampled"])


def show_request(document: dict[str, Any], *, details: bool) -> None:
    """Print what would leave this node, the charge, what is promised and what is not hidden."""
    if not details:
        for line in brief(document):
            console.print_line(line)
        return
    console.print_line(
        f"release {document['release']} of aggregator {document['aggregator']}: {document['state']}"
    )
    facts, *rest = plan_sections(document)
    show_sections([facts])
    if "attributes" not in document:
        return
    console.print_line()
    for part in [*_verdict(document), *_limits(document["verdict"])]:
        for line in part.whole:
            console.print_line(line)
    console.print_line()
    show_sections([*attack_sections(document), *rest])
    if document["state"] == "awaiting_approval":
        for line in document["trusts"]:
            console.print_line(line)
        name = f"{document['aggregator']}/{document['release']}"
        console.print_line(f"to agree:  owner-node approve {name} --digest {document['plan_digest'][:12]}")
        console.print_line(f"to refuse: owner-node refuse {name} --reason TEXT")


def _limits(verdict: dict[str, Any]) -> Iterator[PagePart]:
    """Yield the limits that the policy sets, and in one sentence those that it does not."""
    for limit in verdict["limits"]:
        kept = {True: "kept", False: "not kept", None: "not measured"}[limit["kept"]]
        most = f"{'at least' if limit['least'] else 'at most'} {limit_text(limit, limit['limit'])}"
        actual = "" if limit["found"] is None else f", the plan has {limit_text(limit, limit['found'])}"
        yield text(f"policy.{limit['rule']}: {limit['what']} {most}{actual}: {kept}")
    if verdict["unset_says"]:
        yield text(verdict["unset_says"])


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
    typer.Option(
        "--reason", help="Reason, for this owner's history only.", metavar="TEXT", show_default=False
    ),
]
LoadOption = Annotated[
    bool, typer.Option("--load/--no-load", help="Load the data again, to see whether they changed.")
]
AllOption = Annotated[
    bool, typer.Option("--all", help="List every release, not only those that wait for a person.")
]


DetailsOption = Annotated[
    bool, typer.Option("--details", help="Show everything about the plan, not one page.")
]


def requests(
    every: AllOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """List the plans that wait for a person."""
    owner = config.load(config_file)
    with _open(owner) as (db, decisions):
        sessions = decisions.all() if every else decisions.waiting()
        summaries = [decisions.summary(session) for session in sessions]
        outdated = DaemonPresence(db, utc_now).state().outdated(owner.digest)
    if outdated:
        console.note(f"warning: {outdated}")
    if as_json:
        console.print_json({"requests": summaries})
        return
    if not summaries:
        console.print_line("nothing waits for a person")
        return
    console.table(
        "Requests",
        ("aggregator", "release", "state", "purpose", "charge", "answer until", "approved until"),
        [
            (
                summary["aggregator"], summary["release"], summary["state"], summary["purpose"] or None,
                None if summary["charge"] is None else rounded_up(Decimal(summary["charge"])),
                *(summary[key] and moment_text(summary[key]) for key in ("deadline", "approved_until")),
            )
            for summary in summaries
        ],
    )  # fmt: skip
    console.print_line("to see one: owner-node show ID; then owner-node approve ID, refuse ID --reason TEXT")


def show(
    release: ReleaseArgument,
    load: LoadOption = True,
    details: DetailsOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Show exactly what a plan would let leave, for what, and what it would charge."""
    owner = config.load(config_file)
    with _open(owner) as (_, decisions):
        problem = _appraised(decisions.find(release), owner, again=load)
        document = plan_document(decisions.find(release), owner, decisions, problem)
    if as_json:
        console.print_json(document)
    else:
        show_request(document, details=details)


def approve(
    release: ReleaseArgument,
    digest: DigestOption = "",
    valid: ValidOption = _VALID,
    yes: console.YesOption = False,
    anyway: console.AnywayOption = False,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Approve the plan that waits: this plan digest only, and for a limited time.

    Without --digest it asks to confirm the plan that waits, and needs --yes where there is no terminal.
    """
    owner = config.load(config_file)
    try:
        duration = parse_duration(valid)
    except ValueError as problem:
        raise UsageError(f"--valid {valid}: {problem}", "for example --valid 24h") from None
    with _open(owner) as (_, decisions):
        session = decisions.awaiting(release, digest)
        # A plan that cannot be shown cannot be approved.
        unusable = _appraised(session, owner)
        session = decisions.awaiting(release, digest)
        shown = plan_document(session, owner, decisions, unusable)
        if unusable and not session.source_digest:
            raise UsageError(
                f"nothing was approved, since the data cannot be read here: {unusable}",
                "approve the plan where its data can be read as this owner's daemon reads them",
            )
        if not (digest or yes):
            _require_yes(shown)
        if session.forecast:
            expected = Forecast.from_text(session.forecast)
            require_worth(expected, anyway=anyway, otherwise="nothing was approved")
        # The approval is for the plan and the data that were shown; others that arrive now are a conflict.
        digest, source = digest or session.plan_digest, session.source_digest
        session, approval = decisions.approve(release, digest, this_person(), duration, source, anyway=True)
        have, needed = len(decisions.approvals.held(session, owner.console.oidc)), owner.policy.approvers
    notified = notify_daemon(owner.owner.state_dir)
    if as_json:
        until = approval.until.isoformat()
        about = {"by": approval.by, "until": until, "approvals": have, "approvers": needed}
        console.print_json({**named(session), **about, "daemon_told": notified})
        return
    what = f"release {session.release} of {session.aggregator}"
    console.print_line(f"{approval.by} approved {what} until {moment_text(approval.until)}")
    console.print_line(f"plan digest: {session.plan_digest}")
    if have < needed:
        console.print_line(f"{have} of {needed} persons have approved it; another person has to approve, too")
        return
    console.print_line(
        "the daemon continues with it" if notified else "the daemon is not running: owner-node run"
    )


def _require_yes(document: dict[str, Any]) -> None:
    """Show the plan that waits, on standard error, and ask the person to confirm it."""
    for line in brief(document):
        console.note(line)
    name = f"{document['aggregator']}/{document['release']}"
    charge = bound_text(document.get("charge"), "an unknown amount")
    if document.get("delta"):
        charge += f", and δ {delta_text(document['delta'])}"
    question = f"Approve plan {document['plan_digest'][:12]} of {name}, which charges {charge}?"
    console.require_yes(question, yes=False, otherwise="nothing was approved")


def refuse(
    release: ReleaseArgument,
    reason: ReasonOption,
    digest: DigestOption = "",
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Refuse the plan that waits. The aggregator receives the refusal without the reason."""
    owner = config.load(config_file)
    with _open(owner) as (_, decisions):
        session = decisions.refuse(release, digest, this_person(), reason)
    notified = notify_daemon(owner.owner.state_dir)
    if as_json:
        console.print_json({**named(session), "reason": session.reason, "daemon_told": notified})
        return
    console.print_line(f"release {session.release} of {session.aggregator} is refused; nothing was reserved")
    if not notified:
        console.print_line("the daemon is not running; it reports the refusal once it runs")


def _appraised(session: Session, owner: OwnerConfig, *, again: bool = False) -> str:
    """Appraise a plan that waits, if nobody has, or `again`; return why its data cannot be used."""
    if session.source_digest and not again:
        return ""
    if session.state is SessionState.AWAITING_APPROVAL and not session.source_digest:
        console.note("The plan is tried on the data of this owner. That can take half a minute.")
    with shown_progress() as progress:
        return appraise(session, owner, progress)


@contextmanager
def _open(owner: OwnerConfig) -> Iterator[tuple[OwnerDatabase, Decisions]]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        yield db, Decisions(db, utc_now)
