"""Calls of the daemon from pages, without blocking other pages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]  # the stubs lack it

from aggregator.config import AggregatorConfig
from aggregator.control.connection import RESPONSE_SECONDS, error_of_call, open_channel, stated_user
from common.wire.v1.control_pb2_grpc import ControlServiceStub

_ALIVE_SECONDS = 1.0
"""Time after which a quiet stream yields None, so that the end of a visit or a connection is noticed."""


class Calls:
    """The daemon's calls, under the socket that the current configuration names."""

    def __init__(self, load: Callable[[], AggregatorConfig]) -> None:
        self._load = load
        self._opened: tuple[Path, ControlServiceStub] | None = None

    async def ask(self, call: str, request: Any, operator: str = "") -> Any:
        """Return the answer to a call; calls that change something name the operator.

        Raises:
            TesseraError: What the daemon answered instead, or that it is not running.
        """
        socket, stub = self._daemon()
        try:
            if operator:
                return await getattr(stub, call)(request, metadata=stated_user(operator))
            # A daemon that hangs accepts the call, and never answers.
            return await getattr(stub, call)(request, timeout=RESPONSE_SECONDS)
        except grpc.RpcError as error:
            raise error_of_call(error, socket) from None

    async def all(self, call: str, request: Any) -> AsyncIterator[Any]:
        """Yield the pieces of a listing, whose answers name their last entry if there are more."""
        while True:
            answer = await self.ask(call, request)
            yield answer
            if not answer.last:
                return
            request.after = answer.last

    async def watch(self, call: str, request: Any) -> AsyncIterator[Any]:
        """Yield the answers of a call that has many, and None from time to time, until it ends."""
        socket, stub = self._daemon()
        stream = getattr(stub, call)(request)
        reading: asyncio.Future[Any] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(stream.read())
                # A read that is cancelled would cancel the call: it continues over several waits.
                if not (await asyncio.wait({reading}, timeout=_ALIVE_SECONDS))[0]:
                    yield None
                    continue
                answer, reading = reading.result(), None
                if answer is EOF:
                    return
                yield answer
        except grpc.RpcError as error:
            raise error_of_call(error, socket) from None
        finally:
            stream.cancel()
            if reading is not None:
                reading.cancel()

    def _daemon(self) -> tuple[Path, ControlServiceStub]:
        socket = self._load().aggregator.control_socket
        if self._opened is None or self._opened[0] != socket:
            self._opened = socket, ControlServiceStub(open_channel(socket))
        return self._opened
