"""The README's walk-through, pasted into a shell as it stands."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local_process import program_path
from deploy.local_setup import free_port

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


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
    """A folder with a short path, since a Unix socket's is limited."""
    made = Path(tempfile.mkdtemp(prefix="readme-"))
    yield made
    shutil.rmtree(made)


@pytest.mark.timeout(240)
def test_walk_through(folder):
    """Every command of the README works in the order it is written in, and leaves no process behind."""
    environment = os.environ | {"PATH": f"{program_path('aggregator').parent}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-c", walk_through(folder)],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = shell.communicate(timeout=200)
        with pytest.raises(ProcessLookupError):
            os.killpg(shell.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, out
    assert out.count("release first: signatures, consents, digests and numbers hold") == 4
    assert "all 1,000 masked records of clinic are in the release" in out
    assert "record,age,ward,cost,refund" in out
    assert "ledger and history hold: 2 ledger entries" in out
