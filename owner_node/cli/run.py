"""`owner-node run` and `owner-node doctor`: the daemon, and what keeps it from working."""

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
    process.run(run_daemon(load(config_file)))


def doctor(config_file: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Check configuration, files, clock, disk, database, data sets and the route to every aggregator."""
    return int(report(examination(config_file, examples=True), as_json=as_json))
