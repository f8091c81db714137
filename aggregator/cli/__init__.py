"""`aggregator`: the command line of the aggregator."""

import typer

from common import __version__
from common.cli import console


def application() -> typer.Typer:
    """Return the command line with all its commands."""
    from aggregator.cli import delete, doctor, enroll, history, init, inspect, owners, release, serve, verify

    about = "Joins the protected fragments of several owners into one release. Sees no original data."
    app = console.application("aggregator", about, __version__)
    for command in (
        init.init,
        doctor.doctor,
        serve.serve,
        inspect.status,
        owners.owners,
        release.plan,
        release.release,
        inspect.releases,
        inspect.show,
        inspect.watch,
        inspect.cancel,
        delete.delete,
        history.history,
        verify.verify,
    ):
        app.command()(command)
    app.add_typer(enroll.app, name="enroll", no_args_is_help=False)
    return app


def main() -> None:
    """Run the command line of this process."""
    console.main(application, "aggregator")
