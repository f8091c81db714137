"""`aggregator`: the command line of the aggregator."""

import typer

from common import __version__, log
from common.cli import console


def application() -> typer.Typer:
    """Return the command line with all its commands."""
    from aggregator.cli import doctor, enroll, history, init, inspect, owners, release, verify

    about = "Joins the protected fragments of several owners into one release. Sees no original data."
    app = console.application("aggregator", about, __version__)
    for command in (
        init.init,
        doctor.doctor,
        serve,
        inspect.status,
        owners.owners,
        release.plan,
        release.release,
        *inspect.COMMANDS,
        history.history,
        verify.verify,
    ):
        app.command()(command)
    app.add_typer(enroll.app, name="enroll", no_args_is_help=False)
    return app


def serve(config: console.ConfigOption = None, log_level: console.LogLevelOption = log.LogLevel.INFO) -> None:
    """Listen for owners and drive releases until the process receives a stop signal."""
    import asyncio

    from aggregator.config import load
    from aggregator.daemon import serve as run

    log.start(log_level)
    asyncio.run(run(load(config)))


def main() -> None:
    """Run the command line of this process."""
    console.main(application, "aggregator")
