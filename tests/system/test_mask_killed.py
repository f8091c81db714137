"""`owner-node mask` killed between the charge and the result, by SIGKILL, and asked again."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from deploy.local_process import program_path
from owner_node.ledger.ledger import EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from tests.fakes.owner_folder import make_owner_folder

ARGUMENTS = (
    "mask", "--dataset", "patients", "--epsilon", "1",
    "--out", "masked.csv", "--id", "once", "--yes", "--anyway", "--json",
)  # fmt: skip


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def events(folder: Path) -> list[str]:
    """What the history says happened."""
    with OwnerDatabase(folder / "state", make=False) as db:
        return [line.event for line in History(db, now).entries()]


def test_killed_after_the_charge(tmp_path):
    """Charged once; the noise is drawn anew, the file is whole, and what the dead process left is gone."""
    make_owner_folder(tmp_path, n_records=30_000)
    command = [str(program_path("owner-node")), *ARGUMENTS]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while process.poll() is None and "spent" not in events(tmp_path):
            os.sched_yield()
    finally:
        process.kill()
        told = process.communicate()[1]
    assert "spent" in events(tmp_path), told
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["charged"] == 0
    assert events(tmp_path) == ["spent", "delivered"]
    assert len(pd.read_csv(tmp_path / "masked.csv")) == 30_000
    with OwnerDatabase(tmp_path / "state", make=False) as db:
        ledger = Ledger(db, now)
        ledger.verify()
        assert [each.kind for each in ledger.entries()] == [EntryKind.RESERVE, EntryKind.SPEND]
    kept = sorted(path.name for path in (tmp_path / "state" / "masked").iterdir())
    assert kept == ["lock", "once.json", "once.parquet"]
