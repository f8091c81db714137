"""The types that keys of a configuration file have: durations, amounts, names, addresses, values of rules.

Each reads what TOML gives and refuses everything else with a sentence that says what is accepted.
"""

import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator

from common.model.schema import MISSING_CATEGORY
from common.settings import Contradictions, FilePath, Listed, Section
from common.trust.identity import NAME_RULE, Party, PartyKind, is_name
from common.workspace import Workspace, machine_memory, processors

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_LONGEST_DURATION = timedelta(days=3650)
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UNITS = {
    unit: base**power
    for base, units in ((1000, ("MB", "GB", "TB")), (1024, ("MiB", "GiB", "TiB")))
    for power, unit in enumerate(units, 2)
}
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([MGT]i?B)")
_SMALLEST_MEMORY = 256 * 10**6
"""Bytes: with less, a step would write and read tiny pieces."""
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?|\.+")
"""Hosts that end in a number: no names, though systems read "0x7f.1" and "a.1" in ways of their own."""
_EXPECTED_ADDRESS = 'expected an address such as "host:8443", "192.0.2.1:8443" or "[::1]:8443"'
_WEB_ADDRESS = re.compile(r"[!-~]+")
"""Printable ASCII, as a request takes it."""


def reject(text: str) -> NoReturn:
    """Refuse a value; the text says what is accepted."""
    raise ValueError(text)


def parse_duration(value: object) -> timedelta:
    """Read a duration: a whole number and its unit, s, m, h or d."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        reject('expected a duration such as "60s", "5m", "2h" or "7d"')
    duration = timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    if not timedelta(0) < duration <= _LONGEST_DURATION:
        reject(f'expected a duration from "1s" to "{_LONGEST_DURATION.days}d"')
    return duration


def _memory(value: object) -> int:
    """Read an amount of memory such as "1GB" or "512MiB", in bytes."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = int(Decimal(match[1]) * _UNITS[match[2]]) if match else 0
    return (
        size
        if size >= _SMALLEST_MEMORY
        else reject('expected a size from "256MB", such as "1GB" or "1.5GiB"')
    )


def parse_bound(value: object) -> str:
    """Return one end of a domain, a number or a date, as text."""
    if isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return str(value)
    if type(value) is date:
        return value.isoformat()
    raise ValueError("expected a number or a date")


def _parse_excluded(value: object) -> tuple[tuple[str, str], ...]:
    """Return the values or ranges that a rule excludes of one attribute; an end that is left out is ""."""
    if isinstance(value, dict) and value and value.keys() <= {"min", "max", "missing"}:
        missing = value.get("missing", False)
        if not isinstance(missing, bool):
            raise ValueError("expected missing = true, or missing = false for every other value")
        # Without ends a range is every value that is not missing.
        ends = [tuple(parse_bound(value[end]) if end in value else "" for end in ("min", "max"))]
        if missing:
            ends = [*ends[: value.keys() != {"missing"}], (MISSING_CATEGORY, MISSING_CATEGORY)]
        return tuple((lowest, highest) for lowest, highest in ends)
    if isinstance(value, list) and value:
        labels = [str(item).lower() if isinstance(item, bool) else parse_bound(item) for item in value]
        return tuple((label, label) for label in labels)
    raise ValueError(
        'expected values, such as ["yes", "no"], a range, such as { max = 15 }, or { missing = true }'
    )


def _followed(value: object) -> dict[str, str]:
    """Return a table of values by the values that they follow from."""
    if not isinstance(value, dict) or not value:
        raise ValueError('expected values by those that they follow from, such as { "HS-grad" = 9 }')
    return {
        str(key): str(each).lower() if isinstance(each, bool) else parse_bound(each)
        for key, each in value.items()
    }


def _name(value: object) -> str:
    return value if isinstance(value, str) and is_name(value) else reject(f"expected {NAME_RULE}")


def _trust_domain(value: object) -> str:
    try:
        return Party(PartyKind.OWNER, "x", str(value)).trust_domain
    except ValueError:
        raise ValueError("expected a name such as hospitals.example: a-z, 0-9, '.', '-', '_'") from None


def parse_address(value: object) -> str:
    """Read "host:port"."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65535:
        reject(_EXPECTED_ADDRESS)
    return f"{normal_host(match['host'])}:{int(match['port'])}"


def normal_host(host: str) -> str:
    """Return a host in the form that addresses are compared by: [::1] for [0:0:0:0:0:0:0:1]."""
    if not host.startswith("[") and not _NUMERIC.fullmatch(host):
        return host
    try:
        return f"[{IPv6Address(host[1:-1])}]" if host.startswith("[") else str(IPv4Address(host))
    except ValueError:
        raise ValueError(_EXPECTED_ADDRESS) from None


def optional_address(value: object) -> str:
    """Read "host:port", or an empty text for none."""
    return "" if value == "" else parse_address(value)


def is_local(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback(address: str) -> bool:
    """Whether "host:port" is an address of this machine alone."""
    return is_local(address.rpartition(":")[0].strip("[]"))


def parse_web_address(value: object) -> str:
    """Read a web address: https everywhere, http for this machine alone; without user and password."""
    text = value if isinstance(value, str) and _WEB_ADDRESS.fullmatch(value) else ""
    parts = urlsplit(text)
    host = parts.hostname or ""
    if parts.username is not None:
        reject("expected an address without user and password: web addresses go to logs and other programs")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_local(host))):
        reject("expected an address such as https://host/path")
    # A port that is none is an error here.
    return parts.geturl() if parts.port != 0 else reject("expected a port from 1 to 65535")


def distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names, none of which is empty or stands twice."""
    if len(set(names)) != len(names) or "" in names:
        reject("expected names that are not empty, each once")
    return names


Duration = Annotated[timedelta, PlainValidator(parse_duration)]
Memory = Annotated[int, PlainValidator(_memory)]
Name = Annotated[str, PlainValidator(_name)]
Followed = Annotated[dict[str, str], PlainValidator(_followed)]
Excluded = Annotated[tuple[tuple[str, str], ...], PlainValidator(_parse_excluded)]
TrustDomain = Annotated[str, PlainValidator(_trust_domain)]
ListenAddress = Annotated[str, PlainValidator(parse_address)]
Names = Annotated[Listed[str], AfterValidator(distinct_names)]


@dataclass(frozen=True, slots=True)
class MetricsSection(Section):
    """The table `[metrics]`: where Prometheus finds the metrics of a daemon."""

    listen: Annotated[str, PlainValidator(optional_address)] = ""
    """"host:port"; empty for no metrics."""
    allow_remote: bool = False
    """Whether other machines may reach that address."""

    def __post_init__(self) -> None:
        if self.listen and not self.allow_remote and not is_loopback(self.listen):
            text = (
                f' = "{self.listen}": expected an address of this machine alone, such as "127.0.0.1:9464"; '
                "anybody who reaches it can read the metrics (allow_remote = true says that this is meant)"
            )
            raise Contradictions([("listen", text)])


@dataclass(frozen=True, slots=True)
class EngineSection(Section):
    """The table `[engine]`: what long steps may use of the machine."""

    memory_limit: Memory = field(default_factory=lambda: machine_memory() // 2)
    """Bytes of memory that a step may take, on top of what the daemon takes without one."""
    scratch: FilePath | None = None
    """A private folder for what does not fit into memory; without it `scratch` in the state folder."""
    threads: Annotated[int, Field(ge=1)] = field(default_factory=processors)
    """Threads that computations may use."""

    def workspace(self, state_dir: Path) -> Workspace:
        """Return what a step may use."""
        return Workspace(self.memory_limit, self.scratch or state_dir / "scratch", self.threads)
