"""What pages show of a release, a plan and a schema: plain values for templates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from aggregator.control.documents import document, error_of, has_ended, rows
from aggregator.control.plan_sections import plan_sections
from common.model.plan import Plan
from common.model.products import Product
from common.model.schema import Schema
from common.release.table import describe_domain
from common.words.essentials import essentials
from common.words.guarantee import worth_of

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import ActionView, EventView, OwnerProgress, ReleaseView, SchemaView

STEPS = {
    "inviting": "Schemas",
    "planned": "Plan",
    "consenting": "Consent",
    "linking": "Linking",
    "masking": "Masking",
    "collecting": "Upload",
    "measuring": "Counting",
    "joining": "Joining",
    "published": "Published",
}
"""The steps of a release that goes well, by state."""
_IN_ROUNDS, _MASKED = ("measuring",), ("masking", "collecting")
"""The steps of releases whose owners answer rounds, and of all others."""
_SAID = {
    "inviting": "Owners send the schemas of their data sets.",
    "planned": "The plan waits for your confirmation. No owner was asked for its consent yet.",
    "consenting": "Every owner decides about the plan.",
    "linking": "Owners send what linking needs, and the aggregator compares it.",
    "masking": "Owners charge their budgets and mask their records.",
    "collecting": "Owners upload what they have masked.",
    "measuring": "Owners charge their budgets and count, round by round; the aggregator adds up.",
    "joining": "The aggregator makes the release of what owners sent, and publishes it.",
    "published": "The release is published.",
    "conflict": "What the owners hold does not fit together.",
    "refused": "An owner refused.",
    "failed": "The release failed.",
    "cancelled": "The release was cancelled.",
    "expired": "A deadline passed.",
}
_ANSWERED = {
    "consenting": "reserved",
    "linking": "linked",
    "masking": "sealed",
    "collecting": "uploaded",
    "measuring": "answered",
}
"""The state of an owner that has done its part of a step."""
_OWNER_SAID = {
    "invited": "asked",
    "awaiting_approval": "a person decides",
    "reserved": "agreed",
    "linked": "linked",
    "sealed": "masked",
    "spent": "charged",
    "answered": "answered",
    "uploaded": "uploaded",
    "published": "published",
    "refused": "refused",
    "ended": "ended",
}
_EVENT_SAID = {
    "started": "The release was started",
    "described": "sent its schema",
    "planned": "The plan was made and signed",
    "confirmed": "The plan was confirmed, and owners were asked",
    "waiting": "waits for a person to decide",
    "consented": "agreed and reserved its charge",
    "linked": "loaded its data and sent what linking needs",
    "addended": "Linking succeeded, and its result was signed",
    "sealed": "masked its records",
    "measured": "counted and answered a round",
    "passed_rows": "sent encrypted bins of its records",
    "passed_sums": "sent encrypted counts",
    "received": "uploaded its fragment",
    "published": "The release was published",
    "resumed": "The release was resumed",
    "acknowledged": "knows how the release ended",
    "deleted": "The data were deleted",
}


def release_document(view: "ReleaseView", now: datetime) -> dict[str, Any]:
    """Return a release as pages show it.

    Returns:
        The document of `--json`, and: `ended`; `said`, the state in a sentence; `steps`, each with a name
        and whether it is past or current, while the release continues; `answered`, how many owners have done
        their part of this step, or None; `left`, the time until the deadline in words; `resumable`;
        `needs_anyway`; `error`.
    """
    known, ended = document(view), has_ended(view)
    answered = _ANSWERED.get(view.state)
    states = Counter(owner.state for owner in view.owners)
    said = _SAID.get(view.state, view.state)
    if view.state == "planned" and view.dry_run:
        said = "This is a plan alone. No owner was asked for its consent, and nothing is charged."
    return known | {
        "ended": ended,
        "said": said,
        "steps": _steps(view),
        "answered": None if answered is None else states[answered],
        "left": "" if not view.deadline or ended else _left(view.deadline - now.timestamp()),
        "resumable": view.resumable,
        "needs_anyway": view.needs_anyway,
        "error": error_of(view) if view.HasField("error") else None,
    }


def _steps(view: "ReleaseView") -> list[tuple[str, str]]:
    """Return the steps, each "past", "current" or "next"; none for a release that was broken off."""
    product = Plan.from_bytes(view.plan).product if view.plan else Product.MASKED
    others = _MASKED if product.rules.in_rounds else _IN_ROUNDS
    names = [name for name in STEPS if name not in others][: 2 if view.dry_run else None]
    if view.state not in names:
        return []
    at = names.index(view.state) + (view.state == names[-1])
    return [
        (STEPS[name], "past" if position < at else "current" if position == at else "next")
        for position, name in enumerate(names)
    ]


def owner_lines(view: "ReleaseView") -> list[dict[str, Any]]:
    """Return the owners of a release as pages show them."""
    shown = zip(view.owners, rows(view), strict=False)
    return [_owner_line(view.state, owner, cells) for owner, cells in shown]


def _owner_line(state: str, owner: "OwnerProgress", cells: Sequence[Any]) -> dict[str, Any]:
    said = _OWNER_SAID.get(owner.state, owner.state)
    if owner.state == "invited" and state in ("inviting", "planned"):
        said = "asked for its schema" if state == "inviting" else "has sent its schema"
    return {
        "id": owner.id,
        "records": f"≥ {owner.records:,}" if isinstance(cells[1], str) else cells[1],
        "epsilon": cells[2],
        "k": cells[3],
        "state": said,
        "progress": owner.progress,
        "connected": owner.connected,
        "received": owner.received,
        "size": owner.size,
        "uploading": state == "collecting" and 0 < owner.received < owner.size,
        "waits": owner.state == "awaiting_approval",
        "done": owner.state == _ANSWERED.get(state),
    }


def _left(seconds: float) -> str:
    if seconds <= 0:
        return "now"
    left = timedelta(seconds=seconds)
    hours, minutes = left.seconds // 3600, left.seconds // 60 % 60
    if left.days:
        return f"{left.days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left.seconds % 60} s"


def event_line(view: "EventView") -> dict[str, Any]:
    """Return an event of a release in words."""
    said = _EVENT_SAID.get(view.event, view.event)
    words = view.text or (f"{view.owner} {said}" if view.owner else said)
    return {"time": datetime.fromtimestamp(view.time, UTC), "text": words, "event": view.event}


def action_line(view: "ActionView") -> dict[str, Any]:
    """Return an operator's action in words."""
    time = datetime.fromtimestamp(view.time, UTC)
    return {"time": time, "user": view.user or "–", "action": view.action, "outcome": view.outcome}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as pages show it: what decides, and everything else as sections."""
    return {"essentials": essentials(plan), "worth": worth_of(plan), "sections": plan_sections(plan)}


def schema_document(view: "SchemaView") -> dict[str, Any]:
    """Return the schema of an owner's data set as pages show it."""
    schema = Schema.from_bytes(view.schema)
    limits = schema.limits
    return {
        "owner": view.owner,
        "dataset": view.dataset,
        "release": view.release,
        "described": datetime.fromtimestamp(view.described, UTC),
        "records": schema.records_rounded,
        "identifier": schema.identifier is not None,
        "max_records_per_person": schema.max_records_per_person,
        "rank_noise": schema.rank_noise,
        "attributes": [
            {"name": each.name, "resolution": "", **describe_domain(each), "labels": each.categories}
            for each in (*schema.attributes, *schema.following)
        ],
        "limits": {
            "Smallest k": limits.min_k,
            "Largest ε of a release": _or_any(limits.max_epsilon_per_release),
            "Smallest rank noise": limits.min_rank_noise,
            "Mechanisms": _or_any(limits.mechanisms),
            "Layouts": _or_any(limits.layouts),
            "Products": _or_any(limits.products),
            "Sum of all δ": limits.total_delta,
            "Owners that must be allowed to collude": limits.min_colluding,
            "Days of an audit, at least": limits.audit_days,
            "Accounting": limits.accounting,
        },
    }


def _or_any(value: Decimal | Sequence[str] | None) -> str:
    if value is None:
        return "any"
    return f"{value:f}" if isinstance(value, Decimal) else ", ".join(value) or "none"


def shared_attributes(schemas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the attributes of several schemas, each declaration once, with the owners that have it so."""
    owners_of: dict[tuple[str, ...], list[str]] = {}
    for schema in schemas:
        for attribute in schema["attributes"]:
            key = (attribute["name"], attribute["type"], attribute["domain"], attribute["resolution"])
            owners_of.setdefault(key, []).append(schema["owner"])
    names = Counter(key[0] for key in owners_of)
    return [
        {"name": name, "type": kind, "domain": domain, "resolution": resolution, "owners": owners,
         "differs": names[name] > 1}
        for (name, kind, domain, resolution), owners in owners_of.items()
    ]  # fmt: skip


def published_files(folder: Path) -> list[tuple[str, int]]:
    """Return names and sizes of the regular files of a release folder, the report first."""
    files = [
        (file.name, file.lstat().st_size)
        for file in sorted(folder.iterdir())
        if S_ISREG(file.lstat().st_mode)
    ]
    return sorted(files, key=lambda file: file[0] != "report.html")
