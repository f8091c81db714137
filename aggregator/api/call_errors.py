"""The error catalogue across gRPC: an error keeps its class, hint and details on the other side.

The status code is what tools understand; the whole error travels as JSON in a trailing metadata entry, for
`common.wire.status`. Any other error becomes INTERNAL without its text, which could quote a value; the log
has the place.
"""

import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError

from common.errors import InternalError, ProtocolError, TesseraError
from common.wire.answers import METADATA_KEY

_MOST_BYTES = 4096
_LONGEST_MESSAGE = 1000
_STATUS: Mapping[str, grpc.StatusCode] = {
    "usage": grpc.StatusCode.INVALID_ARGUMENT,
    "configuration": grpc.StatusCode.FAILED_PRECONDITION,
    "bad_data": grpc.StatusCode.FAILED_PRECONDITION,
    "conflict": grpc.StatusCode.ALREADY_EXISTS,
    "version": grpc.StatusCode.FAILED_PRECONDITION,
    "refused": grpc.StatusCode.PERMISSION_DENIED,
    "unusable_data": grpc.StatusCode.FAILED_PRECONDITION,
    "data_changed": grpc.StatusCode.FAILED_PRECONDITION,
    "balance": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "not_connected": grpc.StatusCode.UNAVAILABLE,
    "identity": grpc.StatusCode.UNAUTHENTICATED,
    "protocol": grpc.StatusCode.FAILED_PRECONDITION,
    "integrity": grpc.StatusCode.DATA_LOSS,
    "cancelled": grpc.StatusCode.ABORTED,
    "deadline": grpc.StatusCode.DEADLINE_EXCEEDED,
}
_log = logging.getLogger(__name__)
_M = TypeVar("_M", bound=Callable[..., Any])


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", error: TesseraError) -> None:
    """End a call with an error of the catalogue. Does not return: gRPC raises out of it."""
    code = _STATUS.get(error.code, grpc.StatusCode.INTERNAL)
    await context.abort(code, error.message[:_LONGEST_MESSAGE], ((METADATA_KEY, _metadata_value(error)),))


def raises(method: _M) -> _M:
    """Let a method of an asynchronous servicer raise errors of the catalogue, which end the call."""
    if inspect.isasyncgenfunction(method):

        @wraps(method)
        async def stream(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for response in method(self, request, context):
                    yield response
            except Exception as fault:  # noqa: BLE001 - the edge of the process
                await _end(context, fault)

        return cast("_M", stream)

    @wraps(method)
    async def call(self: Any, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except Exception as fault:  # noqa: BLE001 - the edge of the process
            await _end(context, fault)

    return cast("_M", call)


async def _end(context: Any, fault: Exception) -> None:
    if isinstance(fault, grpc.RpcError | grpc.aio.AbortError):
        raise fault
    if isinstance(fault, DecodeError):
        # In the middle of a stream; before the first message gRPC says so itself.
        fault = ProtocolError("the message cannot be read", "both sides must run compatible versions")
    if isinstance(fault, TesseraError):
        level = logging.ERROR if isinstance(fault, InternalError) else logging.INFO
        about = {"code": fault.code, "reason": fault.message}
        # Nobody at the control socket, where a caller has no certificate.
        if caller := b", ".join(context.peer_identities() or ()).decode(errors="replace"):
            about["caller"] = caller
        _log.log(level, "call refused", extra=about)
        await abort(context, fault)
    _log.error("call failed", exc_info=fault)
    await abort(context, InternalError("an internal fault of the other side", "its log says where"))


def _metadata_value(error: TesseraError) -> bytes:
    """Return the error as bytes that fit into the metadata of a call."""
    data = json.dumps(error.to_document(), ensure_ascii=False).encode()
    if len(data) <= _MOST_BYTES:
        return data
    body = {"code": error.code, "message": error.message[:_LONGEST_MESSAGE], "hint": error.hint[:300]}
    return json.dumps({"error": {**body, "details": {}}}, ensure_ascii=False).encode()
