"""The aggregator's side of gRPC over mutual TLS: options, credentials, and the identity of callers.

gRPC checks chains and host names when a connection is made. The sender's identity is checked on every call,
since a live connection outlives its certificate.
"""

import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509

from common.errors import IdentityError
from common.trust.credentials import Identity
from common.trust.identity import (
    Party,
    PartyKind,
    check_key,
    check_purpose,
    check_validity,
    host_names,
    load_certificates,
    party_of_certificate,
)
from common.wire.limits import KEEPALIVE_MS, MESSAGE_LIMIT, WINDOW_BYTES

RECEIVE_LIMIT = 2304 * 1024
"""Most bytes of a message of an owner: a schema has 2 MiB at most."""
HANDSHAKE_MS = 10_000
"""How long a connection may take to show a certificate."""
_IDLE_MS = 300_000
_BEGUN_SECONDS = 0.1
"""Longer than a handshake takes from asking for the certificate until it holds what was made of it."""


def server_options(connections: int) -> list[tuple[str, int]]:
    """Return the options of the aggregator's server; more `connections` are closed before their handshake."""
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # An owner always waits with a poll, except while it works at its limit.
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_receive_message_length", RECEIVE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.keepalive_time_ms", 2 * KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 2 * KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 3),
        # An owner waits with one call and answers each piece of work that it does with another.
        ("grpc.max_concurrent_streams", 32),
        # A second listener on a port would take a share of the owners' connections silently.
        ("grpc.so_reuseport", 0),
    ]


def server_credentials(identity: Callable[[], Identity]) -> grpc.ServerCredentials:
    """Return the aggregator's credentials; a connection without a client certificate is refused.

    They serve one port: a change is reported once. gRPC frees what it made of the former certificate
    when it takes a new one, and a handshake in another thread may be about to use that: it ends the process
    (grpc/grpc#36693). So a certificate is handed over only where it has changed, and a moment late. Those
    handshakes that begin meanwhile are held back by gRPC, those that had begun are past it.

    Args:
        identity: Called at every handshake, so that a renewed certificate needs no restart.
    """
    given = identity()

    def changed_configuration() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        now = identity()
        if now.files == given.files:
            return None
        time.sleep(_BEGUN_SECONDS)
        given = now
        return _configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given),
        changed_configuration,  # type: ignore[arg-type]  # None, for no change, is missing in the stubs
        require_client_authentication=True,
    )


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(identity.key_pem, identity.chain_pem)], identity.ca_pem
    )


def peer_certificate(
    context: grpc.aio.ServicerContext[Any, Any], trust_domain: str, now: datetime
) -> x509.Certificate:
    """Return the certificate of the owner that makes a call; checked on every call.

    TLS has checked when the connection was made that it leads to the CA and that its holder has its key.

    Returns:
        A certificate that is valid now, for a client, and names one owner of the trust domain.

    Raises:
        IdentityError: If no certificate was shown, or one of these does not hold.
    """
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    if pem is None:
        raise IdentityError(
            "the call came without a certificate", "call over TLS with the owner's certificate"
        )
    certificate, party = _client(pem)
    check_validity(certificate, now)
    if party.kind is not PartyKind.OWNER or party.trust_domain != trust_domain:
        raise IdentityError(
            f"{party.uri} is not an owner of the trust domain {trust_domain}",
            f"owners are named spiffe://{trust_domain}/owner/ID",
        )
    return certificate


@lru_cache(maxsize=4096)
def _client(pem: bytes) -> tuple[x509.Certificate, Party]:
    """Read a client's certificate and make the checks that have the same result at every call."""
    certificate = load_certificates(pem)[0]
    party = party_of_certificate(certificate)
    check_purpose(certificate, "client")
    check_key(certificate)
    if hosts := host_names(certificate):
        raise IdentityError(
            f"the certificate of {party.uri} also names hosts ({', '.join(hosts)})",
            "have it issued without host names, else it could pose as the aggregator",
        )
    return certificate, party
