"""An owner's folder with one small data set: a real configuration and a real file, and no daemon."""

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from common.cli import console
from owner_node.cli import application
from owner_node.ledger.ledger import EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History

OWNER = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"

[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"

[policy]
{policy}

[[dataset]]
name = "patients"
source = "patients.csv"
budget = "people"
total_epsilon = "2.5"
identifier = "id"

[dataset.attributes.age]
type = "integer"
min = 0
max = 120

[dataset.attributes.income]
type = "number"
min = -10
max = 9000
decimals = 2

[dataset.attributes.ward]
type = "category"
categories = ["medicine", "eye, ear"]

[dataset.attributes.stage]
type = "category"
categories = ["mild", "moderate", "severe"]
ordered = true

[dataset.attributes.admitted]
type = "date"
min = 2015-01-01
max = 2026-12-31

[dataset.attributes.emergency]
type = "boolean"
"""
ATTRIBUTES = ("age", "income", "ward", "stage", "admitted", "emergency")


def make_owner_folder(folder: Path, *, policy: str = "", n_records: int = 60) -> Path:
    """Write `owner.toml` and `patients.csv`; returns the folder."""
    (folder / "owner.toml").write_text(OWNER.format(policy=policy))
    write_patients(folder, n_records)
    return folder


def write_patients(folder: Path, n_records: int, seed: int = 1) -> None:
    """Write the data: ids that occur nowhere by chance, ages that are the records' numbers modulo 100."""
    draw = random.Random(seed)
    lines = ["id,age,income,ward,stage,admitted,emergency,note"]
    lines += [
        f"secret-{n:05d},{n % 100},{draw.uniform(0, 5000):.2f},"
        + draw.choice(["medicine", '"eye, ear"'])
        + f",{draw.choice(['mild', 'moderate', 'severe'])},2020-0{draw.randint(1, 9)}-1{draw.randint(0, 9)},"
        + f"{draw.choice(['true', 'false'])},secret-note-{n}"
        for n in range(n_records)
    ]
    (folder / "patients.csv").write_text("\n".join(lines) + "\n")


def ask_mask(capsys: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Mask the data set with ε 1, --yes, --anyway and --json; nothing that is printed holds an identifier."""
    command = ["mask", "--dataset", "patients", "--epsilon", "1", *arguments, "--yes", "--anyway", "--json"]
    code = console.run(application(), "owner-node", command)
    captured = capsys.readouterr()
    assert "secret" not in captured.out + captured.err
    return code, json.loads(captured.out)


def spends(folder: Path) -> list[tuple[str, Decimal]]:
    """Ids and charges of all spends of a folder's owner, the chains checked."""

    def now() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    with OwnerDatabase(folder / "state", make=False) as db:
        ledger = Ledger(db, now)
        ledger.verify()
        History(db, now).verify()
        return [(each.release, each.charge) for each in ledger.entries() if each.kind is EntryKind.SPEND]
