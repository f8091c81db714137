"""The command `console` of both programs as a process: options, and the child of a daemon's command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

ServeOption = Annotated[
    bool,
    typer.Option(
        "--serve", help="Serve the pages where [console] says until a stop signal arrives; prints no link."
    ),
]
ParentOption = Annotated[int, typer.Option("--parent", hidden=True)]
"""Process id of the process whose end ends the pages, too."""
WithConsoleOption = Annotated[
    bool, typer.Option("--with-console", help="Start the web pages, too, in a process that ends with this.")
]

_END_SECONDS = 10.0
"""How long pages may take to end, since a person may be waiting for data that load."""


@contextmanager
def console_beside(config: Path, *, served: bool) -> Iterator[None]:
    """Run the command `console` of this program as a child process for a block.

    Args:
        config: The configuration file.
        served: Whether the pages are served where `[console]` says; else at a port of this machine, and a
            link is printed.
    """
    options = ["--config", str(config), "--parent", str(os.getpid()), *(["--serve"] if served else [])]
    # The service manager hears of the daemon alone.
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    command = [sys.executable, sys.argv[0], "console", *options]
    with subprocess.Popen(command, env=environment) as child:
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
