"""A server of this machine that answers, but never to the end: a byte now and then."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat

DRIP_SECONDS = 0.05


@contextmanager
def dripping_server(said: bytes = b"", dripped: bytes = b"x") -> Iterator[tuple[int, threading.Event]]:
    """Serve at a free port, every connection in a thread of its own.

    Args:
        said: What it sends at once.
        dripped: What follows, byte by byte; the last one for ever.

    Yields:
        The port, and an event that a connection sets.
    """
    reached, stopped = threading.Event(), threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(said)
            reached.set()
            for byte in chain(dripped, repeat(dripped[-1])):
                connection.sendall(bytes([byte]))
                if stopped.wait(DRIP_SECONDS):
                    return

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while not stopped.is_set():
                threading.Thread(target=drip, args=(listener.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        try:
            yield listener.getsockname()[1], reached
        finally:
            stopped.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            serving.join()
