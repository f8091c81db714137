"""`aggregator plan` and `aggregator release`: start a release and watch it to its end."""

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from aggregator.cli.plan_text import forecast_document, show_plan
from aggregator.control.asking import start_request
from aggregator.control.connection import daemon, stated_user
from aggregator.control.documents import (
    COLUMNS,
    document_with_plan,
    error_of,
    has_ended,
    is_over,
    iso,
    rows,
    state,
)
from common.cli import console
from common.cli.release_options import takes_release_arguments
from common.errors import ExitCode, NotConnectedError, UsageError
from common.model.plan import Plan
from common.model.together import MOST_BLOCKS
from common.planning.limits import differing_counts
from common.planning.names import join_names
from common.wire.v1.control_pb2 import ConfirmRequest, ReleaseRequest
from common.words.guarantee import worth_of
from common.words.numbers import count_text, moment_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.wire.v1.control_pb2 import ReleaseView, StartRequest
    from common.wire.v1.control_pb2_grpc import ControlServiceStub


Trial = Annotated[
    bool, typer.Option("--trial", help="Try it on simulated records: no charge, no attempt, no real data.")
]
Model = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="MODEL",
        help='Release the attributes of "ill ~ age + ward" alone: fewer tables have less noise. Time and '
        'event of "Surv(months, died) ~ age", and both of "age*ward", are counted together: with one partner '
        f"each, and one of both has at most {MOST_BLOCKS} values. The plan says how wide the intervals of "
        "its coefficients will be.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Stop after the plan; no owner is asked.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start the release and return without waiting.")]
Details = Annotated[bool, typer.Option("--details", help="Show the whole plan, not one page.")]


@takes_release_arguments
def plan(
    *,
    model: Model = "",
    details: Details = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
    **stated: Any,
) -> None:
    """Check the owners' schemas and show the plan, without a charge to any budget."""
    with daemon(config) as calls:
        request = start_request(dry_run=True, **for_model(model, stated))
        _drive(calls, request, details=details, as_json=as_json, model=model)


@takes_release_arguments
def release(
    *,
    model: Model = "",
    trial: Trial = False,
    dry_run: DryRun = False,
    yes: console.YesOption = False,
    detach: Detach = False,
    details: Details = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
    **stated: Any,
) -> None:
    """Make a release: plan it, ask for confirmation, then wait for all owners and show their progress."""
    request = start_request(trial=trial, dry_run=dry_run, confirmed=yes, **for_model(model, stated))
    if not (yes or dry_run) and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at", "add --yes to continue without being asked")
    if detach and not (yes or dry_run):
        raise UsageError("--detach cannot ask about the plan", "add --yes")
    with daemon(config) as calls:
        if detach:
            view = _start(calls, request)
            finish(view, as_json=as_json) if has_ended(view) else _show_detached(view, as_json=as_json)
        else:
            _drive(calls, request, details=details, as_json=as_json, model=model)


def for_model(model: str, stated: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a release for one model: its attributes, of which some are counted as one.

    Args:
        model: As analysts write it (`common.analysis.estimates.read_formula`); empty for none.

    Raises:
        UsageError: If it is not a formula, or attributes are named besides.
    """
    if not model:
        return stated
    from common.analysis.estimates import read_formula

    if stated["attributes"] or stated["together"]:
        raise UsageError(
            "--for names the attributes of a release, and so do --attributes and --together",
            "leave --for out, or the others",
        )
    formula = read_formula(model)
    both = [name for name in (formula.response, formula.event) if name]
    regressors = [each.split(":") for each in formula.regressors]
    as_one = [each for each in (both, *regressors) if len(each) > 1]
    together = ",".join(":".join(join_names([name]) for name in each) for each in as_one)
    names = join_names(dict.fromkeys(chain(both, *regressors)))
    return stated | {"attributes": names, "together": together}


def _drive(
    calls: "ControlServiceStub", request: "StartRequest", *, details: bool, as_json: bool, model: str
) -> None:
    """Start a release, ask to confirm its plan, watch it to its end."""
    view = _start(calls, request)
    try:
        view = watch_until(
            calls, view.release, lambda seen: has_ended(seen) or seen.state != "inviting", as_json=as_json
        )
        if view.plan and not as_json:
            show_plan(Plan.from_bytes(view.plan), details=details, model=model)
            if view.state == "planned" and view.note and not has_ended(view):
                console.note(f"warning: {view.note}")
            console.print_line()
        planned = Plan.from_bytes(view.plan) if view.plan else None
        worth = worth_of(planned) if planned else None
        if planned and (differing := differing_counts(planned)):
            console.note(
                f"warning: the owners do not hold the same persons ({differing}); the release would end "
                "unspent: see --on-mismatch"
            )
        if worth and worth.worthless and (console.can_ask() or not view.HasField("error")):
            console.note(f"warning: {worth.text}")
        # A plan that was confirmed in advance is shown as well, before the daemon continues from it.
        if view.state == "planned" and not view.dry_run:
            view = _confirm(calls, view, request)
        if not is_over(view):
            view = watch_until(calls, view.release, is_over, as_json=as_json)
    except KeyboardInterrupt:
        interrupt(view.release)
    except NotConnectedError as error:
        raise NotConnectedError(
            f"the daemon went away while release {view.release} was in progress",
            f"once it runs again, it continues the release: aggregator watch {view.release}",
            error.details,
        ) from None
    if request.dry_run and view.state == "planned" and not (as_json or view.HasField("error")):
        console.print_line(f"release {view.release} is planned; no owner was asked and nothing is charged")
        return
    finish(view, as_json=as_json, out=request.out, model=model)


def _start(calls: "ControlServiceStub", request: "StartRequest") -> "ReleaseView":
    try:
        view = calls.Start(request, metadata=stated_user())
    except KeyboardInterrupt:
        # The request was sent: without this note, nobody would know that the release continues and charges.
        where = f"aggregator show {request.release}" if request.release else "aggregator releases"
        console.note(f"the release may have been started; to see whether it was: {where}")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    away = [owner.id for owner in view.owners if not owner.connected]
    if away and not has_ended(view):
        until = f" until {moment_text(until, seconds=True)}" if (until := iso(view.deadline)) else ""
        console.note(f"not connected: {', '.join(away)}; release {view.release} waits for them{until}")
    return view


def _confirm(calls: "ControlServiceStub", view: "ReleaseView", request: "StartRequest") -> "ReleaseView":
    """Confirm or cancel a plan as a person says, unless the request says it and the daemon confirms.

    `--yes` does not say that a worthless result is wanted. Where nobody can be asked, the plan stays open,
    with the reason as its error.
    """
    confirmation = ConfirmRequest(release=view.release, anyway=view.needs_anyway)
    if request.confirmed and not view.needs_anyway:
        return view
    if request.confirmed and request.anyway:
        return calls.Confirm(confirmation, metadata=stated_user())
    if request.confirmed and not console.can_ask():
        return view
    owners, anyway = count_text(len(view.owners), "owner"), " anyway" if view.needs_anyway else ""
    try:
        agreed = console.confirm(f"Ask {owners} to consent to this plan{anyway}?")
    except KeyboardInterrupt:
        console.note(
            f"release {view.release} waits for a yes: the same command with --id {view.release} asks again; "
            f"to drop it: aggregator cancel {view.release}"
        )
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    if agreed:
        return calls.Confirm(confirmation, metadata=stated_user())
    return calls.Cancel(ReleaseRequest(release=view.release), metadata=stated_user())


def watch_until(
    calls: "ControlServiceStub", release: str, done: "Callable[[ReleaseView], bool]", *, as_json: bool
) -> "ReleaseView":
    """Show every owner's state until a condition holds; return the last state."""
    request = ReleaseRequest(release=release)
    watched = calls.Watch(request)
    try:
        with console.progress(f"release {release}", COLUMNS, silent=as_json) as show:
            for view in watched:
                show(rows(view))
                if done(view):
                    return view
    finally:
        watched.close()  # type: ignore[attr-defined]  # a generator of ours in place of a call's
    return calls.Show(request)


def interrupt(release: str) -> NoReturn:
    """End the command, not the release, and print how to watch it again."""
    console.note(f"release {release} continues; to watch it: aggregator watch {release}")
    raise typer.Exit(int(ExitCode.INTERRUPTED))


def _show_detached(view: "ReleaseView", *, as_json: bool) -> None:
    if as_json:
        console.print_json({"release": view.release, "state": view.state})
    else:
        console.print_line(f"release {view.release} is {view.state}")
        console.print_line(f"to watch it: aggregator watch {view.release}")


def finish(view: "ReleaseView", *, as_json: bool, out: str = "", model: str = "") -> None:
    """Show how a release ended, or why it is halted, and end the command with the exit code that says it.

    Args:
        out: Where a copy is.
        model: What the release is for, to add the forecast of its coefficients.

    Raises:
        typer.Exit: With that code, unless the release is published or was only planned.
    """
    if view.HasField("error"):
        error = error_of(view)
        code = console.report(error, as_json=as_json)
        if not as_json:
            console.table(f"release {view.release}: {view.state}", COLUMNS, rows(view))
            console.print_line(view.note)
        # Bad data are the operator's own usage error at an owner's command line; here they are an owner's.
        raise typer.Exit(int(ExitCode.REFUSED) if error.code == "bad_data" else code)
    if as_json:
        planned = Plan.from_bytes(view.plan) if view.plan and model else None
        more = {"forecast": forecast_document(planned, model)} if planned else {}
        console.print_json(document_with_plan(view) | more)
        return
    console.table(f"release {view.release}: {state(view)}", COLUMNS, rows(view))
    if view.directory:
        console.print_line(f"release folder: {view.directory}")
    if view.note:
        console.print_line(view.note)
    elif out:
        console.print_line(f"copy: {out}")
