"""The chain of the ledger: nobody rewrites it, cuts it, or goes back to an older one unseen."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from common.errors import IntegrityError, InternalError
from owner_node.ledger.entry import COLUMNS
from owner_node.ledger.ledger import Ledger
from owner_node.ledger.losses import LostCharge
from owner_node.state.chain import GENESIS, Head
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from tests.fakes.ledgers import TOTAL, balance, clock, reserve, spend, tamper


@pytest.fixture
def db(tmp_path: Path) -> Iterator[OwnerDatabase]:
    """A real database in a folder of its own."""
    with OwnerDatabase(tmp_path / "state") as database:
        yield database


@pytest.fixture
def ledger(db: OwnerDatabase) -> Ledger:
    """A ledger of four reservations."""
    book = Ledger(db, clock)
    for number in range(4):
        reserve(db, book, f"r{number}", "0.1", place="file:/data/patients.csv")
    book.verify()
    return book


def sign(db: OwnerDatabase, ledger: Ledger) -> Head:
    """Sign the head in a transaction of its own."""
    with db.transaction() as tx:
        return ledger.losses.sign(tx)


def broken_entry(ledger: Ledger) -> int:
    """Return the entry that `verify` names."""
    with pytest.raises(IntegrityError) as caught:
        ledger.verify()
    return int(caught.value.details["entry"])


@pytest.mark.parametrize("column", [*COLUMNS, "previous", "hash"])
def test_every_changed_byte_is_found(db: OwnerDatabase, ledger: Ledger, column: str) -> None:
    """A change of any column of an entry is found, and the first such entry named."""
    changed = "'spend'" if column == "kind" else f"'9' || substr({column}, 2)"
    changed = "'1'" if column in ("epsilon_joint", "rank_loss", "delta") else changed
    tamper(db, f"UPDATE ledger SET {column} = {changed} WHERE sequence = 2")
    assert broken_entry(ledger) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET charge = '0'",
        "DELETE FROM ledger",
        "INSERT OR REPLACE INTO ledger SELECT * FROM ledger",
        """INSERT INTO ledger SELECT 9, time, 'budget', budget, '', '', '', charge, epsilon, NULL, '', NULL,
            NULL, previous, hash, delta FROM ledger WHERE sequence = 1""",
    ],
    ids=["update", "delete", "replace", "gap"],
)
def test_the_table_is_append_only(db: OwnerDatabase, ledger: Ledger, statement: str) -> None:
    """No statement changes, deletes or replaces an entry, and only a recovery leaves numbers out."""
    with pytest.raises(InternalError, match="SQLITE_CONSTRAINT"), db.transaction() as tx:
        tx.execute(statement)
    ledger.verify()
    assert ledger.head().sequence == 4


def test_a_removed_entry_is_found(db: OwnerDatabase, ledger: Ledger) -> None:
    """An entry cut out of the middle is named, also if those after it are numbered anew."""
    tamper(db, "DELETE FROM ledger WHERE sequence = 2")
    assert broken_entry(ledger) == 2
    tamper_on = "UPDATE ledger SET sequence = sequence - 1 WHERE sequence > 2"
    with db.transaction() as tx:
        tx.execute(tamper_on)
    assert broken_entry(ledger) == 2


def test_a_missing_beginning_is_found(db: OwnerDatabase, ledger: Ledger) -> None:
    """A ledger does not begin in the middle."""
    tamper(db, "DELETE FROM ledger WHERE sequence = 1")
    assert broken_entry(ledger) == 1


def test_an_inserted_entry_is_found(db: OwnerDatabase, ledger: Ledger) -> None:
    """An entry that was put between two others is named, whatever hash it brings."""
    columns = ", ".join((*COLUMNS, "previous", "hash"))
    tamper(
        db,
        "UPDATE ledger SET sequence = -sequence WHERE sequence >= 3",
        f"INSERT INTO ledger (sequence, {columns}) SELECT 3, {columns} FROM ledger WHERE sequence = 2"
        .replace("release, ", "release, ", 1).replace("SELECT 3, time, kind", "SELECT 3, time, 'return'"),
        "UPDATE ledger SET sequence = 1 - sequence WHERE sequence < 0",
    )  # fmt: skip
    assert broken_entry(ledger) == 3


def test_entries_in_another_order_are_found(db: OwnerDatabase, ledger: Ledger) -> None:
    """Two entries that changed places are found at the first of them."""
    tamper(
        db,
        "UPDATE ledger SET sequence = 99 WHERE sequence = 2",
        "UPDATE ledger SET sequence = 2 WHERE sequence = 3",
        "UPDATE ledger SET sequence = 3 WHERE sequence = 99",
    )
    assert broken_entry(ledger) == 2


def test_no_entry_but_a_recovery_leaves_numbers_out(db: OwnerDatabase, ledger: Ledger) -> None:
    """A gap is only a gap that somebody answers for."""
    tamper(db, "UPDATE ledger SET sequence = 9 WHERE sequence = 4")
    assert broken_entry(ledger) == 4


def test_a_cut_tail_is_behind(db: OwnerDatabase, ledger: Ledger) -> None:
    """A ledger whose newest entries were cut off is behind the head that was signed before, for ever."""
    head = sign(db, ledger)
    assert (head.sequence, len(head.hash)) == (4, 64)
    assert not ledger.behind(head)
    tamper(db, "DELETE FROM ledger WHERE sequence = 4")
    assert ledger.behind(head)
    assert broken_entry(ledger) == 4
    reserve(db, ledger, "other", "0.1")
    assert ledger.head().sequence == 4
    assert ledger.behind(head)
    assert broken_entry(ledger) == 4


def test_the_newest_signed_head_stays(db: OwnerDatabase, ledger: Ledger) -> None:
    """Signing again what was signed, or an older place, moves nothing back."""
    newest = sign(db, ledger)
    tamper(db, "DELETE FROM ledger WHERE sequence > 2")
    sign(db, ledger)
    assert ledger.losses.signed() == newest


def test_behind_knows_older_heads(db: OwnerDatabase) -> None:
    """A ledger that went on since a head is not behind it; an empty one is behind every other."""
    ledger = Ledger(db, clock)
    assert ledger.head() == Head(0, GENESIS)
    assert not ledger.behind(Head(0, ""))
    assert ledger.behind(Head(1, "a" * 64))
    reserve(db, ledger, "r1", "0.1")
    first = ledger.head()
    spend(db, ledger, "r1")
    assert not ledger.behind(first)
    assert ledger.behind(Head(1, "a" * 64))


def test_a_copy_that_went_its_own_way(db: OwnerDatabase, ledger: Ledger) -> None:
    """Where this ledger has another entry than was signed, a copy is named, not only a backup."""
    with pytest.raises(IntegrityError, match="another copy of this state directory") as caught:
        ledger.losses.check(Head(3, "a" * 64))
    assert caught.value.details["entry"] == 3
    with pytest.raises(IntegrityError, match="ends at entry 4"):
        ledger.losses.check(Head(9, "a" * 64))


def test_a_recovery_goes_on_after_what_was_lost(db: OwnerDatabase, ledger: Ledger) -> None:
    """Acknowledged heads are not missed any more, what follows is newer than them, and the chain holds."""
    lost = [Head(9, "a" * 64), Head(7, "b" * 64)]
    with db.transaction() as tx:
        ledger.losses.acknowledge(tx, lost, {"aggregators": ["hub"]})
        ledger.losses.charge(tx, LostCharge("patients", TOTAL, "hub", "gone", "e"))
    assert [line.sequence for line in ledger.lines()] == [1, 2, 3, 4, 10, 11, 12]
    assert not any(ledger.behind(head) for head in lost)
    assert ledger.behind(Head(9, "c" * 64))
    ledger.verify()
    assert balance(ledger) == ("0.4", "1", "-0.4")
    tamper(db, "UPDATE ledger SET sequence = 8 WHERE sequence = 10")
    assert broken_entry(ledger) == 5


def test_what_was_lost_is_charged_once(db: OwnerDatabase, ledger: Ledger) -> None:
    """A reservation that is still there is spent as reserved; a spend stays, and a return settles nothing."""
    spend(db, ledger, "r1")
    with db.transaction() as tx:
        ledger.give_back(tx, "hub", "r2", "d" * 64)
        for release in ("r0", "r1", "r2", "r0", "r2"):
            ledger.losses.charge(tx, LostCharge("patients", TOTAL, "hub", release, "d" * 64))
    assert balance(ledger) == ("0.1", "1.2", "-0.3")
    with db.transaction() as tx:
        ledger.losses.charge(tx, LostCharge("patients", TOTAL, "hub", "r1", "e" * 64))
    assert balance(ledger) == ("0.1", "2.2", "-1.3")
    ledger.verify()


@pytest.mark.parametrize("value", ["'many'", "x'ff00'"], ids=["text", "bytes"])
def test_unreadable_entry(db: OwnerDatabase, ledger: Ledger, value: str) -> None:
    """An entry that is no decimal any more is an integrity error and never counts as nothing."""
    tamper(db, f"UPDATE ledger SET charge = {value}")
    with pytest.raises(IntegrityError):
        ledger.balance("patients", TOTAL)
    assert broken_entry(ledger) == 1


def test_the_history_is_a_chain_as_well(db: OwnerDatabase) -> None:
    """A changed and a removed line of the history are named."""
    history = History(db, clock)
    for number in range(3):
        with db.transaction() as tx:
            history.record(tx, aggregator="hub", release=f"r{number}", event="invited")
    history.verify()
    tamper(db, "UPDATE history SET decision = 'accept' WHERE sequence = 2")
    with pytest.raises(IntegrityError, match="history does not hold from entry 2"):
        history.verify()
    with db.transaction() as tx:
        tx.execute("DELETE FROM history WHERE sequence = 1")
    with pytest.raises(IntegrityError, match="history does not hold from entry 1"):
        history.verify()


def test_clocks_that_jump(db: OwnerDatabase) -> None:
    """Times may go back and forth by years; the order of entries, balances and the chain do not mind."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    jumps = [timedelta(days=400), timedelta(days=-9000), timedelta(0), timedelta(seconds=-1)]
    for number, jump in enumerate(jumps):
        ledger = Ledger(db, partial(datetime.fromtimestamp, (now + jump).timestamp(), UTC))
        reserve(db, ledger, f"r{number}", "0.1")
        spend(db, ledger, f"r{number}")
    entries = Ledger(db, clock).entries()
    assert [entry.time for entry in entries[::2]] == [(now + jump).isoformat() for jump in jumps]
    assert [entry.sequence for entry in entries] == list(range(1, 9))
    assert balance(Ledger(db, clock)) == ("0", "0.4", "0.6")
    Ledger(db, clock).verify()


def test_a_history_that_was_cut_off(db: OwnerDatabase, ledger: Ledger) -> None:
    """The ledger has where the history was: its lines cannot be cut off up to there, or written anew."""
    history = History(db, clock)
    with db.transaction() as tx:
        for number in range(5):
            history.record(tx, aggregator="hub", release=f"r{number}", event="attempt")
    spend(db, ledger, "r1")
    ledger.verify()
    ledger.verify_history()
    tamper(db, "DELETE FROM history WHERE sequence > 2")
    history.verify()
    with pytest.raises(IntegrityError, match="history lacks line 5") as caught:
        ledger.verify_history()
    assert caught.value.details["chain"] == "history"
    with db.transaction() as tx:
        for _ in range(5):
            history.record(tx, aggregator="hub", release="r9", event="invited")
    history.verify()
    with pytest.raises(IntegrityError, match="history lacks line 5"):
        ledger.verify_history()
