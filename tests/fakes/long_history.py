"""An owner's state with many releases: written by the stores themselves, in one transaction."""

import hashlib
from decimal import Decimal

from owner_node.ledger.ledger import EntryKind
from owner_node.release.records import Records
from owner_node.state.session import SessionEvent, SessionState

_STEPS = (
    SessionEvent.WAIT, SessionEvent.ACCEPT, SessionEvent.LINK, SessionEvent.SPEND, SessionEvent.SEAL,
    SessionEvent.UPLOAD, SessionEvent.ACKNOWLEDGE, SessionEvent.PUBLISH,
)  # fmt: skip
_EVENTS = ("invited", "awaiting-approval", "approved", "accepted", "linked", "spent", "sealed", "published")


def add_published(records: Records, number: int) -> None:
    """Add published releases that look as the session of release r1 of aggregator hub, which has a plan.

    Args:
        records: The owner's state.
        number: How many.
    """
    like = records.sessions.get("hub", "r1")
    assert like is not None
    plan = records.sessions.plan(like)
    assert plan is not None
    known = {
        "schema": like.schema, "purpose": like.purpose, "epsilon": like.epsilon, "forecast": like.forecast,
        "plan_signature": like.plan_signature, "aggregator_certificate": like.aggregator_certificate,
        "n_records": 60, "fragment_digest": "f" * 64,
    }  # fmt: skip
    with records.db.transaction() as tx:
        for each in range(number):
            release = f"earlier-{each:04d}"
            digest = hashlib.sha256(release.encode()).hexdigest()
            records.sessions.keep_plan(tx, digest, plan)
            session = records.sessions.open(tx, "hub", release, like.dataset)
            session = records.sessions.update(tx, session, plan_digest=digest, **known)
            for step in _STEPS:
                session = records.sessions.advance(tx, session, step)
            assert session.state is SessionState.PUBLISHED
            for event in _EVENTS:
                records.history.record(
                    tx, aggregator="hub", release=release, event=event, decision="accept",
                    rule="policy.approval", purpose=like.purpose, epsilon="0.001", plan_digest=digest,
                    details={"by": "vera"},
                )  # fmt: skip
            charge = {
                "budget": "cohort", "aggregator": "hub", "release": release, "plan_digest": digest,
                "charge": "0.001", "epsilon": "0.001", "epsilon_joint": "0.001", "accounting": "joint",
                "rank_loss": None, "delta": None,
            }  # fmt: skip
            for kind in (EntryKind.RESERVE, EntryKind.SPEND):
                # `reserve` and `spend` read the whole ledger each time; this is what they append.
                records.ledger.append(tx, kind, {}, charge)
    assert records.ledger.balance("cohort", Decimal(3)).spent == Decimal("0.001") * number
