"""A budget belongs to data: neither another total nor another name of the same source refills it."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import BalanceError, RefusedError
from owner_node.ledger.budget_terms import EVIDENCE, Column
from owner_node.ledger.ledger import EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import balance, clock, give_back, reserve, spend

PLACE = "file:/data/patients.csv"


def column(name: str = "age", *, values: str = "v", order: str = "o", bits: int = EVIDENCE) -> Column:
    """A column that is enough evidence by itself unless told otherwise."""
    return Column(name, values, order, bits, bits)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


@pytest.fixture
def ledger(db: OwnerDatabase) -> Ledger:
    """A ledger whose budget "patients" has spent 0.4 of 1 for one column of one file."""
    book = Ledger(db, clock)
    reserve(db, book, "r1", place=PLACE)
    spend(db, book, "r1", columns=[column()])
    return book


def test_the_first_use_records_the_total(ledger: Ledger) -> None:
    """What the budget held when it was first used stands in the chain, once."""
    notes = [dict(entry.note) for entry in ledger.entries()]
    assert notes[0] == {"place": PLACE, "total": "1"}
    assert notes[1] == {"columns": {"age": {"values": "v", "order": "o"}}}


def test_a_larger_total_is_refused(db: OwnerDatabase, ledger: Ledger) -> None:
    """Editing owner.toml does not refill a budget, and the refusal says how a change is recorded."""
    with pytest.raises(RefusedError, match=r"total_epsilon = 1\.5 .* recorded 1") as caught:
        reserve(db, ledger, "r2", "0.1", total_epsilon=Decimal("1.5"))
    assert "owner-node ledger budget 'patients' --total 1.5 --reason" in caught.value.hint
    assert caught.value.details["rule"] == caught.value.message
    assert balance(ledger, Decimal("1.5")) == ("0", "0.4", "0.6")
    assert len(ledger.entries()) == 2


def test_a_smaller_total_holds_at_once(db: OwnerDatabase, ledger: Ledger) -> None:
    """A total that its owner lowers counts, and can be set back to what was recorded."""
    with pytest.raises(BalanceError):
        reserve(db, ledger, "r2", "0.2", total_epsilon=Decimal("0.5"))
    assert balance(ledger, Decimal("0.5")) == ("0", "0.4", "0.1")
    reserve(db, ledger, "r2", "0.2")


def test_a_recorded_change(db: OwnerDatabase, ledger: Ledger) -> None:
    """A change that was recorded holds, upwards and downwards, and stands in the chain with its reason."""
    with db.transaction() as tx:
        ledger.change_total(tx, "patients", Decimal(2), "a new cohort")
    reserve(db, ledger, "r2", "1.5", total_epsilon=Decimal(2))
    with db.transaction() as tx:
        ledger.change_total(tx, "patients", Decimal("0.5"), "too much")
    assert balance(ledger, Decimal(2)) == ("1.5", "0.4", "-1.4")
    with pytest.raises(RefusedError):
        reserve(db, ledger, "r3", "0.1", total_epsilon=Decimal(2))
    changes = [line for line in ledger.lines() if line.kind is EntryKind.BUDGET]
    assert [(line.budget, line.note) for line in changes] == [
        ("patients", {"total": "2", "reason": "a new cohort"}),
        ("patients", {"total": "0.5", "reason": "too much"}),
    ]
    ledger.verify()


def test_the_same_source_under_another_name(db: OwnerDatabase, ledger: Ledger) -> None:
    """A renamed budget over the same file is refused before anything is reserved, with the budget to use."""
    with pytest.raises(RefusedError, match="was charged to budget 'patients'") as caught:
        reserve(db, ledger, "r2", "0.1", budget="persons", place=PLACE)
    assert 'budget = "patients"' in caught.value.hint
    reserve(db, ledger, "r2", "0.1", budget="persons", place="file:/data/staff.csv")


def test_a_copy_under_another_name(db: OwnerDatabase, ledger: Ledger) -> None:
    """The same data in another place are refused: at linking, and at the latest when they would be spent."""
    reserve(db, ledger, "r2", "0.1", budget="persons", place="file:/data/copy.csv")
    for copy in (column("years"), column(order="sorted"), column(values="x")):
        with pytest.raises(RefusedError, match="data were charged to budget 'patients'"):
            ledger.check_budget("persons", Decimal(1), "", [copy])
        with pytest.raises(RefusedError):
            spend(db, ledger, "r2", columns=[copy])
    spend(db, ledger, "r2", columns=[column(values="x", order="x")])


def test_a_few_equal_bits_are_no_evidence(db: OwnerDatabase, ledger: Ledger) -> None:
    """Columns that could be equal by chance accuse nobody, several of them together do."""
    weak = [column(bits=EVIDENCE - 1), column("ward", values="w", order="w", bits=1)]
    ledger.check_budget("persons", Decimal(1), "", weak)
    reserve(db, ledger, "r2", "0.1")
    spend(db, ledger, "r2", columns=weak)
    with pytest.raises(RefusedError):
        ledger.check_budget("persons", Decimal(1), "", weak)
    ledger.check_budget("persons", Decimal(1), "", weak[1:])


def test_only_what_was_charged_counts(db: OwnerDatabase) -> None:
    """A budget whose only reservation was returned does not keep its source from another name."""
    ledger = Ledger(db, clock)
    reserve(db, ledger, "r1", place=PLACE)
    with pytest.raises(RefusedError):
        ledger.check_budget("persons", Decimal(1), PLACE)
    give_back(db, ledger, "r1")
    ledger.check_budget("persons", Decimal(1), PLACE)
    reserve(db, ledger, "r2", budget="persons", place=PLACE)
    with pytest.raises(RefusedError):
        reserve(db, ledger, "r3", place=PLACE)


def test_columns_are_recorded_once(db: OwnerDatabase, ledger: Ledger) -> None:
    """Releases of the same data do not repeat their digests, new columns and changed data add theirs."""
    for number, columns in enumerate(
        ([column()], [column(), column("ward", values="w", order="w")]), start=2
    ):
        reserve(db, ledger, f"r{number}", "0.1")
        spend(db, ledger, f"r{number}", columns=columns)
    spends = [entry.note for entry in ledger.entries() if entry.kind is EntryKind.SPEND]
    assert spends[1:] == [{}, {"columns": {"ward": {"values": "w", "order": "w"}}}]
