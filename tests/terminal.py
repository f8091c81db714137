"""A person at a terminal: pastes blocks into an interactive shell, and answers the questions of programs."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from deploy.local_process import program_path

_PROMPT = re.compile(r"<status:(\d+)> $")
_FAILED = "a command failed: "
_QUESTION = re.compile(r"\[(?P<default>[^\[\]\n]*)\] $")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
_SILENT_SECONDS = 0.5
"""A program that has printed a question and nothing since waits for the answer."""
_ROWS, _COLUMNS = 50, 200


class Terminal:
    """An interactive bash on a pseudo-terminal, with the installed programs on its path.

    Args:
        folder: Where it starts.
    """

    def __init__(self, folder: Path) -> None:
        self._own, other = pty.openpty()
        ioctl(self._own, TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        path = f"{program_path('aggregator').parent}:{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-i"],
            cwd=folder,
            env=os.environ | {"PATH": path, "PS1": "<status:$?> ", "TERM": "xterm-256color", "HISTFILE": ""},
            preexec_fn=lambda: os.login_tty(other),  # noqa: PLW1509 - the shell needs a terminal to control
        )
        os.close(other)
        self.answered: list[str] = []
        """Questions that were answered so far."""
        self._until_prompt()
        self._run(f"set -E; trap 'echo \"{_FAILED}$BASH_COMMAND\"' ERR")

    def paste(self, block: str) -> str:
        """Paste a block, press Enter, answer what is asked, and return what was printed.

        A question is answered by Enter, as somebody does who follows a page that does not mention it. Where
        the question is whether to go on, the answer is yes.

        Raises:
            AssertionError: If a command of the block fails.
        """
        out = self._run(block)
        assert _FAILED not in out, out
        return out

    def leave(self) -> int:
        """Leave the shell; returns its exit code."""
        self._type("exit\n")
        self._read_rest()
        return self._shell.wait()

    def close(self) -> None:
        """End all processes of the terminal."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._own)

    def processes(self) -> list[int]:
        """Return the processes of the terminal's session."""
        found = []
        for each in Path("/proc").iterdir():
            with suppress(ValueError, ProcessLookupError):
                if os.getsid(int(each.name)) == self._shell.pid:
                    found.append(int(each.name))
        return found

    def _run(self, block: str) -> str:
        self._type(f"\x1b[200~{block.rstrip()}\x1b[201~")
        self._type("\n")
        return self._until_prompt()

    def _type(self, text: str) -> None:
        data = text.encode()
        while data:
            # The terminal holds a few kilobytes: what it echoes is read while the rest is written.
            _, writable, _ = select.select([], [self._own], [])
            if writable:
                data = data[os.write(self._own, data[:512]) :]

    def _read_rest(self) -> None:
        # Linux reports the end of the other side as an error.
        with suppress(OSError):
            while os.read(self._own, 65536):
                pass

    def _until_prompt(self) -> str:
        printed = ""
        while True:
            ready, _, _ = select.select([self._own], [], [], _SILENT_SECONDS)
            if ready:
                try:
                    printed += os.read(self._own, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"the shell ended:\n{printed}") from None
                shown = _ESCAPES.sub("", printed).replace("\r", "")
                if _PROMPT.search(shown):
                    return _PROMPT.sub("", shown)
                continue
            shown = _ESCAPES.sub("", printed).replace("\r", "")
            question = _QUESTION.search(shown)
            if question is not None:
                self.answered.append(shown.splitlines()[-1])
                self._type("y\n" if question["default"] == "y/N" else "\n")
                printed += "\n"


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    """Open a terminal in a folder; leave no process of it behind."""
    opened = Terminal(folder)
    try:
        yield opened
    finally:
        opened.close()
