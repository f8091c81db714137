"""The ledger against a naive model: whatever comes in whatever order, no budget is ever overdrawn."""

import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import BalanceError, ConflictError, InternalError
from owner_node.ledger.entry import Part
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase

_TOTAL = Decimal("1.000000000001")
_RELEASES = st.sampled_from(["r1", "r2", "r3", "r4"])
_BUDGETS = {"r1": "patients", "r2": "patients", "r3": "patients", "r4": "staff"}
_CHARGES = st.integers(1, 1_200_000_000_000).map(lambda units: Decimal(units).scaleb(-12))
_PLANS = st.sampled_from(["p", "p", "p", "q"])


class LedgerAgainstModel(RuleBasedStateMachine):
    """One ledger in a real file; the model is a dictionary of releases with integers of 10^-12."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._clock = lambda: datetime(2026, 1, 2, tzinfo=UTC)
        self.db = OwnerDatabase(Path(self._folder.name) / "state")
        self.ledger = Ledger(self.db, self._clock)
        self.model: dict[str, tuple[str, int, str]] = {}
        self.heads = [self.ledger.head()]

    def teardown(self) -> None:
        """Close and delete the file."""
        self.db.close()
        self._folder.cleanup()

    def _held(self, budget: str) -> int:
        return sum(
            units
            for release, (_, units, state) in self.model.items()
            if _BUDGETS[release] == budget and state != "returned"
        )

    @rule(release=_RELEASES, charge=_CHARGES, plan=_PLANS)
    def reserve(self, release: str, charge: Decimal, plan: str) -> None:
        """A reservation is taken exactly if the model has room and knows no other plan."""
        budget, units = _BUDGETS[release], int(charge.scaleb(12))
        expected: type[Exception] | None = None
        if release in self.model:
            known, _, state = self.model[release]
            expected = ConflictError if known != plan or state == "returned" else None
        elif self._held(budget) + units > int(_TOTAL.scaleb(12)):
            expected = BalanceError
        else:
            self.model[release] = (plan, units, "reserved")
        caught: type[Exception] | None = None
        try:
            with self.db.transaction() as tx:
                self.ledger.reserve(
                    tx, budget=budget, total_epsilon=_TOTAL, charge=charge,
                    aggregator="hub", release=release, plan_digest=plan,
                )  # fmt: skip
        except (BalanceError, ConflictError) as error:
            caught = type(error)
        assert caught is expected

    @rule(release=_RELEASES, plan=_PLANS)
    def spend(self, release: str, plan: str) -> None:
        """Only what is reserved for this plan is spent, once."""
        known, units, state = self.model.get(release, (plan, 0, "absent"))
        if known == plan and state in ("reserved", "spent"):
            self.model[release] = (known, units, "spent")
        refused = known != plan or state in ("absent", "returned")
        caught = False
        try:
            with self.db.transaction() as tx:
                self.ledger.spend(tx, "hub", release, plan)
        except (ConflictError, InternalError):
            caught = True
        assert caught == refused

    @rule(release=_RELEASES, plan=_PLANS, percent=st.integers(0, 120))
    def spend_in_part(self, release: str, plan: str, percent: int) -> None:
        """Of a reservation what is needed is spent and the rest comes back at once; never more is spent."""
        known, units, state = self.model.get(release, (plan, 0, "absent"))
        needed = units * percent // 100
        refused = known != plan or state in ("absent", "returned")
        if state == "reserved" and not refused:
            refused = not 0 < needed <= units
            if not refused:
                self.model[release] = (known, needed, "spent")
        charge = Decimal(needed).scaleb(-12)
        caught = False
        try:
            with self.db.transaction() as tx:
                self.ledger.spend(tx, "hub", release, plan, part=Part(charge, charge, None))
        except (ConflictError, InternalError):
            caught = True
        assert caught == refused

    @rule(release=_RELEASES, plan=_PLANS)
    def give_back(self, release: str, plan: str) -> None:
        """Only a reservation comes back."""
        known, units, state = self.model.get(release, (plan, 0, "absent"))
        returned = caught = False
        try:
            with self.db.transaction() as tx:
                returned = self.ledger.give_back(tx, "hub", release, plan)
        except ConflictError:
            caught = True
        assert caught == (known != plan)
        assert returned == (known == plan and state == "reserved")
        if returned:
            self.model[release] = (known, units, "returned")

    @precondition(lambda self: bool(self.model))
    @rule()
    def restart(self) -> None:
        """A restart changes nothing."""
        self.db.close()
        self.db = OwnerDatabase(Path(self._folder.name) / "state")
        self.ledger = Ledger(self.db, self._clock)

    @invariant()
    def agrees_and_never_overdraws(self) -> None:
        """Reserved, spent and remaining are the model's; they add up and none is negative."""
        for budget in ("patients", "staff"):
            found = self.ledger.balance(budget, _TOTAL)
            assert int(found.reserved.scaleb(12)) + int(found.spent.scaleb(12)) == self._held(budget)
            assert found.reserved + found.spent + found.remaining == _TOTAL
            assert min(found.reserved, found.spent, found.remaining) >= 0
            spent = [
                units for r, (_, units, s) in self.model.items() if s == "spent" and _BUDGETS[r] == budget
            ]
            assert int(found.spent.scaleb(12)) == sum(spent)

    @invariant()
    def only_grows(self) -> None:
        """The chain holds, and no head it ever had is lost."""
        self.ledger.verify()
        self.heads.append(self.ledger.head())
        assert not any(self.ledger.behind(head) for head in set(self.heads))
        sequences = [head.sequence for head in self.heads]
        assert sequences == sorted(sequences)


LedgerAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLedgerAgainstModel = LedgerAgainstModel.TestCase
