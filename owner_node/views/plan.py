"""A plan for the person who decides about it: what it means, and a trial on this owner's data."""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import Any

from common.clock import utc_now
from common.errors import TesseraError
from common.log import on_one_line, places
from common.model.plan import Plan
from common.progress import Progress, StepStoppedError
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.engines.pinned import pin
from owner_node.engines.sampling import sample_text, sampled
from owner_node.explore.distortion import distortions
from owner_node.explore.preview import FEWEST_TRIED, PriorReleases, most_records, preview
from owner_node.loading import schema_of
from owner_node.masking.foreseen import Forecast, Reidentification
from owner_node.masking.tasks import AttributeTask
from owner_node.release.decisions import Decisions
from owner_node.release.product import Prepared
from owner_node.release.request_view import request_view
from owner_node.release.work import product_of
from owner_node.risk.attacks import LINKING, WORDS
from owner_node.risk.trials import Randomness
from owner_node.state.database import OwnerDatabase
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions
from owner_node.views.budgets import balances
from owner_node.views.earlier import released_plans, released_tasks
from owner_node.views.verdict import limits_of, verdict_of

_log = logging.getLogger(__name__)


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
    view["problem"] = problem
    return {
        **view, "budget": None if configured is None else configured.budget, "balance": balance,
        "limits": limits_of(view, owner.policy), "verdict": verdict_of(view, owner.policy), **known,
    }  # fmt: skip


def with_trial(
    document: dict[str, Any], owner: OwnerConfig, preview: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a plan's document with the result of its trial, in the verdict too."""
    if "verdict" not in document:
        return document | {"preview": preview}
    return document | {"preview": preview, "verdict": verdict_of(document, owner.policy, preview)}


def preview_of(
    session: Session,
    owner: OwnerConfig,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    loading: Progress | None = None,
) -> dict[str, Any] | None:
    """Try a plan of masked records that waits for a person on this owner's data; None for any other.

    Args:
        progress: Called with the number of finished steps and of all steps.
        loading: Shows how far loading is.

    Returns:
        The result of `owner_node.explore.preview`, with the figure of the expected intruder that is stored
        with the session in place of another draw of it; `distortions`; as `others_attributes`, the number of
        attributes of the release that only other owners have; or `{problem}`: the plan is shown even if the
        trial failed.

    Raises:
        StepStoppedError: If it was stopped.
    """
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        sessions = Sessions(db, utc_now)
        plan = sessions.plan(session)
    if session.state is not SessionState.AWAITING_APPROVAL or plan is None:
        return None
    if not Plan.from_bytes(plan).product.rules.by_record:
        # Nothing of a record leaves that could be linked: ε alone says what counts disclose.
        return None
    try:
        released = released_plans(owner, session.dataset)
        trial = _try_plan(plan, session.dataset, owner, released, progress, loading)
    except TesseraError as error:
        return {"problem": on_one_line(error.message)}
    except StepStoppedError:
        raise
    except Exception as fault:  # noqa: BLE001 - no fault of a trial may hide the plan; its text could quote a value
        _log.warning("plan not tried", exc_info=fault)
        return {
            "problem": f"internal fault ({type(fault).__name__} at {places(fault)[-2]}); please report it"
        }
    if session.forecast and "risks" in trial:
        trial["risks"] = _with_stored_figure(trial, Forecast.from_text(session.forecast).intruder)
    return trial


def _with_stored_figure(trial: dict[str, Any], stored: Reidentification | None) -> list[dict[str, Any]]:
    """Return the risks with the stored figure of the expected intruder, however often a plan is tried."""
    risks: list[dict[str, Any]] = trial["risks"]
    if stored is None:
        return risks
    expected = [risk for risk in risks if risk["attack"] in LINKING and risk["knows"] == trial["expected"]]
    figure = {
        "attack": stored.attack,
        "rate": {"mean": float(stored.share), "low": float(stored.low), "high": float(stored.high)},
        "baseline": float(stored.without),
        "targets": max((risk["targets"] for risk in expected), default=0),
        "meaning": WORDS[stored.attack].meaning,
        "control": None,
        "attribute": None,
        "knows": trial["expected"],
    }
    return [figure, *(risk for risk in risks if risk not in expected)]


def _try_plan(
    plan_bytes: bytes,
    dataset: str,
    owner: OwnerConfig,
    released: Sequence[Plan],
    progress: Callable[[int, int], None],
    loading: Progress | None,
) -> dict[str, Any]:
    plan = Plan.from_bytes(plan_bytes)
    asked = plan.assignment_of(owner.owner.id)
    masked = [(plan.attribute(attribute.name), attribute.mechanism) for attribute in asked.attributes]
    most = most_records(masked)
    if most < min(asked.records_rounded, FEWEST_TRIED):
        return {"problem": f"it would take long with so many values: owner-node explore --dataset {dataset}"}
    progress(0, 1)
    engine = owner.engine.kind, owner.workspace
    prepared = product_of(plan).prepare(owner.dataset(dataset), plan, asked, None, None, engine, loading)
    with closing(prepared.pinned):
        records, tasks = sampled(prepared.records, prepared.tasks, most)
        earlier = _earlier(owner, owner.dataset(dataset), prepared, released, most, loading)
    trial = preview(
        records, tasks, Randomness.of_system(), earlier,
        # Loading comes before these steps, and distortions after them.
        lambda done, of: progress(done + 1, of + 2), owner.policy.known,
    )  # fmt: skip
    trial["distortions"] = distortions(records, tasks)
    if text := sample_text(records.n_records, prepared.n_records):
        trial["sampled"] = text
    return {**trial, "others_attributes": len(plan.attributes) - len(asked.attributes)}


def _earlier(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    prepared: Prepared,
    released: Sequence[Plan],
    most: int,
    loading: Progress | None,
) -> PriorReleases | None:
    """Return how earlier releases would mask today's records, without attributes declared otherwise now.

    Their records are loaded for all attributes together, which can drop others for missing values.
    """
    if not released:
        return None
    declared = schema_of(dataset, None, prepared.n_records).by_name
    releases = released_tasks(released, owner, dataset, declared)
    names = dict.fromkeys(task.attribute.name for release in (prepared.tasks, *releases) for task in release)
    pinned = pin(dataset, list(names), owner.engine.kind, owner.workspace, progress=loading)
    with closing(pinned) as data:
        fitting = [release for release in releases if _largest_k(release) <= data.n_records]
        if not fitting or _largest_k(prepared.tasks) > data.n_records:
            return None
        in_turn = (prepared.tasks, *fitting)
        records, scaled = sampled(data.records.engine, list(chain(*in_turn)), most)
    tasks = iter(scaled)
    return PriorReleases(records, tuple(tuple(islice(tasks, len(release))) for release in in_turn))


def _largest_k(tasks: Sequence[AttributeTask]) -> int:
    return max(task.k or 1 for task in tasks)
