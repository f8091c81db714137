"""An HTTP proxy that lets CONNECT through, with a password if it is to have one."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

HOST = "127.0.0.1"
_PIECE = 65_536


class ConnectProxy:
    """Passes bytes on to wherever a client asks.

    Args:
        credentials: "user:password" that clients have to bring; empty: none.
    """

    def __init__(self, credentials: str = "") -> None:
        self._wanted = b64encode(credentials.encode()).decode() if credentials else ""
        self.answer = "200 Connection established"
        """Status line of its answers to clients that bring the right credentials."""
        self.drips = False
        """Whether it never comes to the end of an answer, but sends a byte of it now and then."""
        self.asked: list[str] = []
        """Where clients asked to be connected to, if they brought the right credentials."""
        self.refused = 0
        """How many clients brought wrong credentials."""
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        """Where it listens."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["ConnectProxy"]:
        """Serve while the block runs."""
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """End every connection at once."""
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            request, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = request.split(" ")
            shown = [each.split()[-1] for each in headers if each.lower().startswith("proxy-authorization:")]
            while self.drips:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.05)
            if self._wanted and shown != [self._wanted]:
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            elif method != "CONNECT" or not self.answer.startswith("200"):
                writer.write(f"HTTP/1.1 {self.answer}\r\n\r\n".encode())
            else:
                self.asked.append(target)
                await self._pass_on(target, reader, writer)
        writer.close()

    async def _pass_on(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host.strip("[]"), int(port))
        self._open.add(back)
        writer.write(f"HTTP/1.1 {self.answer}\r\n\r\n".encode())
        await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()
    sink.close()
