"""Limit on linkings that end without a charge.

Consent does not depend on the data; linking does. It shows whether the data can be used as planned, and how
many records there are, and no epsilon covers that. Each linking discloses little, but many could be combined.
So only a few may be without a charge, per budget and period. They are counted from the sessions: one that was
asked to link counts while it is open, and for a period after it ended, until its charge is spent. A charge
of next to nothing counts as none: it would buy linkings without end. The aggregators could combine what they
learn, so they share the limit evenly, and none can use up the share of another.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from common.errors import RefusedError
from owner_node.config import OwnerConfig
from owner_node.state.database import Clock, Transaction
from owner_node.state.session import FINAL
from owner_node.state.sessions import Session, Sessions

PERIOD = timedelta(days=30)
LEAST_CHARGE = Decimal("0.001")
"""A release with less epsilon counts as one without a charge."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one aggregator may still learn about the data of one budget without a charge."""

    budget: str
    aggregator: str
    used: int
    """Linkings that count now, those of open releases included."""
    limit: int
    """Linkings without a charge that this aggregator may have within `PERIOD`."""
    n_open: int
    """Those that count because their releases are open."""
    next: datetime | None
    """When the next linking is possible, if none is now. None, too, while open releases have to end first."""

    @property
    def blocked(self) -> bool:
        """Whether no linking is possible now."""
        return self.used >= self.limit

    def __str__(self) -> str:
        """Return the line that `status`, `check` and `doctor` show."""
        if not self.blocked:
            free = "now"
        elif self.next is None:
            free = "when an open release ends"
        else:
            free = f"on {self.next.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return (
            f"attempts {self.used} of {self.limit}, next free {free} "
            f"(aggregator {self.aggregator!r}, budget {self.budget!r})"
        )

    def to_document(self) -> dict[str, Any]:
        """Return the fields for `--json`; `next` is None if an attempt is possible now."""
        following = None if self.next is None else self.next.isoformat()
        names = {"budget": self.budget, "aggregator": self.aggregator}
        return {
            **names, "used": self.used, "limit": self.limit, "open": self.n_open, "next": following,
            "blocked": self.blocked,
        }  # fmt: skip


class Attempts:
    """Counts the linkings that no charge covers."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions, self._clock = sessions, clock

    def begin(self, tx: Transaction, config: OwnerConfig, session: Session) -> Session:
        """Count a session from now on, before its data are examined for linking.

        Raises:
            RefusedError: If the limit is reached.
        """
        self.check(config, config.dataset(session.dataset).budget, session.aggregator, session.release)
        return self._sessions.begin_answer(tx, session)

    def check(self, config: OwnerConfig, budget: str, aggregator: str, besides: str = "") -> None:
        """Check that another linking is possible; the release `besides` is not counted.

        Raises:
            RefusedError: If the limit is reached.
        """
        allowance = self._allowance(config, budget, aggregator, besides)
        if not allowance.blocked:
            return
        n_open = allowance.n_open
        more = f"; {n_open} of these releases are open" if n_open else ""
        rule = f"attempts: limit of linkings without a charge reached: {allowance}{more}"
        raise RefusedError(
            rule,
            "owner-node history lists the releases: find out who links so often without a charge; wait, or "
            "raise policy.max_attempts",
            {"rule": rule, "rules": [rule], **allowance.to_document()},
        )

    def allowances(self, config: OwnerConfig) -> tuple[Allowance, ...]:
        """Return what is left to each configured aggregator of each budget, in order."""
        return tuple(
            self._allowance(config, budget, aggregator.name)
            for budget in dict.fromkeys(dataset.budget for dataset in config.datasets)
            for aggregator in config.aggregators
        )

    def _allowance(self, config: OwnerConfig, budget: str, aggregator: str, besides: str = "") -> Allowance:
        limit = max(config.policy.max_attempts // max(len(config.aggregators), 1), 1)
        datasets = [dataset.name for dataset in config.datasets if dataset.budget == budget]
        linked = self._sessions.linked(aggregator, datasets, self._clock() - PERIOD)
        counted = [session for session in linked if session.release != besides and _is_uncharged(session)]
        # An end in the future, from a clock that was set back since, counts as well.
        ends = sorted(
            datetime.fromisoformat(session.updated) + PERIOD for session in counted if session.state in FINAL
        )
        used, n_open = len(counted), len(counted) - len(ends)
        # So many have to leave the period.
        over = used - limit
        return Allowance(
            budget, aggregator, used, limit, n_open, ends[over] if 0 <= over < len(ends) else None
        )


def _is_uncharged(session: Session) -> bool:
    return session.addendum is None or Decimal(session.epsilon or LEAST_CHARGE) < LEAST_CHARGE
