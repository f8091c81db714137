"""The HTTP proxy that gRPC takes to an aggregator, as the environment says, and the way through it.

gRPC reads the variables itself and says only UNAVAILABLE where a proxy refuses. Checks go the same way here,
and say what the proxy answered. User and password of a proxy appear in no text.

References:
    RFC 9110, section 9.3.6 (CONNECT); gRPC, doc/environment_variables.md.
"""

import ipaddress
import os
import re
import socket
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from common.errors import ConfigurationError, NotConnectedError

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_LONGEST_ANSWER = 16 * 1024
_LONGEST_REASON = 80
_SHORTEST_SECONDS = 0.001
"""A time-out of 0 would mean not to wait at all."""
_OF_PORT = re.compile(r"(?P<host>[^:]+|\[[0-9a-f:.]+\]):(?P<port>[0-9]{1,5})")
_STATUS = re.compile(rb"HTTP/[0-9.]+ (?P<code>[0-9]{3})(?P<reason>(?: [^\r\n]*)?)\r\n")
_CONNECTED, _CREDENTIALS_WANTED = 200, 407


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that connections to a host go through."""

    variable: str
    """The environment variable that names it."""
    host: str
    port: int
    credentials: str = field(default="", repr=False)
    """"user:password", or empty."""

    @property
    def place(self) -> str:
        """Where it is, without user and password."""
        return f"{self.host}:{self.port}"


def proxy_to(
    host: str, environment: Mapping[str, str] = os.environ, *, port: int | None = None
) -> Proxy | None:
    """Return the proxy that connections to a host take, or those to one of its ports; None if there is none.

    Raises:
        ConfigurationError: If the variable cannot be used. gRPC would dial directly, and log what it says.
    """
    variable = next((name for name in _VARIABLES if environment.get(name)), None)
    if variable is None or is_excepted(host, environment, port=port):
        return None
    try:
        url = urlsplit(environment[variable])
        if url.scheme == "http" and url.hostname and url.port:
            user, _, password = url.netloc.rpartition("@")[0].partition(":")
            credentials = f"{unquote(user)}:{unquote(password)}" if user else ""
            return Proxy(variable, url.hostname, url.port, credentials)
    except ValueError:
        pass
    raise ConfigurationError(
        f"the environment variable {variable} names no proxy that can be used",
        hint=f"write it as http://host:port or http://user:password@host:port, or add {host} to no_proxy",
    )


def is_excepted(host: str, environment: Mapping[str, str] = os.environ, *, port: int | None = None) -> bool:
    """Whether a host is excepted from the proxy: by the end of its name, or an address by its network.

    More is excepted than gRPC does: all hosts by "*", ends of names as "*.example", and one port of a host.
    """
    listed = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
    entries = [entry.strip() for entry in listed.split(",") if entry.strip()]
    return any(_excepts(entry.lower(), host.lower(), port) for entry in entries)


def _excepts(entry: str, host: str, port: int | None) -> bool:
    if (of_port := _OF_PORT.fullmatch(entry)) is not None:
        return int(of_port["port"]) == port and _excepts(of_port["host"].strip("[]"), host, None)
    return host.endswith(entry.removeprefix("*")) or _in_network(host, entry)


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def dial(host: str, port: int, timeout: float, proxy: Proxy | None = None) -> socket.socket:
    """Connect to a host, through a proxy if there is one.

    Args:
        timeout: Seconds for connecting, and for the answer of the proxy.

    Raises:
        OSError: If the host cannot be reached directly.
        NotConnectedError: If the proxy cannot be reached, or does not connect.
    """
    if proxy is None:
        return socket.create_connection((host, port), timeout)
    try:
        connection = socket.create_connection((proxy.host, proxy.port), timeout)
    except OSError as error:
        raise NotConnectedError(
            f"the proxy {proxy.place} ({proxy.variable}) cannot be reached: {_reason(error)}",
            f"check the environment variable {proxy.variable}, or add {host} to no_proxy",
        ) from None
    try:
        _request(connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", host, timeout, proxy)
    except BaseException:
        connection.close()
        raise
    return connection


def _request(connection: socket.socket, place: str, host: str, timeout: float, proxy: Proxy) -> None:
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: Basic {b64encode(proxy.credentials.encode()).decode()}")
    answer, ends = b"", time.monotonic() + timeout
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        # A TLS server speaks second: nothing of the tunnel can follow the answer.
        while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_ANSWER:
            # A proxy that sends a byte now and then blocks no one.
            connection.settimeout(max(ends - time.monotonic(), _SHORTEST_SECONDS))
            received = connection.recv(_LONGEST_ANSWER)
            if not received:
                break
            answer += received
    except OSError as error:
        raise _refusal(proxy, place, _reason(error), host) from None
    connection.settimeout(timeout)
    status = _STATUS.match(answer)
    if status is None:
        raise _refusal(proxy, place, "it speaks no HTTP", host)
    code = int(status["code"])
    if code == _CREDENTIALS_WANTED:
        raise NotConnectedError(
            f"the proxy {proxy.place} wants a user and a password for {place}",
            f"write them into the environment variable {proxy.variable}: http://user:password@host:port",
        )
    if code != _CONNECTED:
        reason = status["reason"].decode("ascii", "replace")
        said = "".join(letter for letter in f"{code}{reason}" if letter.isprintable())
        raise _refusal(proxy, place, said[:_LONGEST_REASON], host)


def _refusal(proxy: Proxy, place: str, reason: str, host: str) -> NotConnectedError:
    return NotConnectedError(
        f"the proxy {proxy.place} ({proxy.variable}) does not connect to {place}: {reason}",
        f"it has to let CONNECT through to that port, or no_proxy has to name {host}",
        {"reason": reason},
    )


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or "network error"
