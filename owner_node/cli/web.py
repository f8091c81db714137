"""`owner-node console`: the owner's web pages, on this machine alone."""

import socket
import sys
import threading
import time
import webbrowser
from typing import Annotated

import typer

from common import log
from common.cli import console as terminal
from common.errors import UsageError
from owner_node import config
from owner_node.release.approvals import Person
from owner_node.release.decisions import this_person

PortOption = Annotated[
    int, typer.Option("--port", help="Port to listen at; 0 for any free one.", min=0, max=65535)
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the link in the browser.")]
_LOOPBACK = "127.0.0.1"


def console(
    port: PortOption = 8441,
    opened: OpenOption = False,
    config_file: terminal.ConfigOption = None,
    log_level: terminal.LogLevelOption = log.LogLevel.WARNING,
) -> None:
    """Show plans, budgets and history as web pages, on this machine alone, until Ctrl-C.

    Prints a link that signs in the person who runs it, once and for ten minutes. Press Enter for a new link.
    """
    try:
        import uvicorn

        from common.web.doors import Doors
        from owner_node.console.application import application
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"the web pages need the package {missing.name}", "pip install 'tessera-release[console]'"
        ) from None
    log.start(log_level)
    owner = config.load(config_file)
    try:
        listener = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise UsageError(
            f"cannot listen at port {port}: {error.strerror}", "choose another: --port 0"
        ) from None
    at = f"{_LOOPBACK}:{listener.getsockname()[1]}"
    person = this_person()
    doors: Doors[Person] = Doors(time.monotonic)
    pages = application(lambda: config.load(config_file), doors, [at, at.replace(_LOOPBACK, "localhost")])

    def show_link() -> str:
        link = f"http://{at}/enter?key={doors.new_key(person)}"
        terminal.print_line(f"owner {owner.owner.id}: open this link, which works once: {link}")
        return link

    link = show_link()
    if opened:
        webbrowser.open(link)
    if sys.stdin.isatty():
        threading.Thread(target=lambda: [show_link() for _ in sys.stdin], daemon=True).start()
    settings = uvicorn.Config(
        pages, log_config=None, access_log=False, server_header=False, date_header=False, ws="none",
        limit_concurrency=64, timeout_graceful_shutdown=2, lifespan="off",
    )  # fmt: skip
    uvicorn.Server(settings).run(sockets=[listener])
