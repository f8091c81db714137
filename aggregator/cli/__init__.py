"""`aggregator`: the command line of the aggregator."""

from typing import Any

from common import __version__
from common.cli import console
from common.cli.program import Command, program

_ABOUT = "Joins the protected fragments of several owners into one release. Gets no original table."
_COMMANDS = {
    "init": Command("aggregator.cli.init:init", "Make or take a CA, and write aggregator.toml."),
    "doctor": Command("aggregator.cli.doctor:doctor", "Check configuration, certificates and machine."),
    "serve": Command("aggregator.cli.serve:serve", "Listen for owners and drive releases."),
    "status": Command("aggregator.cli.inspect:status", "Show the status of the daemon."),
    "owners": Command("aggregator.cli.inspect:owners", "List every owner that has ever connected."),
    "schema": Command("aggregator.cli.schema:schema", "Offer a schema file to owners."),
    "plan": Command("aggregator.cli.release:plan", "Check schemas and show the plan, without a charge."),
    "release": Command("aggregator.cli.release:release", "Make a release: plan, ask, and wait for its end."),
    "releases": Command("aggregator.cli.inspect:releases", "List all releases, oldest first."),
    "show": Command("aggregator.cli.inspect:show", "Show one release and what every owner does."),
    "watch": Command("aggregator.cli.inspect:watch", "Follow a release to its end."),
    "cancel": Command("aggregator.cli.inspect:cancel", "Cancel a release that is not joined yet."),
    "delete": Command("aggregator.cli.inspect:delete", "Remove the data of a release that has ended."),
    "console": Command("aggregator.cli.web:console", "Show releases, owners and certificates as web pages."),
    "history": Command("aggregator.cli.inspect:history", "Show the operators' actions, oldest first."),
    "verify": Command("aggregator.cli.verify:verify", "Check a published release folder."),
    "export": Command("aggregator.cli.export:export", "Write a release for SPSS or Stata, with labels."),
    "backup": Command("aggregator.cli.backup:backup", "Write state, keys and settings into one file."),
    "restore": Command("aggregator.cli.backup:restore", "Restore a backup where no database exists."),
    "enroll": Command("aggregator.cli.enroll:app", "Approve, revoke and list certificates of owners."),
}


def application() -> Any:
    """Return the command line with all its commands."""
    return program("aggregator", _ABOUT, __version__, _COMMANDS)


def main() -> None:
    """Run the command line of this process."""
    console.main(application, "aggregator")
