"""`aggregator`: the command line of the aggregator."""

import sys
from importlib import import_module
from importlib.util import find_spec

import typer

from common import __version__, console

_COMMANDS = {
    "serve": "serve",
    "status": "inspect",
    "owners": "inspect",
    "plan": "release",
    "release": "release",
    "releases": "inspect",
    "show": "inspect",
    "watch": "inspect",
    "cancel": "inspect",
    "verify": "verify",
}


def application() -> typer.Typer:
    """Return the command line with all its commands."""
    about = "Joins the protected fragments of several owners into one release. Sees no original data."
    app = console.application("aggregator", about, __version__)
    for name, module in _COMMANDS.items():
        if find_spec(f"{__name__}.{module}") is not None:
            command = getattr(import_module(f"{__name__}.{module}"), name, None)
            if command is not None:
                app.command(name)(command)
    return app


def main() -> None:
    """Run the command line of this process."""
    sys.exit(console.run(application(), "aggregator"))
