"""`owner-node doctor`: what keeps the daemon from working."""

from common.cli import console
from common.cli.doctor import report
from owner_node.doctor import examination


def doctor(config_file: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Check configuration, files, clock, disk, database, data sets and the route to every aggregator."""
    return int(report(examination(config_file, examples=True), as_json=as_json))
