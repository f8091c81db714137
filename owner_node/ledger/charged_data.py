"""Whether data may be charged to the budget of their data set, known by their columns before masking."""

from typing import TYPE_CHECKING

from common.plan import Plan
from owner_node.ledger.budget_terms import Column
from owner_node.release.cases import Cases
from owner_node.sources.place import place_of
from owner_node.state.sessions import Session

if TYPE_CHECKING:
    from owner_node.release.preparation import Prepared

_MOST_KEPT = 16


class ChargedData:
    """Recognises what is to be masked for one aggregator.

    Args:
        cases: The sessions.
    """

    def __init__(self, cases: Cases) -> None:
        self._cases = cases
        self._kept: dict[str, tuple[Column, ...]] = {}

    def columns(self, plan: Plan, prepared: "Prepared") -> tuple[Column, ...]:
        """Return what the columns of loaded data are recognised by; the same data are looked at once."""
        from owner_node.sources.columns import columns_of

        found = self._kept.get(prepared.source_digest)
        if found is None:
            attributes = [plan.attribute(name) for name in prepared.columns]
            found = columns_of(prepared.columns, attributes, self._cases.records.own_keys.source_key())
            while len(self._kept) >= _MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[prepared.source_digest] = found
        return found

    def check(self, session: Session, plan: Plan, prepared: "Prepared") -> None:
        """Check that loaded data were not charged to another budget, before anything is spent for them.

        Raises:
            RefusedError: If they were.
        """
        dataset = self._cases.config.dataset(session.dataset)
        self._cases.records.ledger.check_budget(
            dataset.budget, dataset.total_epsilon, place_of(dataset), self.columns(plan, prepared)
        )
