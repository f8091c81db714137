"""`aggregator plan` and `aggregator release`: start a release and watch it to its end."""

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from aggregator.cli.connection import daemon, stated_user
from aggregator.cli.outcome import COLUMNS, finish, has_ended, is_over, rows
from aggregator.cli.plan_text import show_plan
from common.cli import console
from common.cli.release_options import (
    Attributes,
    Dataset,
    Epsilon,
    Groups,
    K,
    LayoutName,
    MaxOverlap,
    MechanismId,
    OnMismatch,
    Owners,
    Purpose,
    RankNoise,
    Weights,
)
from common.errors import ExitCode, NotConnectedError, UsageError
from common.model.plan import TRIAL, Plan, is_trial
from common.planning.arguments import split_groups, split_names
from common.wire.v1.control_pb2 import OwnerGroup, ReleaseRequest, StartRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.wire.v1.control_pb2 import ReleaseView
    from common.wire.v1.control_pb2_grpc import ControlServiceStub


Split = Annotated[
    str,
    typer.Option(
        "--budget-split",
        help="How ε is split among owners and attributes.",
        metavar="owner|attribute|weights",
    ),
]
Formats = Annotated[
    str, typer.Option("--format", help="Formats of the data: parquet, csv or both.", metavar="LIST")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Empty or absent folder for a copy of the release.", show_default=False),
]
ReleaseId = Annotated[
    str | None, typer.Option("--id", help="Id of the release; default: chosen.", show_default=False)
]
Trial = Annotated[
    bool, typer.Option("--trial", help="Try it on simulated records: no charge, no attempt, no real data.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Stop after the plan; no owner is asked.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start the release and return without waiting.")]
OwnerColumn = Annotated[
    bool, typer.Option("--owner-column", help="Add a column with the owner of every record.")
]
Details = Annotated[bool, typer.Option("--details", help="Show the whole plan, not one page.")]
MinCommon = Annotated[
    str,
    typer.Option(
        "--min-common", help="With intersect: least number of common persons; default: the largest k.",
        metavar="N", show_default=False,
    ),
]  # fmt: skip


def plan(
    dataset: Dataset,
    layout: LayoutName,
    epsilon: Epsilon,
    k: K = "auto",
    owners: Owners = "",
    groups: Groups = "",
    mechanism: MechanismId = "",
    attributes: Attributes = "",
    budget_split: Split = "owner",
    weights: Weights = "",
    purpose: Purpose = "",
    formats: Formats = "parquet,csv",
    out: Out = None,
    release_id: ReleaseId = None,
    rank_noise: RankNoise = "",
    max_overlap: MaxOverlap = "1",
    on_mismatch: OnMismatch = "stop",
    min_common: MinCommon = "",
    owner_column: OwnerColumn = False,
    details: Details = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Check the owners' schemas and show the plan, without a charge to any budget."""
    release(
        dataset, layout, epsilon, k, owners, groups, mechanism, attributes, budget_split, weights, purpose,
        formats, out, release_id, rank_noise, max_overlap, on_mismatch, min_common, owner_column,
        dry_run=True, details=details, config=config, as_json=as_json,
    )  # fmt: skip


def named_id(named: str | None, *, trial: bool) -> str:
    """Return the id of a release, which says whether it is a trial; empty to have one chosen."""
    if not trial:
        if named is not None and is_trial(named):
            raise UsageError(
                f"ids that begin with {TRIAL!r} are those of trials", "add --trial, or choose another id"
            )
        return named or ""
    return named if named is not None and is_trial(named) else f"{TRIAL}{named or secrets.token_hex(4)}"


def release(
    dataset: Dataset,
    layout: LayoutName,
    epsilon: Epsilon,
    k: K = "auto",
    owners: Owners = "",
    groups: Groups = "",
    mechanism: MechanismId = "",
    attributes: Attributes = "",
    budget_split: Split = "owner",
    weights: Weights = "",
    purpose: Purpose = "",
    formats: Formats = "parquet,csv",
    out: Out = None,
    release_id: ReleaseId = None,
    rank_noise: RankNoise = "",
    max_overlap: MaxOverlap = "1",
    on_mismatch: OnMismatch = "stop",
    min_common: MinCommon = "",
    owner_column: OwnerColumn = False,
    trial: Trial = False,
    dry_run: DryRun = False,
    yes: console.YesOption = False,
    detach: Detach = False,
    details: Details = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Make a release: plan it, ask for confirmation, then wait for all owners and show their progress."""
    # As text: the daemon checks the arguments.
    request = StartRequest(
        release=named_id(release_id, trial=trial),
        dataset=dataset,
        layout=layout,
        groups=[OwnerGroup(owners=group) for group in split_groups(layout, owners, groups)],
        epsilon=epsilon,
        k=k,
        mechanism=mechanism,
        attributes=split_names(attributes),
        budget_split=budget_split,
        weights=split_names(weights),
        rank_noise=split_names(rank_noise),
        max_overlap=max_overlap,
        on_mismatch=on_mismatch,
        min_common=min_common,
        owner_column=owner_column,
        purpose=purpose,
        formats=split_names(formats),
        out=str(out.absolute()) if out else "",
        dry_run=dry_run,
        confirmed=yes and not dry_run,
    )
    if not (yes or dry_run) and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at", "add --yes to go on without being asked")
    if detach and not (yes or dry_run):
        raise UsageError("--detach cannot ask about the plan", "add --yes")
    with daemon(config) as calls:
        if detach:
            view = _started(calls, request)
            finish(view, as_json=as_json) if has_ended(view) else _detached(view, as_json=as_json)
        else:
            _drive(calls, request, details=details, as_json=as_json)


def _drive(calls: "ControlServiceStub", request: "StartRequest", *, details: bool, as_json: bool) -> None:
    """Start a release, ask to confirm its plan, watch it to its end."""
    view = _started(calls, request)
    try:
        view = watch_until(
            calls, view.release, lambda seen: has_ended(seen) or seen.state != "inviting", as_json=as_json
        )
        if view.plan and not as_json:
            show_plan(Plan.from_bytes(view.plan), details=details)
            if view.state == "planned" and view.note and not has_ended(view):
                console.note(f"warning: {view.note}")
            console.print_line()
        # A plan that was confirmed in advance is shown as well, before the daemon goes on from it.
        if view.state == "planned" and not (view.dry_run or request.confirmed):
            view = _asked(calls, view)
        if not is_over(view):
            view = watch_until(calls, view.release, is_over, as_json=as_json)
    except KeyboardInterrupt:
        interrupted(view.release)
    except NotConnectedError as error:
        raise NotConnectedError(
            f"the daemon went away while release {view.release} was going on",
            f"once it runs again, it goes on with the release: aggregator watch {view.release}",
            error.details,
        ) from None
    if request.dry_run and view.state == "planned" and not (as_json or view.HasField("error")):
        console.print_line(f"release {view.release} is planned; no owner was asked and nothing is charged")
        return
    finish(view, as_json=as_json, out=request.out)


def _started(calls: "ControlServiceStub", request: "StartRequest") -> "ReleaseView":
    try:
        return calls.Start(request, metadata=stated_user())
    except KeyboardInterrupt:
        # The request was sent: without this note, nobody would know that the release goes on and charges.
        where = f"aggregator show {request.release}" if request.release else "aggregator releases"
        console.note(f"the release may have been started; to see whether it was: {where}")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _asked(calls: "ControlServiceStub", view: "ReleaseView") -> "ReleaseView":
    request = ReleaseRequest(release=view.release)
    try:
        agreed = console.confirm(f"Ask {len(view.owners)} owners to consent to this plan?")
    except KeyboardInterrupt:
        console.note(
            f"release {view.release} waits for a yes: the same command with --id {view.release} asks again; "
            f"to drop it: aggregator cancel {view.release}"
        )
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    return (calls.Confirm if agreed else calls.Cancel)(request, metadata=stated_user())


def watch_until(
    calls: "ControlServiceStub", release: str, done: "Callable[[ReleaseView], bool]", *, as_json: bool
) -> "ReleaseView":
    """Show every owner's state until a condition holds.

    Args:
        calls: The daemon.
        release: Release id.
        done: The condition.
        as_json: Print nothing.

    Returns:
        The last state of the release.
    """
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


def interrupted(release: str) -> NoReturn:
    """End the command, not the release, and print how to watch it again."""
    console.note(f"release {release} goes on; to watch it: aggregator watch {release}")
    raise typer.Exit(int(ExitCode.INTERRUPTED))


def _detached(view: "ReleaseView", *, as_json: bool) -> None:
    if as_json:
        console.print_json({"release": view.release, "state": view.state})
    else:
        console.print_line(f"release {view.release} is {view.state}")
        console.print_line(f"to watch it: aggregator watch {view.release}")
