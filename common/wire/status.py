"""Errors of calls, rebuilt by the caller with class, hint and details (`aggregator.api.call_errors`)."""

from typing import Any

import grpc

from common.canonical import parse_json
from common.errors import InternalError, NotConnectedError, ProtocolError, TesseraError, from_document
from common.wire.answers import METADATA_KEY

# gRPC itself says INTERNAL of a call that breaks while a message is sent.
# A fault of the other side has our metadata.
_BROKEN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
)


def from_rpc_error(error: grpc.RpcError) -> TesseraError:
    """Rebuild the error that ended a call.

    Returns:
        The error of the catalogue; for a call that got no answer of ours, `NotConnectedError`.
    """
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    metadata = dict(trailing or ())
    packed = metadata.get(METADATA_KEY)
    if isinstance(packed, bytes):
        try:
            return from_document(parse_json(packed))
        except (ValueError, AttributeError, TypeError):
            return InternalError("the other side sent an error that cannot be read")
    code = error.code() if hasattr(error, "code") else None
    if code in _BROKEN:
        return NotConnectedError("the other side cannot be reached", details={"status": code.name})
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # Said by gRPC itself, before a message reaches us.
        return ProtocolError(
            "a message is longer than the other side takes", "docs/limitations.md says how long"
        )
    return InternalError("the call failed", details={"status": code.name if code else "unknown"})
