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
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any

from common.canonical import canonical, document_digest
from common.errors import BalanceError, ConflictError, RefusedError
from common.model.products import Product
from common.model.schema import Schema
from common.progress import Progress
from owner_node.consent.data_limits import check_forecast
from owner_node.consent.judge import Accept, check_local
from owner_node.consent.plan_rules import JudgedWork
from owner_node.masking.foreseen import Forecast
from owner_node.release.approvals import Person
from owner_node.release.decisions import this_person
from owner_node.release.records import Records
from owner_node.release.work import Work
from owner_node.state.database import Clock, Transaction
from owner_node.state.history import Line

if TYPE_CHECKING:
    from owner_node.config import DatasetConfig, OwnerConfig, PolicyConfig
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


@dataclass(frozen=True, slots=True, repr=False)
class LocalData:
    """Loaded data of an owner's own work, and all that the work is judged and charged by."""

    dataset: "DatasetConfig"
    pinned: "PinnedData"
    schema: Schema
    """Its attributes that the work uses, in the order of the result."""
    records: Records
    """The owner's state."""
    policy: "PolicyConfig"
    """Determines the charge; `LocalWork.judge` applies it."""
    now: datetime
    place: str = ""
    """Location of the source (`Source.place`); empty for data passed in memory."""


@dataclass(frozen=True)
class LocalWork(Work):
    """A mask or a query, and what it costs."""

    records: Records = field(repr=False, compare=False)
    """The owner's state."""
    id: str
    """Unique among the local work of an owner."""
    document: Mapping[str, Any]
    """All its arguments; canonical, without values of records. Its digest, with an entry that identifies the
    data, identifies the work in the ledger."""
    asked: JudgedWork
    """The work as the policy judges it and the ledger charges it."""
    data: "PinnedData" = field(repr=False, compare=False)
    """The data, loaded under the owner's source key, with digests of all declared columns, whichever the work
    uses: so a copy of the data, or another name for them, is recognised and charged to the same budget."""
    product: Product | None = None
    """What it makes; None for an answer to a question."""
    at: str = ""
    """Location of the source (`Source.place`); empty for data passed in memory."""
    person: Person = field(default_factory=this_person)
    """The person who asks for it."""

    @property
    def dataset(self) -> "DatasetConfig":
        """Settings of its data set."""
        return self.asked.dataset

    @property
    def place(self) -> str:
        """Location of the source."""
        return self.at

    @cached_property
    def full_document(self) -> dict[str, Any]:
        """The document of work and data; about the data it shows only whether other data are equal."""
        return {**self.document, _DATA: self.records.own_keys.pin(self.data.digest)}

    @cached_property
    def key(self) -> tuple[str, str, str]:
        """What it is charged and recorded under."""
        return LOCAL, self.id, document_digest(self.full_document)

    @property
    def budget(self) -> str:
        """Name of the budget."""
        return self.dataset.budget

    @property
    def charge(self) -> Decimal:
        """The charge to the ledger."""
        return Accept.of(self.asked).charge

    def remaining(self) -> Decimal:
        """Return the balance of the budget."""
        return self.records.ledger.balance(self.budget, self.dataset.total_epsilon).remaining

    def standing(self) -> Standing:
        """Return the state of the work.

        Raises:
            ConflictError: If its id was used for other arguments or other data.
        """
        lines = self._lines()
        if "delivered" in lines:
            return Standing.DELIVERED
        return Standing.SPENT if "spent" in lines else Standing.NEW

    def result(self) -> Mapping[str, Any]:
        """Return the recorded result of delivered work; all its numbers are texts."""
        recorded: Mapping[str, Any] = self._lines()["delivered"].details["result"]
        return recorded

    def judge(self, foresee: Callable[[], Forecast] | None = None) -> None:
        """Check the policy, the budget and its balance, before a person is asked; record a refusal.

        Args:
            foresee: Computes the forecast; called only if the policy limits it.

        Raises:
            RefusedError: With every violated rule; or if the budget's total grew, or the data were charged to
                another budget.
            BalanceError: If the balance is too small.
            IntegrityError: If the ledger is known to lack entries.
        """
        ledger, policy = self.records.ledger, self.asked.policy
        try:
            lost, had = ledger.rank_losses(self.budget).bounded, ledger.deltas(self.budget)
            check_local(replace(self.asked, rank_lost=lost, delta_spent=had), self.product)
            ledger.losses.check_running()
            self.check_budget(self.data.known_by)
            if self.charge > self.remaining():
                raise BalanceError(self.budget, format(self.charge, "f"), format(self.remaining(), "f"))
            if foresee is not None and policy.limits_on_data:
                check_forecast(foresee(), policy)
        except RefusedError as refusal:
            by, _ = self.person.to_document(), self.key  # which may have to be made, outside a transaction
            with self.transaction() as tx:
                self._note(tx, "refused", decision="refuse", rule=refusal.message, **by)
            raise

    def pay(self) -> None:
        """Reserve and spend the charge; idempotent. Noise may be drawn afterwards.

        Raises:
            BalanceError: If the balance is too small.
            RefusedError: If the budget's total grew, or the data were charged to another budget.
            IntegrityError: If the ledger is known to lack entries.
            ConflictError: If its id was used for other arguments or other data.
        """
        terms, asked = Accept.of(self.asked), {"asked": self.full_document, **self.person.to_document()}
        if left_out := self.data.counts.left_out:
            asked["left_out"] = left_out
        with self.transaction() as tx:
            lines = self._lines()
            self.records.ledger.check_may_charge(tx)
            if "spent" not in lines:
                self.reserve(tx, terms, self.asked.policy)
                self.spend(tx, self.data.known_by)
                self._note(tx, "spent", decision="accept", **asked)

    def deliver(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record the result, unless another process has recorded one already; the charge is spent.

        Args:
            result: The part of the result to keep permanently; without values of records.

        Returns:
            The recorded result; all its numbers are texts.
        """
        with self.transaction() as tx:
            if "delivered" not in self._lines():
                self._note(tx, "delivered", result=dict(result))
        return self.result()

    def _note(self, tx: Transaction, event: str, **fields: Any) -> None:
        self.note(tx, event, epsilon=format(self.asked.most.epsilon, "f"), **fields)

    def _lines(self) -> dict[str, Line]:
        """Return its lines of the history by event, but for refusals."""
        entries = self.records.history.entries(aggregator=LOCAL, release=self.id)
        lines = {line.event: line for line in entries if line.event != "refused"}
        spent = lines.get("spent")
        if spent is None or spent.plan_digest == self.key[2]:
            return lines
        before, now = spent.details.get("asked", {}), json.loads(canonical(self.full_document))
        differing = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if "epsilon" in differing and _chosen(before) == _chosen(now):
            # The share of every attribute follows from ε; the chosen attributes are the same.
            differing = [key for key in differing if key != "attributes"]
        what = "other data" if differing == [_DATA] else f"other arguments ({', '.join(differing)})"
        raise ConflictError(
            f"{self.id!r} was charged for {what}",
            "an id belongs to one result: leave --id out, or give another id; that is a new charge",
            {"id": self.id, "differs": differing},
        )


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
        attributes: Names of the attributes to load; None for all declared ones.
        progress: Shows how far that is, and later what works on the records.

    Raises:
        TesseraError, OSError: As `owner_node.engines.pinned.pin` says.
    """
    from owner_node.engines.pinned import pin

    key, progress = records.own_keys.source_key(), progress or Progress()
    progress.begin("loading")
    return pin(dataset, attributes, owner.engine.kind, owner.workspace, source_key=key, progress=progress)


def _chosen(document: Mapping[str, Any]) -> list[tuple[object, object]]:
    """Return the arguments about attributes that a person chose, independent of ε."""
    attributes = document.get("attributes", ())
    return [(attribute["name"], attribute.get("rank_noise")) for attribute in attributes]
