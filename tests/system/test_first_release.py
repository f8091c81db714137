"""The commands of docs/first-release.md, pasted into a shell as they stand."""

from pathlib import Path

import pytest

from deploy.local_setup import free_port
from tests.system.pasted import blocks, paste, short_folder

PROJECT = Path(__file__).parents[2]
BLOCKS = blocks((PROJECT / "docs" / "first-release.md").read_text(encoding="utf-8"))


def walk_through(folder: Path) -> str:
    """Return the blocks as one script that stops at the first command that fails, in a folder of its own."""
    install, *rest = BLOCKS
    # The environment is the wheel's; the rest of the block is tried.
    kept = [
        line for line in install.splitlines() if line not in ("make setup-runtime", ". .venv/bin/activate")
    ]
    text = "\n".join(["set -eu", *kept, *rest])
    return text.replace("build/by-hand", str(folder)).replace("8443", str(free_port()))


@pytest.fixture
def folder():
    """A folder for what the walk-through makes."""
    with short_folder("first-") as made:
        yield made


@pytest.mark.timeout(600)
def test_walk_through(folder):
    """Every command of the page works in the order it is written in, and leaves no process behind."""
    code, out = paste(walk_through(folder), PROJECT, seconds=200)
    assert code == 0, out
    assert out.count("release first: signatures, consents, digests and numbers hold") == 4
    assert "all 1,000 masked records of clinic are in the release" in out
    assert "record,age,ward,cost,refund" in out
    assert "ledger and history hold: 2 ledger entries" in out
