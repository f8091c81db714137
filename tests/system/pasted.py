"""What a page says to type, pasted into a shell as it stands."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.local_process import program_path


def blocks(page: str) -> list[str]:
    """Return the shell blocks of a page's text, in their order."""
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """Make a folder with a short path, since a Unix socket's is limited, for the length of a block."""
    made = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def paste(text: str, folder: Path, seconds: float) -> tuple[int, str]:
    """Run a script with the installed programs on its path, and check that it leaves no process behind.

    Returns:
        Its exit code, and all that it printed.
    """
    shell = subprocess.Popen(
        ["bash", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": f"{program_path('aggregator').parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = shell.communicate(timeout=seconds)
        with pytest.raises(ProcessLookupError):
            os.killpg(shell.pid, 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return shell.returncode, out
