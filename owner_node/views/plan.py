"""A plan for the person who decides about it: what it means, and what it would do to this owner's data."""

from typing import Any

from common.model.plan import Plan
from owner_node.config import OwnerConfig
from owner_node.release.decisions import Decisions
from owner_node.release.request_view import request_view
from owner_node.state.sessions import Session
from owner_node.views.budgets import balances
from owner_node.views.verdict import limits_of, verdict_of


def named(session: Session) -> dict[str, Any]:
    """Return what names a session in every document about it."""
    names = {"release": session.release, "aggregator": session.aggregator, "state": str(session.state)}
    return {**names, "plan_digest": session.plan_digest}


def plan_document(
    session: Session, owner: OwnerConfig, decisions: Decisions, problem: str = ""
) -> dict[str, Any]:
    """Return everything that a person needs to decide about a plan, or what is known of one not yet made.

    Args:
        problem: Why its data cannot be used, as `owner_node.views.appraisal.appraise` returns it.
    """
    approval = decisions.approvals.newest(session)
    held = decisions.approvals.held(session, owner.console.oidc)
    known: dict[str, Any] = {
        "approvers": owner.policy.approvers,
        "approved_by": [given.by for given in held],
        "rule": decisions.asked_by(session),
        "approval": None
        if approval is None
        else {
            "by": approval.by,
            "given": approval.given.isoformat(),
            "until": approval.until.isoformat(),
            "valid": approval in held,
        },
    }
    plan = decisions.plan(session)
    if plan is None:
        about = {"reason": session.reason, "dataset": session.dataset, "purpose": session.purpose}
        return {**named(session), **about, **known}
    configured = {dataset.name: dataset for dataset in owner.datasets}.get(session.dataset)
    balance, read = None, Plan.from_bytes(plan)
    if configured is not None:
        (balance,) = balances(owner, decisions.ledger, [configured.budget])
    view = request_view(session, read, owner, None if balance is None else balance["remaining"])
    view |= {"problem": problem, "attacks": decisions.attacks(session)}
    return {
        **view, "budget": None if configured is None else configured.budget, "balance": balance,
        "limits": limits_of(view, owner.policy), "verdict": verdict_of(view, owner.policy), **known,
    }  # fmt: skip
