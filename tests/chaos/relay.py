"""A relay between an owner and the aggregator: a network of the test's own, which can be cut."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from deploy.local_setup import HOST, free_port

_CHUNK = 65_536


class Relay:
    """Passes on what comes to a port of its own, while the `with` block runs.

    Args:
        target: Where to, as HOST:PORT.
    """

    def __init__(self, target: str) -> None:
        self._target = target.rsplit(":", 1)
        self._port = free_port()
        self.address = f"{HOST}:{self._port}"
        """Where it listens."""
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End every connection at once, and refuse new ones."""
        self._do(self._cut())

    def mend(self) -> None:
        """Let connections through again."""
        self._do(self._listen())

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def _cut(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _finish(self) -> None:
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        self._open |= ends
        # The aggregator may be away.
        with suppress(OSError):
            there, back = await asyncio.open_connection(*self._target)
            ends.add(back)
            self._open |= ends
            # It may have been cut meanwhile: then what is read is at its end, and so is the other.
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        self._open -= ends
        writer.close()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass on bytes until either end is gone."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()
