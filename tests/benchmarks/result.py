"""What a benchmark reports: a ratio measured in one run, and the most it may be; processes to measure."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One measured ratio."""

    name: str
    """What was measured against what."""
    ratio: float
    """Measured cost by the cost it is compared with."""
    limit: float
    """The largest ratio that is good enough."""
    detail: str
    """The two costs, with units."""

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its limit."""
        return self.ratio <= self.limit


def medians(repetitions: int, *measured: Callable[[], object]) -> list[float]:
    """Time several things in turns, so that a busy moment of the machine meets all of them.

    Args:
        repetitions: Number of turns, after one that is not counted.
        measured: What to time.

    Returns:
        The median of each, in seconds.
    """
    times: list[list[float]] = [[] for _ in measured]
    for turn in range(repetitions + 1):
        for action, taken in zip(measured, times, strict=True):
            start = time.perf_counter()
            action()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@contextmanager
def party(
    module: str, *arguments: str, namespace: str = ""
) -> Iterator[tuple[Callable[[str], Any], Any, int]]:
    """Start a module as a process that answers every line with a line of JSON.

    Args:
        module: The module.
        arguments: Its arguments.
        namespace: Name of its network namespace; empty: the one of this process.

    Yields:
        How to ask it, what it said when it was ready, and its process id.
    """
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    command = [*inside, sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        asking, answers = process.stdin, process.stdout

        def ask(line: str) -> Any:
            asking.write(f"{line}\n")
            asking.flush()
            return json.loads(answers.readline())

        try:
            yield ask, json.loads(answers.readline()), process.pid
        finally:
            asking.close()
            process.wait()
