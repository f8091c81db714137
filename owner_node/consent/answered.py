"""Which sessions have told something about the data that nothing was charged for, by going on.

That a plan is accepted, or that a person is asked about it, says that nothing which is looked for in the data
speaks against it: a limit on what leaves unchanged is not reached, there are as many records as clusters
need, and no more than a joint bound was planned for. Linking tells exact numbers. Once the charge is spent,
the release is what was paid for.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from common.plan import Plan
from common.schema import Schema
from common.task import Assignment
from owner_node.config import OwnerConfig
from owner_node.consent.foreseen import has_limits
from owner_node.release.answers import PERSON
from owner_node.state.session import UNDECIDED, State
from owner_node.state.sessions import Session

UNSPENT = frozenset({*UNDECIDED, State.RESERVED, State.LINKED})
"""States in which a session may have told something and has charged nothing."""


def has_answered(session: Session, config: OwnerConfig) -> bool:
    """Whether a session that has charged nothing has told something about the data.

    Args:
        session: The session, in the state that it was in before it ended.
        config: The owner's configuration: its policy's limits make an acceptance an answer.
    """
    if session.state is State.LINKED:
        return True
    if not session.forecast or session.plan is None:
        return False
    assignment = Plan.from_bytes(session.plan).assignment_of(config.owner.id)
    beyond = any(each.k is not None and each.k > assignment.records_rounded for each in assignment.attributes)
    return beyond or has_limits(config.policy) or _may_exceed(session, assignment, config)


def _may_exceed(session: Session, assignment: Assignment, config: OwnerConfig) -> bool:
    """Whether going on says that there are no more records for some attributes than for all.

    Where records that lack a value are left out, fewer attributes have more records, and a joint bound that
    counts clusters holds for no more than were stated.
    """
    dataset = next((each for each in config.datasets if each.name == session.dataset), None)
    if assignment.most_records is None or dataset is None or dataset.missing != "drop":
        return False
    counted = () if session.schema is None else Schema.from_document(json.loads(session.schema)).names
    return {each.name for each in assignment.attributes} != set(counted)


def open_answers(
    sessions: Iterable[Session], config: OwnerConfig, budget: str, since: datetime, besides: Session
) -> int:
    """Count the sessions that have told something about a budget's data and may still come to nothing.

    What a person refused is counted here, too: it ended without the daemon.

    Args:
        sessions: The sessions, of all aggregators.
        config: The owner's configuration.
        budget: Name of the budget.
        since: From when on refusals count.
        besides: The session that is worked on; not counted.
    """
    datasets = {each.name for each in config.datasets if each.budget == budget}
    own = (besides.aggregator, besides.release)
    return sum(
        has_answered(each, config)
        for each in sessions
        if each.dataset in datasets and (each.aggregator, each.release) != own and _counts(each, since)
    )


def _counts(session: Session, since: datetime) -> bool:
    by_person = session.state is State.REFUSED and session.refusal == PERSON
    return session.state in UNSPENT or (by_person and datetime.fromisoformat(session.updated) > since)
