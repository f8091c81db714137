"""Charges of work without an aggregator: once, for one result, within the budget."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from common.canonical import document_digest
from common.errors import BalanceError, ConflictError, IntegrityError, InternalError, RefusedError
from common.model.schema import Attribute, AttributeType
from common.planning.arguments import parse_id
from common.trust.identity import is_name
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent.plan_rules import PlannedWork
from owner_node.engines.pinned import PinnedData, in_memory
from owner_node.ledger.ledger import EntryKind
from owner_node.loading import LoadCounts, LoadedData
from owner_node.local.charge import LOCAL, LocalWork, Standing, new_id
from owner_node.release.approvals import Person
from owner_node.release.records import Records
from tests.fakes.consent_plans import local_work, planned

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ANNA = Person("anna")
DATA = "d" * 64
DATASET = DatasetConfig(
    name="patients", source="", budget="people", total_epsilon=Decimal(2), attributes=(AGE,)
)


def costs(charge: str, policy: PolicyConfig | None = None) -> PlannedWork:
    """A mask of one attribute with this joint bound and epsilon 0.4."""
    return local_work(
        planned("age", epsilon=Decimal("0.4"), epsilon_joint=Decimal(charge)), dataset=DATASET, policy=policy
    )


def loaded(values: Any, digest: str = DATA) -> PinnedData:
    """Loaded data of one attribute."""
    data = LoadedData({"age": values}, (), len(values), LoadCounts(), digest)
    return in_memory(DATASET, data, source_key=b"k" * 32)


PEOPLE = loaded(np.random.default_rng(1).integers(0, 120, 500))


def work(records: Records, **changes: Any) -> LocalWork:
    """A mask that costs 0.5, with changes."""
    document = {"kind": "mask", "epsilon": Decimal("0.5")}
    return replace(LocalWork(records, "w1", document, costs("0.5"), PEOPLE, person=ANNA), **changes)


@pytest.fixture
def records(tmp_path):
    """An owner's state, opened."""
    opened = Records.open(tmp_path / "state", lambda: NOW)
    with opened.db:
        yield opened


def spent(records: Records) -> list[tuple[str, Decimal]]:
    """The ids and charges of all spends."""
    return [(e.release, e.charge) for e in records.ledger.entries() if e.kind is EntryKind.SPEND]


def test_one_charge_and_one_result(records):
    """Spending again changes nothing, and the first result that is recorded holds."""
    mask = work(records)
    assert mask.standing() is Standing.NEW
    mask.pay()
    assert mask.standing() is Standing.SPENT
    mask.pay()
    assert mask.deliver({"answer": 7}) == {"answer": "7"}
    assert mask.deliver({"answer": 8}) == {"answer": "7"}
    assert mask.standing() is Standing.DELIVERED
    assert mask.result() == {"answer": "7"}
    assert spent(records) == [("w1", Decimal("0.5"))]
    entry, lines = records.ledger.entries()[-1], records.history.entries()
    assert (entry.aggregator, entry.plan_digest, entry.epsilon) == (
        LOCAL,
        lines[0].plan_digest,
        Decimal("0.4"),
    )
    assert [line.event for line in lines] == ["spent", "delivered"]
    assert lines[0].details["by"] == "anna"
    records.ledger.verify()


@pytest.mark.parametrize(
    ("changes", "told", "differs"),
    [
        ({"epsilon": Decimal("0.6")}, "other arguments", ["epsilon"]),
        ({"data": "e" * 64}, "other data", ["data"]),
        ({"kind": "query", "attribute": "age"}, "other arguments", ["attribute", "kind"]),
    ],
)
def test_an_id_stands_for_one_thing(records, changes, told, differs):
    """Other arguments or data under a used id are a conflict that says what differs, and cost nothing."""
    mask = work(records)
    mask.pay()
    data = replace(PEOPLE, digest=changes.pop("data", DATA))
    other = work(records, document={**mask.document, **changes}, data=data)
    for attempt in (other.standing, other.pay):
        with pytest.raises(ConflictError, match=told) as caught:
            attempt()
        assert caught.value.details["differs"] == differs
    assert len(spent(records)) == 1


def test_what_is_kept_tells_no_guess_of_the_data(records):
    """Who reads ledger or history cannot compute what stands for data there, from any guess of them."""
    mask = work(records)
    with pytest.raises(RefusedError):
        work(records, asked=costs("0.5", PolicyConfig(min_k=11))).judge()
    mask.pay()
    mask.deliver({"answer": 7})
    guessed = document_digest({**mask.document, "data": DATA})
    kept = [*records.ledger.entries(), *records.history.entries()]
    assert len(kept) == 5
    assert not [each for each in kept if DATA in str(each) or guessed in str(each)]
    asked = records.history.entries(event="spent")[0].details["asked"]
    assert document_digest({**mask.document, "data": asked["data"]}) == kept[0].plan_digest


def test_what_does_not_fit_is_not_charged(records):
    """A refused charge leaves neither an entry nor a line that says it was spent."""
    too_much = work(records, asked=costs("2.000000000001"))
    for attempt in (too_much.judge, too_much.pay):
        with pytest.raises(BalanceError):
            attempt()
    assert records.ledger.entries() == ()
    assert work(records).standing() is Standing.NEW


def test_work_without_a_bound_is_never_charged(records):
    """Whatever passes the policy has a charge; anything else is our own fault."""
    unbounded = local_work(planned("age", epsilon_joint=None), dataset=DATASET)
    with pytest.raises(InternalError):
        work(records, asked=unbounded).pay()
    assert records.ledger.entries() == ()


def test_a_refusal_is_in_the_history_and_does_not_use_up_the_id(records):
    """The audit log has the rule; the same id can be asked again once the policy allows it."""
    with pytest.raises(RefusedError):
        work(records, asked=costs("0.5", PolicyConfig(min_k=11))).judge()
    (line,) = records.history.entries(aggregator=LOCAL)
    assert (line.event, line.decision, line.rule) == (
        "refused", "refuse", "policy.min_k = 11, 'age' is planned with k = 10"
    )  # fmt: skip
    assert line.details["by"] == "anna"
    work(records).pay()
    assert work(records).standing() is Standing.SPENT


def test_a_ledger_that_lost_entries_charges_nothing(records):
    """What stops releases stops local work, also the redrawing of what was spent before."""
    work(records).pay()
    with records.db.transaction() as tx:
        records.ledger.losses.stop(tx, IntegrityError("the ledger lost entries"))
    for mask in (work(records), work(records, id="w2")):
        for attempt in (mask.judge, mask.pay):
            with pytest.raises(IntegrityError, match="lost entries"):
                attempt()
    assert len(spent(records)) == 1


def test_data_that_were_charged_to_another_budget(records):
    """A copy under another budget's name is known by its place or its values: no budget refills so."""
    work(records, at="file:/x").pay()
    fresh = replace(costs("0.5"), dataset=replace(DATASET, budget="fresh"))
    same_values = work(records, id="w2", asked=fresh)
    same_place = replace(same_values, data=loaded(np.arange(100)), at="file:/x")
    for mask in (same_values, same_place):
        for attempt in (mask.judge, mask.pay):
            with pytest.raises(RefusedError, match="'people'"):
                attempt()
    assert len(spent(records)) == 1


def test_a_total_that_grew(records):
    """A budget is not refilled by calling it larger."""
    work(records).pay()
    larger = replace(costs("0.5"), dataset=replace(DATASET, total_epsilon=Decimal(3)))
    with pytest.raises(RefusedError, match="does not refill"):
        work(records, id="w2", asked=larger).pay()


def test_charges_at_the_same_time_never_overdraw(tmp_path):
    """Thirty commands against a balance that fits seven: exactly seven are charged."""
    asked = costs("0.27")  # 7 times 0.27 is 1.89

    def attempt(number: int) -> bool:
        opened = Records.open(tmp_path / "state", lambda: NOW)
        with opened.db:
            try:
                work(opened, id=f"w{number}", asked=asked).pay()
            except BalanceError:
                return False
            return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(30))) == 7


def test_the_same_work_at_the_same_time_is_charged_once(tmp_path):
    """Eight processes' worth of connections with one id: one charge, and one answer for all."""

    def attempt(number: int) -> str:
        opened = Records.open(tmp_path / "state", lambda: NOW)
        with opened.db:
            mask = work(opened)
            mask.pay()
            return str(mask.deliver({"answer": number})["answer"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(attempt, range(8)))) == 1
    opened = Records.open(tmp_path / "state", lambda: NOW)
    with opened.db:
        assert spent(opened) == [("w1", Decimal("0.5"))]


def test_local_work_is_nobodys_release():
    """No aggregator can be called as local work is, and made ids are ids."""
    assert not is_name(LOCAL)
    made = new_id("mask", lambda: NOW)
    assert made.startswith("mask-20260304-050607-")
    assert parse_id(made) == made
    assert made != new_id("mask", lambda: NOW)
