"""The decision about a plan as a document to print and sign: who decided what, when, about which digest."""

from collections.abc import Sequence
from typing import Any

from owner_node.config import OwnerConfig
from owner_node.release.approvals import ACCEPTED, APPROVED, Approvals
from owner_node.release.records import DELETED
from owner_node.state.history import History, Line
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session

_COURSE = {
    "awaiting-approval": "A person was asked",
    "accepted": "Accepted, and the charge reserved",
    "refused": "Refused",
    "approval-expired": "An approval expired unused",
    "returned": "The reservation was returned",
    "spent": "Charged",
    "answered": "A round was counted and answered",
    "sealed": "Result sealed",
    "uploaded": "Sent to the aggregator",
    "published": "Published",
    DELETED: "Messages deleted: no audit is possible any more",
    "ended": "Ended without being published",
}
"""The events of the history that a decision's reader needs, in words."""


def decision_document(
    session: Session, owner: OwnerConfig, approvals: Approvals, history: History
) -> dict[str, Any]:
    """Return what was decided about a session's plan, and by whom.

    Args:
        owner: The configuration: how many persons have to approve, and who may.

    Returns:
        `verdict` in a sentence and `decided` ("approved", "refused", or empty), the `persons` with what each
        decided and when, the `course` of the release, and the `head` of the history that shows all of it.
    """
    # Lines before the plan came have no digest; a later plan under the same id has another one.
    lines = [
        line
        for line in history.entries(session.aggregator, session.release)
        if line.plan_digest in ("", session.plan_digest)
    ]
    used = _used_lines(session, lines, owner, approvals)
    persons = [
        _person(line)
        for line in lines
        if "by" in line.details and (line.event == "refused" or str(line.sequence) in used)
    ]
    head = history.head()
    decided, verdict = _verdict(session, lines, persons, owner.policy.approvers)
    return {
        "verdict": verdict,
        "decided": decided,
        "persons": persons,
        "course": [
            {"time": line.time, "what": _COURSE[line.event], "rule": line.rule, "line": line.sequence}
            for line in lines
            if line.event in _COURSE
        ],
        "head": {"line": head.sequence, "hash": head.hash},
    }


def _used_lines(
    session: Session, lines: Sequence[Line], owner: OwnerConfig, approvals: Approvals
) -> set[str]:
    """Return the lines of the approvals that led to the decision, or that count while there is none."""
    accepted = [line for line in lines if line.event == ACCEPTED]
    if accepted:
        return set(str(accepted[-1].details.get("approval", "")).split(", "))
    if session.state is SessionState.AWAITING_APPROVAL:
        return {str(approval.line) for approval in approvals.held(session, owner.console.oidc)}
    return {str(approval.line) for approval in approvals.of(session)}


def _person(line: Line) -> dict[str, Any]:
    about = line.details
    return {
        "decision": "approved" if line.event == APPROVED else "refused",
        "by": about["by"],
        "reason": "" if line.event == APPROVED else line.rule,
        "time": line.time,
        "until": about.get("until", ""),
        "plan_digest": line.plan_digest,
        "line": line.sequence,
        "hash": line.hash,
    }


def _verdict(
    session: Session,
    lines: Sequence[Line],
    persons: Sequence[dict[str, Any]],
    approvers: int,
) -> tuple[str, str]:
    """Return whether it was approved or refused, and the same in a sentence."""
    approved = [person["by"] for person in persons if person["decision"] == "approved"]
    refused = [person["by"] for person in persons if person["decision"] == "refused"]
    if refused:
        return "refused", f"Refused by {refused[-1]}."
    if any(line.event == ACCEPTED for line in lines):
        return (
            "approved",
            f"Approved by {', '.join(approved)}." if approved else "Accepted by this owner's policy alone.",
        )
    if session.state is SessionState.REFUSED:
        return "refused", "Refused by this owner's policy."
    if session.state is SessionState.AWAITING_APPROVAL:
        names, n = ", ".join(approved), len(approved)
        if n >= approvers:
            return "approved", f"Approved by {names}; the daemon has not used it yet."
        given = f": {n} of {approvers} different persons approved ({names})" if approved else ""
        return "", f"Not decided yet{given}."
    return "", "It ended before it was decided."
