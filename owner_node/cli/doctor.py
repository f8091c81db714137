"""`owner-node doctor`: find what keeps this owner node from working, and what to do about it."""

from common.cli import console


def doctor(config_file: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Check configuration, files, clock, disk, database, data sets and the route to every aggregator."""
    from common.cli.doctor import report
    from owner_node.doctor import examination

    return int(report(examination(config_file), as_json=as_json))
