"""The command line's connection to its daemon."""

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregator.operator_log import USER_KEY
from common.errors import NotConnectedError

if TYPE_CHECKING:
    from common.wire.v1.control_pb2_grpc import ControlServiceStub


@contextmanager
def daemon(config: Path | None) -> Iterator["ControlServiceStub"]:
    """Connect to the daemon of a configuration.

    Args:
        config: What `--config` named.

    Yields:
        The daemon's calls.

    Raises:
        NotConnectedError: If it is not running.
        TesseraError: What the daemon answered instead of a result.
    """
    import grpc

    from aggregator.config import load
    from common.tls import MESSAGE_LIMIT
    from common.wire.status import from_rpc_error
    from common.wire.v1.control_pb2_grpc import ControlServiceStub

    socket = load(config).aggregator.control_socket
    options = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        try:
            yield ControlServiceStub(channel)
        except grpc.RpcError as error:
            found = from_rpc_error(error)
            if isinstance(found, NotConnectedError) and "status" in found.details:
                raise NotConnectedError(
                    "the aggregator's daemon is not running",
                    "start it: aggregator serve",
                    {"socket": str(socket)},
                ) from None
            raise found from None


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
