"""docs/tutorial.md as a new user goes through it: every block in one shell, and a person in the browser."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest

from deploy.local_process import program_path
from deploy.local_setup import free_port
from tests.system.pasted import blocks

PROJECT = Path(__file__).parents[1]
_TRAINING = 32_561
"""Records of Adult's first file, adult.data."""
_RED = 1_599
_DONE = "the block is done"
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/enter\?key=\S+")


def walk_through(folder: Path, data: Path, person: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """Paste the blocks of the page into a shell, one after the other, and stop at the first that fails.

    The block that installs is replaced by the installed wheel, and the one that downloads by the same files
    made of `data`.

    Args:
        folder: Where the tutorial's folder is; its path is short.
        data: Folder of the published data sets.
        person: Called with every one-time link that a block prints: does in the browser what the page says.

    Yields:
        Each block, and what it printed.
    """
    install, download, *rest = _on_free_ports(PROJECT / "docs" / "tutorial.md")
    assert "pip install" in install, "the first block installs"
    assert "urlopen" in download, "the second block downloads"
    with _shell(folder) as run:
        run(download.splitlines()[0])
        write_public_files(data, folder / "public")
        for block in rest:
            out = run(block)
            yield block, out
            for link in _LINK.findall(out):
                person(link)


def write_public_files(data: Path, folder: Path) -> None:
    """Write the files as UCI publishes them, as far as the tutorial reads them."""
    adult = pd.read_csv(data / "adult.csv", dtype=str, keep_default_na=False).iloc[:_TRAINING]
    lines = [", ".join(record) for record in adult.itertuples(index=False)]
    (folder / "adult.data").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    wine = pd.read_csv(data / "wine_quality.csv", dtype=str, keep_default_na=False)
    wine = wine.drop(columns="colour").rename(columns=lambda name: name.replace("_", " "))
    wine[:_RED].to_csv(folder / "winequality-red.csv", sep=";", index=False)
    wine[_RED:].to_csv(folder / "winequality-white.csv", sep=";", index=False)


def _on_free_ports(page: Path) -> list[str]:
    ports = {port: str(free_port()) for port in ("8443", "8441")}
    return [
        re.sub("|".join(ports), lambda found: ports[found[0]], block)
        for block in blocks(page.read_text(encoding="utf-8"))
    ]


@contextmanager
def _shell(folder: Path) -> Iterator[Callable[[str], str]]:
    """Start a shell in a folder, with the installed programs on its path; leave no process of it behind.

    Yields:
        Runs a block of commands, which must not fail, and returns what it printed.
    """
    with subprocess.Popen(
        ["bash", "-eu"],
        cwd=folder,
        env=os.environ | {"PATH": f"{program_path('aggregator').parent}:{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        writing, reading = shell.stdin, shell.stdout
        assert writing is not None
        assert reading is not None

        def run(block: str) -> str:
            # Commands find nothing to read, so that none takes what is meant for the shell.
            writing.write(f"eval {shlex.quote(block)} < /dev/null\nprintf '\\n{_DONE}\\n'\n")
            writing.flush()
            said: list[str] = []
            for line in reading:
                if line.strip() == _DONE:
                    return "".join(said)
                said.append(line)
            raise AssertionError(f"{block}\nended the shell:\n{''.join(said)}")

        try:
            yield run
            writing.close()
            reading.read()
            assert shell.wait() == 0
            with pytest.raises(ProcessLookupError):
                os.killpg(shell.pid, 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
