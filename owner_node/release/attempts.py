"""Limit on answers that disclose data-dependent information without a charge.

Some answers depend on the data, and no epsilon covers them: whether the forecast of a fragment exceeds a
limit of the policy, whether there are too few records, and the result of linking. Each discloses little, but
many could be combined. So they are counted, and only a few are given per budget and period: releases that
ended without a charge are counted from the history, releases that may still end so from the sessions. The
limit holds over all aggregators, since they could combine what they learn. Each has a share of it and uses at
most half of that within a day, so that no aggregator can use up the answers of another one.

A session also discloses something by continuing. That a plan is accepted, or that a person is asked about it,
shows that no check of the data objected: the limits on unchanged values are not exceeded, there are as many
records as clusters need, and no more than a joint bound was planned for. Linking discloses exact numbers.
Once the charge is spent, it covers the release.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Condition
from typing import Any

from common.errors import RefusedError
from common.model.schema import Schema
from common.model.task import Assignment
from owner_node.config import OwnerConfig
from owner_node.consent.policy_rules import has_limits
from owner_node.release.approvals import Person
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import History
from owner_node.state.session import UNSPENT
from owner_node.state.sessions import Session, Sessions

EVENT = "attempt"
RESET = "attempts-reset"
MOST = 10
"""Limit of uncharged answers for one budget within `PERIOD`, over all aggregators."""
PERIOD = timedelta(days=30)
_DAY = timedelta(days=1)


def discloses(session: Session, assignment: Assignment, config: OwnerConfig) -> bool:
    """Whether continuing after an appraisal of the data discloses data-dependent information.

    Args:
        session: The session; its schema was sent.
        assignment: This owner's share of the plan.
        config: The owner's configuration. If its policy has limits, an acceptance depends on the data.
    """
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


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one aggregator may still learn about the data of one budget without a charge."""

    budget: str
    aggregator: str
    used: int
    """Answers that count now, those of open releases included."""
    limit: int
    """Answers that this aggregator may have within `PERIOD`."""
    next: datetime | None
    """When the next answer is possible, if none is now."""
    blocked: bool
    """Whether none is possible now. Without a time for the next one, open releases have to end first."""

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
        """Return the fields for `--json`; `next` is None if an answer is possible now."""
        following = None if self.next is None else self.next.isoformat()
        names = {"budget": self.budget, "aggregator": self.aggregator}
        return {**names, "used": self.used, "limit": self.limit, "next": following, "blocked": self.blocked}


@dataclass(frozen=True, slots=True)
class _Answer:
    """An uncharged answer that counts."""

    aggregator: str
    time: datetime
    open: bool
    """Whether its release is open: then it counts until the release ends or is charged."""

    def counts(self, now: datetime, period: timedelta) -> bool:
        """Whether it is within a period; lines in the future (a clock set back) count as well."""
        return self.time > now - period


class Attempts:
    """Counts the answers that no charge covers; one object serves all threads of a daemon."""

    def __init__(self, history: History, sessions: Sessions, clock: Clock) -> None:
        self._history, self._sessions, self._clock = history, sessions, clock
        self._held: Counter[tuple[str, str]] = Counter()
        self._done = Condition()

    @contextmanager
    def holding_answer(
        self, config: OwnerConfig, budget: str, aggregator: str, besides: str = ""
    ) -> Iterator[None]:
        """Hold one of the answers that are left while the data of a budget are examined.

        Any examination may end in an answer that counts. Where as many are under way as answers are left,
        further ones wait for them.

        Args:
            config: The owner's configuration: its aggregators share the limit.
            budget: Name of the data set's budget; data sets that share a budget are counted together.
            aggregator: Name of the aggregator.
            besides: The current release, which is not counted.

        Raises:
            RefusedError: If the limit is reached.
        """
        key = (budget, aggregator)
        with self._done:
            while not self._has_room(self.check(config, budget, aggregator, besides), config, key):
                self._done.wait()
            self._held[key] += 1
        try:
            yield
        finally:
            with self._done:
                self._held[key] -= 1
                self._done.notify_all()

    def _has_room(self, known: list[_Answer], config: OwnerConfig, key: tuple[str, str]) -> bool:
        now, (budget, own) = self._clock(), key
        busy = [
            _Answer(aggregator, now, open=True)
            for (of, aggregator), number in self._held.items()
            if of == budget
            for _ in range(number)
        ]
        return _possible([*known, *busy], own, share(config), now)

    def check(self, config: OwnerConfig, budget: str, aggregator: str, besides: str = "") -> list[_Answer]:
        """Return the answers that count, if another one is possible.

        Args:
            config: As in `holding_answer`.
            budget: As in `holding_answer`.
            aggregator: Name of the aggregator.
            besides: As in `holding_answer`.

        Raises:
            RefusedError: If the limit is reached.
        """
        answers = self._answers(config, budget, (aggregator, besides))
        if _possible(answers, aggregator, share(config), self._clock()):
            return answers
        found = self._allowance(answers, config, budget, aggregator)
        n_open = sum(each.open for each in answers if each.aggregator == aggregator)
        more = f"; {n_open} of its releases are open and had one without a charge yet" if n_open else ""
        rule = f"attempts: limit of uncharged answers about the data reached: {found}{more}"
        raise RefusedError(
            rule,
            "owner-node history lists them: find out who asks so often; wait, or allow as many again: "
            f"owner-node ledger reset-attempts {budget!r} --reason TEXT",
            {"rule": rule, "rules": [rule], **found.to_document(), "open": n_open},
        )

    def allowances(self, config: OwnerConfig, budgets: Iterable[str] | None = None) -> tuple[Allowance, ...]:
        """Return what is left to each configured aggregator of each budget (by default all), in order."""
        wanted = dict.fromkeys(each.budget for each in config.datasets) if budgets is None else budgets
        return tuple(
            self._allowance(answers, config, budget, aggregator.name)
            for budget in wanted
            for answers in [self._answers(config, budget)]
            for aggregator in config.aggregators
        )

    def _allowance(
        self, answers: list[_Answer], config: OwnerConfig, budget: str, aggregator: str
    ) -> Allowance:
        most, now = share(config), self._clock()
        used = sum(_counts(each, now) for each in answers if each.aggregator == aggregator)
        blocked = not _possible(answers, aggregator, most, now)
        ends = sorted(each.time + period for each in answers for period in (_DAY, PERIOD))
        later = (end for end in ends if end > now and _possible(answers, aggregator, most, end))
        return Allowance(budget, aggregator, used, most, next(later, None) if blocked else None, blocked)

    def _answers(
        self, config: OwnerConfig, budget: str, besides: tuple[str, str] = ("", "")
    ) -> list[_Answer]:
        """Return the answers since the last reset, with those of open releases and of refusals by people."""
        resets = [each for each in self._history.entries(event=RESET) if each.details.get("budget") == budget]
        since = resets[-1].sequence if resets else 0
        noted = [
            _Answer(each.aggregator, datetime.fromisoformat(each.time), open=False)
            for each in self._history.entries(event=EVENT)
            if each.details.get("budget") == budget and each.sequence > since
        ]
        datasets = [each.name for each in config.datasets if each.budget == budget]
        for session in self._sessions.uncharged(datasets):
            if (session.aggregator, session.release) == besides:
                continue
            if session.state in UNSPENT:
                noted.append(_Answer(session.aggregator, datetime.fromisoformat(session.created), open=True))
            elif self._refused_at(session) > since:
                # A person ended it, without the daemon.
                noted.append(_Answer(session.aggregator, datetime.fromisoformat(session.updated), open=False))
        return noted

    def _refused_at(self, session: Session) -> int:
        lines = self._history.entries(session.aggregator, session.release, "refused")
        return lines[-1].sequence if lines else 0

    def note(self, tx: Transaction, session: Session, budget: str, what: str) -> None:
        """Count an answer."""
        self._history.record(
            tx, aggregator=session.aggregator, release=session.release, event=EVENT, rule=what,
            purpose=session.purpose, plan_digest=session.plan_digest,
            details={"budget": budget, "dataset": session.dataset},
        )  # fmt: skip

    def is_noted(self, session: Session) -> bool:
        """Whether an answer of a release was counted already."""
        return bool(self._history.entries(session.aggregator, session.release, EVENT))

    def reset(self, tx: Transaction, budget: str, person: Person, reason: str) -> None:
        """Record a person's decision that earlier answers no longer count; open releases still do."""
        self._history.record(
            tx, aggregator="", release="", event=RESET, decision="accept", rule=reason,
            details={"budget": budget, **person.to_document()},
        )  # fmt: skip


def share(config: OwnerConfig) -> int:
    """Return how many uncharged answers each configured aggregator may have of one budget."""
    return max(MOST // max(len(config.aggregators), 1), 1)


def _counts(answer: _Answer, now: datetime) -> bool:
    return answer.open or answer.counts(now, PERIOD)


def _possible(answers: Iterable[_Answer], aggregator: str, most: int, now: datetime) -> bool:
    """Whether an aggregator may have another answer: within its share, half a share a day, and the limit."""
    counted = [each for each in answers if _counts(each, now)]
    own = [each for each in counted if each.aggregator == aggregator]
    today = sum(each.counts(now, _DAY) for each in own)
    return len(counted) < MOST and len(own) < most and today < (most + 1) // 2
