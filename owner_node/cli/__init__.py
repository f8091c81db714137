"""`owner-node`: the command line of one organisation's owner node."""

from typing import Any

from common import __version__
from common.cli import console
from common.cli.program import Command, program

_ABOUT = "Takes part in joint releases for one organisation. The original table stays at its owner."
_COMMANDS = {
    "init": Command("owner_node.cli.init:init", "Write a commented owner.toml with guessed types."),
    "schema": Command("owner_node.cli.schema:app", "Write, fetch or apply the schema that owners share."),
    "check": Command("owner_node.cli.check:check", "Validate configuration and data."),
    "link-check": Command("owner_node.cli.link_check:link_check", "Try match keys on one or two files."),
    "doctor": Command("owner_node.cli.doctor:doctor", "Check files, clock, disk, data and connections."),
    "run": Command("owner_node.cli.run:run", "Stay connected and take part in releases."),
    "status": Command("owner_node.cli.status:status", "Show daemon, connections, sessions and budgets."),
    "history": Command("owner_node.cli.history:history", "Show requests, decisions and charges."),
    "requests": Command("owner_node.cli.requests:requests", "List the plans that wait for a person."),
    "show": Command("owner_node.cli.requests:show", "Show what a plan would let leave, and for what."),
    "approve": Command("owner_node.cli.requests:approve", "Approve a plan that waits."),
    "refuse": Command("owner_node.cli.requests:refuse", "Refuse a plan that waits."),
    "console": Command("owner_node.cli.web:console", "Show plans, budgets and history as web pages."),
    "mask": Command("owner_node.cli.mask:mask", "Mask one data set into a file."),
    "explore": Command("owner_node.cli.explore:explore", "Try settings: what is left, what is revealed."),
    "download": Command("owner_node.cli.releases:download", "Fetch a release that this owner took part in."),
    "verify": Command("owner_node.cli.releases:verify", "Check a release folder and the own part in it."),
    "ledger": Command("owner_node.cli.ledger:app", "Show, extend or recover the ledger of budgets."),
    "query": Command("owner_node.cli.query:app", "Ask one question; the answer has noise."),
    "linkage-key": Command("owner_node.cli.linkage_key:app", "Make and pass on the owners' linkage key."),
    "backup": Command("owner_node.cli.backup:backup", "Write state, keys and settings into one file."),
    "restore": Command("owner_node.cli.backup:restore", "Restore a backup where no database exists."),
    "enroll": Command("owner_node.cli.enroll:app", "Get this owner's certificate from the CA."),
}


def application() -> Any:
    """Return the command line with all its commands."""
    return program("owner-node", _ABOUT, __version__, _COMMANDS)


def main() -> None:
    """Run the command line of this process."""
    console.main(application, "owner-node")
