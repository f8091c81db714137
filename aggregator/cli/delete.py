"""`aggregator delete`: remove the data of a release that has ended, and keep its history."""

import sys

import typer

from aggregator.cli.connection import daemon, stated_user
from aggregator.cli.inspect import ReleaseArgument
from aggregator.cli.outcome import document, state
from common.cli import console
from common.errors import ExitCode, UsageError


def delete(
    release: ReleaseArgument,
    yes: console.YesOption = False,
    config: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Remove the data of a release that has ended; what was agreed, done and published stays on record.

    Copies that --out made or that owners have downloaded are not touched.
    """
    from common.wire.v1.control_pb2 import ReleaseRequest

    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("there is no terminal to ask at", "add --yes to delete without being asked")
    request = ReleaseRequest(release=release)
    with daemon(config) as calls:
        known = calls.Show(request)
        place = f" and {known.directory}" if known.directory else ""
        if not yes and not console.confirm(f"Delete the data of release {release} ({known.state}){place}?"):
            raise typer.Exit(int(ExitCode.REFUSED))
        view = calls.Delete(request, metadata=stated_user())
    if as_json:
        console.print_json(document(view))
    else:
        console.print_line(f"release {view.release} is {state(view)}; its history stays")
