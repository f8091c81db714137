"""Progress of long work: a bar on a terminal, a line at every tenth elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.cli import console

STEPS = 10
"""Lines that are printed where there is no terminal, at most."""


@contextmanager
def progress_bar(title: str, *, silent: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error.

    Args:
        title: Name of the work.
        silent: Show nothing, for `--json`.

    Yields:
        A function of the number of completed steps and of all steps.
    """
    if silent:
        yield lambda _done, _all: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
    else:
        yield _Tenths(title)


class _Tenths:
    """Prints a line whenever another tenth is done."""

    def __init__(self, title: str) -> None:
        self._title, self._printed = title, -1

    def __call__(self, done: int, of: int) -> None:
        tenth = STEPS * done // max(of, 1)
        if tenth > self._printed:
            self._printed = tenth
            console.note(f"{self._title}: {done} of {of}")
