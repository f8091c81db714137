"""The ledger between threads and processes: whoever asks at once, exactly what fits is reserved, once."""

import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

from common.errors import BalanceError, InternalError
from owner_node.ledger.ledger import EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from tests.fakes.ledgers import TOTAL, balance, clock, give_back, reserve, spend

FIFTY = 50
CHARGE = "0.14"
"""Seven of these fit into 1, and 0.02 are left."""


def test_of_fifty_threads_seven_reserve(tmp_path: Path) -> None:
    """Of 50 threads that ask at the same instant for a budget that fits 7, exactly 7 get it."""
    outcomes: list[bool] = []
    together = threading.Barrier(FIFTY)

    def ask(number: int) -> None:
        together.wait()
        try:
            reserve(db, Ledger(db, clock), f"r{number}", CHARGE)
            outcomes.append(True)
        except BalanceError:
            outcomes.append(False)

    with OwnerDatabase(tmp_path / "state") as db:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(FIFTY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (outcomes.count(True), outcomes.count(False)) == (7, 43)
        assert balance(Ledger(db, clock)) == ("0.98", "0", "0.02")
        Ledger(db, clock).verify()


_RACER = """
import sys, threading
from datetime import datetime, UTC
from decimal import Decimal
from pathlib import Path
from common.errors import BalanceError
from owner_node.state.database import OwnerDatabase
from owner_node.ledger.ledger import Ledger
threads, got = int(sys.argv[3]), []
books = [OwnerDatabase(Path(sys.argv[1])) for _ in range(threads)]
together = threading.Barrier(threads + 1)

def ask(number, db):
    together.wait()
    try:
        with db.transaction() as tx:
            Ledger(db, lambda: datetime.now(UTC)).reserve(
                tx, budget="patients", total_epsilon=Decimal(1), charge=Decimal(sys.argv[4]),
                aggregator="hub", release=sys.argv[2] + str(number), plan_digest="d" * 64)
        got.append(number)
    except BalanceError:
        pass

asking = [threading.Thread(target=ask, args=each) for each in enumerate(books)]
for each in asking:
    each.start()
print("ready", flush=True)
sys.stdin.readline()
together.wait()
for each in asking:
    each.join()
print(len(got))
"""


def _race(state: Path, names: list[str], threads: int) -> int:
    """Start processes that each ask in several threads, let them go together, and count who got it."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(state), name, str(threads), CHARGE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60) for racer in racers]
    assert [error for _, error in answers] == [""] * len(names)
    return sum(int(got) for got, _ in answers)


def test_of_fifty_requests_of_ten_processes_seven_reserve(tmp_path: Path) -> None:
    """50 requests of ten processes, every one through a database of its own: exactly 7 reserve."""
    assert _race(tmp_path / "state", [f"p{number}-" for number in range(10)], threads=5) == 7
    with OwnerDatabase(tmp_path / "state") as db:
        assert balance(Ledger(db, clock)) == ("0.98", "0", "0.02")
        Ledger(db, clock).verify()


def test_the_same_release_is_charged_once(tmp_path: Path) -> None:
    """Processes that repeat one and the same request all succeed, and it is charged once."""
    assert _race(tmp_path / "state", ["same", "same", "same"], threads=7) == 21
    with OwnerDatabase(tmp_path / "state") as db:
        kinds = [entry.kind for entry in Ledger(db, clock).entries()]
        assert (len(kinds), set(kinds)) == (7, {EntryKind.RESERVE})


def test_spend_and_return_race(tmp_path: Path) -> None:
    """A spend and a return that come at once: one of them wins, and no entry is settled twice."""
    with OwnerDatabase(tmp_path / "state") as db:
        ledger = Ledger(db, clock)
        for number in range(20):
            reserve(db, ledger, f"r{number}", "0.01")
        together = threading.Barrier(40)
        refused: list[int] = []

        def settle(number: int, *, spending: bool) -> None:
            together.wait()
            if not spending:
                give_back(db, ledger, f"r{number}")
                return
            try:
                spend(db, ledger, f"r{number}")
            except InternalError:
                refused.append(number)

        threads = [
            threading.Thread(target=settle, args=(number,), kwargs={"spending": spending})
            for number in range(20)
            for spending in (True, False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled = [entry for entry in ledger.entries() if entry.kind is not EntryKind.RESERVE]
        assert sorted(entry.release for entry in settled) == sorted(f"r{number}" for number in range(20))
        returned = {entry.release for entry in settled if entry.kind is EntryKind.RETURN}
        assert returned == {f"r{number}" for number in refused}
        found = ledger.balance("patients", TOTAL)
        assert (found.reserved, found.remaining + found.spent) == (Decimal(0), TOTAL)
