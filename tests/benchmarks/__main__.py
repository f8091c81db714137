"""Run the benchmarks: every module `bench_*.py` beside this file that has a `run()`.

Exit code 1 if a ratio is above its limit, so that a continuous integration can hold it.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from common.processor import sorting
from tests.benchmarks.result import Result

PREFIX = "bench_"


def names() -> list[str]:
    """Return the names of the benchmarks."""
    return sorted(path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def measure(chosen: list[str], console: Console) -> Iterator[Result]:
    """Run benchmarks one after another, saying on standard error which one is running."""
    for name in chosen:
        console.print(f"measuring {name}", highlight=False)
        yield from importlib.import_module(f"tests.benchmarks.{PREFIX}{name}").run()


def show(results: list[Result]) -> None:
    """Print the results as a table."""
    table = Table("measured", "ratio", "limit", "detail", "")
    for result in results:
        verdict = "[green]holds[/green]" if result.holds else "[red]too high[/red]"
        table.add_row(result.name, f"{result.ratio:.2f}", f"{result.limit:.2f}", result.detail, verdict)
    Console().print(table)


def main(arguments: list[str] | None = None) -> int:
    """Parse, measure, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure ratios.")
    parser.add_argument("--only", metavar="NAME", action="append", choices=names(), help="one benchmark")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    # Programs find their bytecode, as where they are installed: compiling takes time, and memory that stays.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = Console(stderr=True)
    # Limits are the same on both kinds of processors; this says on which of them they were held.
    console.print(sorting(), highlight=False)
    results = list(measure(options.only or names(), console))
    if options.json:
        print(json.dumps([asdict(result) | {"holds": result.holds} for result in results], indent=2))
    else:
        show(results)
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
