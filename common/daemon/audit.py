"""The table `[audit]`: where audit records are copied to.

This module knows the settings, and what a sink is; `common.daemon.delivery` copies the records.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import PlainValidator

from common.daemon.settings import normal_host
from common.settings import FilePath, Section

LOCAL_SYSLOG = "/dev/log"
"""Where this machine's syslog listens."""
DEFAULT_PORT = 514
_ADDRESS = re.compile(
    r"(?:(?P<scheme>udp|tcp)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
)


def parse_syslog(value: object) -> str:
    """Parse the configuration of syslog: true, the path of a socket, or the address of a host.

    Returns:
        The path of a socket or "udp://host:port" or "tcp://host:port"; empty for no syslog.
    """
    if isinstance(value, bool):
        return LOCAL_SYSLOG if value else ""
    if isinstance(value, str) and value.startswith("/"):
        return value
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 2**16:
        raise ValueError('expected true, the path of a socket, or an address such as "tcp://host:514"')
    return f"{match['scheme'] or 'udp'}://{normal_host(match['host'])}:{int(match['port'] or DEFAULT_PORT)}"


@dataclass(frozen=True, slots=True)
class AuditSection(Section):
    """The table `[audit]` of a configuration."""

    file: FilePath | None = None
    """File to which JSON lines are appended."""
    syslog: Annotated[str, PlainValidator(parse_syslog)] = ""
    """The path of a socket, or "udp://host:port" or "tcp://host:port"; empty for no syslog."""


class AuditSink(Protocol):
    """Takes audit records."""

    name: str
    """Key of the sink's cursor; a sink of another name gets all records from the start."""

    most: int
    """Records of one call of `write`."""

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take records.

        Raises:
            ConfigurationError: If not all of them could be taken; they have to be written again.
        """
