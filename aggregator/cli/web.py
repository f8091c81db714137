"""`aggregator console`: the operators' web pages, in a process of their own."""

from typing import Annotated

import typer

from aggregator import config
from aggregator.control.connection import os_user
from common import log
from common.cli import console as terminal
from common.cli.console_process import ParentOption, ServeOption

OperateOption = Annotated[
    bool,
    typer.Option(
        "--operate/--read-only",
        help="Whether people may start, cancel, resume and delete releases, and enrol owners.",
    ),
]


def console(
    serve: ServeOption = False,
    operate: OperateOption = False,
    port: terminal.PortOption = 8442,
    opened: terminal.OpenOption = False,
    config_file: terminal.ConfigOption = None,
    log_level: terminal.LogLevelOption = log.LogLevel.INFO,
    parent: ParentOption = 0,
) -> None:
    """Show releases, owners and certificates as web pages, on this machine alone, until Ctrl-C.

    Prints a link that signs in the person who runs it, once and for ten minutes. Press Enter for a new link.
    With --serve, the pages are served where [console] in aggregator.toml says. While they are, the command
    without it prints a link to those pages, and ends.
    """
    with terminal.web_packages():
        from aggregator.console.serving import Operator, console_of
        from common.web import server
    log.start(log_level)
    console = console_of(config.load(config_file))
    if serve:
        server.serve(console, "aggregator", parent)
    else:
        server.offer(console, Operator(os_user()), port, opened=opened, decides=operate, parent=parent)
