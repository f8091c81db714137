"""A release as text and as JSON, and the exit code of how it ended."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import typer

from common.cli import console
from common.cli.console import Cell
from common.errors import ExitCode, TesseraError, from_document
from common.words.numbers import rounded_up

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ReleaseView

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
    """Return one line per owner; the state includes how much of a fragment has arrived.

    One more line shows what the aggregator itself waits for.
    """
    lines: list[tuple[Cell, ...]] = [
        (owner.id, _records(owner), _epsilon(owner), owner.k or None, _state(view, owner))
        for owner in view.owners
    ]
    waits = view.note and not has_ended(view)
    return [*lines, ("(aggregator)", None, None, None, view.note)] if waits else lines


def _epsilon(owner: Any) -> Decimal | None:
    return rounded_up(Decimal(owner.epsilon)) if owner.epsilon else None


def state(view: "ReleaseView") -> str:
    """Return the state of a release, and whether its data were deleted."""
    return f"{view.state}, deleted" if view.deleted else view.state


def _records(owner: Any) -> int | str | None:
    """Return the number of records; until owners have linked, only a rounded-down number is known."""
    if not owner.records or owner.records_exact:
        return owner.records or None
    return f"≥ {owner.records}"


def _state(view: "ReleaseView", owner: Any) -> str:
    if view.state == "collecting" and 0 < owner.received < owner.size:
        return f"{owner.state}, {owner.received / _MEGABYTE:.1f} of {owner.size / _MEGABYTE:.1f} MB"
    if not owner.connected and not has_ended(view):
        return f"{owner.state}, not connected"
    return str(owner.state)


def document(view: "ReleaseView") -> dict[str, Any]:
    """Return the document of the `--json` contract."""
    return {
        "release": view.release,
        "state": view.state,
        "deadline": iso(view.deadline),
        "created": iso(view.created),
        "layout": view.layout,
        "purpose": view.purpose,
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


def finish(view: "ReleaseView", *, as_json: bool, out: str = "") -> None:
    """Show how a release ended, or why it is halted, and end the command with the exit code that says it.

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
        console.print_json(document(view) | {"plan": _plan(view)})
        return
    console.table(f"release {view.release}: {state(view)}", COLUMNS, rows(view))
    if view.directory:
        console.print_line(f"release folder: {view.directory}")
    if view.note:
        console.print_line(view.note)
    elif out:
        console.print_line(f"copy: {out}")


def _plan(view: "ReleaseView") -> Any:
    return json.loads(view.plan) if view.plan else None
