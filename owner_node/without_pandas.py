"""An import hook that keeps pandas out of the daemon.

Arrow imports pandas with its first array, in order to recognise pandas objects. The daemon never passes it
one, and loading pandas would take longer than masking does, and 35 MB.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """A finder that reports pandas as missing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not loaded by this process", name=fullname)


def leave_out_pandas() -> None:
    """Make every import of pandas fail in this process; for processes that use no DataFrames."""
    sys.meta_path.insert(0, _NoPandas())
