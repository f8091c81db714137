"""`aggregator doctor`: what keeps this aggregator from working, and what to do about it?"""

from common import console


def doctor(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> int:
    """Look at configuration, files, clock, disk, databases, certificates and the port."""
    from aggregator.doctor import examination
    from common.doctor import report

    return int(report(examination(config), as_json=as_json))
