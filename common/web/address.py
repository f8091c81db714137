"""How browsers reach a console: its names, its path, and the proxies between."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope


def network_of(address: str) -> str:
    """Return what limits count an address by: itself, or the /64 of an IPv6 address, all of one machine."""
    with suppress(ValueError):
        ip = ip_address(address.partition("%")[0])
        if ip.version == 6:
            mapped = ip.ipv4_mapped
            return str(mapped or ip_network((ip, 64), strict=False))
    return address


@dataclass(frozen=True, slots=True)
class Address:
    """What browsers name a console by, and whom it believes where a request comes from."""

    hosts: Sequence[str]
    """The values of the Host header that name it, its own first, such as "127.0.0.1:8441"."""
    scheme: str = "http"
    """What browsers use: "https", or "http" for this machine alone."""
    root: str = ""
    """What every path begins with, such as "/north"; a proxy passes it on as it is."""
    proxies: Sequence[IPv4Network | IPv6Network] = ()
    """Where the declared proxies are."""
    by_socket: bool = False
    """Whether it listens at a Unix socket, which nobody but a proxy can open."""

    @property
    def url(self) -> str:
        """Where its first page is, without the last "/"."""
        return f"{self.scheme}://{self.hosts[0]}{self.root}"

    @property
    def origins(self) -> frozenset[str]:
        """The values of the Origin header that its own pages send."""
        return frozenset(f"{self.scheme}://{host}" for host in self.hosts)

    def client(self, scope: Scope) -> str:
        """Return the address that a request comes from: the last one that is no declared proxy.

        What came before it in `X-Forwarded-For` is what a stranger may have written.
        """
        peer = scope["client"][0] if scope.get("client") else ""
        if not self._is_proxy(peer):
            return peer
        named = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        others = (address.strip() for address in reversed(named))
        return next((address for address in others if address and not self._is_proxy(address)), peer)

    def _is_proxy(self, address: str) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:
            return self.by_socket and not address
        return any(ip in network for network in self.proxies)
