"""Effects of masking on the data of a plan that waits, computed by who looks and stored for the decision.

The daemon consents by public numbers alone and loads no data before they are linked. A page, `owner-node
show` and `owner-node approve` load them with this owner's configuration: a database may need its password.
The figures are drawn once: the same data under the same plan keep those that are stored. An approval names
the data that its person saw, and other data are not linked under it.
"""

from contextlib import closing
from typing import Any

from common.clock import utc_now
from common.errors import TesseraError
from common.log import on_one_line
from common.model.plan import Plan
from common.progress import Progress
from owner_node.config import OwnerConfig
from owner_node.engines.sampling import sampled
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.linking.tokens import release_key
from owner_node.release.work import product_of
from owner_node.risk.foresee import foresee
from owner_node.state.database import OwnerDatabase
from owner_node.state.own_keys import OwnKeys
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions


def appraise(session: Session, owner: OwnerConfig, progress: Progress | None = None) -> str:
    """Load the data of a plan that waits, and store with its session what masking would do to them.

    Args:
        progress: Shows how far loading is.

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
            found = _found(db, session, Plan.from_bytes(plan), owner, progress)
        except TesseraError as error:
            return on_one_line(error.message)
        with db.transaction() as tx:
            stored = sessions.get(session.aggregator, session.release)
            # Somebody may have decided meanwhile.
            waits = stored is not None and stored.state is SessionState.AWAITING_APPROVAL
            # Who looked at the same time may have stored figures for these data: they stay.
            drawn = bool(stored and stored.forecast and stored.source_digest == found["source_digest"])
            if stored is not None and waits and not drawn:
                sessions.foresee(tx, stored, **found)
    return ""


def _found(
    db: OwnerDatabase, session: Session, plan: Plan, owner: OwnerConfig, progress: Progress | None
) -> dict[str, Any]:
    """Return what `Sessions.foresee` stores.

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
        pinned, text = keys.pin(prepared.source_digest), session.forecast
        if plan.product.rules.by_record and not (text and session.source_digest == pinned):
            records, tasks = sampled(prepared.records, prepared.tasks)
            text = foresee(records, tasks, owner.policy, for_person=True).to_text()
    return {"source_digest": pinned, "n_records": prepared.n_records, "forecast": text}
