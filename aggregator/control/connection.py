"""The connection of operators' programs to their daemon; that of a command can be ended by Ctrl-C.

Python raises KeyboardInterrupt between any two steps of the main thread. In the middle of gRPC that leaves
calls that are counted but never end, so that closing the channel never returns. Therefore gRPC runs in an
event loop in a thread of its own, and the main thread only waits for its answers.
"""

import asyncio
import os
import pwd
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]  # the stubs lack it

from aggregator.config import load
from aggregator.store.operator_log import USER_KEY
from common.errors import NotConnectedError, TesseraError
from common.files import forbidden
from common.wire.limits import MESSAGE_LIMIT
from common.wire.status import from_rpc_error
from common.wire.v1.control_pb2 import StatusRequest
from common.wire.v1.control_pb2_grpc import ControlServiceStub

RESPONSE_SECONDS = 10.0
"""Time-out of a check whether the daemon responds. On a busy machine it can be late by seconds."""
_CLOSE_SECONDS = 5.0
"""How long a channel may take to close; the process can end without that."""


@contextmanager
def daemon(config: Path | None) -> Iterator["ControlServiceStub"]:
    """Connect to the daemon of a configuration.

    Yields:
        The daemon's calls, which block until they are answered, or until Ctrl-C is pressed.

    Raises:
        NotConnectedError: If it is not running, or does not respond within a time-out.
        TesseraError: What the daemon answered instead of a result.
    """
    calls: _Calls | None = None
    try:
        # pydantic, which checks the configuration, loses interruptions.
        with interrupts_deferred():
            socket = load(config).aggregator.control_socket
            calls = _Calls(socket)
        try:
            # Other calls may take long. A stopped process accepts connections, and never answers.
            calls.Status(StatusRequest(), timeout=RESPONSE_SECONDS)
            yield cast("ControlServiceStub", calls)
        except grpc.RpcError as error:
            raise error_of_call(error, socket) from None
    finally:
        with interrupts_deferred():
            if calls is not None:
                calls.close()


def error_of_call(error: grpc.RpcError, socket: Path) -> TesseraError:
    """Return the error that a call of the daemon ended with; `NotConnectedError` if there was no answer."""
    found = from_rpc_error(error)
    if isinstance(found, NotConnectedError) and "status" in found.details:
        try:
            socket.exists()
        except PermissionError as denied:
            # Whether it runs cannot be seen by this user.
            return forbidden(denied)
        if found.details["status"] == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            return NotConnectedError(
                "the aggregator's daemon does not respond",
                "it is stopping or stuck: see its log, and restart it if this does not pass",
                {"socket": str(socket)},
            )
        return NotConnectedError(
            "the aggregator's daemon is not running", "start it: aggregator serve", {"socket": str(socket)}
        )
    return found


def open_channel(socket: Path) -> grpc.aio.Channel:
    """Return a channel to the daemon's socket; it connects, and connects again, when it is used."""
    options = [("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.max_reconnect_backoff_ms", 1000)]
    return grpc.aio.insecure_channel(f"unix:{socket}", options=options)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise a Ctrl-C at the end of the block if it is pressed in it, where Python handles Ctrl-C."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed.is_set():
            raise KeyboardInterrupt


class _Calls:
    """The calls of a stub, made in the event loop of another thread."""

    def __init__(self, socket: Path) -> None:
        self._connected: Future[ControlServiceStub] = Future()
        self._thread = threading.Thread(target=self._run, args=(socket,), daemon=True)
        self._thread.start()
        self._stub = self._connected.result()

    def _run(self, socket: Path) -> None:
        try:
            asyncio.run(self._serve(socket))
        except BaseException as fault:
            if self._connected.done():
                raise
            self._connected.set_exception(fault)

    async def _serve(self, socket: Path) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with open_channel(socket) as channel:
            self._connected.set_result(ControlServiceStub(channel))
            await self._over.wait()

    def close(self) -> None:
        """Cancel all calls and close the channel."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_CLOSE_SECONDS)

    def _answer(self, ask: Callable[[], Any]) -> Any:
        async def answer() -> Any:
            return await ask()

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda request, **options: self._answer(lambda: getattr(self._stub, name)(request, **options))

    def Watch(self, request: Any) -> Iterator[Any]:
        """Yield the answers of a call that has many, until the generator is closed."""

        async def begin() -> Any:
            return self._stub.Watch(request)

        call = self._answer(begin)
        try:
            while (answer := self._answer(call.read)) is not EOF:
                yield answer
        finally:
            self._loop.call_soon_threadsafe(call.cancel)


def pages(call: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    """Yield the pages of a listing.

    Args:
        call: The call, whose answers name their last entry if there are more.
        request: The request, with the field `after`.
    """
    while True:
        answer = call(request)
        yield answer
        if not answer.last:
            return
        request.after = answer.last


def os_user() -> str:
    """Return the name of this process's user, with the user behind sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER", name)
    return name if behind == name else f"{name} (sudo by {behind})"


def stated_user(name: str = "") -> tuple[tuple[str, bytes], ...]:
    """Return the metadata that says who gives a command, for calls that change something.

    Args:
        name: The operator; empty for this process's user.
    """
    return ((USER_KEY, (name or os_user()).encode()),)
