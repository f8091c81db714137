"""`aggregator serve`: the daemon."""

from aggregator import daemon
from aggregator.config import load
from common import log
from common.cli.console import ConfigOption, LogLevelOption
from common.daemon import process


def serve(config: ConfigOption = None, log_level: LogLevelOption = log.LogLevel.INFO) -> None:
    """Listen for owners and drive releases until the process receives a stop signal."""
    log.start(log_level)
    process.run(daemon.serve(load(config)))
