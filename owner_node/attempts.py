"""How often an owner's data may be asked about without a charge.

Some answers say something about the data that no epsilon covers: that a fragment would leave too much
unchanged, that there are too few records, and what linking found when it ended a release. Each is little, but
many could be put together, so they are counted, over all aggregators, and no more than a few are given. The
count is read from the history, which nobody can shorten unseen.
"""

from datetime import datetime, timedelta

from common.errors import RefusedError
from owner_node.database import Clock, Transaction
from owner_node.history import History
from owner_node.sessions import Session

EVENT = "attempt"
MOST = 10
"""Answers of this kind, for one budget, within `PERIOD`."""
PERIOD = timedelta(days=30)


class Attempts:
    """Counts the answers that no charge covers.

    Args:
        history: Keeps them.
        clock: Tells the time.
    """

    def __init__(self, history: History, clock: Clock) -> None:
        self._history, self._clock = history, clock

    def check(self, budget: str) -> None:
        """Refuse to look at the data once more, if that was done too often.

        Args:
            budget: Name of the data set's budget; data sets with one budget are counted together.

        Raises:
            RefusedError: If as many attempts as may be have failed.
        """
        # Lines of the future, after a clock was set back, count too.
        since = self._clock() - PERIOD
        found = sum(
            each.details.get("budget") == budget and datetime.fromisoformat(each.time) > since
            for each in self._history.entries(event=EVENT)
        )
        if found >= MOST:
            rule = (
                f"attempts: within {PERIOD.days} days {found} releases ended with an answer about data of "
                f"budget {budget!r} that nothing was charged for; {MOST} may"
            )
            raise RefusedError(
                rule,
                "owner-node history shows them; find out who asks so often, or wait",
                {"rule": rule, "rules": [rule], "budget": budget, "attempts": found},
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
