"""`owner-node console`: the owner's web pages, in a process of their own."""

from common import log
from common.cli import console as terminal
from common.cli.console_process import ParentOption, ServeOption
from owner_node import config
from owner_node.release.decisions import this_person


def console(
    serve: ServeOption = False,
    port: terminal.PortOption = 8441,
    opened: terminal.OpenOption = False,
    config_file: terminal.ConfigOption = None,
    log_level: terminal.LogLevelOption = log.LogLevel.INFO,
    parent: ParentOption = 0,
) -> None:
    """Show plans, budgets and history as web pages, on this machine alone, until Ctrl-C.

    Prints a link that signs in the person who runs it, once and for ten minutes. Press Enter for a new link.
    With --serve, the pages are served where [console] in owner.toml says. While they are, the command without
    it prints a link to those pages, and ends.
    """
    with terminal.web_packages():
        from common.web import server
        from owner_node.console.serving import console_of
    log.start(log_level)
    console = console_of(config.load(config_file))
    if serve:
        server.serve(console, "owner-node", parent)
    else:
        server.offer(console, this_person(), port, opened=opened, parent=parent)
