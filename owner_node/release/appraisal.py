"""Appraisal before consent: load the source once, forecast the fragment, and apply the policy's limits.

Linking pins, and masking uses, the data that are loaded here. They stay in memory for a few releases only,
and not while a release waits for a person. Data that were dropped are loaded again, and must be the same.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from common.errors import DataChangedError, DataError, RefusedError, UnusableDataError
from common.model.plan import Plan
from common.model.task import Assignment
from owner_node.config.database import place_of
from owner_node.consent.policy_rules import forecast_objections, foresee, has_limits
from owner_node.linking.tokens import ReleaseKey
from owner_node.masking.foreseen import Forecast
from owner_node.release.attempts import discloses
from owner_node.release.cases import Cases
from owner_node.state.database import Transaction
from owner_node.state.session import UNSPENT, SessionState
from owner_node.state.sessions import Session

if TYPE_CHECKING:
    from owner_node.release.preparation import Prepared

MOST_KEPT = 2
"""Releases of one aggregator whose original data are kept in memory at a time."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Appraised:
    """What was found about the data of a release."""

    source_digest: str
    n_records: int
    """Exact number of records."""
    forecast: Forecast
    answered: bool
    """Whether continuing discloses data-dependent information."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields in the form that a session stores."""
        return {
            "source_digest": self.source_digest,
            "n_records": self.n_records,
            "forecast": self.forecast.to_text(),
            "answered": self.answered,
        }


class Appraisal:
    """Loads and examines the data of one aggregator's releases."""

    def __init__(self, cases: Cases) -> None:
        self._cases = cases
        self._kept: OrderedDict[str, tuple[str, Prepared]] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def holding_answer(self, session: Session) -> Iterator[None]:
        """Hold one uncharged answer while the data of a release are examined and the result is stored.

        Raises:
            RefusedError: If the limit of uncharged answers is reached.
        """
        cases = self._cases
        with cases.records.attempts.holding_answer(
            cases.config, self._budget(session), cases.aggregator, session.release
        ):
            yield

    def check_linking(self, session: Session) -> None:
        """Check, in the transaction that records linking, that exact numbers may be disclosed once more.

        Raises:
            RefusedError: If the limit of uncharged answers is reached.
        """
        cases = self._cases
        cases.records.attempts.check(cases.config, self._budget(session), cases.aggregator, session.release)

    def appraise(
        self,
        session: Session,
        plan: Plan,
        assignment: Assignment,
        key: ReleaseKey | None,
        *,
        for_person: bool = False,
    ) -> Appraised:
        """Load the data of an undecided release, and forecast the effect of masking them.

        The forecast is drawn once: the same data under the same plan get the stored one. Call this, and store
        its result, inside `holding_answer`.

        Args:
            session: The session.
            plan: Its plan.
            assignment: This owner's part of the plan.
            key: The key of the release's tokens, if it has any.
            for_person: Whether a person decides by the forecast.

        Raises:
            RefusedError: If the forecast exceeds a limit of the policy, or another budget was charged for
                these data; the answer is counted.
            UnusableDataError: If the source cannot be used or masked as planned; the answer is counted.
        """
        try:
            prepared = self._load(session, plan, assignment, key)
        except (DataError, UnusableDataError) as error:
            # The cause depends on the data and on the attributes that a plan names: one code for all causes.
            self._count(session, error.message)
            raise UnusableDataError(error.message, error.hint, error.details) from None
        self.check_charged(session, prepared)
        pinned = self._pinned(session, prepared)
        if session.forecast and session.source_digest == pinned:
            forecast = Forecast.from_text(session.forecast)
        else:
            forecast = self._foresee(prepared, for_person=for_person)
        if forecast_objections(forecast, self._cases.config.policy):
            # The plan that is refused is shown with its verdict.
            records = self._cases.records
            with records.db.transaction() as tx:
                records.sessions.foresee(
                    tx, session, source_digest=pinned, n_records=prepared.n_records,
                    forecast=forecast.to_text(), answered=session.answered,
                )  # fmt: skip
        self._judge(session, forecast)
        self._warn(session, forecast)
        answered = discloses(session, assignment, self._cases.config)
        return Appraised(pinned, prepared.n_records, forecast, answered)

    def prepared(self, session: Session, plan: Plan, assignment: Assignment) -> "Prepared":
        """Return the data that this owner consented with, pinned by the session's digest.

        Raises:
            DataChangedError: If the source changed since consent, or, before the charge is spent, cannot be
                used; the answer is counted then.
            DataError: If the source cannot be used now, and the charge is spent: it may be there again later.
        """
        key = self._cases.release_key(plan, session)
        try:
            prepared = self._load(session, plan, assignment, key)
        except (DataError, UnusableDataError) as error:
            if session.state is SessionState.SPENT:
                raise DataError(error.message, error.hint, error.details) from None
            self._count(session, error.message)
            raise DataChangedError(error.message, error.hint, error.details) from None
        pinned = self._pinned(session, prepared)
        if session.source_digest not in ("", pinned):
            self._count(session, "the source changed after this owner consented")
            raise DataChangedError(
                f"the source of data set {session.dataset!r} changed after this owner consented",
                "start the release again when the source no longer changes",
                {"pinned": session.source_digest, "found": pinned},
            )
        return replace(prepared, source_digest=pinned)

    def check_charged(self, session: Session, prepared: "Prepared") -> None:
        """Check, before anything is spent, that the loaded data were not charged to another budget.

        Raises:
            RefusedError: If they were; the answer is counted.
        """
        dataset = self._cases.config.dataset(session.dataset)
        try:
            self._cases.records.ledger.check_budget(
                dataset.budget, dataset.total_epsilon, place_of(dataset), prepared.known_by
            )
        except RefusedError as error:
            self._count(session, error.message)
            raise

    def check_selected(self, session: Session, prepared: "Prepared") -> None:
        """Check the policy's limits again where only some of the records are masked.

        Raises:
            RefusedError: If the forecast for these records exceeds a limit; nothing was spent.
        """
        if has_limits(self._cases.config.policy):
            self._judge(session, self._foresee(prepared))

    def forget(self, release: str) -> None:
        """Drop the original data of a release from memory."""
        with self._lock:
            found = self._kept.pop(release, None)
        if found is not None:
            found[1].pinned.close()

    def count_passed(self, session: Session, found: Appraised, what: str) -> None:
        """Count a refusal for another reason after the data passed: it discloses as much as an acceptance."""
        if found.answered:
            self._count(session, f"after its data were examined: {what}")

    def count_end(self, tx: Transaction, session: Session, end: str) -> None:
        """Count, once, a release that ends without a charge after it disclosed data-dependent information."""
        attempts = self._cases.records.attempts
        if session.state not in UNSPENT or not session.answered or attempts.is_noted(session):
            return
        after = "linking" if session.state is SessionState.LINKED else "its data were examined"
        attempts.note(tx, session, self._budget(session), f"the release ended after {after}: {end}")

    def _load(
        self, session: Session, plan: Plan, assignment: Assignment, key: ReleaseKey | None
    ) -> "Prepared":
        from owner_node.release.preparation import prepare

        check = "" if key is None else key.check
        with self._lock:
            made_with, found = self._kept.get(plan.release, ("", None))
        if found is not None and made_with == check:
            return found
        dataset = self._cases.config.dataset(session.dataset)
        source_key = self._cases.records.own_keys.source_key()
        engine = self._cases.config.engine.kind, self._cases.config.workspace
        release_key, progress = None if key is None else key.key, self._cases.progress(plan.release)
        prepared = prepare(dataset, plan, assignment, release_key, source_key, engine, progress)
        with self._lock:
            dropped = [self._kept.pop(plan.release)[1]] if plan.release in self._kept else []
            self._kept[plan.release] = (check, prepared)
            while len(self._kept) > MOST_KEPT:
                dropped.append(self._kept.popitem(last=False)[1][1])
        for each in dropped:
            each.pinned.close()
        return prepared

    def _pinned(self, session: Session, prepared: "Prepared") -> str:
        """Return the keyed digest that pins loaded data: it is stored, and copied to every audit sink.

        A session that an older version opened is pinned by the plain digest until its end.
        """
        if session.source_digest == prepared.source_digest:
            return session.source_digest
        return self._cases.records.own_keys.pin(prepared.source_digest)

    def _foresee(self, prepared: "Prepared", *, for_person: bool = False) -> Forecast:
        from owner_node.engines.sampling import sampled

        records, tasks = sampled(prepared.records, prepared.tasks)
        return foresee(records, tasks, self._cases.config.policy, for_person=for_person)

    def _judge(self, session: Session, forecast: Forecast) -> None:
        rules = forecast_objections(forecast, self._cases.config.policy)
        if not rules:
            return
        self._count(session, rules[0])
        raise RefusedError(
            rules[0],
            "nothing was spent; a smaller epsilon, a larger k, more rank noise or other attributes lower "
            "the expected share",
            {"release": session.release, "rule": rules[0], "rules": list(rules)},
        )

    def _warn(self, session: Session, forecast: Forecast) -> None:
        """Log the names of attributes no more accurate than their means; the history has the numbers."""
        extra = {"release": session.release, "attributes": list(forecast.no_better_than_means)}
        if forecast.worth_less_than_means:
            _log.warning("the fragment is expected to be worth less than its means", extra=extra)
        elif forecast.no_better_than_means:
            _log.warning("attributes are expected to be worth no more than their means", extra=extra)

    def _count(self, session: Session, what: str) -> None:
        """Drop the data and count an answer about them: once per release, and only while nothing is spent."""
        self.forget(session.release)
        attempts = self._cases.records.attempts
        if session.state in UNSPENT and not attempts.is_noted(session):
            with self._cases.records.db.transaction() as tx:
                attempts.note(tx, session, self._budget(session), what)

    def _budget(self, session: Session) -> str:
        return self._cases.config.dataset(session.dataset).budget
