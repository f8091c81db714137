"""Progress of something long: a bar on a terminal, few lines elsewhere, nothing with --json."""

import io
import sys

from common.cli.progress_bar import progress_bar, shown_progress


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


def test_steps_on_a_terminal(monkeypatch):
    """Every step has its name and its share, whether it is known beforehand how long it is or not."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown_progress() as progress:
        progress.begin("loading")
        progress.expect(10)
        progress.advance(10)
        progress.begin("masking", 4)
        progress.reach(1)
    assert ["25%" in terminal.getvalue(), "masking" in terminal.getvalue()] == [True, True]


def test_steps_that_end_soon_print_nothing(capsys):
    """A log has a line a minute, and a command that takes seconds none."""
    for silent in (True, False):
        with shown_progress(silent=silent) as progress:
            progress.begin("loading", 10)
            progress.advance(10)
    assert capsys.readouterr() == ("", "")
