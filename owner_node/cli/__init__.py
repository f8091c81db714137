"""`owner-node`: the command line of one organisation's owner node."""

import sys
from importlib import import_module
from importlib.util import find_spec

import typer

from common import __version__, console

_COMMANDS = {
    "check": "check",
    "run": "run",
    "status": "status",
    "ledger": "ledger",
    "history": "history",
    "download": "releases",
    "verify": "releases",
}
_FAMILIES = {"linkage-key": "linkage_key"}


def application() -> typer.Typer:
    """Return the command line with all its commands."""
    about = "Takes part in joint releases for one organisation. Original data never leave it."
    app = console.application("owner-node", about, __version__)
    for name, module in _COMMANDS.items():
        if find_spec(f"{__name__}.{module}") is not None:
            command = getattr(import_module(f"{__name__}.{module}"), name, None)
            if command is not None:
                app.command(name)(command)
    for name, module in _FAMILIES.items():
        if find_spec(f"{__name__}.{module}") is not None:
            # A family without a verb is a usage error like any other, not a page of help.
            app.add_typer(import_module(f"{__name__}.{module}").app, name=name, no_args_is_help=False)
    return app


def main() -> None:
    """Run the command line of this process."""
    sys.exit(console.run(application(), "owner-node"))
