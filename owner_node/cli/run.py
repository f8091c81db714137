"""`owner-node run`: the daemon."""

from common import log
from common.cli import console
from common.daemon import process
from owner_node.config import load
from owner_node.daemon import run as run_daemon


def run(
    config_file: console.ConfigOption = None, log_level: console.LogLevelOption = log.LogLevel.INFO
) -> None:
    """Stay connected to the aggregators and take part in releases until stopped."""
    log.start(log_level)
    process.run(run_daemon(load(config_file)))
