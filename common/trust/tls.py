"""gRPC over mutual TLS: limits, and an owner's side. `aggregator.api.server_tls` is the other side."""

import grpc

from common.trust.credentials import Identity

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Most bytes of one message, either way."""

TIME_KEY = "tessera-time"
"""Metadata of the aggregator's answer to Connect: its clock, Unix time in whole seconds."""

KEEPALIVE_MS = 30_000
WINDOW_BYTES = 4 * 1024 * 1024
"""What a stream may have under way at its start: three times what 100 Mbit/s with a delay of 100 ms needs.

gRPC measures a connection and adapts the window to it. From the 64 KiB of HTTP/2 it takes seconds to grow,
and congestion control takes a sender that waits for the window for a slow line.
"""


def channel_options(*, direct: bool = False) -> list[tuple[str, int]]:
    """Return the options of an owner's channel; `direct` keeps gRPC from proxies of the environment."""
    return [
        ("grpc.enable_http_proxy", int(not direct)),
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 1_000),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 60_000),
        # A call is for the aggregator that showed its name on this connection, not for who is reached next.
        ("grpc.enable_retries", 0),
    ]


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Return an owner's credentials."""
    return grpc.ssl_channel_credentials(identity.ca_pem, identity.key_pem, identity.chain_pem)
