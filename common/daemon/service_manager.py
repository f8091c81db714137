"""Tells the service manager that started a daemon how it is (sd_notify(3)): systemd, or one like it."""

import os
import socket
from contextlib import suppress

READY = "READY=1"
"""The daemon serves."""
STOPPING = "STOPPING=1"
"""The daemon was told to stop and ends what it is in."""


def notify(state: str) -> None:
    """Tell a state, if somebody is to be told. A manager that is away keeps nobody from working."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    # A name that begins with "@" is of the abstract namespace.
    address = "\0" + place[1:] if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.connect(address)
        to.send(state.encode())
