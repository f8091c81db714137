"""How often an owner's data may be asked about without a charge.

Some answers say something about the data that no epsilon covers: that a fragment would leave too much
unchanged, or would not; that there are too few records, or enough; and what linking found. Each is little,
but many could be put together, so they are counted, over all aggregators, and no more than a few are given:
what ended without a charge is counted from the history, what may still end so from the sessions.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Condition

from common.errors import RefusedError
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import History
from owner_node.state.sessions import Session

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
