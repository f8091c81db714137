"""The history as audit records: whole, in order, and from where a sink has come."""

import json
from datetime import UTC, datetime
from pathlib import Path

from common.daemon.audit import AuditSection
from common.daemon.delivery import open_sinks
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import AuditFeed, History, Line
from tests.fakes.deliveries import deliver


async def test_lines_are_told_once_over_restarts(tmp_path: Path) -> None:
    """A sink goes on after a restart where it was, and one that is new is told everything."""
    sink = AuditSection(tmp_path / "audit.jsonl")
    kept: tuple[Line, ...] = ()
    for release in ("r1", "r2", "r3"):
        with OwnerDatabase(tmp_path / "state") as db:
            history = History(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
            feed = AuditFeed(db, history, "north")
            with db.transaction() as tx:
                history.record(tx, aggregator="hub", release=release, event="invited", rule="über k")
            await deliver(feed, open_sinks(sink, "x"))
            await deliver(feed, open_sinks(sink, "x"))
            kept = history.entries()
    told = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["release"] for line in told] == ["r1", "r2", "r3"]
    assert {line["owner"] for line in told} == {"north"}
    assert [line["hash"] for line in told] == [line.hash for line in kept]
    with OwnerDatabase(tmp_path / "state") as db:
        feed = AuditFeed(db, History(db, lambda: datetime(2026, 1, 2, tzinfo=UTC)), "north")
        await deliver(feed, open_sinks(AuditSection(tmp_path / "second.jsonl"), "x"))
    assert (tmp_path / "second.jsonl").read_text() == (tmp_path / "audit.jsonl").read_text()


def test_batches_leave_nothing_out(tmp_path: Path) -> None:
    """A long history is told in batches that meet."""
    with OwnerDatabase(tmp_path / "state") as db:
        history = History(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
        with db.transaction() as tx:
            for number in range(7):
                history.record(tx, aggregator="hub", release=f"r{number}", event="invited")
        feed = AuditFeed(db, history, "north")
        batches = [[n for n, _ in feed.audit_records(after, 3)] for after in (0, 3, 6, 7)]
    assert batches == [[1, 2, 3], [4, 5, 6], [7], []]


def test_what_was_found_about_the_data_stays(tmp_path: Path) -> None:
    """No digest of original data and no forecast of them leaves the owner's database."""
    details = {
        "charge": "1", "source": "s" * 64, "forecast": {"mean_sse": "0.123"},
        "asked": {"data": "d" * 64, "kind": "median", "forecast": "0.123"},
    }  # fmt: skip
    with OwnerDatabase(tmp_path / "state") as db:
        history = History(db, lambda: datetime(2026, 1, 2, tzinfo=UTC))
        with db.transaction() as tx:
            history.record(tx, aggregator="hub", release="r1", event="accepted", details=details)
        ((_, record),) = AuditFeed(db, history, "north").audit_records(0, 9)
    assert record["details"] == {"charge": "1", "asked": {"kind": "median"}}
