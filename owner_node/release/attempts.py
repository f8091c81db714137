"""Limit on answers that disclose data-dependent information without a charge.

Some answers depend on the data, and no epsilon covers them: whether the forecast of a fragment exceeds a
limit of the policy, whether there are too few records, and the result of linking. Each discloses little, but
many could be combined. So they are counted, over all aggregators, and only a few are given per budget and
period: releases that ended without a charge are counted from the history, releases that may still end so from
the sessions.

A session also discloses something by continuing. That a plan is accepted, or that a person is asked about it,
shows that no check of the data objected: the limits on unchanged values are not exceeded, there are as many
records as clusters need, and no more than a joint bound was planned for. Linking discloses exact numbers.
Once the charge is spent, it covers the release.
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
from owner_node.state.session import UNDECIDED, SessionState
from owner_node.state.sessions import Session

UNSPENT = frozenset({*UNDECIDED, SessionState.RESERVED, SessionState.LINKED})
"""States in which a session may have disclosed something and has charged nothing."""


def has_answered(session: Session, config: OwnerConfig) -> bool:
    """Whether a session that has charged nothing has disclosed data-dependent information.

    Args:
        session: The session, in the state that it was in before it ended.
        config: The owner's configuration. If its policy has limits, an acceptance depends on the data.
    """
    if session.state is SessionState.LINKED:
        return True
    if not session.forecast or session.plan is None:
        return False
    assignment = Plan.from_bytes(session.plan).assignment_of(config.owner.id)
    beyond = any(each.k is not None and each.k > assignment.records_rounded for each in assignment.attributes)
    return beyond or has_limits(config.policy) or _may_exceed(session, assignment, config)


def _may_exceed(session: Session, assignment: Assignment, config: OwnerConfig) -> bool:
    """Whether continuing discloses that some attributes have no more records than were stated for all.

    Where records with a missing value are dropped, fewer attributes have more records. A joint bound that
    counts clusters holds only for the stated number of records.
    """
    dataset = next((each for each in config.datasets if each.name == session.dataset), None)
    if assignment.most_records is None or dataset is None or not dataset.dropping:
        return False
    counted = () if session.schema is None else Schema.from_document(json.loads(session.schema)).names
    return {each.name for each in assignment.attributes} != set(counted)


def open_answers(
    sessions: Iterable[Session], config: OwnerConfig, budget: str, since: datetime, besides: Session
) -> int:
    """Count the sessions that have disclosed something about a budget's data and may still end uncharged.

    Refusals by a person are counted here as well: they end a session without the daemon.

    Args:
        sessions: The sessions, of all aggregators.
        config: The owner's configuration.
        budget: Name of the budget.
        since: Refusals count from this time on.
        besides: The current session, which is not counted.
    """
    datasets = {each.name for each in config.datasets if each.budget == budget}
    own = (besides.aggregator, besides.release)
    return sum(
        has_answered(each, config)
        for each in sessions
        if each.dataset in datasets and (each.aggregator, each.release) != own and _counts(each, since)
    )


def _counts(session: Session, since: datetime) -> bool:
    by_person = session.state is SessionState.REFUSED and session.refusal == PERSON
    return session.state in UNSPENT or (by_person and datetime.fromisoformat(session.updated) > since)


EVENT = "attempt"
MOST = 10
"""Limit of uncharged answers for one budget within `PERIOD`."""
PERIOD = timedelta(days=30)


class Attempts:
    """Counts the answers that no charge covers; one object serves all threads of a daemon.

    Args:
        history: Records them.
        clock: Returns the time.
    """

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock
        self._looking: Counter[str] = Counter()
        self._done = Condition()

    @contextmanager
    def looking(self, budget: str, n_open: Callable[[], int] = lambda: 0) -> Iterator[None]:
        """Hold one of the answers that are left for a budget while its data are examined.

        Any examination may end in an answer that counts. Where as many are under way as answers are left,
        further ones wait for them.

        Args:
            budget: Name of the data set's budget; data sets that share a budget are counted together.
            n_open: Returns how many releases have disclosed something and may still end without a charge.

        Raises:
            RefusedError: If the limit is reached.
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
        """Return the time from which answers count; lines in the future (a clock set back) count as well."""
        return self._clock() - PERIOD

    def check(self, budget: str, n_open: int = 0) -> int:
        """Return how many answers were given, if the limit is not reached.

        Args:
            budget: As in `looking`.
            n_open: How many releases have disclosed something and may still end without a charge.

        Raises:
            RefusedError: If the limit is reached.
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
        more = f", and {n_open} open releases had one without a charge yet" if n_open else ""
        rule = (
            f"attempts: limit of {MOST} uncharged answers about data of budget {budget!r} reached: "
            f"{found} in {PERIOD.days} days{more}"
        )
        raise RefusedError(
            rule,
            "owner-node history lists them; find out who asks so often, or wait until the oldest is "
            f"{PERIOD.days} days old",
            {"rule": rule, "rules": [rule], "budget": budget, "attempts": found, "open": n_open},
        )

    def note(self, tx: Transaction, session: Session, budget: str, what: str) -> None:
        """Count an answer.

        Args:
            tx: The transaction.
            session: The session of the release that it was given in.
            budget: Name of the data set's budget.
            what: What the answer disclosed.
        """
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=EVENT, rule=what,
            purpose=session.purpose, plan_digest=session.plan_digest,
            details={"budget": budget, "dataset": session.dataset},
        )  # fmt: skip

    def is_noted(self, session: Session) -> bool:
        """Whether an answer of a release was counted already."""
        return bool(self._history.entries(session.aggregator, session.release, EVENT))
