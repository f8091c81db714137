"""`owner-node console`: the owner's web pages, on this machine alone."""

from common import log
from common.cli import console as terminal
from owner_node import config
from owner_node.release.decisions import this_person
from owner_node.state.presence import is_running


def console(
    port: terminal.PortOption = 8441,
    opened: terminal.OpenOption = False,
    config_file: terminal.ConfigOption = None,
    log_level: terminal.LogLevelOption = log.LogLevel.WARNING,
) -> None:
    """Show plans, budgets and history as web pages, on this machine alone, until Ctrl-C.

    Prints a link that signs in the person who runs it, once and for ten minutes. Press Enter for a new link.
    Where the daemon serves the pages ([console] in owner.toml), the link is for those, and the command ends.
    """
    with terminal.web_packages():
        from common.web.server import offer
        from owner_node.console.serving import application
    log.start(log_level)
    owner = config.load(config_file)
    offer(
        f"owner {owner.owner.id}",
        this_person(),
        owner.console,
        owner.owner.state_dir,
        lambda doors, address: application(lambda: config.load(config_file), doors, address),
        port,
        by_daemon=bool(owner.console.listen) and is_running(owner.owner.state_dir),
        opened=opened,
    )
