"""pandas is for notebooks; programs load it where they read CSV files, and do without it otherwise.

pyarrow would load it with the first array that is made, to recognise frames: 0.3 s and 45 MB of every daemon.
"""

import sys
from typing import Any

_NAME = "pandas"


class _Hidden:
    """Lets nobody find pandas."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == _NAME:
            raise ModuleNotFoundError(f"{_NAME} is hidden: see {__name__}", name=_NAME)


_hidden = _Hidden()


def keep_out() -> None:
    """Let libraries find no pandas in this process, unless it is loaded already."""
    sys.meta_path.insert(0, _hidden)


def let_in() -> None:
    """Let pandas be found again; pyarrow does without it if it has looked for it before."""
    if _hidden in sys.meta_path:
        sys.meta_path.remove(_hidden)
