"""What a recovery charges: everything that aggregators can show, and never silently less than was lost."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import BalanceError, IntegrityError, RefusedError
from common.model.plan import Linking, Plan
from owner_node.config.policy import PolicyConfig
from owner_node.ledger.losses import Recalled, Shown
from owner_node.release.recovery import LOST, Recovery, StatedCharge, assess, carry_out
from owner_node.state.chain import Head
from owner_node.state.session import SessionEvent, SessionState
from tests.fakes.offering import Offering

BUDGETS = {"cohort": "cohort"}


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner whose ledger is empty, as after the loss of owner.db."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


@pytest.fixture
def plan(offering: Offering) -> Plan:
    """A plan of release r1 with epsilon 1."""
    schema = offering.node.invitations.describe("r1", "cohort")
    return offering.plan(schema)


def shown(plan: Plan, release: str = "r1", **changes: Any) -> Recalled:
    """Return a release as an aggregator shows it: sealed, and signed by this owner."""
    made = Recalled("hub", replace(plan, release=release), True, True, True)
    return replace(made, **changes)


def head(sequence: int, letter: str = "a") -> Head:
    """Return a head that the ledger does not have."""
    return Head(sequence, letter * 64)


def assessed(
    offering: Offering,
    newest: Head | None,
    *releases: Recalled,
    places: tuple[Head, ...] = (),
    budgets: Mapping[str, str] = BUDGETS,
) -> Recovery:
    """Return what has to be done if one aggregator shows this."""
    ledger = offering.records.ledger
    return assess(
        ledger.lines(), ledger.losses.remembered(),
        [Shown("hub", newest, True, places, releases)], "a", budgets,
    )  # fmt: skip


def accept(offering: Offering, release: str) -> Plan:
    """Bring a release to a reservation."""
    plan = offering.plan(offering.node.invitations.describe(release, "cohort"), release=release)
    offering.node.invitations.consent(release, plan.digest, offering.offer(plan))
    return plan


def remaining(offering: Offering) -> Decimal:
    """What is left of the budget's 3."""
    return offering.records.ledger.balance("cohort", Decimal(3)).remaining


def test_nothing_is_lost(offering: Offering) -> None:
    """A ledger that has everything that was signed has nothing to recover."""
    plan = accept(offering, "r1")
    newest = offering.records.ledger.head()
    found = assessed(offering, newest, shown(plan, sealed=False, masking_asked=False), places=(newest,))
    assert found == Recovery((), 0, ())
    assert assessed(offering, None) == Recovery((), 0, ())


def test_a_lost_disk(offering: Offering, plan: Plan) -> None:
    """Two sealed releases are both charged in full."""
    found = assessed(offering, head(4), shown(plan), shown(plan, "r2"))
    assert (found.lost, found.missing) == ((head(4),), 4)
    assert [(each.release, each.budget, each.charge, each.proved) for each in found.charges] == [
        ("r1", "cohort", Decimal(1), True),
        ("r2", "cohort", Decimal(1), True),
    ]


@pytest.mark.parametrize(
    ("changes", "charged"),
    [
        ({}, True),
        ({"sealed": False}, True),
        ({"sealed": False, "masking_asked": False}, False),
        ({"proved": False}, True),
    ],
)
def test_what_may_have_been_spent_is_charged(
    offering: Offering, plan: Plan, changes: dict[str, Any], charged: bool
) -> None:
    """A release is charged if it was sealed, or may have been, whatever proves that it was accepted."""
    found = assessed(offering, head(5), shown(plan, **changes))
    assert (found.missing, bool(found.charges)) == (5, charged)


def test_rounds_after_a_spend_are_charged_once(offering: Offering, plan: Plan) -> None:
    """A backup that has the spend, and not the rounds after it, is charged once."""
    accept(offering, "r1")
    records = offering.records
    with records.db.transaction() as tx:
        records.ledger.spend(tx, "hub", "r1", plan.digest)
        assert records.ledger.open_round(tx, "hub", "r1", plan.digest, 1, "a" * 64) == "a" * 64
        assert records.ledger.open_round(tx, "hub", "r1", plan.digest, 1, "b" * 64) == "a" * 64
    place = records.ledger.head()
    assert place.sequence == 3
    found = assessed(offering, head(5), shown(plan), places=(head(5), place))
    assert (found.missing, found.charges) == (2, ())


def test_a_data_set_that_is_not_declared(offering: Offering, plan: Plan) -> None:
    """A charge whose budget is not known is told as such; a release that needs none asks for nothing."""
    unspent = shown(plan, "r2", sealed=False, masking_asked=False)
    found = assessed(offering, head(4), shown(plan), unspent, budgets={})
    assert [(each.dataset, each.budget) for each in found.charges] == [("cohort", "")]


def test_a_restored_backup(offering: Offering) -> None:
    """What the backup has is neither lost nor charged again; a reservation in it is spent as reserved."""
    plan = accept(offering, "r1")
    place = offering.records.ledger.head()
    found = assessed(offering, head(4), shown(plan), shown(plan, "r2"), places=(head(4), place))
    assert found.missing == 3
    carry_out(offering.records, found, {}, offering.config, {})
    entries = [f"{entry.kind} {entry.release}" for entry in offering.records.ledger.entries()]
    assert entries == ["reserve r1", "spend r1", "reserve r2", "spend r2"]
    assert remaining(offering) == 1
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert session.state is SessionState.ENDED


def test_a_branch_of_its_own(offering: Offering) -> None:
    """Where the ledger went on after a restore, what it wrote itself explains nothing of what was lost."""
    accept(offering, "mine")
    accept(offering, "mine-too")
    found = assessed(offering, head(2), places=(head(2), head(1)))
    assert (found.lost, found.missing) == ((head(2),), 2)


def test_heads_that_owner_db_remembers(offering: Offering) -> None:
    """An aggregator that is left out cannot make the loss that it showed be forgotten."""
    with offering.records.db.transaction() as tx:
        with pytest.raises(IntegrityError, match="ends at entry 0") as caught:
            offering.records.ledger.losses.check(head(7))
        offering.records.ledger.losses.stop(tx, caught.value)
    remembered = offering.records.ledger.losses.remembered()
    assert remembered == {head(7)}
    found = assess(offering.records.ledger.lines(), remembered, [], "a", {})
    assert (found.lost, found.missing) == ((head(7),), 7)


def test_carried_out(offering: Offering, plan: Plan) -> None:
    """Charges, estimate and acknowledgement are in the ledger; work goes on, and the next loss is found."""
    records = offering.records
    with records.db.transaction() as tx:
        records.ledger.losses.stop(tx, IntegrityError("entries were lost", "recover"))
    found = assessed(offering, head(4), shown(plan), places=(head(4),))
    stated = {"cohort": StatedCharge(Decimal("0.5"))}
    newest = carry_out(records, found, stated, offering.config, {"without": ["gone"]})
    assert records.ledger.losses.reason() is None
    records.ledger.verify()
    lines = records.ledger.lines()
    assert [(line.sequence, str(line.kind), line.aggregator, line.charge) for line in lines] == [
        (5, "recover", "", Decimal(0)),
        (6, "reserve", "hub", Decimal(1)),
        (7, "spend", "hub", Decimal(1)),
        (8, "reserve", LOST, Decimal("0.5")),
        (9, "spend", LOST, Decimal("0.5")),
    ]
    assert lines[0].note["without"] == ["gone"]
    said = {name: lines[1].note[name] for name in ("place", "total")}
    assert said == {"place": f"file:{offering.source.resolve()}", "total": "3"}
    assert (newest, remaining(offering)) == (records.ledger.head(), Decimal("1.5"))
    line = records.history.entries()[-1]
    assert (line.event, line.details["charged"]) == ("recovered", {"r1": "1"})
    assert not records.ledger.behind(head(4))
    assert records.ledger.behind(head(10))
    assert assessed(offering, head(4), shown(plan)) == Recovery((), 0, ())
    accept(offering, "r9")
    assert remaining(offering) == Decimal("0.5")


def test_a_delta_that_was_lost_counts(offering: Offering, plan: Plan) -> None:
    """A synthetic table of the owner's own is known to no aggregator; its δ is stated beside its ε."""
    records, found = offering.records, assessed(offering, head(4), shown(plan), places=(head(4),))
    stated = {"cohort": StatedCharge(Decimal("0.5"), Decimal("0.000001"))}
    carry_out(records, found, stated, offering.config, {})
    assert records.ledger.deltas("cohort") == Decimal("0.000001")
    assert records.history.entries()[-1].details["stated_deltas"] == {"cohort": "0.000001"}
    records.ledger.verify()
    with records.db.transaction() as tx, pytest.raises(RefusedError, match=r"has had δ 0\.000001"):
        records.ledger.reserve(
            tx, budget="cohort", total_epsilon=Decimal(3), charge=Decimal("0.1"), aggregator="hub",
            release="r9", plan_digest="0", delta=Decimal("0.000001"), total_delta=Decimal("0.000001"),
        )  # fmt: skip


def test_all_that_is_left(offering: Offering, plan: Plan) -> None:
    """Whoever does not know what was lost charges everything: nothing can be reserved any more."""
    found = assessed(offering, head(9), shown(plan))
    assert found.missing == 9
    carry_out(offering.records, found, {}, offering.config, {}, exhaust=True)
    assert remaining(offering) == 0
    assert not offering.records.ledger.deltas("cohort")
    with pytest.raises(BalanceError, match="has 0 left"):
        accept(offering, "r9")


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_all_delta_that_is_left(offering: Offering, plan: Plan, epsilon: str) -> None:
    """Lost entries can have had all δ, too: a larger total has none later, even if no ε was left."""
    records, found = offering.records, assessed(offering, head(9), shown(plan))
    owner = replace(offering.config, policy=PolicyConfig(total_delta=Decimal("0.000003")))
    stated = {"cohort": StatedCharge(Decimal(epsilon), Decimal("0.000001"))}
    carry_out(records, found, stated, owner, {}, exhaust=True)
    assert remaining(offering) == 0
    assert records.ledger.deltas("cohort") == Decimal("0.000003")
    records.ledger.verify()
    total = Decimal(9)
    with records.db.transaction() as tx:
        records.ledger.change_total(tx, "cohort", total, "an ethics committee allowed more")
    with records.db.transaction() as tx, pytest.raises(RefusedError, match=r"has had δ 0\.000003"):
        records.ledger.reserve(
            tx, budget="cohort", total_epsilon=total, charge=Decimal(1), aggregator="hub", release="r9",
            plan_digest="0", delta=Decimal("0.000001"), total_delta=owner.policy.total_delta,
        )  # fmt: skip


def test_the_larger_bound_is_charged(offering: Offering, plan: Plan) -> None:
    """A plan that states a smaller joint bound than this owner's own arithmetic is charged by the latter."""
    (task, *others) = plan.tasks
    understated = replace(
        task, attributes=tuple(replace(each, epsilon_joint=Decimal("0.1")) for each in task.attributes)
    )
    lied = replace(plan, tasks=(understated, *others))
    (charge,) = assessed(offering, head(2), shown(lied)).charges
    assert charge.charge == 1


def test_sessions_under_way_end(offering: Offering) -> None:
    """What was reserved and surely not spent comes back, and no old session draws a second time."""
    plan = accept(offering, "r1")
    offering.node.production.link("r1", plan.digest)
    found = assessed(offering, head(3), shown(plan, sealed=False, masking_asked=False))
    carry_out(offering.records, found, {"cohort": StatedCharge(Decimal(0))}, offering.config, {})
    assert remaining(offering) == 3
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert session.state in (SessionState.ENDED, SessionState.REFUSED)
    with offering.records.db.transaction() as tx:
        offering.records.sessions.advance(tx, session, SessionEvent.END)


def spent(offering: Offering, release: str) -> Plan:
    """Bring a release to a spend."""
    plan = accept(offering, release)
    offering.node.production.link(release, plan.digest)
    offering.node.production.mask(release, plan.digest, *offering.addendum(plan))
    return plan


def recover(offering: Offering, found: Recovery) -> list[str]:
    """Carry a recovery out, nothing stated; returns the ledger's charges."""
    carry_out(offering.records, found, {"cohort": StatedCharge(Decimal(0))}, offering.config, {})
    return [f"{entry.kind} {entry.release}" for entry in offering.records.ledger.entries()]


def test_a_reservation_that_nobody_shows(offering: Offering) -> None:
    """Of a release whose aggregator is left out, a reservation may have been spent: it never comes back."""
    plan = accept(offering, "r1")
    ledger = offering.records.ledger
    elsewhere = [Shown("hub2", head(3), True, (head(3), ledger.head()), ())]
    found = assess(ledger.lines(), ledger.losses.remembered(), elsewhere, "a", BUDGETS)
    assert [(each.release, each.charge, each.proved) for each in found.charges] == [("r1", Decimal(1), True)]
    assert recover(offering, found) == ["reserve r1", "spend r1"]
    found = assessed(offering, head(2, "b"), shown(plan))
    assert found.charges == ()
    assert remaining(offering) == 2


def test_a_return_settles_nothing_that_was_sealed(offering: Offering) -> None:
    """Where one copy of a state directory returned what another spent, the spend is charged, and once."""
    plan = accept(offering, "r1")
    offering.node.close("r1", "cancelled", "", "")
    assert remaining(offering) == 3
    found = assessed(offering, head(4), shown(plan))
    assert recover(offering, found) == [
        "reserve r1",
        "return r1",
        f"reserve r1#{plan.digest[:12]}",
        f"spend r1#{plan.digest[:12]}",
    ]
    assert remaining(offering) == 2
    again = assessed(offering, head(40), shown(plan))
    assert again.charges == ()
    recover(offering, replace(again, charges=found.charges))
    assert remaining(offering) == 2


def test_a_return_stays_where_nothing_was_sealed(offering: Offering) -> None:
    """A release that was cancelled before anything was sealed stays without a charge."""
    plan = accept(offering, "r1")
    offering.node.close("r1", "cancelled", "", "")
    assert assessed(offering, head(4), shown(plan, sealed=False)).charges == ()


def test_another_plan_of_a_release_is_charged_once(offering: Offering, plan: Plan) -> None:
    """What a recovery charged under a name of its own is found again, and not shown as missing."""
    accept(offering, "r1")
    other = replace(plan, purpose="another plan")
    first = assessed(offering, head(4), shown(other))
    recover(offering, first)
    assert remaining(offering) == 1
    assert assessed(offering, head(40), shown(other)).charges == ()


def test_what_the_ledger_wrote_itself_explains_nothing(offering: Offering) -> None:
    """A release that the present ledger has whole cannot have written any of the entries that were lost."""
    plan = spent(offering, "r5")
    found = assessed(offering, head(2), shown(plan, "r5"), places=(head(2),))
    assert (found.missing, found.charges) == (2, ())


@pytest.mark.parametrize("sequence", [2, 3, 4])
def test_a_fork_with_two_aggregators(offering: Offering, sequence: int) -> None:
    """Places that another aggregator keeps of the new branch do not make the lost one shorter."""
    spent(offering, "r5")
    lines = offering.records.ledger.lines()
    places = tuple(Head(each.sequence, each.hash) for each in lines)
    aggregators = [
        Shown("hub", head(sequence), True, (head(sequence),), ()),
        Shown("hub2", places[-1], True, places, ()),
    ]
    found = assess(lines, (), aggregators, "a", BUDGETS)
    assert found.missing == sequence


def test_the_costlier_accounting_is_charged(offering: Offering) -> None:
    """A release is charged what any way of accounting charged for it: the policy may have changed since."""
    schema = offering.node.invitations.describe("c1", "cohort")
    plan = offering.plan(schema, release="c1", mechanism="idp-cbls", k="5")
    task = plan.assignment_of("a")
    assert task.epsilon_joint is not None
    (charge,) = assessed(offering, head(2), shown(plan, "c1")).charges
    assert charge.charge == max(task.epsilon, task.epsilon_joint) > task.epsilon


def test_lost_charges_of_shared_persons(offering: Offering) -> None:
    """Of a lost release that let owners share persons the whole reservation is charged."""
    plan = offering.plan(offering.node.invitations.describe("o1", "cohort"), release="o1")
    shared = replace(plan, linking=Linking(tokens=True, max_overlap=2))
    (charge,) = assessed(offering, head(2), shown(shared, "o1")).charges
    assert charge.charge == 2 * plan.assignment_of("a").epsilon
