"""The notebooks of docs/notebooks: their cells run in the tutorial's folder, and their results are written.

A notebook is a page of Markdown. A block of Python is a cell, and the block of text after it is what the cell
showed. `python -m tests.notebooks` goes through the tutorial, runs all cells and writes what they show into
the pages. Every run draws new noise: read the text again after it.
"""

import argparse
import ast
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from deploy.local_process import PROGRAMS
from deploy.wheel_environment import PROJECT, programs
from tests.needs import missing_data

PAGES = PROJECT / "docs" / "notebooks"
NAMES = ("reading-a-release", "exploring", "federated-and-pooled")
_CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of Python, and what it showed."""


def run(name: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """Run the cells of a notebook in a folder, in their order.

    Returns:
        The page with what the cells showed, and the names that they defined.
    """
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": name}

    def cell(found: re.Match[str]) -> str:
        code = found[1]
        shown = _shown(code, names).strip("\n")
        return f"```python\n{code}```\n" + (f"\n```text\n{shown}\n```\n" if shown else "")

    with contextlib.chdir(folder), pd.option_context("display.width", 110, "display.max_columns", 12):
        return _CELL.sub(cell, page), names


def _shown(code: str, names: dict[str, Any]) -> str:
    """Run a cell; returns what it printed, and its last expression, as a notebook shows it."""
    parsed, out = ast.parse(code), io.StringIO()
    last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(parsed, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            if value is not None:
                print(value if isinstance(value, pd.DataFrame | pd.Series | str) else repr(value))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def main() -> int:
    """Go through the tutorial, run the notebooks, and write what they show into their pages."""
    from tests.screenshots import of_tutorial

    parser = argparse.ArgumentParser(prog="python -m tests.notebooks", description=main.__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], help="by default all")
    parser.add_argument("--folder", type=Path, help="the tutorial's folder, where it was gone through")
    options = parser.parse_args()
    if options.folder is None and (absent := missing_data()):
        parser.error(absent)
    with tempfile.TemporaryDirectory(prefix="tessera-") as made:
        folder = options.folder or Path(made)
        if options.folder is None:
            os.environ[PROGRAMS] = str(programs())
            of_tutorial(folder, Path(os.environ["TESSERA_DATA"]), folder)
        for name in options.names or NAMES:
            page, _ = run(name, folder)
            (PAGES / f"{name}.md").write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
