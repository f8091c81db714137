"""Invitations and plans: describe a data set, and accept or refuse a plan. Nothing is spent here."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from common.canonical import canonical, digest
from common.errors import BalanceError, ConflictError, ProtocolError, RefusedError
from common.model.fragment import Consent
from common.model.plan import RELEASE_ID, Plan, is_trial
from common.model.schema import Schema
from common.model.task import Assignment
from common.trust.signing import Domain, SignerSource
from owner_node.config import DatasetConfig
from owner_node.config.database import place_of
from owner_node.consent.judge import Accept, Refuse, Verdict, judge
from owner_node.consent.plan_rules import Request, check_texts
from owner_node.linking.tokens import ReleaseKey
from owner_node.release.appraisal import Appraisal
from owner_node.release.approvals import ACCEPTED, Approval
from owner_node.release.cases import Cases, read
from owner_node.sources import check_sendable, count_records, schema_of
from owner_node.state.database import Transaction
from owner_node.state.session import UNDECIDED, SessionEvent, SessionState
from owner_node.state.sessions import Session
from owner_node.trust import Trust

_MOST_NEW = 100
"""Most releases that one aggregator may begin within an hour, since the record of each is kept for ever."""
_HOUR = timedelta(hours=1)
LATEST_DEADLINE = 253_402_300_800
"""The first second after the year 9999, Unix time."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan as it came from the aggregator."""

    plan: bytes
    """Canonical JSON."""
    signature: bytes
    """Of the plan."""
    certificate: bytes
    """PEM chain of the aggregator."""
    deadline: int | None = None
    """Until when the aggregator waits for an answer, Unix seconds; None if it sets no deadline."""

    def __post_init__(self) -> None:
        # It is shown to a person as a date, so it must be within the calendar.
        if self.deadline is not None and not 0 <= self.deadline < LATEST_DEADLINE:
            raise ProtocolError("the deadline is not between the years 1970 and 9999")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A plan was accepted and its charge reserved."""

    key_check: str
    """Linkage key-check value; empty where the plan has no tokens."""
    key_generation: int
    """Generation of the linkage key; 0 where the plan has no tokens."""
    signature: bytes
    """Of the consent statement."""
    certificate: bytes
    """PEM chain of the signer."""


class Invitations:
    """Answers invitations and plans of one aggregator."""

    def __init__(
        self,
        cases: Cases,
        signer: SignerSource,
        trust: Trust,
        clock: Callable[[], datetime],
        appraisal: Appraisal,
    ) -> None:
        self._cases, self._signer, self._trust, self._clock = cases, signer, trust, clock
        self._appraisal = appraisal

    def describe(self, release: str, dataset_name: str) -> bytes:
        """Open a session and return the data set's schema as canonical JSON. Idempotent.

        Raises:
            UsageError: If there is no such data set.
            RefusedError: If the aggregator has too many releases open already, or begins too many.
            RefusedBeforeError: If this owner has refused the release without sending a schema.
            DataError: If its records cannot be counted.
            UnsendableSchemaError: If no message holds its schema.
        """
        if not RELEASE_ID.fullmatch(release):
            raise ProtocolError("the release id is malformed")
        if is_trial(release) and not self._cases.config.policy.allow_trials:
            raise RefusedError("policy.allow_trials: trials are not answered", "set allow_trials = true")
        dataset = self._cases.config.dataset(dataset_name)
        known = self._cases.records.sessions.get(self._cases.aggregator, release)
        if known is None:
            self._check_numbers()
        with self._cases.records.db.transaction() as tx:
            session = self._cases.records.sessions.open(tx, self._cases.aggregator, release, dataset.name)
            if known is None:
                self._cases.records.history.record(
                    tx, aggregator=self._cases.aggregator, release=release, event="invited",
                    details={"dataset": dataset.name},
                )  # fmt: skip
        return self._sent_schema(session)

    def _check_numbers(self) -> None:
        """Check the limits on open releases and on new releases per hour of this aggregator.

        Raises:
            RefusedError: If a limit is reached.
        """
        sessions, aggregator = self._cases.records.sessions, self._cases.aggregator
        most = self._cases.config.policy.max_open_releases
        if sessions.n_live(aggregator) >= most:
            raise RefusedError(
                f"policy.max_open_releases = {most}: {aggregator} has as many open already",
                "the aggregator has to end some of them first; owner-node status lists them",
                {"open": most},
            )
        if sessions.n_opened(aggregator, self._clock() - _HOUR) >= _MOST_NEW:
            raise RefusedError(
                f"limit of {_MOST_NEW} new releases of {aggregator} per hour reached",
                "the aggregator can begin others an hour later",
                {"begun": _MOST_NEW},
            )

    def consent(self, release: str, plan_digest: str, offer: Offer) -> Acceptance | None:
        """Accept a plan and reserve its charge, or wait for a person to decide.

        Returns:
            None while a person has to decide.

        Raises:
            RefusedError: If policy or balance do not allow it; nothing is reserved.
            RefusedBeforeError: If this owner, or a person there, has refused it.
            ConflictError: If the release has another plan here.
            ProtocolError: If the plan cannot be decoded, or is not for this release.
            IntegrityError: If its signature is invalid.
        """
        session = self._cases.open(release)
        plan, assignment = self._read_plan(session, plan_digest, offer)
        sessions, most = self._cases.records.sessions, assignment.epsilon_at(plan.most_multiples)
        with self._cases.records.db.transaction() as tx:
            session = sessions.learn(
                tx, session, plan_digest=plan_digest, plan_signature=offer.signature,
                aggregator_certificate=offer.certificate, purpose=plan.purpose, deadline=offer.deadline,
                epsilon=format(most, "f"),
            )  # fmt: skip
            sessions.keep_plan(tx, plan_digest, offer.plan)
        if session.state in UNDECIDED:
            # The linkage key is read once, because it may be replaced at any moment.
            key = self._cases.release_key(plan, session)
            if not self._decide(plan, assignment, session, key):
                return None
            session = self._cases.open(release, plan_digest)
        value, generation = session.key_check, session.key_generation
        own = self._cases.config.owner.id
        statement = Consent(release, own, plan_digest, value, "accept", generation)
        signer = self._signer.current_signer()
        signature = signer.sign(Domain.CONSENT, statement.to_bytes())
        return Acceptance(value, generation, signature, signer.chain_pem.encode())

    def decided(self, release: str) -> bool:
        """Whether a release no longer waits for a person: it was approved, refused, or has ended."""
        session = self._cases.records.sessions.get(self._cases.aggregator, release)
        waits = session is not None and session.state is SessionState.AWAITING_APPROVAL
        return session is None or not waits or bool(self._approvals(session))

    def _approvals(self, session: Session) -> tuple[Approval, ...]:
        """Return the approvals that hold, if as many persons have approved as the policy wants."""
        held = self._cases.records.approvals.held(session, self._cases.config.console.oidc)
        return held if len(held) >= self._cases.config.policy.approvers else ()

    def _decide(self, plan: Plan, assignment: Assignment, session: Session, key: ReleaseKey | None) -> bool:
        """Judge a plan now, and accept it if no person has to decide; return whether it was accepted.

        Raises:
            RefusedError: If policy or balance do not allow it.
        """
        records = self._cases.records
        verdict = self._judge(plan, assignment, session)
        if not isinstance(verdict, Refuse) or isinstance(verdict.error, BalanceError):
            # No person is asked about a budget whose total or source the ledger refuses. For a total that was
            # raised, this error is more informative than the balance.
            dataset = self._cases.config.dataset(session.dataset)
            records.ledger.check_budget(dataset.budget, dataset.total_epsilon, place_of(dataset))
        if isinstance(verdict, Refuse):
            raise verdict.error
        if verdict.asks and not self.decided(plan.release):
            with records.db.transaction() as tx:
                self._wait(tx, session, verdict)
            return False
        # Only a person learns about the data before linking: no answer depends on them.
        found = self._appraisal.appraise(session, plan, assignment, key) if verdict.asks else None
        waits = self._settle(plan, session, verdict, found, key)
        if waits:
            # A decision may take days. The data are loaded again afterwards, and must be the same.
            self._appraisal.forget(plan.release)
        return not waits

    def _settle(
        self,
        plan: Plan,
        session: Session,
        verdict: Accept,
        found: dict[str, Any] | None,
        key: ReleaseKey | None,
    ) -> bool:
        """Store what was found about the data, and accept or wait; return whether a person has to decide."""
        records = self._cases.records
        with records.db.transaction() as tx:
            # Read again: a person may have approved or refused in the meantime.
            session = self._cases.open(plan.release, plan.digest)
            # Data that could not be used have no digest: those that can be used now are others.
            asked = session.state is SessionState.AWAITING_APPROVAL
            others = found is not None and asked and session.source_digest != found["source_digest"]
            if found is not None:
                session = records.sessions.foresee(tx, session, **found)
            approvals = self._approvals(session) if verdict.asks else ()
            waits = bool(verdict.asks) and not approvals
            if waits:
                self._wait(tx, session, verdict, anew=others)
            else:
                self._reserve(tx, session, plan, verdict, approvals)
                records.sessions.advance(tx, session, SessionEvent.ACCEPT, **_agreed_with(key))
        return waits

    def _wait(self, tx: Transaction, session: Session, verdict: Accept, *, anew: bool = False) -> None:
        """Record, once each, that a person has to decide, and that an approval expired unused.

        `anew`: the data changed since the person was asked.
        """
        records, asked = self._cases.records, session.state is SessionState.AWAITING_APPROVAL and not anew
        rule = f"{verdict.asks}; the data changed while the release waited" if anew else verdict.asks
        records.sessions.advance(tx, session, SessionEvent.WAIT)
        expired = records.approvals.note_expired(tx, session)
        if not asked:
            records.history.record(
                tx, aggregator=session.aggregator, release=session.release, event="awaiting-approval",
                decision="ask", rule=rule, purpose=session.purpose,
                epsilon=format(verdict.epsilon, "f"), plan_digest=session.plan_digest,
                details={"charge": verdict.charge, "budget": verdict.budget, **_found(session)},
            )  # fmt: skip
        if expired or not asked:
            extra = {"release": session.release, "rule": rule, "expired": expired}
            _log.warning("a person has to decide: owner-node requests", extra=extra)

    def _sent_schema(self, session: Session) -> bytes:
        """Return the schema that is sent for a release.

        It is made once: a second schema would disclose whether the number of records has changed.
        """
        if session.schema is not None:
            return session.schema
        session = self._cases.open(session.release)
        dataset = self._cases.config.dataset(session.dataset)
        allowed = self._cases.config.admitted(dataset)
        n_records = count_records(dataset, allowed, self._cases.progress(session.release))
        found = self._schema(dataset, n_records)
        check_sendable(dataset.name, found)
        schema = canonical(found.to_document())
        with self._cases.records.db.transaction() as tx:
            # If another thread was faster, its schema stays.
            session = self._cases.records.sessions.learn(tx, session, schema=schema)
        return session.schema or schema

    def _schema(self, dataset: DatasetConfig, n_records: int) -> Schema:
        policy = self._cases.config.policy
        return schema_of(dataset, policy.attributes, n_records, policy.limits)

    def _read_plan(self, session: Session, plan_digest: str, offer: Offer) -> tuple[Plan, Assignment]:
        # What costs little comes first: anyone with a certificate can send plans of any size.
        most = self._cases.config.policy.max_plan_bytes
        if len(offer.plan) > most:
            raise RefusedError(
                f"policy.max_plan_bytes = {most}, the plan has {len(offer.plan)}",
                "ask for fewer owners or attributes, or for shorter lists of categories",
                {"release": session.release, "bytes": len(offer.plan), "rules": []},
            )
        if session.plan_digest not in ("", plan_digest):
            raise ConflictError(
                f"release {session.release!r} is known here with another plan",
                "a release id stands for one plan: start the other one under another id",
                {"release": session.release},
            )
        if digest(offer.plan) != plan_digest:
            raise ProtocolError("the message names another plan than the one that it carries")
        # The key that signed the plan may have been renewed while a person decided.
        known = session.plan_digest == plan_digest
        since = datetime.fromisoformat(session.created) if known else None
        self._trust.check(Domain.PLAN, offer.plan, offer.signature, offer.certificate, since)
        plan = read(Plan, offer.plan)
        if plan.release != session.release:
            raise ProtocolError("the message names another release than the plan that it carries")
        check_texts(plan)
        if self._cases.config.owner.id not in plan.owners:
            raise ProtocolError("the plan has no task for this owner")
        return plan, plan.assignment_of(self._cases.config.owner.id)

    def _judge(self, plan: Plan, assignment: Assignment, session: Session) -> Verdict:
        """Judge a plan by the configuration, the ledger and the schema that was sent, without the data."""
        config, dataset = self._cases.config, self._cases.config.dataset(session.dataset)
        sent = Schema.from_document(json.loads(self._sent_schema(session)))
        request = Request(
            plan=plan,
            assignment=assignment,
            owner_id=config.owner.id,
            aggregator_name=self._cases.aggregator,
            trust_domain=config.owner.trust_domain,
            policy=config.policy,
            dataset=dataset,
            schema=self._schema(dataset, sent.records_rounded),
            balance=self._cases.records.ledger.balance(dataset.budget, dataset.total_epsilon).remaining,
            today=self._clock().date(),
            rank_lost=self._cases.records.ledger.rank_losses(dataset.budget).bounded,
        )
        return judge(request)

    def _reserve(
        self, tx: Transaction, session: Session, plan: Plan, verdict: Accept, approvals: tuple[Approval, ...]
    ) -> None:
        dataset = self._cases.config.dataset(session.dataset)
        self._cases.records.ledger.reserve(
            tx,
            budget=verdict.budget,
            total_epsilon=dataset.total_epsilon,
            charge=verdict.charge,
            aggregator=self._cases.aggregator,
            release=plan.release,
            plan_digest=plan.digest,
            epsilon=verdict.epsilon,
            epsilon_joint=verdict.epsilon_joint,
            accounting=verdict.accounting,
            place=place_of(dataset),
            rank_loss=verdict.rank_loss,
            total_rank_loss=self._cases.config.policy.total_rank_loss,
        )
        by = {
            "approved_by": ", ".join(each.by for each in approvals),
            "approval": ", ".join(str(each.line) for each in approvals),
        }
        self._cases.records.history.record(
            tx, aggregator=self._cases.aggregator, release=plan.release, event=ACCEPTED, decision="accept",
            rule=verdict.asks or 'policy.approval = "auto"', purpose=plan.purpose,
            epsilon=format(verdict.epsilon, "f"), plan_digest=plan.digest,
            details={**_charged(verdict), **(by if approvals else {}), **_found(session)},
        )  # fmt: skip


def _charged(verdict: Accept) -> dict[str, Any]:
    """Return the charge of an acceptance, for the history."""
    return {"charge": verdict.charge, "budget": verdict.budget, "rank_loss": verdict.rank_loss}


def _agreed_with(key: ReleaseKey | None) -> dict[str, Any]:
    """Return the fields that a session stores about the key that it was accepted with."""
    if key is None:
        return {}
    return {"key_check": key.check, "key_generation": key.generation, "release_key": key.key}


def _found(session: Session) -> dict[str, Any]:
    """Return what was found about a session's data for the history, since a person decides by it."""
    if not session.forecast:
        return {}
    forecast = json.loads(session.forecast)
    return {"source": session.source_digest, "records": session.n_records, "forecast": forecast}
