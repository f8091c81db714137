"""`aggregator serve`: the daemon."""

from common import log
from common.cli import console


def serve(config: console.ConfigOption = None, log_level: console.LogLevelOption = log.LogLevel.INFO) -> None:
    """Listen for owners and drive releases until told to stop."""
    import asyncio

    from aggregator.config import load
    from aggregator.daemon import serve as run

    log.start(log_level)
    asyncio.run(run(load(config)))
