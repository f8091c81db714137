"""`owner-node run`: the daemon."""

from contextlib import nullcontext

from common import log
from common.cli import console
from common.cli.console_process import WithConsoleOption, console_beside
from common.daemon import process
from owner_node.config import load
from owner_node.daemon import run as run_daemon


def run(
    with_console: WithConsoleOption = False,
    config_file: console.ConfigOption = None,
    log_level: console.LogLevelOption = log.LogLevel.INFO,
) -> None:
    """Stay connected to the aggregators and take part in releases until stopped."""
    log.start(log_level)
    owner = load(config_file)
    served = bool(owner.console.listen)
    child = console_beside(owner.path, served=served) if with_console else nullcontext()
    with child:
        process.run(run_daemon(owner))
