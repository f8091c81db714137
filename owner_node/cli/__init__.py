"""`owner-node`: the command line of one organisation's owner node."""

import typer

from common import __version__
from common.cli import console


def application() -> typer.Typer:
    """Return the command line with all its commands."""
    from owner_node.cli import (
        check,
        enroll,
        explore,
        history,
        init,
        ledger,
        linkage_key,
        mask,
        query,
        releases,
        requests,
        run,
        status,
    )

    about = "Takes part in joint releases for one organisation. Original data never leave it."
    app = console.application("owner-node", about, __version__)
    app.command()(init.init)
    app.command()(check.check)
    app.command()(run.doctor)
    app.command()(run.run)
    for command in (status.status, history.history):
        app.command()(command)
    for decision in (requests.requests, requests.show, requests.approve, requests.refuse):
        app.command()(decision)
    app.command()(mask.mask)
    app.command()(explore.explore)
    app.command()(releases.download)
    app.command()(releases.verify)
    # A family without a verb is a usage error like any other, not a page of help.
    app.add_typer(ledger.app, name="ledger", no_args_is_help=False)
    app.add_typer(query.app, name="query", no_args_is_help=False)
    app.add_typer(linkage_key.app, name="linkage-key", no_args_is_help=False)
    app.add_typer(enroll.app, name="enroll", no_args_is_help=False)
    return app


def main() -> None:
    """Run the command line of this process."""
    console.main(application, "owner-node")
