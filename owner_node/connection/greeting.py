"""The first call of a connection, made once and without a loop: who is there, and what time is it?"""

from collections.abc import Sequence
from typing import Any

import grpc

from common import __version__
from common.credentials import Identity
from common.tls import TIME_KEY, channel_credentials_of, channel_options
from common.wire.status import from_rpc_error
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.owner_pb2_grpc import OwnerServiceStub
from owner_node.connection.client import PROTOCOL

_CALL_SECONDS = 20.0


def greet(address: str, identity: Identity, datasets: Sequence[str]) -> tuple[str, float | None]:
    """Connect to an aggregator, tell who is there as a daemon does, and hang up.

    Args:
        address: `host:port`.
        identity: What the owner connects with.
        datasets: Names of the data sets that it offers.

    Returns:
        The aggregator's version, and its clock as Unix time in seconds, if it tells that.

    Raises:
        TesseraError: If it cannot be reached, or takes no call of this owner.
    """
    request = wire.ConnectRequest(protocol=PROTOCOL, version=__version__, datasets=datasets)
    credentials = channel_credentials_of(identity)
    with grpc.secure_channel(address, credentials, options=channel_options()) as channel:
        calls: Any = OwnerServiceStub(channel)
        try:
            response, call = calls.Connect.with_call(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        told = dict(call.initial_metadata()).get(TIME_KEY, "")
    return response.version[:64], float(told) if str(told).isdigit() else None
