"""`aggregator console`: the operators' web pages, on this machine alone."""

from typing import Annotated

import typer

from aggregator import config
from aggregator.control.connection import is_running, os_user
from common import log
from common.cli import console as terminal

OperateOption = Annotated[
    bool,
    typer.Option(
        "--operate/--read-only",
        help="Whether people may start, cancel, resume and delete releases, and enrol owners.",
    ),
]


def console(
    operate: OperateOption = False,
    port: terminal.PortOption = 8442,
    opened: terminal.OpenOption = False,
    config_file: terminal.ConfigOption = None,
    log_level: terminal.LogLevelOption = log.LogLevel.WARNING,
) -> None:
    """Show releases, owners and certificates as web pages, on this machine alone, until Ctrl-C.

    Prints a link that signs in the person who runs it, once and for ten minutes. Press Enter for a new link.
    Where the daemon serves the pages ([console] in aggregator.toml), the link is for those, and the command
    ends.
    """
    with terminal.web_packages():
        from aggregator.console.serving import Operator, application
        from common.web.server import offer
    log.start(log_level)
    settings = config.load(config_file)
    offer(
        f"aggregator {settings.aggregator.name}",
        Operator(os_user()),
        settings.console,
        settings.aggregator.state_dir,
        lambda doors, address: application(lambda: config.load(config_file), doors, address),
        port,
        by_daemon=bool(settings.console.listen) and is_running(settings),
        opened=opened,
        decides=operate,
    )
