"""The reason why a TLS connection cannot be made: gRPC says only UNAVAILABLE."""

import errno
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from cryptography import x509

from common.errors import IdentityError, NotConnectedError
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.identity import check_purpose, check_validity, describe, host_names, load_certificates
from common.trust.proxy import Proxy, dial, proxy_to

_CLIENT_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HOST_MISMATCH = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


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
    """The parts of a handshake that a server shows to anyone who connects."""

    version: str
    speaks_grpc: bool
    """True if it agreed on HTTP/2."""
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
