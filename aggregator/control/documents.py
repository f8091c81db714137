"""What the daemon answers, as documents and lines: releases, owners, actions of operators."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli.console import Cell
from common.errors import TesseraError, from_document
from common.model.plan import Plan
from common.words.numbers import bound_text, delta_text, rounded_up

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ActionView, OwnerView, ReleaseView

ENDS = ("published", "conflict", "refused", "failed", "cancelled", "expired")
COLUMNS = ("owner", "records", "ε", "k", "state")
_MEGABYTE = 1_000_000


def iso(seconds: int) -> str | None:
    """Return a time of the wire as ISO 8601 in UTC, the form of every time in `--json`; None for none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None


def has_ended(view: "ReleaseView") -> bool:
    """Whether nothing more will happen to a release."""
    return view.state in ENDS or (view.state == "planned" and view.dry_run)


def is_over(view: "ReleaseView") -> bool:
    """Whether nothing more will happen to a release by itself: it has ended, or its operator has to act."""
    return has_ended(view) or view.HasField("error")


def rows(view: "ReleaseView") -> list[tuple[Cell, ...]]:
    """Return one line per owner; the state includes how far the owner is.

    One more line shows what the aggregator itself waits for.
    """
    delta = _delta(view)
    lines: list[tuple[Cell, ...]] = [
        (
            owner.id,
            _records(owner),
            _spent(Decimal(owner.epsilon), delta) if owner.epsilon else None,
            owner.k or None,
            _state(view, owner),
        )
        for owner in view.owners
    ]
    waits = view.note and not has_ended(view)
    return [*lines, ("(aggregator)", None, None, None, view.note)] if waits else lines


def state(view: "ReleaseView") -> str:
    """Return the state of a release, and whether its data were deleted."""
    return f"{view.state}, deleted" if view.deleted else view.state


def _delta(view: "ReleaseView") -> Decimal:
    return Plan.from_bytes(view.plan).delta if view.plan else Decimal(0)


def _spent(epsilon: Decimal, delta: Decimal) -> Cell:
    """Return ε as a cell, with δ where there is one."""
    return f"{bound_text(epsilon)}, δ {delta_text(delta)}" if delta else rounded_up(epsilon)


def _records(owner: Any) -> int | str | None:
    """Return the number of records; until owners have linked, only a rounded-down number is known."""
    if not owner.records or owner.records_exact:
        return owner.records or None
    return f"≥ {owner.records}"


def _state(view: "ReleaseView", owner: Any) -> str:
    if view.state == "collecting" and 0 < owner.received < owner.size:
        return f"{owner.state}, {owner.received / _MEGABYTE:.1f} of {owner.size / _MEGABYTE:.1f} MB"
    if view.state == "planned" and has_ended(view):
        # A plan is the end that was asked for: "ended" would look like a failure.
        return "planned"
    if not owner.connected and not has_ended(view):
        return f"{owner.state}, not connected"
    if owner.progress:
        return f"{owner.state}, {view.state} {owner.progress}"
    return str(owner.state)


def document_with_plan(view: "ReleaseView") -> dict[str, Any]:
    """Return `document` with the plan as it was signed, and what matters most about it."""
    # Commands that show no plan start without it.
    from common.words.essentials import essentials

    lines = essentials(Plan.from_bytes(view.plan)) if view.plan else ()
    plan = json.loads(view.plan) if view.plan else None
    return document(view) | {"plan": plan, "essentials": list(lines)}


def document(view: "ReleaseView") -> dict[str, Any]:
    """Return the document of the `--json` contract; `delta` is there if there is one."""
    delta = _delta(view)
    return {
        "release": view.release,
        "state": view.state,
        "deadline": iso(view.deadline),
        "created": iso(view.created),
        "layout": view.layout,
        "purpose": view.purpose,
        **({"delta": f"{delta:f}"} if delta else {}),
        "dry_run": view.dry_run,
        "plan_digest": view.plan_digest or None,
        "manifest_digest": view.manifest_digest or None,
        "directory": view.directory or None,
        "deleted": iso(view.deleted),
        "note": view.note or None,
        "linking": list(view.linking),
        "owners": [
            {
                "id": owner.id,
                "state": owner.state,
                "records": owner.records or None,
                "records_exact": owner.records_exact,
                "epsilon": owner.epsilon or None,
                "k": int(owner.k) if owner.k.isdigit() else owner.k or None,
                "connected": owner.connected,
                "received": owner.received,
                "size": owner.size,
                "progress": owner.progress or None,
            }
            for owner in view.owners
        ],
        "error": error_of(view).to_document()["error"] if view.HasField("error") else None,
    }


def error_of(view: "ReleaseView") -> TesseraError:
    """Return the error that a release ended with, or that keeps it from being published."""
    details = json.loads(view.error.details or "{}")
    body = {
        "code": view.error.code,
        "message": view.error.message,
        "hint": view.error.hint,
        "details": details,
    }
    return from_document({"error": body})


def owner_document(owner: "OwnerView") -> dict[str, Any]:
    """Return the document of an owner."""
    return {
        "id": owner.id,
        "connected": owner.connected,
        "since": iso(owner.since),
        "first_seen": iso(owner.first_seen),
        "version": owner.version,
        "datasets": list(owner.datasets),
        "certificate_expires": iso(owner.certificate_expires),
        "revoked": owner.revoked,
        "fingerprint": owner.fingerprint,
    }


def action_document(action: "ActionView", states: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of an operator's action."""
    return {
        "time": iso(action.time),
        "user": action.user or None,
        "action": action.action,
        "release": action.release or None,
        "arguments": json.loads(action.arguments),
        "outcome": action.outcome,
        "release_state": states.get(action.release),
    }


def stored_releases(state_dir: Path) -> list["ReleaseView"]:
    """Return the releases of the journal, oldest first, while no daemon serves it."""
    from aggregator.api.views import release_view
    from aggregator.drive.deadlines import elapsed
    from aggregator.drive.presence import OwnerPresence
    from aggregator.store.database import FILE_NAME
    from aggregator.store.intake import Intake
    from aggregator.store.journal import Journal

    if not (state_dir / FILE_NAME).exists():
        return []
    presence, intake = OwnerPresence(time.time, elapsed), Intake(state_dir / "incoming")
    journal = Journal(state_dir / FILE_NAME)
    try:
        return [release_view(release, presence, intake, time.time()) for release in journal.replay().values()]
    finally:
        journal.close()
