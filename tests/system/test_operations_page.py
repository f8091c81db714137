"""The commands of docs/operations.md and docs/backup.md, pasted into a shell as they stand."""

import json
import re
from pathlib import Path

import pytest

from deploy.local_setup import free_port
from tests.system.pasted import blocks, paste, short_folder

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")
BACKUP = (DOCS / "backup.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE.replace("\n## Back up\n", f"\n{BACKUP}\n"))
"""Where operations.md names the backup, the commands of its page are pasted."""
PORTS = ("8443", "9464", "9465", "9466")


@pytest.fixture
def folder():
    """A folder for one operator."""
    with short_folder("operate-") as made:
        yield made


@pytest.mark.timeout(600)
def test_the_pages(folder):
    """Installed, enrolled, backed up, restored, rotated and stopped: every command works, in its order."""
    text = "\n".join(["set -eu", *BLOCKS])
    for port in PORTS:
        text = text.replace(port, str(free_port()))
    code, out = paste(text, folder, seconds=280)
    assert code == 0, out
    assert 'tessera_owner_budget_remaining_epsilon{budget="patients",dataset="patients"} 3.0' in out
    assert "the state was restored from a backup, and the ledger may lack charges" in out
    assert "the ledger continues from entry 5" in out
    assert out.count("signatures, consents, digests and numbers hold") == 2
    assert "revoked: owner south" in out
    assert "enroll revoke" in out
    audited = [json.loads(line) for line in (folder / "central" / "audit.jsonl").read_text().splitlines()]
    assert {"enroll approve", "enroll replace", "enroll revoke", "release"} <= {
        each["action"] for each in audited
    }
    private = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert not [path for path in private if path.suffix in (".db", ".key")]


def test_metrics_of_the_page_are_those_that_there_are():
    """No metric is missing from the page, and none is described that is not there."""
    project = Path(__file__).parents[2]
    sources = [path for side in ("aggregator", "owner_node") for path in (project / side).rglob("*.py")]
    told = {name for path in sources for name in re.findall(r'"(tessera_[a-z_]+)"', path.read_text("utf-8"))}
    told = {name.removesuffix("_total") for name in told}
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `tessera_"))
    assert {name.removesuffix("_total") for name in re.findall(r"tessera_[a-z_]+", table)} == told
