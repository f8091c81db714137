"""A daemon without pandas.

Arrow imports pandas with its first array, so as to know pandas's objects when it is handed one. The daemon
never hands it one, and loading pandas would take it longer than masking does, and 35 MB.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Finds that pandas is not there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not loaded by this process", name=fullname)


def leave_out_pandas() -> None:
    """Let this process never import pandas; for processes that have nothing to do with DataFrames."""
    sys.meta_path.insert(0, _NoPandas())
