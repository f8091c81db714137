"""The papers' experiments, with figures and CSV files; and their tables in docs/papers.md and docs/risk.md.

    python -m tests.papers [--only risk,compared] [--runs N] [--page docs/papers.md --page docs/risk.md]

Without `--runs` every experiment has the number of runs that its paper states. The data are where
`TESSERA_DATA` says, figures and CSV files go to build/papers.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import ExitCode, TesseraError
from tests.papers.experiments import EXPERIMENTS, experiments, named
from tests.papers.tables import put


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.papers", description="Run the papers' experiments."
    )
    folder = os.environ.get("TESSERA_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=folder,
        required=folder is None,
        help="folder with the published CSV files",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/papers"), help="where figures and CSV files go"
    )
    parser.add_argument(
        "--only", default=",".join(EXPERIMENTS), help=f"some of {', '.join(EXPERIMENTS)}; risk: all of risk_…"
    )
    parser.add_argument(
        "--runs", type=int, help="runs of every setting (default: as many as its paper states)"
    )
    parser.add_argument(
        "--page",
        type=Path,
        action="append",
        default=[],
        help="page whose tables are replaced, such as docs/papers.md; can be given again",
    )
    options = parser.parse_args(arguments)
    chosen = {each: named(each) for each in options.only.split(",")}
    if unknown := [each for each, found in chosen.items() if not found]:
        parser.error(f"no experiment {', '.join(unknown)}")
    names = [name for found in chosen.values() for name in found]
    try:
        for name, tables, seconds in experiments(names, options.data, options.out, options.runs):
            if options.page:
                put(options.page, tables)
            print(f"{name}: {options.out / name}, {seconds:.0f} s", flush=True)
    except TesseraError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return int(error.exit_code)
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
