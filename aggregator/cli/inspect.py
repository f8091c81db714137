"""`aggregator status|owners|releases|show|watch|cancel|delete|history`: the daemon, owners and releases."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggregator.cli.release import finish, interrupt, watch_until
from aggregator.config import load
from aggregator.control.connection import daemon, pages, stated_user
from aggregator.control.documents import (
    COLUMNS,
    action_document,
    document,
    document_with_plan,
    error_of,
    has_ended,
    is_over,
    iso,
    owner_document,
    rows,
    state,
    stored_releases,
)
from common.cli import console
from common.cli.release_options import ReleaseId
from common.clock import utc_now
from common.errors import ExitCode, NotConnectedError, UsageError
from common.log import value_text
from common.model.matches import Match
from common.trust.enrolment import expiry_warning
from common.trust.identity import OWNER_RENEWS
from common.wire.v1.control_pb2 import (
    ListActionsRequest,
    ListOwnersRequest,
    ListReleasesRequest,
    ReleaseRequest,
    StatusRequest,
)

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ActionView, OwnerView, ReleaseView


CheckOption = Annotated[bool, typer.Option("--check", help="Print nothing; exit 0 if the daemon responds.")]


def status(
    check: CheckOption = False, config: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Show the status of the daemon."""
    try:
        with daemon(config) as calls:
            answer = calls.Status(StatusRequest())
    except NotConnectedError:
        if check and not as_json:
            raise typer.Exit(int(ExitCode.NOT_CONNECTED)) from None
        raise
    if check and not as_json:
        return
    if as_json:
        console.print_json(
            {
                "name": answer.name,
                "version": answer.version,
                "listen": answer.listen,
                "started": iso(answer.started),
                "connected_owners": answer.connected_owners,
                "releases": dict(answer.releases),
                "certificate_expires": iso(answer.certificate_expires),
            }
        )
        return
    counted = ", ".join(f"{count} {state}" for state, count in sorted(answer.releases.items())) or "none"
    console.table(
        "",
        ("aggregator", answer.name),
        [
            ("version", answer.version),
            ("listens on", answer.listen),
            ("running since", _moment(answer.started)),
            ("connected owners", str(answer.connected_owners)),
            ("releases", counted),
            ("certificate expires", _moment(answer.certificate_expires)),
        ],
    )
    _warn_of_expiry(f"aggregator {answer.name}", answer.certificate_expires)


def owners(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> None:
    """List every owner that has ever connected."""
    with daemon(config) as calls:
        answers = pages(calls.ListOwners, ListOwnersRequest())
        views: list[OwnerView] = [owner for answer in answers for owner in answer.owners]
    if as_json:
        console.print_json({"owners": [owner_document(owner) for owner in views]})
        return
    console.table(
        "",
        ("owner", "connected", "since", "data sets", "version", "certificate expires", "key"),
        [
            (
                *(owner.id, owner.connected, _moment(owner.since), ", ".join(owner.datasets)),
                *(
                    owner.version,
                    "revoked" if owner.revoked else _moment(owner.certificate_expires),
                ),
                owner.fingerprint[:16],
            )
            for owner in views
        ],
    )
    for owner in views:
        if not owner.revoked:
            _warn_of_expiry(f"owner {owner.id}", owner.certificate_expires, OWNER_RENEWS)


def releases(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> None:
    """List all releases, oldest first; without the daemon, as it left them."""
    try:
        with daemon(config) as calls:
            answers = pages(calls.ListReleases, ListReleasesRequest())
            views: list[ReleaseView] = [view for answer in answers for view in answer.releases]
    except NotConnectedError as error:
        views = stored_releases(load(config).aggregator.state_dir)
        console.note(f"{error.message}: these are the releases as it left them")
    if as_json:
        console.print_json({"releases": [document(view) for view in views]})
        return
    console.table(
        "",
        ("release", "created", "layout", "owners", "state", "folder"),
        [
            (
                *(view.release, _moment(view.created), view.layout),
                *(", ".join(owner.id for owner in view.owners), state(view), view.directory or None),
            )
            for view in views
        ],
    )


def show(
    release: ReleaseId, config: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Show one release: where it is, what every owner does, and why it ended."""
    with daemon(config) as calls:
        view = calls.Show(ReleaseRequest(release=release))
    if as_json:
        console.print_json(document_with_plan(view))
        return
    console.table(f"release {view.release}: {state(view)}", COLUMNS, rows(view))
    error = error_of(view) if view.HasField("error") else None
    if error is not None and error.details.get("matches"):
        _show_matches(error.details["matches"])
    for name, value in (
        ("deadline", _moment(view.deadline) if view.deadline else ""),
        ("purpose", view.purpose),
        *(("linking found", line) for line in view.linking),
        ("plan digest", view.plan_digest),
        ("manifest digest", view.manifest_digest),
        ("release folder", view.directory),
        ("data deleted", _moment(view.deleted) if view.deleted else ""),
        ("note", view.note),
        ("ended because" if has_ended(view) else "halted because", error.message if error else ""),
        ("what to do", error.hint if error else ""),
    ):
        if value:
            console.print_line(f"{name}: {value}")


def _show_matches(documents: Sequence[Mapping[str, Any]]) -> None:
    """Show how many persons every two groups of owners have in common, and how many only one of them."""
    lines = [
        (
            *(", ".join(group) for group in match.groups), match.both,
            ", ".join(f"{owner} {count}" for owner, count in match.only.items() if count) or None,
        )
        for match in map(Match.from_document, documents)
    ]  # fmt: skip
    console.table("records that match", ("owners", "against", "match", "only at"), lines)


def watch(
    release: ReleaseId, config: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Follow a release to its end, or until its operator has to act; the exit code says how it ended."""
    with daemon(config) as calls:
        try:
            view = watch_until(calls, release, is_over, as_json=as_json)
        except KeyboardInterrupt:
            interrupt(release)
        finish(view, as_json=as_json)


def cancel(
    release: ReleaseId,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Cancel a release that has not been joined yet; owners return what they reserved and have not spent."""
    # Scripts of earlier versions cancel without --yes, and have no terminal.
    asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    with daemon(config) as calls:
        if asks and not console.confirm(f"Cancel release {release}?"):
            raise typer.Exit(int(ExitCode.REFUSED))
        view = calls.Cancel(ReleaseRequest(release=release), metadata=stated_user())
    if as_json:
        console.print_json(document(view))
    else:
        console.print_line(f"release {view.release} is {view.state}; {view.note}")


def delete(
    release: ReleaseId,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Remove the data of a release that has ended; what was agreed, done and published stays on record.

    Copies that --out made or that owners have downloaded are not touched.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at", "add --yes to delete without being asked")
    request = ReleaseRequest(release=release)
    with daemon(config) as calls:
        known = calls.Show(request)
        place = f" and {known.directory}" if known.directory else ""
        if not yes and not console.confirm(f"Delete the data of release {release} ({known.state}){place}?"):
            raise typer.Exit(int(ExitCode.REFUSED))
        view = calls.Delete(request, metadata=stated_user())
    if as_json:
        console.print_json(document(view))
    else:
        console.print_line(f"release {view.release} is {state(view)}; its history stays")


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
    documents = [action_document(action, states) for action in actions]
    if as_json:
        console.print_json({"actions": documents})
        return
    console.table(
        "",
        ("time", "user", "action", "release", "arguments", "outcome", "release is"),
        [
            (
                _moment(action.time), entry["user"], entry["action"], entry["release"],
                _text(entry["arguments"]) or None, entry["outcome"], entry["release_state"],
            )
            for action, entry in zip(actions, documents, strict=True)
        ],
    )  # fmt: skip


def _text(arguments: dict[str, Any]) -> str:
    """Return arguments in one line."""
    return ", ".join(f"{key} {value_text(value)}" for key, value in arguments.items() if value != "")


def _warn_of_expiry(whose: str, expires: int, how: str = "renew it") -> None:
    """Warn about a certificate that expires soon or has expired."""
    warning = expiry_warning(whose, datetime.fromtimestamp(expires, UTC), utc_now(), how=how)
    if warning:
        console.note(f"warning: {warning}")


def _moment(seconds: int) -> str:
    """Return a time of the wire for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else "–"
