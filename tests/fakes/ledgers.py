"""A real ledger, and what tests do to it in a line each; among that what somebody would who knows SQLite."""

import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase

TOTAL = Decimal(1)


def clock() -> datetime:
    """A clock that stands."""
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def reserve(db: OwnerDatabase, ledger: Ledger, release: str, charge: str = "0.4", **other: Any) -> None:
    """Reserve in a transaction of its own."""
    arguments = {"budget": "patients", "total_epsilon": TOTAL, "aggregator": "hub", "plan_digest": "d" * 64}
    with db.transaction() as tx:
        ledger.reserve(tx, **{**arguments, "release": release, "charge": Decimal(charge), **other})


def spend(db: OwnerDatabase, ledger: Ledger, release: str, plan_digest: str = "d" * 64, **other: Any) -> None:
    """Spend in a transaction of its own."""
    with db.transaction() as tx:
        ledger.spend(tx, "hub", release, plan_digest, **other)


def give_back(db: OwnerDatabase, ledger: Ledger, release: str, plan_digest: str = "d" * 64) -> bool:
    """Return in a transaction of its own."""
    with db.transaction() as tx:
        return ledger.give_back(tx, "hub", release, plan_digest)


def kinds(ledger: Ledger) -> list[str]:
    """What the entries say, in short."""
    return [f"{entry.kind} {entry.release} {entry.charge}" for entry in ledger.entries()]


def balance(ledger: Ledger, total: Decimal = TOTAL) -> tuple[str, str, str]:
    """Reserved, spent and remaining."""
    found = ledger.balance("patients", total)
    return str(found.reserved), str(found.spent), str(found.remaining)


def tamper(db: OwnerDatabase, *statements: str) -> None:
    """Change the file as somebody would who knows SQLite."""
    raw = sqlite3.connect(db.path)
    for table in ("ledger", "history"):
        for trigger in ("no_update", "no_delete", "no_replace"):
            raw.execute(f"DROP TRIGGER {table}_{trigger}")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()
