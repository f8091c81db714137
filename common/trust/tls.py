"""gRPC over mutual TLS: credentials, limits, and the identity of the peer.

gRPC checks chains and host names when a connection is made and says only UNAVAILABLE when that fails.
This module adds what is missing: the sender's identity is checked on every call, since a live connection
outlives its certificate, and `explain_handshake` finds out why a connection cannot be made.
"""

import errno
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import grpc
from cryptography import x509

from common.errors import IdentityError, NotConnectedError
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.identity import (
    Party,
    PartyKind,
    check_key,
    check_purpose,
    check_validity,
    describe,
    host_names,
    load_certificates,
    party_of_certificate,
)
from common.trust.proxy import Proxy, dial, proxy_to

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Most bytes of one message, either way."""
RECEIVE_LIMIT = 2304 * 1024
"""Most bytes of a message of an owner: a schema has 2 MiB at most."""

TIME_KEY = "tessera-time"
"""Metadata of the aggregator's answer to Connect: its clock, Unix time in whole seconds."""

HANDSHAKE_MS = 10_000
"""How long a connection may take to show a certificate."""
_IDLE_MS = 300_000
_KEEPALIVE_MS = 30_000
_WINDOW_BYTES = 4 * 1024 * 1024
"""What a stream may have under way at its start: three times what 100 Mbit/s with a delay of 100 ms needs.

gRPC measures a connection and adapts the window to it. From the 64 KiB of HTTP/2 it takes seconds to grow,
and congestion control takes a sender that waits for the window for a slow line.
"""
_BEGUN_SECONDS = 0.1
"""Longer than a handshake takes from asking for the certificate until it holds what was made of it."""
_CLIENT_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HOST_MISMATCH = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def channel_options(*, direct: bool = False) -> list[tuple[str, int]]:
    """Return the options of an owner's channel; `direct` keeps gRPC from proxies of the environment."""
    return [
        ("grpc.enable_http_proxy", int(not direct)),
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 1_000),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 60_000),
        # A call is for the aggregator that showed its name on this connection, not for who is reached next.
        ("grpc.enable_retries", 0),
    ]


def server_options(connections: int) -> list[tuple[str, int]]:
    """Return the options of the aggregator's server; more `connections` are closed before their handshake."""
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # An owner always waits with a poll, except while it works at its limit.
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_receive_message_length", RECEIVE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.keepalive_time_ms", 2 * _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 2 * _KEEPALIVE_MS // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 3),
        # An owner waits with one call and answers each piece of work that it does with another.
        ("grpc.max_concurrent_streams", 32),
        # A second listener on a port would take a share of the owners' connections silently.
        ("grpc.so_reuseport", 0),
    ]


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Return an owner's credentials."""
    return grpc.ssl_channel_credentials(identity.ca_pem, identity.key_pem, identity.chain_pem)


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
        IdentityError: If there is none, or one of these does not hold.
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
            f"{party.uri} is no owner of the trust domain {trust_domain}",
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


def explain_handshake(
    address: tuple[str, int], ca: Path, cert: Path, key: Path, now: datetime, timeout: float = 5.0
) -> NotConnectedError | IdentityError | None:
    """Find out why gRPC calls an aggregator UNAVAILABLE, by one real handshake with the same files.

    It goes through the proxy that gRPC would take, and blocks: at most about four times `timeout`, and what
    the system's resolver takes to look up a name.

    Args:
        timeout: Seconds for connecting, for the handshake and for the answer, each.

    Returns:
        The reason, to be raised or logged; None if the handshake works.

    Raises:
        ConfigurationError: If a file is absent, open to others or of the wrong kind, or the environment names
            a proxy that cannot be used.
    """
    host, port = address
    place = f"{host}:{port}"
    proxy = proxy_to(host, port=port)
    try:
        identity = read_identity(TlsSection(ca=ca, cert=cert, key=key))
        identity.signer.check_validity(now)
        check_purpose(identity.signer.certificate, "client")
        context = _context(identity)
        with dial(host, port, timeout, proxy) as connection:
            return _shake_hands(connection, host, place, context)
    except (IdentityError, NotConnectedError) as error:
        return error
    except ssl.SSLCertVerificationError as error:
        return _server_certificate(address, place, ca, error, now, timeout, proxy)
    except ssl.SSLError as error:
        return _no_tls(place, (error.reason or "no TLS answer").replace("_", " ").lower())
    except socket.gaierror:
        return NotConnectedError(f"the name {host!r} is not found", "check the address and the name service")
    except OSError as error:
        return unreachable(place, error)


def client_context(authorities: bytes) -> ssl.SSLContext:
    """Return a context that trusts some authorities, given as PEM, as gRPC does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in gRPC, whatever the CA file holds is trusted, also an authority under another one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=authorities.decode())
    return context


def _context(identity: Identity) -> ssl.SSLContext:
    context = client_context(identity.ca_pem)
    with _file_of(identity.chain_pem + identity.key_pem) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _file_of(secret: bytes) -> Iterator[str]:
    """Yield a path to a secret, for `ssl`, which reads keys from files alone. On Linux it is on no disk."""
    with ExitStack() as stack:
        if sys.platform == "linux":
            stream = stack.enter_context(os.fdopen(os.memfd_create("identity"), "wb"))
            path = f"/proc/self/fd/{stream.fileno()}"
        else:
            stream = stack.enter_context(NamedTemporaryFile())
            path = stream.name
        stream.write(secret)
        stream.flush()
        yield path


def _shake_hands(
    connection: socket.socket, host: str, place: str, context: ssl.SSLContext
) -> NotConnectedError | IdentityError | None:
    """Do the handshake and wait for the first byte: with TLS 1.3 a server refuses a client after it."""
    try:
        session = context.wrap_socket(connection, server_hostname=host)
    except TimeoutError:
        return _no_tls(place, "it accepts connections and does not answer")
    except (ConnectionError, ssl.SSLEOFError):
        return _no_tls(place, "it hung up during the handshake")
    with session:
        if session.selected_alpn_protocol() != "h2":
            return NotConnectedError(
                f"{place} speaks TLS, but not gRPC", "check the address; is there a proxy in between?"
            )
        try:
            session.sendall(_CLIENT_PREFACE)
            answered = session.recv(1)
        except TimeoutError:
            return NotConnectedError(f"{place} took the connection and does not answer", "is it overloaded?")
        except ssl.SSLError as error:
            return _refusal(place, (error.reason or "no reason given").replace("_", " ").lower())
        except ConnectionError:
            answered = b""
    return None if answered else _refusal(place, "it hung up without saying why")


def _refusal(place: str, reason: str) -> IdentityError:
    return IdentityError(
        f"the aggregator at {place} refused this owner's certificate: {reason}",
        "check that the certificate was issued by the CA that the aggregator trusts, and both clocks",
        {"reason": reason},
    )


def _no_tls(place: str, reason: str) -> NotConnectedError:
    return NotConnectedError(
        f"no TLS is spoken at {place}: {reason}",
        "check host and port; the aggregator's port takes TLS only",
        {"reason": reason},
    )


def unreachable(place: str, error: OSError) -> NotConnectedError:
    """Say why there is no connection at all."""
    if isinstance(error, TimeoutError):
        return NotConnectedError(f"{place} does not answer", "is a firewall in between?")
    if error.errno == errno.ECONNREFUSED:
        return NotConnectedError(f"{place} refuses connections", "is the aggregator running, on that port?")
    return NotConnectedError(
        f"{place} cannot be reached: {error.strerror or 'network error'}", "check the network"
    )


def _server_certificate(
    address: tuple[str, int],
    place: str,
    ca: Path,
    error: ssl.SSLCertVerificationError,
    now: datetime,
    timeout: float,
    proxy: Proxy | None,
) -> NotConnectedError | IdentityError:
    """Say what is wrong with the certificate that the server shows."""
    try:
        shown = unverified_handshake(*address, timeout, proxy).certificate
    except IdentityError:
        return _no_tls(place, "it shows no certificate that can be read")
    except NotConnectedError as fault:
        return fault
    except OSError as fault:
        return unreachable(place, fault)
    try:
        check_validity(shown, now)
        check_purpose(shown, "server")
    except IdentityError as reason:
        return IdentityError(f"at {place}: {reason.message}", reason.hint)
    if error.verify_code in _HOST_MISMATCH:
        return IdentityError(
            f"{place} shows the certificate of {describe(shown)}, which is for the hosts "
            f"{', '.join(host_names(shown)) or '(none)'}, not for {address[0]}",
            "dial a name that is in the aggregator's certificate, or have this one added",
            {"expected": address[0], "seen": list(host_names(shown))},
        )
    return IdentityError(
        f"the certificate of {describe(shown)} that {place} shows was not issued under the CA of {ca}",
        f"get the CA file of this aggregator; the reason given is: {error.verify_message}",
        {"reason": error.verify_message},
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server shows to anyone who connects."""

    version: str
    speaks_grpc: bool
    """Whether it agreed on HTTP/2."""
    certificate: x509.Certificate
    """Its certificate, not believed yet."""


def unverified_handshake(host: str, port: int, timeout: float, through: Proxy | None) -> Seen:
    """Do a handshake with a server without verifying it, to see what it shows; our certificate is not shown.

    Raises:
        IdentityError: If it shows no certificate that can be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        dial(host, port, timeout, through) as connection,
        context.wrap_socket(connection, server_hostname=host) as session,
    ):
        shown = session.getpeercert(binary_form=True) or b""
        version, speaks_grpc = session.version() or "", session.selected_alpn_protocol() == "h2"
    try:
        [certificate] = load_certificates(ssl.DER_cert_to_PEM_cert(shown).encode())
    except (IdentityError, ValueError):
        raise IdentityError("it shows a certificate that cannot be read", "check the address") from None
    return Seen(version, speaks_grpc, certificate)
