"""The checks of `doctor` on the way to an aggregator: proxy, name, connection, TLS, names, clock."""

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from common.cli.doctor import Finding, failed, failed_with, passed, skipped, warned
from common.errors import ExitCode, IdentityError, NotConnectedError
from common.trust.handshake import Seen, client_context, unreachable, unverified_handshake
from common.trust.identity import (
    Party,
    check_purpose,
    check_validity,
    describe,
    host_names,
    party_of_certificate,
)
from common.trust.proxy import Proxy, dial, is_excepted
from common.trust.signing import chain_pem, load_chain

_SECONDS = 5.0
_SKEW_SECONDS, _WORST_SKEW_SECONDS = 30.0, 300.0
_MOST_ADDRESSES = 4


def proxy(check: str, host: str, through: Proxy | None, port: int | None = None) -> Finding:
    """Return whether gRPC takes a proxy to a host."""
    if through is not None:
        return passed(check, f"{through.variable}: connections to {host} go through {through.place}")
    return passed(check, f"{host} is excepted" if is_excepted(host, port=port) else "no proxy is set")


def name(check: str, host: str) -> Iterator[Finding]:
    """Look a host up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        yield passed(check, f"{host} is an address, not a name")
        return
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        hint = "correct the address in the configuration, or ask the operator of the name service"
        yield failed(check, f"the name {host} is not found", hint, ExitCode.NOT_CONNECTED)
        return
    addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    yield passed(check, f"{host} is {', '.join(addresses[:_MOST_ADDRESSES])}")


def reach(check: str, host: str, port: int, through: Proxy | None = None) -> tuple[Finding, Seen | None]:
    """Connect to a server; returns what was found, and what the server shows."""
    place = f"{host}:{port}"
    try:
        seen = unverified_handshake(host, port, _SECONDS, through)
    except ssl.SSLError as error:
        reason = (error.reason or "no answer").replace("_", " ").lower()
        text, hint = f"no TLS is spoken at {place}: {reason}", "check host and port; is a proxy in between?"
    except OSError as error:
        return failed_with(check, unreachable(place, error)), None
    except (IdentityError, NotConnectedError) as error:
        return failed_with(check, error), None
    else:
        if seen.speaks_grpc:
            return passed(check, f"{place} answers with {seen.version}"), seen
        text, hint = f"{place} speaks TLS, but not gRPC", "check the address; is a proxy in between?"
    return failed(check, text, hint, ExitCode.NOT_CONNECTED), None


def shown_names(check: str, host: str, seen: Seen, party: Party, now: datetime) -> Iterator[Finding]:
    """Compare the certificate that a server shows with the expected party and host."""
    shown = seen.certificate
    names = host_names(shown)
    text = f"expected {party.uri} for {host}; seen {describe(shown)} for {', '.join(names) or '(no host)'}"
    ends = shown.not_valid_after_utc
    check_validity(shown, now)
    check_purpose(shown, "server")
    if not any(_matches(pattern, host) for pattern in names):
        hint = "dial a name that is in the aggregator's certificate, or have this one added"
        yield failed(check, text, hint, ExitCode.NOT_CONNECTED)
    elif party_of_certificate(shown) != party:
        hint = "correct name or trust_domain in the configuration, or the address"
        yield failed(check, text, hint, ExitCode.NOT_CONNECTED)
    else:
        yield passed(check, f"{text}, until {ends:%Y-%m-%d}")


def _matches(pattern: str, host: str) -> bool:
    pattern, host = pattern.lower(), host.lower()
    return pattern == host or (pattern.startswith("*.") and host.partition(".")[2] == pattern[2:])


def issued_under(
    check: str, host: str, port: int, ca: Path, through: Proxy | None = None
) -> Iterator[Finding]:
    """Check without a certificate of our own that a server's leads to the authorities that are trusted."""
    if not ca.is_file():
        yield skipped(check, f"there is no CA file yet to check it with ({ca})")
        return
    context = client_context(chain_pem(load_chain(ca)))
    context.check_hostname = False
    try:
        with (
            dial(host, port, _SECONDS, through) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            yield passed(check, f"issued under the authorities of {ca}")
    except ssl.SSLCertVerificationError as error:
        text = f"not issued under the authorities of {ca}: {error.verify_message}"
        yield failed(check, text, "get the CA file of this aggregator", ExitCode.NOT_CONNECTED)


def skew(check: str, theirs: float | None, before: float, after: float) -> Finding:
    """Compare two clocks.

    Args:
        theirs: The other side's, Unix time in seconds; None if it did not report it.
        before: Ours when it was asked.
        after: Ours when it had answered.
    """
    if theirs is None:
        return skipped(check, "the aggregator does not report its time")
    # Whole seconds are reported: adding half a second gives the middle of the possible range.
    seconds = theirs + 0.5 - (before + after) / 2
    text = f"the aggregator's clock is {abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"
    hint = "set both clocks by a time service: certificates and deadlines are judged by them"
    if abs(seconds) > _WORST_SKEW_SECONDS:
        return failed(check, text, hint, ExitCode.NOT_CONNECTED)
    if abs(seconds) > _SKEW_SECONDS:
        return warned(check, text, hint)
    return passed(check, text if abs(seconds) >= 2 else "the clocks agree")
