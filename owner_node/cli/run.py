"""`owner-node run`: the daemon."""

from common import log
from common.cli import console


def run(
    config_file: console.ConfigOption = None, log_level: console.LogLevelOption = log.LogLevel.INFO
) -> None:
    """Stay connected to the aggregators and take part in releases until stopped."""
    import asyncio

    from owner_node.config import load
    from owner_node.daemon import run as run_daemon
    from owner_node.without_pandas import leave_out_pandas

    leave_out_pandas()
    log.start(log_level)
    asyncio.run(run_daemon(load(config_file)))
