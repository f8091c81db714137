"""The command line's connection to its daemon."""

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from aggregator.cli.waiting import Waiter
from aggregator.store.operator_log import USER_KEY
from common.errors import NotConnectedError

if TYPE_CHECKING:
    from common.wire.v1.control_pb2_grpc import ControlServiceStub


@contextmanager
def daemon(config: Path | None) -> Iterator["ControlServiceStub"]:
    """Connect to the daemon of a configuration.

    Args:
        config: What `--config` named.

    Yields:
        The daemon's calls, each of which is waited for, or ended by a Ctrl-C.

    Raises:
        NotConnectedError: If it is not running.
        TesseraError: What the daemon answered instead of a result.
    """
    with Waiter() as waiter:
        import grpc

        from aggregator.config import load
        from common.wire.status import from_rpc_error

        socket = load(config).aggregator.control_socket
        calls = _Calls(waiter, socket)
        try:
            yield cast("ControlServiceStub", calls)
        except grpc.RpcError as error:
            found = from_rpc_error(error)
            if isinstance(found, NotConnectedError) and "status" in found.details:
                raise NotConnectedError(
                    "the aggregator's daemon is not running",
                    "start it: aggregator serve",
                    {"socket": str(socket)},
                ) from None
            raise found from None
        finally:
            calls.hang_up()


class _Calls:
    """Calls as of a stub without an event loop, waited for in one.

    Args:
        waiter: Waits.
        socket: The daemon's.
    """

    def __init__(self, waiter: Waiter, socket: Path) -> None:
        self._waiter = waiter
        self._channel, self._stub = waiter.wait(lambda: self._connect(socket))

    async def _connect(self, socket: Path) -> tuple[Any, Any]:
        import grpc

        from common.trust.tls import MESSAGE_LIMIT
        from common.wire.v1.control_pb2_grpc import ControlServiceStub

        options = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
        channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        return channel, ControlServiceStub(channel)

    def hang_up(self) -> None:
        """Close the channel, and forget it while no Ctrl-C can come in between."""
        self._waiter.finish(lambda: self._channel.close(None))
        self._channel = self._stub = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def answer(request: object, options: dict[str, Any]) -> Any:
            return await getattr(self._stub, name)(request, **options)

        return lambda request, **options: self._waiter.wait(lambda: answer(request, options))

    def Watch(self, request: object) -> "_Watched":
        async def begin() -> Any:
            return self._stub.Watch(request)

        return _Watched(self._waiter, self._waiter.wait(begin))


class _Watched:
    """The answers of a call that has many, each waited for when it is asked for."""

    def __init__(self, waiter: Waiter, call: Any) -> None:
        self._waiter, self._call = waiter, call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        from grpc.aio import EOF  # type: ignore[attr-defined]  # the stubs lack it

        answer = self._waiter.wait(self._call.read)
        if answer is EOF:
            raise StopIteration
        return answer

    def cancel(self) -> None:
        """Hang up, and forget the call."""
        self._call.cancel()
        self._call = None


def pieces(call: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    """Yield the answers of a listing that is told in pieces.

    Args:
        call: The call, whose answers name the last entry that they have if there are more.
        request: What is asked for, with the field `after`.
    """
    while True:
        answer = call(request)
        yield answer
        if not answer.last:
            return
        request.after = answer.last


def os_user() -> str:
    """Return who gives a command: this process's user, and who is behind it."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER", name)
    return name if behind == name else f"{name} (sudo by {behind})"


def stated_user() -> tuple[tuple[str, bytes], ...]:
    """Return the metadata that says who gives a command, for calls that change something."""
    return ((USER_KEY, os_user().encode()),)
