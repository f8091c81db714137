"""`owner-node run` and `owner-node doctor`: the daemon, and what keeps it from working."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from common import log
from common.cli import console
from common.cli.doctor import report
from common.daemon import process
from owner_node.config import load
from owner_node.daemon import run as run_daemon
from owner_node.doctor import examination


def run(
    config_file: console.ConfigOption = None, log_level: console.LogLevelOption = log.LogLevel.INFO
) -> None:
    """Stay connected to the aggregators and take part in releases until stopped."""
    log.start(log_level)
    config = load(config_file)
    # pyspark refuses to work without pandas.
    if not config.uses_spark:
        leave_out_pandas()
    process.run(run_daemon(config))


def doctor(config_file: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Check configuration, files, clock, disk, database, data sets and the route to every aggregator."""
    return int(report(examination(config_file, examples=True), as_json=as_json))


class _NoPandas(MetaPathFinder):
    """A finder that reports pandas as missing."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not loaded by this process", name=fullname)


def leave_out_pandas() -> None:
    """Make every import of pandas fail in this process; for processes that use no DataFrames.

    Arrow imports pandas with its first array, in order to recognise pandas objects. The daemon never passes
    it one, and loading pandas would take longer than masking does, and 35 MB.
    """
    sys.meta_path.insert(0, _NoPandas())
