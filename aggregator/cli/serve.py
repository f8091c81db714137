"""`aggregator serve`: the daemon."""

from contextlib import nullcontext

from aggregator import daemon
from aggregator.config import load
from common import log
from common.cli.console import ConfigOption, LogLevelOption
from common.cli.console_process import WithConsoleOption, console_beside
from common.daemon import process


def serve(
    with_console: WithConsoleOption = False,
    config: ConfigOption = None,
    log_level: LogLevelOption = log.LogLevel.INFO,
) -> None:
    """Listen for owners and drive releases until the process receives a stop signal."""
    log.start(log_level)
    settings = load(config)
    served = bool(settings.console.listen)
    child = console_beside(settings.path, served=served) if with_console else nullcontext()
    with child:
        process.run(daemon.serve(settings))
