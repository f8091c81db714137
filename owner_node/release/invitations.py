"""Invitations and plans: describe a data set, and accept or refuse a plan. Nothing is spent here."""

import json
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from common.canonical import canonical, digest
from common.errors import BalanceError, ConflictError, ProtocolError, RefusedError
from common.model.fragment import Consent
from common.model.plan import RELEASE_ID, Plan, is_trial
from common.model.schema import Schema
from common.trust.signing import Domain
from owner_node.config import DatasetConfig
from owner_node.consent.judge import Accept, Refuse, Verdict, judge
from owner_node.consent.plan_rules import Request, check_texts
from owner_node.linking import linkage_key
from owner_node.linking.tokens import ReleaseKey
from owner_node.loading import check_sendable, count_records, schema_of
from owner_node.release.approvals import ACCEPTED, Approval, appraisal_of
from owner_node.release.work import Owner, ReleaseWork, read
from owner_node.state.database import Transaction
from owner_node.state.session import UNDECIDED, SessionEvent, SessionState
from owner_node.state.sessions import Session

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

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

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
        owner, sessions = self._owner, self._owner.records.sessions
        if is_trial(release) and not owner.config.policy.allow_trials:
            raise RefusedError("policy.allow_trials: trials are not answered", "set allow_trials = true")
        dataset = owner.config.dataset(dataset_name)
        first = owner.work(release) is None
        if first:
            self._check_numbers()
        with owner.records.db.transaction() as tx:
            work = ReleaseWork(owner, sessions.open(tx, owner.aggregator, release, dataset.name))
            if first:
                work.note(tx, "invited", dataset=dataset.name)
        return self._sent_schema(work)

    def _check_numbers(self) -> None:
        """Check the limits on open releases and on new releases per hour of this aggregator."""
        sessions, aggregator = self._owner.records.sessions, self._owner.aggregator
        most = self._owner.config.policy.max_open_releases
        if sessions.n_live(aggregator) >= most:
            raise RefusedError(
                f"policy.max_open_releases = {most}: {aggregator} has as many open already",
                "the aggregator has to end some of them first; owner-node status lists them",
                {"open": most},
            )
        if sessions.n_opened(aggregator, self._owner.clock() - _HOUR) >= _MOST_NEW:
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
        work = self._owner.open(release)
        plan = self._read_plan(work.session, plan_digest, offer)
        work = ReleaseWork(self._owner, work.session, plan)
        with work.transaction() as tx:
            work.update(
                tx, plan_digest=plan_digest, plan_signature=offer.signature,
                aggregator_certificate=offer.certificate, purpose=plan.purpose, deadline=offer.deadline,
                epsilon=format(work.assignment.epsilon_at(plan.most_multiples), "f"),
            )  # fmt: skip
            self._owner.records.sessions.keep_plan(tx, plan_digest, offer.plan)
        if work.session.state in UNDECIDED:
            # The linkage key is read once, because it may be replaced at any moment.
            if not self._decide(work, work.release_key()):
                return None
            work.reopen()
        value, generation = work.session.key_check, work.session.key_generation
        statement = Consent.accepting(plan, self._owner.id, value, generation)
        signer = self._owner.signer.current_signer()
        signature = signer.sign(Domain.CONSENT, statement.to_bytes())
        return Acceptance(value, generation, signature, signer.chain_pem.encode())

    def decided(self, release: str) -> bool:
        """Whether a release no longer waits for a person: it was approved, refused, or has ended."""
        work = self._owner.work(release)
        waits = work is not None and work.session.state is SessionState.AWAITING_APPROVAL
        return work is None or not waits or bool(self._approvals(work))

    def _approvals(self, work: ReleaseWork) -> tuple[Approval, ...]:
        """Return the approvals that hold, if as many persons have approved as the policy wants."""
        config = self._owner.config
        held = self._owner.records.approvals.held(work.session, config.console.oidc)
        return held if len(held) >= config.policy.approvers else ()

    def _decide(self, work: ReleaseWork, key: ReleaseKey | None) -> bool:
        """Judge a plan now, and accept it if no person has to decide; return whether it was accepted."""
        release, verdict = work.plan.release, self._judge(work)
        if not isinstance(verdict, Refuse) or isinstance(verdict.error, BalanceError):
            # No person is asked about a budget whose total or source the ledger refuses. For a total that was
            # raised, this error is more informative than the balance.
            work.check_budget()
        if isinstance(verdict, Refuse):
            raise verdict.error
        if verdict.asks and not self.decided(release):
            with work.transaction() as tx:
                self._wait(tx, work, verdict)
            return False
        with work.transaction() as tx:
            work.reopen()  # a person may have approved or refused in the meantime
            approvals = self._approvals(work) if verdict.asks else ()
            accepts = not verdict.asks or bool(approvals)
            if accepts:
                self._accept(tx, work, verdict, approvals, key)
            else:
                self._wait(tx, work, verdict)
        return accepts

    def _wait(self, tx: Transaction, work: ReleaseWork, verdict: Accept) -> None:
        """Record, once each, that a person has to decide, and that an approval expired unused."""
        asked, rule = work.session.state is SessionState.AWAITING_APPROVAL, verdict.asks
        work.advance(tx, SessionEvent.WAIT)
        expired = self._owner.records.approvals.note_expired(tx, work.session)
        if not asked:
            work.note(
                tx, "awaiting-approval", decision="ask", rule=rule, epsilon=format(verdict.epsilon, "f"),
                charge=verdict.charge, budget=verdict.budget,
            )  # fmt: skip
        if expired or not asked:
            extra = {"release": work.session.release, "rule": rule, "expired": expired}
            _log.warning("a person has to decide: owner-node requests", extra=extra)

    def _accept(
        self,
        tx: Transaction,
        work: ReleaseWork,
        verdict: Accept,
        approvals: tuple[Approval, ...],
        key: ReleaseKey | None,
    ) -> None:
        """Reserve the charge, and record who or what accepted the plan."""
        work.reserve(tx, verdict, self._owner.config.policy)
        by: dict[str, Any] = {}
        if approvals:
            by["approved_by"] = ", ".join(approval.by for approval in approvals)
            by["approval"] = ", ".join(str(approval.line) for approval in approvals)
        work.note(
            tx, ACCEPTED, decision="accept", rule=verdict.asks or 'policy.approval = "auto"',
            epsilon=format(verdict.epsilon, "f"), charge=verdict.charge, budget=verdict.budget,
            rank_loss=verdict.rank_loss, **({"delta": verdict.delta} if verdict.delta else {}), **by,
            **appraisal_of(work.session),
        )  # fmt: skip
        agreed: dict[str, Any] = {}
        if key is not None:
            agreed = {"key_check": key.check, "key_generation": key.generation, "release_key": key.key}
        work.advance(tx, SessionEvent.ACCEPT, **agreed)

    def _sent_schema(self, work: ReleaseWork) -> bytes:
        """Return the schema that is sent for a release.

        It is made once: a second schema would disclose whether the number of records has changed.
        """
        sent = work.session.schema
        if sent is not None:
            return sent
        work.reopen()
        dataset = work.dataset
        n_records = count_records(dataset, self._owner.config.admitted(dataset), work.progress)
        described = self._schema(dataset, n_records)
        check_sendable(dataset.name, described)
        schema = canonical(described.to_document())
        with work.transaction() as tx:
            # If another thread was faster, its schema stays.
            work.update(tx, schema=schema)
        return work.session.schema or schema

    def _schema(self, dataset: DatasetConfig, n_records: int) -> Schema:
        policy, state_dir = self._owner.config.policy, self._owner.config.owner.state_dir
        if dataset.identifier or dataset.match:
            limits = replace(policy.limits, linkage_key=linkage_key.exists(state_dir))
        else:
            # Nothing can be linked, and an aggregator of version 0.1 does not know the limit.
            limits = replace(policy.limits, allow_intersect=True)
        return schema_of(dataset, policy.attributes, n_records, limits)

    def _read_plan(self, session: Session, plan_digest: str, offer: Offer) -> Plan:
        # What costs little comes first: anyone with a certificate can send plans of any size.
        most = self._owner.config.policy.max_plan_bytes
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
        self._owner.trust.check(Domain.PLAN, offer.plan, offer.signature, offer.certificate, since)
        plan = read(Plan, offer.plan)
        if plan.release != session.release:
            raise ProtocolError("the message names another release than the plan that it carries")
        check_texts(plan)
        if self._owner.id not in plan.owners:
            raise ProtocolError("the plan has no task for this owner")
        return plan

    def _judge(self, work: ReleaseWork) -> Verdict:
        """Judge a plan by the configuration, the ledger and the schema that was sent, without the data."""
        config, dataset, ledger = self._owner.config, work.dataset, self._owner.records.ledger
        sent = Schema.from_document(json.loads(self._sent_schema(work)))
        request = Request(
            plan=work.plan,
            assignment=work.assignment,
            owner_id=self._owner.id,
            aggregator_name=self._owner.aggregator,
            trust_domain=config.owner.trust_domain,
            policy=config.policy,
            dataset=dataset,
            schema=self._schema(dataset, sent.records_rounded),
            balance=ledger.balance(dataset.budget, dataset.total_epsilon).remaining,
            today=self._owner.clock().date(),
            rank_lost=ledger.rank_losses(dataset.budget).bounded,
            delta_spent=ledger.deltas(dataset.budget),
        )
        return judge(request)
