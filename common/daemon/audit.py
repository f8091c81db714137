"""The table `[audit]`: where audit records are copied to.

This module knows the settings, and what a sink is; `common.daemon.delivery` copies the records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import PlainValidator

from common.settings import FilePath, Section

LOCAL_SYSLOG = "/dev/log"
"""Where this machine's syslog listens."""


def parse_syslog(value: object) -> str:
    """Return the path of syslog's socket on this machine from true, false or a path; empty for no syslog."""
    if isinstance(value, bool):
        return LOCAL_SYSLOG if value else ""
    if isinstance(value, str) and value.startswith("/"):
        return value
    raise ValueError(
        "expected true or the path of a socket of this machine; its syslog can forward to another machine"
    )


@dataclass(frozen=True, slots=True)
class AuditSection(Section):
    """The table `[audit]` of a configuration."""

    file: FilePath | None = None
    """File to which JSON lines are appended."""
    syslog: Annotated[str, PlainValidator(parse_syslog)] = ""
    """The path of the socket of this machine's syslog; empty for no syslog."""


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
