"""A flood of connections that say nothing, from many addresses of the loopback interface."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

ADDRESSES = 40
"""Addresses that the connections come from; anybody on a machine can use all of 127.0.0.0/8."""


class Flood:
    """Connections that are opened again whenever the other side closes them."""

    def __init__(self) -> None:
        self.opened = 0
        """Connections that were opened so far."""
        self.reached = threading.Event()
        """Set once as many were opened as shall be open at a time."""

    async def run(self, ports: Sequence[int], most: int, sent: bytes, pause: float) -> None:
        """Keep connections open until cancelled, `most` at each port."""

        async def one(port: int, number: int) -> None:
            loop = asyncio.get_running_loop()
            while True:
                with suppress(OSError), socket.socket() as connection:
                    connection.setblocking(False)
                    connection.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
                    await loop.sock_connect(connection, ("127.0.0.1", port))
                    self.opened += 1
                    if self.opened >= most * len(ports):
                        self.reached.set()
                    await loop.sock_sendall(connection, sent)
                    while await loop.sock_recv(connection, 4096):
                        pass
                await asyncio.sleep(pause)

        async with asyncio.TaskGroup() as group:
            for port in ports:
                for number in range(most):
                    group.create_task(one(port, number))


@contextmanager
def flood(ports: Sequence[int], most: int, sent: bytes = b"", pause: float = 0.5) -> Iterator[Flood]:
    """Flood ports of this machine while a `with` block runs.

    Args:
        ports: The ports.
        most: Connections that are kept open at each of them.
        sent: What each of them sends.
        pause: Seconds until a connection that the other side closed is opened again.
    """
    made, loop = Flood(), asyncio.new_event_loop()
    task = loop.create_task(made.run(ports, most, sent, pause))

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
