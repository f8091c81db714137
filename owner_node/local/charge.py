"""Charges of work without an aggregator: masking a data set for its owner, answering a query.

Such work has an id, as a release has, and a document of all its arguments; its digest takes the place of a
plan's digest in the ledger. One transaction reserves and spends the charge before noise is drawn, another
records the result. If a process dies between the two, the next one draws again under the same charge, since
nothing was delivered. A recorded result is the permanent answer to its id.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from common.canonical import canonical, document_digest
from common.errors import BalanceError, ConflictError, InternalError, RefusedError
from common.progress import Progress
from owner_node.consent.judge import check_forecast, check_local
from owner_node.consent.plan_rules import JudgedWork
from owner_node.masking.foreseen import Forecast
from owner_node.release.approvals import Person
from owner_node.release.records import Records
from owner_node.state.database import Clock
from owner_node.state.history import Line

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig, OwnerConfig
    from owner_node.engines.pinned import PinnedData

LOCAL = "(local)"
"""Takes the place of an aggregator's name; no aggregator can have it (`common.trust.identity.is_name`)."""
_DATA = "data"
"""Key of the document's entry that identifies the data."""


class Standing(Enum):
    """State of local work."""

    NEW = auto()
    """Nothing was charged."""
    SPENT = auto()
    """Charged, but nothing delivered: noise may be drawn, again if necessary."""
    DELIVERED = auto()
    """The result is recorded."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """A mask or a query, and what it costs."""

    id: str
    """Unique among the local work of an owner."""
    document: Mapping[str, Any]
    """All its arguments; canonical, without values of records. When the work is charged, an entry that
    identifies its data is added; the digest of both identifies the work in the ledger."""
    asked: JudgedWork
    """The work as the policy judges it and the ledger charges it."""
    data: "PinnedData" = field(repr=False, compare=False)
    """The data, loaded under the owner's source key, with digests of all declared columns, whichever the work
    uses: so a copy of the data, or another name for them, is recognised and charged to the same budget."""
    product: str = ""
    """What it makes, as `policy.products` names it; empty for an answer to a question."""
    place: str = ""
    """Location of the source (`config.database.place_of`); empty for data passed in memory."""

    @property
    def budget(self) -> str:
        """Name of the budget."""
        return self.asked.dataset.budget

    @property
    def charge(self) -> Decimal:
        """The charge to the ledger.

        Raises:
            InternalError: If the accounting has no bound for the work, which no policy allows.
        """
        if self.asked.charge is None:
            raise InternalError("work without a charge passed the policy")
        return self.asked.charge


def new_id(kind: str, clock: Clock) -> str:
    """Make an id for work without one: its kind, the time, and a random suffix."""
    return f"{kind}-{clock():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def load_to_charge(
    owner: "OwnerConfig",
    dataset: "DatasetConfig",
    attributes: Sequence[str] | None,
    records: Records,
    progress: Progress | None = None,
) -> "PinnedData":
    """Load a data set for local work, in the engine that releases of it have.

    Args:
        owner: The configuration.
        dataset: The data set.
        attributes: Names of the attributes to load; None for all declared ones.
        records: The owner's state, with the key of the digests that recognise the data.
        progress: Shows how far that is, and later what works on the records.

    Raises:
        TesseraError, OSError: As `owner_node.engines.pinned.pin` says.
    """
    from owner_node.engines.pinned import pin

    key, progress = records.own_keys.source_key(), progress or Progress()
    progress.begin("loading")
    return pin(dataset, attributes, owner.engine.kind, owner.workspace, source_key=key, progress=progress)


class LocalCharges:
    """Charges local work to the owner's ledger."""

    def __init__(self, records: Records, person: Person) -> None:
        self._records, self._person = records, person

    def judge(self, work: LocalWork, foresee: Callable[[], Forecast] | None = None) -> None:
        """Check the policy, the budget and its balance, before a person is asked; record a refusal.

        Args:
            work: The planned work.
            foresee: Computes its forecast; called only if the policy limits it.

        Raises:
            RefusedError: With every violated rule; or if the budget's total grew, or the data were charged to
                another budget.
            BalanceError: If the balance is too small.
            IntegrityError: If the ledger is known to lack entries.
        """
        ledger, asked = self._records.ledger, work.asked
        try:
            check_local(replace(asked, rank_lost=ledger.rank_losses(work.budget).bounded), work.product)
            ledger.losses.check_running()
            total = asked.dataset.total_epsilon
            ledger.check_budget(work.budget, total, work.place, work.data.known_by)
            if work.charge > (left := self.remaining(work)):
                raise BalanceError(work.budget, format(work.charge, "f"), format(left, "f"))
            if foresee is not None and asked.policy.limits_on_data:
                check_forecast(foresee(), asked.policy)
        except RefusedError as refusal:
            self._note_refusal(work, refusal)
            raise

    def remaining(self, work: LocalWork) -> Decimal:
        """Return the balance of the work's budget."""
        return self._records.ledger.balance(work.budget, work.asked.dataset.total_epsilon).remaining

    def standing(self, work: LocalWork) -> Standing:
        """Return the state of the work.

        Raises:
            ConflictError: If its id was used for other arguments or other data.
        """
        lines = self._lines(work.id)
        self._check_same(work, lines)
        if "delivered" in lines:
            return Standing.DELIVERED
        return Standing.SPENT if "spent" in lines else Standing.NEW

    def result(self, work: LocalWork) -> Mapping[str, Any]:
        """Return the recorded result of delivered work; all its numbers are texts."""
        recorded: Mapping[str, Any] = self._lines(work.id)["delivered"].details["result"]
        return recorded

    def spend(self, work: LocalWork) -> None:
        """Reserve and spend the charge; idempotent. Noise may be drawn afterwards.

        Raises:
            BalanceError: If the balance is too small.
            RefusedError: If the budget's total grew, or the data were charged to another budget.
            IntegrityError: If the ledger is known to lack entries.
            ConflictError: If its id was used for other arguments or other data.
        """
        charge, digest = work.charge, self._digest(work)
        asked, most = work.asked, work.asked.most
        with self._records.db.transaction() as tx:
            lines = self._lines(work.id)
            self._check_same(work, lines)
            self._records.ledger.check_may_charge(tx)
            if "spent" in lines:
                return
            self._records.ledger.reserve(
                tx, budget=work.budget, total_epsilon=asked.dataset.total_epsilon, charge=charge,
                aggregator=LOCAL, release=work.id, plan_digest=digest, epsilon=most.epsilon,
                epsilon_joint=most.epsilon_joint, accounting=asked.policy.accounting, place=work.place,
                rank_loss=most.rank_loss, total_rank_loss=asked.policy.total_rank_loss,
            )  # fmt: skip
            self._records.ledger.spend(tx, LOCAL, work.id, digest, work.data.known_by)
            details = {"asked": self._document(work), **self._person.to_document()}
            self._note(tx, work, "spent", digest, decision="accept", details=details)

    def deliver(self, work: LocalWork, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record the result, unless another process has recorded one already.

        Args:
            work: The work; its charge is spent.
            result: The part of the result to keep permanently; without values of records.

        Returns:
            The recorded result; all its numbers are texts.
        """
        digest = self._digest(work)
        with self._records.db.transaction() as tx:
            if "delivered" not in self._lines(work.id):
                self._note(tx, work, "delivered", digest, details={"result": dict(result)})
        return self.result(work)

    def _note_refusal(self, work: LocalWork, error: RefusedError) -> None:
        # Before the transaction, since this may create the key.
        digest, by = self._digest(work), self._person.to_document()
        with self._records.db.transaction() as tx:
            self._note(tx, work, "refused", digest, decision="refuse", rule=error.message, details=by)

    def _document(self, work: LocalWork) -> dict[str, Any]:
        """Return the document of work and data; about the data it shows only whether other data are equal."""
        return {**work.document, _DATA: self._records.own_keys.pin(work.data.digest)}

    def _digest(self, work: LocalWork) -> str:
        return document_digest(self._document(work))

    def _note(self, tx: Any, work: LocalWork, event: str, digest: str, **fields: Any) -> None:
        self._records.history.record(
            tx, aggregator=LOCAL, release=work.id, event=event, epsilon=format(work.asked.most.epsilon, "f"),
            plan_digest=digest, **fields,
        )  # fmt: skip

    def _lines(self, work_id: str) -> dict[str, Line]:
        lines = self._records.history.entries(aggregator=LOCAL, release=work_id)
        return {line.event: line for line in lines if line.event != "refused"}

    def _check_same(self, work: LocalWork, lines: Mapping[str, Line]) -> None:
        spent = lines.get("spent")
        if spent is None or spent.plan_digest == self._digest(work):
            return
        before, now = spent.details.get("asked", {}), json.loads(canonical(self._document(work)))
        differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if "epsilon" in differing and _chosen(before) == _chosen(now):
            # The share of every attribute follows from ε; the chosen attributes are the same.
            differing = [key for key in differing if key != "attributes"]
        what = "other data" if differing == [_DATA] else f"other arguments ({', '.join(differing)})"
        raise ConflictError(
            f"{work.id!r} was charged for {what}",
            "an id belongs to one result: leave --id out, or give another id; that is a new charge",
            {"id": work.id, "differs": differing},
        )


def _chosen(document: Mapping[str, Any]) -> list[tuple[object, object]]:
    """Return the arguments about attributes that a person chose, independent of ε."""
    found = document.get("attributes", ())
    return [(each["name"], each.get("rank_noise")) for each in found]
