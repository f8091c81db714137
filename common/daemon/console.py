"""The table `[console]`: where `console --serve` serves web pages, and who may open them.

This module knows the settings alone: a daemon, which reads the same file, imports nothing of the pages.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator

from common.daemon.settings import Names, is_loopback, optional_address, parse_web_address
from common.settings import Contradictions, FilePath, Section

UNIX = "unix:"
"""What the address of a Unix socket begins with."""
_LONGEST_SOCKET_PATH = 100
"""Systems allow about 104 bytes."""
_ROOT = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")


def _listen_address(value: object) -> str:
    """Read "host:port", "unix:/path", or an empty text for none."""
    if not isinstance(value, str) or not value.startswith(UNIX):
        return optional_address(value)
    path = value.removeprefix(UNIX)
    if not path.startswith("/") or len(path.encode()) > _LONGEST_SOCKET_PATH:
        raise ValueError(
            f'expected "unix:" and an absolute path of at most {_LONGEST_SOCKET_PATH} bytes, '
            'such as "unix:/run/tessera-owner/console.sock"'
        )
    return value


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for network in values:
        try:
            ip_network(network)
        except ValueError:
            raise ValueError(
                f"{network!r} is no address such as 10.0.0.5, and no network such as 10.0.0.0/24"
            ) from None
    return values


_ANY_ADDRESS = ("0.0.0.0", "::")


def comparable(name: str) -> str:
    """Return a name as it is compared: capitals matter in subjects, not in e-mail addresses."""
    return name.casefold() if "@" in name else name


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSection(Section):
    """The table `[console.oidc]`: the OpenID Connect provider that says who a person is."""

    issuer: Annotated[
        str, PlainValidator(parse_web_address), Field(description="https address of the provider")
    ]
    client_id: Annotated[str, Field(min_length=1, description="what the provider knows this console by")]
    client_secret_file: Annotated[
        FilePath, Field(description="private file whose first line is the secret that the provider gave")
    ]
    approvers: Annotated[Names, Field(description="subjects or e-mail addresses of those who may decide")]
    """Subjects or e-mail addresses of those who may decide."""
    viewers: Names = ()
    """Subjects or e-mail addresses of those who may look."""
    ca: FilePath | None = None
    """The authorities' certificates of the provider, PEM; without it those of the system."""

    def __post_init__(self) -> None:
        for name in self.approvers:
            if "@" in name and "=" in name.rpartition("@")[2]:
                text = f' names "{name}": write the address alone, without a user of this machine'
                raise Contradictions([("approvers", text)])
        twice = sorted(set(map(comparable, self.approvers)) & set(map(comparable, self.viewers)))
        if twice:
            raise Contradictions([("viewers", f" names {twice[0]}, who is an approver")])

    def decides(self, name: str, subject: str) -> bool:
        """Return True if a person who signed in may decide.

        Args:
            name: The entry that named the person when they signed in.
            subject: Provider and subject, as `subject_of` gives them.
        """
        known = map(comparable, self.approvers)
        return subject.startswith(self.subject_of("")) and comparable(name) in known

    def subject_of(self, subject: str) -> str:
        """Return what tells people apart: the provider, and its subject, which it gives to nobody else."""
        return f"{self.issuer} {subject}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSection(Section):
    """The table `[console]`: where a party's web pages are served."""

    listen: Annotated[str, PlainValidator(_listen_address)] = ""
    """"host:port", or "unix:/path" for a proxy; empty for no pages. Other machines need TLS and sign-ins."""
    url: Annotated[str, PlainValidator(parse_web_address)] = ""
    """Address that browsers use, such as "https://tessera.north.example"; empty: that of `listen`."""
    certificate: FilePath | None = None
    """The console's certificate, followed by any intermediate ones, PEM."""
    key: FilePath | None = None
    """Its private key, PEM, readable by its user alone."""
    proxies: Annotated[Names, AfterValidator(_networks)] = ()
    """Addresses or networks of the proxies that browsers use, which name whom a request is from."""
    oidc: OidcSection | None = None

    def __post_init__(self) -> None:
        if problems := list(self._contradictions()):
            raise Contradictions(problems)

    def _contradictions(self) -> list[tuple[str, str]]:
        problems = []
        if (self.certificate is None) != (self.key is None):
            problems.append(("certificate", "and key are given together or not at all"))
        if self.behind_proxy:
            if self.oidc is None:
                problems.append(
                    ("listen", " is behind a proxy, so people need to sign in: add the table [console.oidc]")
                )
            if not self.url:
                problems.append(
                    ("url", 'is needed: the address of the proxy that browsers use, "https://host/path"')
                )
        if self.listen and not self.listen.startswith(UNIX) and not is_loopback(self.listen):
            remote = f' = "{self.listen}": other machines reach this address, so '
            if self.certificate is None:
                problems.append(("listen", f"{remote}the console needs TLS: name its certificate and key"))
            if self.oidc is None:
                problems.append(("listen", f"{remote}people need to sign in: add the table [console.oidc]"))
            if not self.url and self.listen.rpartition(":")[0].strip("[]") in _ANY_ADDRESS:
                problems.append(("url", 'is needed: the address that browsers use, "https://host:port"'))
        return [*problems, *(self._url_contradictions() if self.url else ())]

    def _url_contradictions(self) -> list[tuple[str, str]]:
        parts, seen = urlsplit(self.url), f' = "{self.url}": '
        own = "http" if self.certificate is None else "https"
        problems = []
        if parts.scheme != own and not self.behind_proxy:
            problems.append(("url", f"{seen}expected an address that begins with {own}"))
        if parts.query or parts.fragment or "@" in parts.netloc:
            problems.append(("url", f"{seen}expected scheme, host, port and path alone"))
        if not self.behind_proxy and parts.path not in ("", "/"):
            problems.append(("url", f"{seen}only a console behind a proxy has a path: name its proxies"))
        if not _ROOT.fullmatch(parts.path):
            problems.append(("url", f'{seen}expected a path of letters, digits, "-", "_", "." and "~"'))
        return problems

    @property
    def behind_proxy(self) -> bool:
        """Whether browsers reach it through a proxy."""
        return bool(self.proxies) or self.listen.startswith(UNIX)

    @property
    def scheme(self) -> str:
        """What addresses that browsers use begin with."""
        return urlsplit(self.url).scheme or ("http" if self.certificate is None else "https")
