"""Releases and owners as messages for the operator: domain types to protobuf, in one place."""

import json
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import Message

from aggregator.drive.endings import halted_by, operator_error, spent_by, worthless_plan
from aggregator.drive.presence import OwnerPresence
from aggregator.protocol.events import Ending, Event, Opened, OwnerEvent
from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from aggregator.store.intake import BlobKind, Intake
from aggregator.store.journal import KnownOwner
from aggregator.store.operator_log import Action
from common.errors import TesseraError
from common.model.rounds import RoundDocument
from common.model.task import Assignment
from common.wire.v1 import control_pb2 as wire
from common.words.linking import linking_result

MOST_AT_ONCE = 200
"""Most messages of one answer."""
_MOST_BYTES = 1 << 20
_Message = TypeVar("_Message", bound=Message)


def first_piece(views: Iterable[_Message], most: int = MOST_AT_ONCE) -> tuple[list[_Message], bool]:
    """Return the first of some messages, as many as one answer holds, and whether there are more."""
    piece: list[_Message] = []
    room = _MOST_BYTES
    for view in views:
        room -= view.ByteSize()
        if piece and (room < 0 or len(piece) == most):
            return piece, True
        piece.append(view)
    return piece, False


def owner_view(owner: KnownOwner, presence: OwnerPresence, *, revoked: bool) -> wire.OwnerView:
    """Return the message about an owner for the command line.

    An owner whose certificate is revoked is not connected from then on, though its last poll may be held.
    """
    return wire.OwnerView(
        id=owner.id,
        connected=presence.is_connected(owner.id) and not revoked,
        since=presence.since(owner.id) or owner.last_seen,
        version=owner.version,
        datasets=owner.datasets,
        certificate_expires=owner.certificate_expires,
        fingerprint=owner.fingerprint,
        first_seen=owner.first_seen,
        revoked=revoked,
    )


def release_view(
    release: Release,
    presence: OwnerPresence,
    intake: Intake,
    at: float,
    waiting: str = "",
    halted: TesseraError | None = None,
    progress: str = "",
    *,
    resumable: bool = False,
) -> wire.ReleaseView:
    """Return the message about a release for the command line.

    Args:
        at: The time now, in seconds since 1970.
        waiting: What the aggregator itself waits for; shown while its own step shows no progress.
        halted: The error that halted publication until an operator retries it; None if it is not halted.
        progress: How far the aggregator's own step is; empty if it runs none.
        resumable: Whether an operator can have it continue.
    """
    view = wire.ReleaseView(
        release=release.id,
        state=str(release.state),
        deadline=release.deadline or 0,
        created=release.created,
        dry_run=release.request.dry_run,
        purpose=release.request.purpose,
        layout=str(release.request.layout),
        plan_digest=release.plan_digest,
        deleted=release.deleted.at if release.deleted else 0,
        note="" if release.ended else progress or (f"waits: {waiting}" if waiting else ""),
        resumable=resumable,
        needs_anyway=release.needs_anyway,
    )
    assignments = {} if release.plan is None else release.plan.assignments
    view.owners.extend(
        _owner(release, owner, assignments.get(owner), presence, intake) for owner in release.request.owners
    )
    if release.planned is not None:
        view.plan = release.planned.plan.encode()
    if release.plan is not None and release.addendum is not None:
        view.linking.extend(linking_result(release.plan, release.addendum))
    if release.published is not None:
        view.note = release.published.note
        view.directory = "" if release.deleted else release.published.directory
        view.manifest_digest = release.published.manifest_digest
    error = operator_error(release, at)
    if error is not None:
        view.note = spent_by(release)
        view.error.CopyFrom(error_view(error))
    elif halted is not None and not release.ended:
        view.error.CopyFrom(error_view(halted_by(release, halted)))
    elif release.confirmed and view.needs_anyway:
        view.error.CopyFrom(error_view(worthless_plan(release)))
    return view


def action_view(action: Action) -> wire.ActionView:
    """Return the message of an entry of the operators' log."""
    return wire.ActionView(
        time=action.at,
        user=action.user,
        action=action.name,
        release=action.release,
        arguments=json.dumps(action.arguments, ensure_ascii=False, sort_keys=True),
        outcome=action.outcome,
    )


def event_view(event: Event) -> wire.EventView:
    """Return the message of an event of a release, without its documents."""
    text = event.message if isinstance(event, Ending) else ""
    if isinstance(event, Opened):
        number = RoundDocument.from_bytes(event.document.encode()).round
        text = f"Round {number} began" if event.numbers else "All rounds are answered"
    return wire.EventView(
        time=event.at,
        event=event.name,
        owner=event.owner if isinstance(event, OwnerEvent | Ending) else "",
        text=text,
    )


def error_view(error: TesseraError) -> wire.ErrorView:
    """Return the message of an error."""
    return wire.ErrorView(
        code=error.code,
        message=error.message,
        hint=error.hint,
        details=error.details_json(),
    )


def _owner(
    release: Release, owner: str, assignment: Assignment | None, presence: OwnerPresence, intake: Intake
) -> wire.OwnerProgress:
    progress = wire.OwnerProgress(
        id=owner, state=release.session(owner), connected=presence.is_connected(owner)
    )
    if assignment is not None:
        progress.records = assignment.records_rounded
        progress.epsilon = format(assignment.epsilon, "f")
        progress.k = _k([attribute.k for attribute in assignment.attributes])
    if release.addendum is not None:
        progress.records = release.addendum.records[owner]
        progress.records_exact = True
    masks = not release.ended and release.progress[owner].sealed is None
    estimate = presence.progress(owner, release.id) if masks else None
    progress.progress = "" if estimate is None else str(estimate)
    statement = release.statement(owner)
    if statement is not None:
        progress.size = statement.size
        if release.progress[owner].received is not None:
            progress.received = statement.size
        elif release.state is State.COLLECTING:
            progress.received = intake.held(release.id, owner, BlobKind.FRAGMENT)
    return progress


def _k(chosen: list[int | None]) -> str:
    values = [k for k in chosen if k is not None]
    if not values:
        return ""
    lowest, highest = min(values), max(values)
    return str(lowest) if lowest == highest else f"{lowest}–{highest}"
