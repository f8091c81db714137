"""The appraisal of a plan that waits, made for the first person who looks and stored for the decision.

The daemon consents by public numbers alone and loads no data before they are linked. A page, `owner-node
show` and `owner-node approve` load them with this owner's configuration: a database may need its password.
Forecast, attacks and distortions are computed once for a plan and its data; every view shows what is stored.
An approval names the data that its person saw, and other data are not linked under it.
"""

import logging
from contextlib import closing
from typing import Any

from common.canonical import canonical
from common.clock import utc_now
from common.errors import TesseraError, on_one_line
from common.log import places
from common.model.plan import Plan
from common.progress import Progress, StepStoppedError
from owner_node.config import OwnerConfig
from owner_node.engines.sampling import sample_text, sampled
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.linking.tokens import release_key
from owner_node.release.product import Prepared
from owner_node.release.work import product_of
from owner_node.risk.appraisal import FEWEST_TRIED, attack, foresee, most_records
from owner_node.risk.risks import Risk
from owner_node.risk.trials import Randomness
from owner_node.state.database import OwnerDatabase
from owner_node.state.own_keys import OwnKeys
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions
from owner_node.views.earlier import prior_releases

_log = logging.getLogger(__name__)


def appraise(session: Session, owner: OwnerConfig, progress: Progress | None = None) -> str:
    """Load the data of a plan that waits, and store with its session what masking would do to them.

    Args:
        progress: Shows how far loading and the attacks are.

    Returns:
        Why the data cannot be used as planned, for the owner only; empty if they can, and for a plan that
        does not wait. What was stored before stays then.

    Raises:
        StepStoppedError: If it was stopped.
    """
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        sessions = Sessions(db, utc_now)
        plan = sessions.plan(session)
        if session.state is not SessionState.AWAITING_APPROVAL or plan is None:
            return ""
        try:
            appraisal = _appraise(db, session, Plan.from_bytes(plan), owner, progress or Progress())
        except TesseraError as error:
            return on_one_line(error.message)
        with db.transaction() as tx:
            stored = sessions.get(session.aggregator, session.release)
            # Somebody may have decided meanwhile.
            waits = stored is not None and stored.state is SessionState.AWAITING_APPROVAL
            if stored is None or not waits:
                return ""
            if _is_stored(sessions, stored, appraisal["source_digest"]):
                appraisal |= {"forecast": stored.forecast, "attacks": sessions.attacks(stored)}
                if stored.left_out == appraisal["left_out"]:
                    return ""
            sessions.appraise(tx, stored, **appraisal)
    return ""


def _is_stored(sessions: Sessions, session: Session, source_digest: str) -> bool:
    """Return True if the appraisal of these data is stored."""
    return session.source_digest == source_digest and sessions.attacks(session) is not None


def _appraise(
    db: OwnerDatabase, session: Session, plan: Plan, owner: OwnerConfig, progress: Progress
) -> dict[str, Any]:
    """Return what `Sessions.appraise` stores; of data whose appraisal is stored only their digest.

    Raises:
        TesseraError: If the data cannot be used as planned, or were charged to another budget.
    """
    dataset, keys, key = owner.dataset(session.dataset), OwnKeys(db, utc_now), None
    if plan.linking.tokens:
        key = release_key(linkage_key.load(owner.owner.state_dir).key, plan.release, plan.digest)
    prepared = product_of(plan).prepare(
        dataset, plan, plan.assignment_of(owner.owner.id), key, keys.source_key(),
        (owner.engine.kind, owner.workspace), progress,
    )  # fmt: skip
    with closing(prepared.pinned):
        Ledger(db, utc_now).check_budget(
            dataset.budget, dataset.total_epsilon, dataset.origin.place, prepared.known_by
        )
        appraisal: dict[str, Any] = {
            "source_digest": keys.pin(prepared.source_digest), "n_records": prepared.n_records,
            "left_out": canonical(prepared.counts.left_out).decode(),
        }  # fmt: skip
        if not plan.product.rules.by_record:
            # Nothing of a record leaves that could be linked: ε alone says what counts disclose.
            return appraisal | {"forecast": "", "attacks": None}
        if _is_stored(Sessions(db, utc_now), session, appraisal["source_digest"]):
            return appraisal
        progress.begin("forecast")
        forecast, linking = foresee(
            *sampled(prepared.records, prepared.tasks), owner.policy, lambda: progress.reach(0),
            for_person=True,
        )  # fmt: skip
        attacks = _attack(owner, plan, prepared, linking, progress)
        progress.end()
    return appraisal | {"forecast": forecast.to_text(), "attacks": attacks}


def _attack(
    owner: OwnerConfig, plan: Plan, prepared: Prepared, linking: Risk | None, progress: Progress
) -> dict[str, Any]:
    """Return what attacks find, or `{problem}`: a plan can be decided about even if they failed.

    Returns:
        The result of `owner_node.risk.appraisal.attack`; `sampled`, which says that not all records were
        attacked, or is empty; `others_attributes`, the number of attributes that only other owners have.
    """
    asked = plan.assignment_of(owner.owner.id)
    most = most_records((task.attribute, task.mechanism) for task in prepared.tasks)
    if most < min(prepared.n_records, FEWEST_TRIED):
        command = f"owner-node explore --dataset {asked.dataset}"
        return {"problem": f"the attributes have too many values to be attacked here: {command}"}
    try:
        records, tasks = sampled(prepared.records, prepared.tasks, most)
        earlier = prior_releases(owner, owner.dataset(asked.dataset), prepared, most, progress)
        randomness, known = Randomness.of_system(), owner.policy.known
        attacks = attack(records, tasks, randomness, linking, earlier, progress, known)
    except TesseraError as error:
        return {"problem": on_one_line(error.message)}
    except StepStoppedError:
        raise
    except Exception as fault:  # noqa: BLE001 - no fault of an attack may hide the plan; its text could quote a value
        _log.warning("plan not attacked", exc_info=fault)
        return {
            "problem": f"internal fault ({type(fault).__name__} at {places(fault)[-2]}); please report it"
        }
    return {
        **attacks, "sampled": sample_text(records.n_records, prepared.n_records),
        "others_attributes": len(plan.attributes) - len(asked.attributes),
    }  # fmt: skip
