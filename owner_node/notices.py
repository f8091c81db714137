"""What an owner's people are told: plans that wait, deadlines, ends of releases and certificates, a halt.

Most of it are events of the history. Three come from the clock or from state, not from an event; `note_due`
records them in the history, once each, so that they are told like the others.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from common.daemon.notify import Notices
from common.errors import TesseraError
from common.trust.enrolment import expiry_warning
from common.trust.identity import renewal_begins
from common.trust.signing import load_chain
from owner_node.config import OwnerConfig
from owner_node.release.records import Records
from owner_node.state.database import Clock
from owner_node.state.history import AuditFeed
from owner_node.state.session import SessionState

NEAR = timedelta(hours=24)
"""A deadline that is nearer than this is near."""
_SHOW = "See owner-node show {aggregator}/{release}."
NOTICES = Notices(
    {
        "awaiting-approval": "Plan {release} of aggregator {aggregator} waits for a decision. " + _SHOW,
        "deadline-near": "Plan {release} of aggregator {aggregator} waits, and its deadline is near. "
        + _SHOW,
        "approval-expired": "The approval of plan {release} of aggregator {aggregator} expired unused. "
        + _SHOW,
        "refused": "Plan {release} of aggregator {aggregator} was refused here. " + _SHOW,
        "published": "Release {release} of aggregator {aggregator} was published.",
        "ended": "Release {release} of aggregator {aggregator} ended without being published. " + _SHOW,
        "certificate-ends": "This owner's certificate ends soon. See owner-node enroll renew.",
        "ledger-halted": "The ledger halted all work. See owner-node status and owner-node ledger recover.",
    }
)


class NoticeFeed(AuditFeed):
    """The history for people: a sink that is new begins with what happens from now on."""

    def position(self, sink: str) -> int:
        """As `AuditFeed.position`; the end of the history for a new sink."""
        known = super().position(sink)
        if known == 0 and (known := self._history.head().sequence):
            self.note_delivered(sink, known)
        return known

    def keep_sinks(self, former_names: Mapping[str, str]) -> None:
        """Forget all sinks for people but some: names of version 0.1 can hold a secret.

        Args:
            former_names: By sink that is kept, the name whose cursor it takes over if it has none.
        """
        with self._db.transaction() as tx:
            tx.executemany(
                "INSERT OR IGNORE INTO audit_sinks (sink, sequence) "
                "SELECT ?, sequence FROM audit_sinks WHERE sink = ?",
                former_names.items(),
            )
            known = tx.execute(
                "SELECT sink FROM audit_sinks WHERE sink GLOB 'mail:*' OR sink GLOB 'webhook:*'"
            )
            gone = [(row["sink"],) for row in known.fetchall() if row["sink"] not in former_names]
            tx.executemany("DELETE FROM audit_sinks WHERE sink = ?", gone)


def note_due(config: OwnerConfig, records: Records, clock: Clock) -> None:
    """Record, once each, the notices that are due because of the clock or of a halted ledger."""
    waiting = (
        session for session in records.sessions.live() if session.state is SessionState.AWAITING_APPROVAL
    )
    for session in waiting:
        deadline = session.deadline and datetime.fromtimestamp(session.deadline, UTC)
        if deadline and timedelta(0) < deadline - clock() < NEAR:
            about = {"plan": session.plan_digest}
            _note_once(records, "deadline-near", about, session.aggregator, session.release)
    try:
        certificate = load_chain(config.tls.cert)[0]
    except TesseraError:
        certificate = None
    if certificate is not None:
        ends = certificate.not_valid_after_utc
        if expiry_warning("this owner", ends, clock(), ends - renewal_begins(certificate)):
            _note_once(records, "certificate-ends", {"expires": ends.isoformat()})
    halted = records.ledger.losses.reason()
    if halted is not None:
        _note_once(records, "ledger-halted", {"reason": halted.message})


def _note_once(
    records: Records, event: str, details: Mapping[str, Any], aggregator: str = "", release: str = ""
) -> None:
    lines = records.history.entries(aggregator, release, event)
    if any(line.details == details for line in lines):
        return
    with records.db.transaction() as tx:
        records.history.record(tx, aggregator=aggregator, release=release, event=event, details=dict(details))
