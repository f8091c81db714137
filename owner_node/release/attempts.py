"""Which sessions have told something about the data that nothing was charged for, by going on.

That a plan is accepted, or that a person is asked about it, says that nothing which is looked for in the data
speaks against it: a limit on what leaves unchanged is not reached, there are as many records as clusters
need, and no more than a joint bound was planned for. Linking tells exact numbers. Once the charge is spent,
the release is what was paid for.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Condition

from common.errors import RefusedError
from common.model.plan import Plan
from common.model.schema import Schema
from common.model.task import Assignment
from owner_node.config import OwnerConfig
from owner_node.consent.policy_rules import has_limits
from owner_node.state.answers import PERSON
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import History
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


EVENT = "attempt"
MOST = 10
"""Answers of this kind, for one budget, within `PERIOD`."""
PERIOD = timedelta(days=30)


class Attempts:
    """Counts the answers that no charge covers; one object serves all threads of a daemon.

    Args:
        history: Keeps them.
        clock: Tells the time.
    """

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock
        self._looking: Counter[str] = Counter()
        self._done = Condition()

    @contextmanager
    def looking(self, budget: str, n_open: Callable[[], int] = lambda: 0) -> Iterator[None]:
        """Let the data of a budget be looked at once more, if that was not done too often.

        Any look may end in an answer that counts: where as many are under way as answers are left, others
        wait for them.

        Args:
            budget: Name of the data set's budget; data sets with one budget are counted together.
            n_open: Returns how many releases have told something and may still end without a charge.

        Raises:
            RefusedError: If as many answers were given as may be.
        """
        with self._done:
            while self.check(budget, n_open()) + self._looking[budget] >= MOST:
                self._done.wait()
            self._looking[budget] += 1
        try:
            yield
        finally:
            with self._done:
                self._looking[budget] -= 1
                self._done.notify_all()

    def since(self) -> datetime:
        """Return from when on answers count; lines of the future, after a clock was set back, do, too."""
        return self._clock() - PERIOD

    def check(self, budget: str, n_open: int = 0) -> int:
        """Return how many answers were given, if fewer than may be.

        Args:
            budget: As in `looking`.
            n_open: How many releases have told something and may still end without a charge.

        Raises:
            RefusedError: If as many were given as may be.
        """
        since = self.since()
        times = [
            datetime.fromisoformat(each.time)
            for each in self._history.entries(event=EVENT)
            if each.details.get("budget") == budget
        ]
        found = sum(time > since for time in times)
        if found + n_open < MOST:
            return found + n_open
        more = f", and {n_open} more got one and were not charged yet" if n_open else ""
        rule = (
            f"attempts: within {PERIOD.days} days {found} releases ended with an answer about data of "
            f"budget {budget!r} that nothing was charged for{more}; {MOST} may"
        )
        raise RefusedError(
            rule,
            "owner-node history shows them; find out who asks so often, or wait",
            {"rule": rule, "rules": [rule], "budget": budget, "attempts": found, "open": n_open},
        )

    def note(self, tx: Transaction, session: Session, budget: str, what: str) -> None:
        """Count an answer.

        Args:
            tx: The transaction.
            session: The release it was given in.
            budget: Name of the data set's budget.
            what: What the answer told.
        """
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=EVENT, rule=what,
            purpose=session.purpose, plan_digest=session.plan_digest,
            details={"budget": budget, "dataset": session.dataset},
        )  # fmt: skip

    def is_noted(self, session: Session) -> bool:
        """Whether an answer of a release was counted already."""
        return bool(self._history.entries(session.aggregator, session.release, EVENT))
