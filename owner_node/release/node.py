"""One owner's part in the releases of one aggregator. Every step is idempotent.

Every method of `Node`, `Invitations` and `Production` may be called again with the same work: after a lost
answer, a restart, or because an aggregator repeats itself. Decisions are read back from owner.db and never
made again. Every change of state is one transaction that holds everything that belongs together. The methods
block, and run in threads.
"""

import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from common.errors import IntegrityError, ProtocolError, TesseraError
from common.model.fragment import LedgerHead
from common.model.plan import RELEASE_ID
from common.progress import Progress
from common.trust.signing import Domain, SignerSource
from owner_node.config import OwnerConfig
from owner_node.linking.linkage_key import NoLinkageKeyError
from owner_node.loading import UnsendableSchemaError
from owner_node.release.invitations import Invitations
from owner_node.release.measuring import Measuring
from owner_node.release.original_data import OriginalData
from owner_node.release.production import Production
from owner_node.release.records import Records
from owner_node.release.work import Owner
from owner_node.state.answers import (
    FOREIGN_PARCEL,
    NOT_OUR_FAULT,
    SURROUNDINGS,
    UNLINKABLE,
    UNSENDABLE,
    Failure,
    ForeignParcelError,
    SignedHead,
    SpentError,
)
from owner_node.state.session import CHARGED, FINAL, LONGEST_HOLD, TRANSITIONS, SessionEvent, SessionState
from owner_node.state.sessions import Session
from owner_node.trust import Trust

_LONGEST_REASON = 500
ENDS = frozenset({"published", "conflict", "refused", "failed", "cancelled", "expired"})
"""How an aggregator can say that a release ended."""
_REASONS = {
    NoLinkageKeyError: UNLINKABLE,
    UnsendableSchemaError: UNSENDABLE,
    ForeignParcelError: FOREIGN_PARCEL,
}
"""Errors whose reason others may know: nothing of this owner's data is in it."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FORGOTTEN_AFTER = timedelta(minutes=10)
"""How long after a deadline an aggregator may still ask: two clocks differ, and it may restart meanwhile."""
_MOST_REJECTED = 1000
"""Most invalid messages of one aggregator and day that are recorded in the history."""


class Node:
    """Does the work that one aggregator asks for.

    Args:
        config: The owner's configuration.
        aggregator: Name of the aggregator.
        records: The owner's state.
        signer: The owner's key.
        trust: Checks signatures of the aggregator.
        clock: Returns the time.
    """

    def __init__(
        self,
        config: OwnerConfig,
        aggregator: str,
        records: Records,
        signer: SignerSource,
        trust: Trust,
        clock: Callable[[], datetime],
    ) -> None:
        self.aggregator = aggregator
        self._owner = Owner(config, aggregator, records, signer, trust, clock)
        self._rejected: dict[str, set[tuple[str, str]]] = {}
        self._original_data = OriginalData(self._owner)
        self.invitations = Invitations(self._owner)
        self.production = Production(self._owner, self._original_data)
        self.measuring = Measuring(self._owner, self._original_data)

    def progress(self, release: str) -> Progress:
        """Return what shows how far the work for a release is."""
        return self._owner.records.presence.progress(self.aggregator, release)

    def interrupt(self, release: str) -> None:
        """Stop what is computed for a release, and drop its original data.

        What is stored stays: a step that is done again continues from there.
        """
        self._owner.records.presence.stop(self.aggregator, release)
        self._original_data.forget(release)

    def head(self) -> SignedHead:
        """Sign the ledger head and return it."""
        records, signer = self._owner.records, self._owner.signer.current_signer()
        with records.db.transaction() as tx:
            head = records.ledger.losses.sign(tx)
            records.own_keys.remember(tx, signer.certificate)
        statement = LedgerHead(self._owner.id, head.sequence, head.hash)
        signature = signer.sign(Domain.LEDGER_HEAD, statement.to_bytes())
        return SignedHead(statement, signature, signer.chain_pem.encode())

    def close(self, release: str, state: str, reason: str, manifest_digest: str) -> None:
        """Close the session as published or ended; a reservation is returned, a spend never is.

        Raises:
            ProtocolError: If the state is not one that a release can end in, or the digest is malformed.
        """
        if state not in ENDS or not (_DIGEST.fullmatch(manifest_digest) or state != "published"):
            raise ProtocolError("a release does not end like that", "both sides must run compatible versions")
        work = self._owner.work(release)
        self._original_data.forget(release)
        if work is None or work.session.state in FINAL:
            return
        if state == "published" and SessionEvent.PUBLISH in TRANSITIONS[work.session.state]:
            kept = self.production.drop_tokens(work)
            with work.transaction() as tx:
                work.advance(
                    tx, SessionEvent.PUBLISH, "published", {"manifest": manifest_digest},
                    manifest_digest=manifest_digest, kept_digest=kept,
                )  # fmt: skip
            self._owner.records.drop_fragments()
            self._owner.records.db.forget_removed()
            return
        text, details = (
            f"{state}: {reason}" if reason else state,
            {"state": state, "reason": reason[:_LONGEST_REASON]},
        )
        with work.transaction() as tx:
            work.give_back(tx)
            work.advance(tx, SessionEvent.END, "ended", details, reason=text[:_LONGEST_REASON])
        work.drop_fragment()
        self._owner.records.drop_fragments()
        self._owner.records.db.forget_removed()

    def is_resumable(self, release: str) -> bool:
        """Whether a release that ended can go on here: what was sealed or answered is kept."""
        work = self._owner.work(release)
        return work is not None and work.is_resumable

    def expire_orphans(self, busy: Collection[str]) -> tuple[str, ...]:
        """End the releases that an aggregator has forgotten since its backup was put back; return their ids.

        For an aggregator that is connected and has no work at all. A release that it knows has work, or an
        end, once the deadline of its consent has passed. One that was linked may wait for other owners.

        Args:
            busy: Ids of the releases that work is being done for.
        """
        forgotten = [
            session.release
            for session in self._owner.records.sessions.live(self.aggregator)
            if session.release not in busy and self._owner.clock() > self._kept_until(session)
        ]
        for release in forgotten:
            self.close(release, "expired", "the aggregator does not know the release any more", "")
        return tuple(forgotten)

    def _kept_until(self, session: Session) -> datetime:
        """Return until when a reservation is kept for an aggregator that does not ask for it."""
        if session.state is SessionState.RESERVED and session.deadline is not None:
            return datetime.fromtimestamp(session.deadline, UTC) + _FORGOTTEN_AFTER
        if session.state in (SessionState.RESERVED, SessionState.LINKED):
            return datetime.fromisoformat(session.updated) + LONGEST_HOLD
        return datetime.max.replace(tzinfo=UTC)

    def fail(self, release: str, error: TesseraError) -> Failure:
        """Roll back what can be rolled back, and return the failure to report to the aggregator.

        An error in the aggregator's own message changes only the history.

        Raises:
            SpentError: If the charge is spent, nothing is sealed, and the error says nothing about the data:
                to end the session would lose the charge. The data are dropped, and loaded anew by a retry.
        """
        work, records = self._owner.work(release), self._owner.records
        session = None if work is None else work.session
        if session is not None and session.state is SessionState.SPENT and error.code in SURROUNDINGS:
            self._original_data.forget(release)
            hint = error.hint or "remove the cause: the charge is spent, and the step is tried again"
            raise SpentError(error.message, hint=hint)
        rules = error.details.get("rules", [])
        mine = error.code not in NOT_OUR_FAULT
        reported = next((code for kind, code in _REASONS.items() if isinstance(error, kind)), error.code)
        with records.db.transaction() as tx:
            if (mine and session is not None) or self._is_news(release, error):
                records.history.record(
                    tx, aggregator=self.aggregator, release=release,
                    event="refused" if mine else "rejected", decision="refuse", rule=error.message,
                    purpose=session.purpose if session else "",
                    epsilon=session.epsilon if session else "",
                    plan_digest=session.plan_digest if session else "",
                    details={"code": error.code, "rules": rules},
                )  # fmt: skip
            stopped = work is not None and mine and work.session.state not in FINAL
            if work is not None and stopped:
                work.give_back(tx)
                event = SessionEvent.END if work.session.state in CHARGED else SessionEvent.REFUSE
                work.advance(tx, event, reason=error.message[:_LONGEST_REASON], refusal=reported)
        if work is not None and stopped:
            records.db.forget_removed()
            self._original_data.forget(release)
            work.drop_fragment()
        named = error.details.get("owner", "") if isinstance(error, IntegrityError) else ""
        is_known = work is not None and work.has_plan and named in work.plan.owners
        return Failure.of(reported, named if is_known else "")

    def _is_news(self, release: str, error: TesseraError) -> bool:
        """Whether to record an invalid message in the history: each message once, at a limited rate per day.

        The history is kept for ever, and an aggregator can send such messages as fast as it likes.
        """
        day, message = self._owner.clock().date().isoformat(), (release, error.message)
        self._rejected = {day: self._rejected.get(day, set())}
        known = self._rejected[day]
        if message in known or len(known) >= _MOST_REJECTED or not RELEASE_ID.fullmatch(release):
            return False
        known.add(message)
        return True
