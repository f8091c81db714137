"""The decision about a plan as a document to print and sign: who decided what, when, about which digest."""

from collections.abc import Sequence
from typing import Any

from owner_node.config import OwnerConfig
from owner_node.release.approvals import ACCEPTED, APPROVED, Approvals
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
    "ended": "Ended without being published",
}
"""The events of the history that a decision's reader needs, in words."""


def decision_document(
    session: Session, owner: OwnerConfig, approvals: Approvals, history: History
) -> dict[str, Any]:
    """Return what was decided about a session's plan, and by whom.

    Args:
        owner: The configuration: how many persons have to approve, and who may.
        approvals: Approvals by people.

    Returns:
        `verdict` in a sentence and `decided` ("approved", "refused", or empty), the `persons` with what each
        decided and when, the `course` of the release, and the `head` of the history that shows all of it.
    """
    # Lines before the plan came have no digest; a later plan under the same id has another one.
    lines = [
        each
        for each in history.entries(session.aggregator, session.release)
        if each.plan_digest in ("", session.plan_digest)
    ]
    used = _used(session, lines, owner, approvals)
    persons = [
        _person(each)
        for each in lines
        if "by" in each.details and (each.event == "refused" or str(each.sequence) in used)
    ]
    head = history.head()
    decided, verdict = _verdict(session, lines, persons, owner.policy.approvers)
    return {
        "verdict": verdict,
        "decided": decided,
        "persons": persons,
        "course": [
            {"time": each.time, "what": _COURSE[each.event], "rule": each.rule, "line": each.sequence}
            for each in lines
            if each.event in _COURSE
        ],
        "head": {"line": head.sequence, "hash": head.hash},
    }


def _used(session: Session, lines: Sequence[Line], owner: OwnerConfig, approvals: Approvals) -> set[str]:
    """Return the lines of the approvals that led to the decision, or that count while there is none."""
    accepted = [each for each in lines if each.event == ACCEPTED]
    if accepted:
        return set(str(accepted[-1].details.get("approval", "")).split(", "))
    if session.state is SessionState.AWAITING_APPROVAL:
        return {str(each.line) for each in approvals.held(session, owner.console.oidc)}
    return {str(each.line) for each in approvals.of(session)}


def _person(line: Line) -> dict[str, Any]:
    about = line.details
    return {
        "decision": "approved" if line.event == APPROVED else "refused",
        "by": about["by"],
        "stated": about.get("name_stated", ""),
        "login": about.get("login_user", ""),
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
    approved = [each["by"] for each in persons if each["decision"] == "approved"]
    refused = [each["by"] for each in persons if each["decision"] == "refused"]
    if refused:
        return "refused", f"Refused by {refused[-1]}."
    if any(each.event == ACCEPTED for each in lines):
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
