"""Connections of commands to an aggregator, beside those of the daemon."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import grpc

from common.clock import utc_now
from common.errors import NotConnectedError
from common.model.compatibility import Software
from common.trust.credentials import Identity
from common.trust.proxy import proxy_to
from common.trust.signing import load_chain
from common.wire.answers import NONCE_BYTES, TIME_KEY
from common.wire.status import from_rpc_error
from common.wire.v1.owner_pb2_grpc import OwnerServiceStub
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import (
    CALL_SECONDS,
    AggregatorClient,
    announcement,
    channel_credentials,
    channel_options,
    check_answer,
    check_software,
    host_and_port,
    readable,
)
from owner_node.trust import Trust


def trust_in(config: OwnerConfig, aggregator: str, clock: Callable[[], datetime] = utc_now) -> Trust:
    """Return what checks the signatures of an aggregator, under the CAs that owner.toml names now."""
    authorities = load_chain(config.tls.ca)
    return Trust(lambda: authorities, config.owner.trust_domain, config.owner.id, aggregator, clock)


@asynccontextmanager
async def connected_client(
    config: OwnerConfig, aggregator: KnownAggregator, identity: Identity | None = None
) -> AsyncIterator[AggregatorClient]:
    """Connect a command to an aggregator as the daemon does.

    Args:
        identity: The owner's certificate and key; None: read from its files.

    Yields:
        The client, once the aggregator has shown that it is the one that is named.

    Raises:
        NotConnectedError: If it cannot be reached.
        IdentityError, IntegrityError: If another aggregator answers.
    """
    async with AggregatorClient(aggregator.address, identity or config.tls) as client:
        try:
            await client.connect(
                [dataset.name for dataset in config.datasets], trust_in(config, aggregator.name)
            )
        except NotConnectedError as error:
            # gRPC does not say which step fails; it may be an authority that the other side does not know.
            raise NotConnectedError(
                f"aggregator {aggregator.name!r}: {error.message}",
                error.hint or "owner-node doctor checks the route to it step by step",
                error.details,
            ) from None
        yield client


def probe_aggregator(
    config: OwnerConfig, aggregator: KnownAggregator, identity: Identity
) -> tuple[Software, float | None]:
    """Connect to an aggregator, announce this owner as a daemon does, and hang up.

    Returns:
        What the aggregator runs, and its clock as Unix time in seconds, if it sends that.

    Raises:
        TesseraError: If it cannot be reached, is another aggregator, or rejects calls of this owner.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    request = announcement([dataset.name for dataset in config.datasets], nonce)
    credentials = channel_credentials(identity)
    host, port = host_and_port(aggregator.address)
    options = channel_options(direct=proxy_to(host, port=port) is None)
    with grpc.secure_channel(aggregator.address, credentials, options=options) as channel:
        calls: Any = OwnerServiceStub(channel)
        try:
            response, call = calls.Connect.with_call(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        check_answer(config.owner.id, nonce, readable(response), trust_in(config, aggregator.name))
        software = check_software(response)
        moment = dict(call.initial_metadata()).get(TIME_KEY, "")
    return software, float(moment) if str(moment).isdigit() else None
