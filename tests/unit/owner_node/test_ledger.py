"""The ledger: exact, idempotent, safe between threads and processes, and nobody rewrites it unseen."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import BalanceError, ConflictError, IntegrityError, InternalError
from owner_node.chain import GENESIS, Head
from owner_node.database import Database
from owner_node.ledger import Balance, Ledger

_TOTAL = Decimal(1)


def clock() -> datetime:
    """A clock that stands."""
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A real database in a folder of its own."""
    with Database(tmp_path / "state") as database:
        yield database


@pytest.fixture
def ledger(db: Database) -> Ledger:
    """A ledger without entries."""
    return Ledger(db, clock)


def reserve(db: Database, ledger: Ledger, release: str, charge: str = "0.4", **other: Any) -> None:
    """Reserve in a transaction of its own."""
    arguments = {"budget": "patients", "total_epsilon": _TOTAL, "aggregator": "hub", "plan_digest": "d" * 64}
    with db.transaction() as tx:
        ledger.reserve(tx, **{**arguments, "release": release, "charge": Decimal(charge), **other})


def spend(db: Database, ledger: Ledger, release: str, plan_digest: str = "d" * 64) -> None:
    """Spend in a transaction of its own."""
    with db.transaction() as tx:
        ledger.spend(tx, "hub", release, plan_digest)


def give_back(db: Database, ledger: Ledger, release: str, plan_digest: str = "d" * 64) -> bool:
    """Return in a transaction of its own."""
    with db.transaction() as tx:
        return ledger.give_back(tx, "hub", release, plan_digest)


def kinds(ledger: Ledger) -> list[str]:
    """What the entries say, in short."""
    return [f"{entry.kind} {entry.release} {entry.charge}" for entry in ledger.entries()]


def balance(ledger: Ledger, total: Decimal = _TOTAL) -> tuple[str, str, str]:
    """Reserved, spent and remaining."""
    found = ledger.balance("patients", total)
    return str(found.reserved), str(found.spent), str(found.remaining)


def test_reserve_spend_return(db: Database, ledger: Ledger) -> None:
    """Reserved, spent and remaining always add up to the total, and only reservations come back."""
    reserve(db, ledger, "r1")
    assert balance(ledger) == ("0.4", "0", "0.6")
    spend(db, ledger, "r1")
    assert balance(ledger) == ("0", "0.4", "0.6")
    reserve(db, ledger, "r2", "0.6")
    assert balance(ledger) == ("0.6", "0.4", "0")
    assert give_back(db, ledger, "r2")
    assert balance(ledger) == ("0", "0.4", "0.6")
    assert not give_back(db, ledger, "r1")
    assert balance(ledger) == ("0", "0.4", "0.6")
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4", "reserve r2 0.6", "return r2 0.6"]


def test_repeats_change_nothing(db: Database, ledger: Ledger) -> None:
    """A message that arrives twice is charged once."""
    for _ in range(3):
        reserve(db, ledger, "r1")
    for _ in range(3):
        spend(db, ledger, "r1")
    reserve(db, ledger, "r1")
    reserve(db, ledger, "r2", "0.1")
    assert [give_back(db, ledger, "r2") for _ in range(3)] == [True, False, False]
    assert kinds(ledger) == ["reserve r1 0.4", "spend r1 0.4", "reserve r2 0.1", "return r2 0.1"]


def test_too_much_is_refused(db: Database, ledger: Ledger) -> None:
    """What does not fit names what was asked and what is left, and leaves no entry."""
    reserve(db, ledger, "r1")
    with pytest.raises(BalanceError) as caught:
        reserve(db, ledger, "r2", "0.600000000001")
    assert caught.value.details == {"budget": "patients", "requested": "0.600000000001", "remaining": "0.6"}
    assert kinds(ledger) == ["reserve r1 0.4"]


def test_decimals_are_exact(db: Database, ledger: Ledger) -> None:
    """Ten tenths are one, and the twelfth place counts."""
    for number in range(10):
        reserve(db, ledger, f"r{number}", "0.1")
    assert balance(ledger) == ("1", "0", "0")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "more", "0.000000000001")


def test_budgets_are_apart_and_releases_are_not(db: Database, ledger: Ledger) -> None:
    """A budget counts all aggregators and releases of its data, and nothing of another budget."""
    reserve(db, ledger, "r1", "0.5")
    reserve(db, ledger, "r1", "0.5", aggregator="other")
    reserve(db, ledger, "r2", "0.7", budget="staff")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "r3", "0.1", aggregator="third")
    assert ledger.balance("staff", _TOTAL) == Balance(_TOTAL, Decimal("0.7"), Decimal(0), Decimal("0.3"))
    assert [entry.release for entry in ledger.entries("staff")] == ["r2"]


@pytest.mark.parametrize("act", [reserve, spend, give_back])
def test_other_plan_same_release(db: Database, ledger: Ledger, act: Any) -> None:
    """Nothing is done for a second plan under the same release id."""
    reserve(db, ledger, "r1")
    with pytest.raises(ConflictError):
        act(db, ledger, "r1", plan_digest="e" * 64)
    assert kinds(ledger) == ["reserve r1 0.4"]


def test_what_was_returned_stays_returned(db: Database, ledger: Ledger) -> None:
    """A late message neither spends nor reserves again what was returned."""
    reserve(db, ledger, "r1")
    give_back(db, ledger, "r1")
    with pytest.raises(ConflictError):
        reserve(db, ledger, "r1")
    with pytest.raises(InternalError):
        spend(db, ledger, "r1")
    assert balance(ledger) == ("0", "0", "1")


def test_nothing_is_spent_unreserved(db: Database, ledger: Ledger) -> None:
    """A spend needs its reservation."""
    with pytest.raises(InternalError):
        spend(db, ledger, "r1")
    assert not give_back(db, ledger, "r1")
    assert ledger.entries() == ()


@pytest.mark.parametrize("charge", ["0", "-0.1", "NaN", "Infinity"])
def test_charges_are_positive(db: Database, ledger: Ledger, charge: str) -> None:
    """A charge that would add to a balance, or is no number, is never written."""
    with pytest.raises(InternalError):
        reserve(db, ledger, "r1", charge)
    assert ledger.entries() == ()


def test_entries_need_a_transaction(db: Database, ledger: Ledger) -> None:
    """A connection whose transaction is over cannot write."""
    with db.transaction() as tx:
        pass
    with pytest.raises(InternalError):
        ledger.reserve(
            tx, budget="b", total_epsilon=_TOTAL, charge=_TOTAL, aggregator="hub", release="r", plan_digest=""
        )


def test_entry_keeps_the_arithmetic(db: Database, ledger: Ledger) -> None:
    """Both epsilons and the way of accounting can be read later, for the spend as for the reservation."""
    reserve(db, ledger, "r1", epsilon=Decimal("0.4"), epsilon_joint=None, accounting="per-centroid")
    spend(db, ledger, "r1")
    for entry in ledger.entries():
        assert (entry.epsilon, entry.epsilon_joint, entry.accounting) == (
            Decimal("0.4"),
            None,
            "per-centroid",
        )
        assert entry.time == clock().isoformat()


def test_survives_reopening(tmp_path: Path) -> None:
    """What was spent before a restart is spent after it."""
    with Database(tmp_path / "state") as db:
        reserve(db, Ledger(db, clock), "r1")
        spend(db, Ledger(db, clock), "r1")
        head = Ledger(db, clock).head()
    with Database(tmp_path / "state") as db:
        assert balance(Ledger(db, clock)) == ("0", "0.4", "0.6")
        assert Ledger(db, clock).head() == head


def test_threads_race_for_one_balance(db: Database, ledger: Ledger) -> None:
    """Of many threads that reserve at once, exactly those that fit get it."""
    outcomes: list[bool] = []

    def ask(number: int) -> None:
        try:
            reserve(db, ledger, f"r{number}", "0.1")
            outcomes.append(True)
        except BalanceError:
            outcomes.append(False)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count(True), outcomes.count(False)) == (10, 15)
    assert balance(ledger) == ("1", "0", "0")
    ledger.verify()


_RACER = """
import sys
from datetime import datetime, UTC
from decimal import Decimal
from pathlib import Path
from common.errors import BalanceError
from owner_node.database import Database
from owner_node.ledger import Ledger
db = Database(Path(sys.argv[1]))
ledger = Ledger(db, lambda: datetime.now(UTC))
print("ready", flush=True)
sys.stdin.readline()
got = 0
for number in range(10):
    try:
        with db.transaction() as tx:
            ledger.reserve(tx, budget="patients", total_epsilon=Decimal(1), charge=Decimal("0.07"),
                           aggregator="hub", release=f"{sys.argv[2]}-{number}", plan_digest="d" * 64)
        got += 1
    except BalanceError:
        pass
print(got)
"""


def test_processes_race_for_one_balance(tmp_path: Path) -> None:
    """Of many processes that reserve at once, exactly those that fit get it: 14 times 0.07."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(tmp_path / "state"), f"p{number}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(4)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60) for racer in racers]
    assert [error for _, error in answers] == [""] * 4
    assert sum(int(got) for got, _ in answers) == 14
    with Database(tmp_path / "state") as db:
        assert balance(Ledger(db, clock)) == ("0.98", "0", "0.02")
        Ledger(db, clock).verify()


def _tamper(db: Database, *statements: str) -> None:
    """Change the file as somebody would who knows SQLite."""
    raw = sqlite3.connect(db.path)
    for trigger in ("no_update", "no_delete", "no_replace"):
        raw.execute(f"DROP TRIGGER ledger_{trigger}")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


_COLUMNS = (
    "time", "kind", "budget", "aggregator", "release", "plan_digest",
    "charge", "epsilon", "epsilon_joint", "accounting", "previous", "hash",
)  # fmt: skip


@pytest.mark.parametrize("column", _COLUMNS)
def test_every_changed_byte_is_found(db: Database, ledger: Ledger, column: str) -> None:
    """A change of any column of an entry is found, and the first such entry named."""
    for number in range(3):
        reserve(db, ledger, f"r{number}", "0.1", epsilon_joint=Decimal("0.1"))
    ledger.verify()
    changed = "'spend'" if column == "kind" else f"'9' || substr({column}, 2)"
    _tamper(db, f"UPDATE ledger SET {column} = {changed} WHERE sequence = 2")
    with pytest.raises(IntegrityError) as caught:
        ledger.verify()
    assert caught.value.details["entry"] == 2


def test_removed_entry_is_found(db: Database, ledger: Ledger) -> None:
    """An entry cut out of the middle is found, even if those after it are numbered anew."""
    for number in range(3):
        reserve(db, ledger, f"r{number}", "0.1")
    _tamper(db, "DELETE FROM ledger WHERE sequence = 2", "UPDATE ledger SET sequence = 2 WHERE sequence = 3")
    with pytest.raises(IntegrityError, match="entry 2"):
        ledger.verify()


def test_cut_tail_is_behind(db: Database, ledger: Ledger) -> None:
    """A ledger whose newest entries were cut off is behind the head that was signed before."""
    for number in range(3):
        reserve(db, ledger, f"r{number}", "0.1")
    head = ledger.head()
    assert (head.sequence, len(head.hash)) == (3, 64)
    assert not ledger.behind(head)
    _tamper(db, "DELETE FROM ledger WHERE sequence = 3")
    ledger.verify()
    assert ledger.behind(head)
    reserve(db, ledger, "other", "0.1")
    assert ledger.head().sequence == 3
    assert ledger.behind(head)


def test_behind_knows_older_heads(db: Database, ledger: Ledger) -> None:
    """A ledger that went on since a head is not behind it; an empty one is behind every other."""
    assert ledger.head() == Head(0, GENESIS)
    assert not ledger.behind(Head(0, ""))
    assert ledger.behind(Head(1, "a" * 64))
    reserve(db, ledger, "r1", "0.1")
    first = ledger.head()
    spend(db, ledger, "r1")
    assert not ledger.behind(first)
    assert ledger.behind(Head(1, "a" * 64))


@pytest.mark.parametrize("value", ["'many'", "x'ff00'"], ids=["text", "bytes"])
def test_unreadable_entry(db: Database, ledger: Ledger, value: str) -> None:
    """An entry that is no decimal any more is an integrity error and never counts as nothing."""
    reserve(db, ledger, "r1")
    _tamper(db, f"UPDATE ledger SET charge = {value}")
    with pytest.raises(IntegrityError):
        ledger.balance("patients", _TOTAL)
    with pytest.raises(IntegrityError):
        ledger.verify()


def test_lowered_total(db: Database, ledger: Ledger) -> None:
    """A total that the owner lowers below what is spent refuses all further work and hides nothing."""
    reserve(db, ledger, "r1", "0.9")
    assert balance(ledger, Decimal("0.5")) == ("0.9", "0", "-0.4")
    with pytest.raises(BalanceError):
        reserve(db, ledger, "r2", "0.1", total_epsilon=Decimal("0.5"))
