"""Progress of something long: a bar on a terminal, few lines elsewhere, nothing with --json."""

import io
import sys

from owner_node.cli.progress_bar import progress_bar


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def advance(silent: bool = False) -> None:
    """Do 250 things."""
    with progress_bar("settings", silent=silent) as progress:
        for done in range(251):
            progress(done, 250)


def test_a_line_at_every_tenth(capsys):
    """A log gets eleven lines, however many steps there are; standard output gets none."""
    advance()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"settings: {done} of 250" for done in range(0, 251, 25)]


def test_silent(capsys):
    """With --json nothing is shown."""
    advance(silent=True)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch):
    """A terminal shows how much of it is done, and the bar is gone at the end."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    advance()
    assert "250/250" in terminal.getvalue()
