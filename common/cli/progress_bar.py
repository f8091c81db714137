"""Progress of long work on standard error: a bar on a terminal, a few lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from common.cli import console
from common.progress import Progress

STEPS = 10
"""Lines that `progress_bar` prints where there is no terminal, at most."""


@contextmanager
def progress_bar(title: str, *, silent: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show progress that is counted: where there is no terminal, a line at every tenth.

    Yields:
        A function of the number of completed steps and of all steps.
    """
    if silent:
        yield lambda _done, _all: None
    elif sys.stderr.isatty():
        from rich.progress import MofNCompleteColumn

        with _bar(MofNCompleteColumn()) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
    else:
        yield _Tenths(title)


@contextmanager
def shown_progress(*, silent: bool = False) -> Iterator[Progress]:
    """Show the progress of long steps: where there is no terminal, a line a minute."""
    if silent:
        yield Progress()
    elif sys.stderr.isatty():
        from rich.progress import TaskProgressColumn

        with _bar(TaskProgressColumn()) as bar:
            yield _ProgressOnBar(bar)
    else:
        yield _ProgressInLines()


def _bar(column: Any) -> Any:
    """Return a bar with a column that says how much is done, and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), column, TimeRemainingColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)


class _Tenths:
    """Prints a line whenever another tenth is done."""

    def __init__(self, title: str) -> None:
        self._title, self._printed = title, -1

    def __call__(self, done: int, of: int) -> None:
        tenth = STEPS * done // max(of, 1)
        if tenth > self._printed:
            self._printed = tenth
            console.note(f"{self._title}: {done} of {of}")


class _ProgressInLines(Progress):
    """Prints a line a minute."""

    def report(self) -> None:
        console.note(self.text())


class _ProgressOnBar(Progress):
    """Draws a bar, the one of the present step; between steps the terminal is free for questions."""

    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._bar = bar
        self._task = bar.add_task("", visible=False)

    def begin(self, what: str, total: float = 0.0) -> None:
        super().begin(what, total)
        self._bar.reset(self._task, description=what, total=total or None, visible=bool(what))
        if what:
            self._bar.start()
        else:
            self._bar.stop()

    def expect(self, total: float) -> None:
        super().expect(total)
        self._bar.update(self._task, total=total or None)

    def reach(self, done: float) -> None:
        super().reach(done)
        self._bar.update(self._task, completed=self.done)

    def report(self) -> None:
        pass
