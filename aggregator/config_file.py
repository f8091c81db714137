"""The shape of `aggregator.toml` as a person writes it, and its way to `aggregator.config`."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from aggregator.config import (
    DEFAULT_LISTEN,
    AggregatorConfig,
    AggregatorSection,
    Deadlines,
    EnrolmentSection,
)
from common.setting_types import (
    AuditTable,
    Duration,
    FilePath,
    ListenAddress,
    MetricsTable,
    Name,
    TlsTable,
    TrustDomain,
)
from common.settings import Problem, Section, read, validate

_LONGEST_SOCKET_PATH = 103
"""Bytes that the path of a Unix socket may have on every system that we run on (macOS allows fewest)."""
_SOCKET = "control/aggregator.sock"
_DEFAULTS = Deadlines()


class _Aggregator(Section):
    name: Name = Field(description='the name in its SPIFFE ID, such as "central"')
    trust_domain: TrustDomain = Field(description='such as "hospitals.example"')
    listen: ListenAddress = DEFAULT_LISTEN
    state_dir: FilePath = Field(description="a folder for its database")
    release_dir: FilePath = Field(description="a folder for the releases")
    control_socket: FilePath | None = None


class _Deadlines(Section):
    invite: Duration = _DEFAULTS.invite
    consent: Duration = _DEFAULTS.consent
    link: Duration = _DEFAULTS.link
    mask: Duration = _DEFAULTS.mask
    collect: Duration = _DEFAULTS.collect


class _Enrolment(Section):
    ca_key: FilePath | None = None
    auto_renew: bool = True


class _File(Section):
    aggregator: _Aggregator = Field(description="the table [aggregator] says who this is")
    tls: TlsTable = Field(description="the table [tls] names ca, cert and key")
    deadlines: _Deadlines = _Deadlines()
    enrolment: _Enrolment = _Enrolment()
    audit: AuditTable = AuditTable()
    metrics: MetricsTable = MetricsTable()


def parse(path: Path) -> AggregatorConfig:
    """Read a file and return its run-time form.

    Raises:
        ConfigurationError: With every problem of the file.
    """
    file = validate(_File, read(path), path, lambda document: _contradictions(document, path))
    section, deadlines = file.aggregator, file.deadlines
    socket = section.control_socket or section.state_dir / _SOCKET
    return AggregatorConfig(
        path=path,
        aggregator=AggregatorSection(
            name=section.name,
            trust_domain=section.trust_domain,
            listen=section.listen,
            state_dir=section.state_dir,
            release_dir=section.release_dir,
            control_socket=socket,
        ),
        tls=file.tls.section(),
        deadlines=Deadlines(
            deadlines.invite, deadlines.consent, deadlines.link, deadlines.mask, deadlines.collect
        ),
        enrolment=EnrolmentSection(file.enrolment.ca_key, file.enrolment.auto_renew),
        audit=file.audit.section(),
        metrics=file.metrics.section(),
    )


def _contradictions(document: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    section = document.get("aggregator")
    if not isinstance(section, Mapping):
        return
    socket, state = section.get("control_socket"), section.get("state_dir")
    given = socket if isinstance(socket, str) else f"{state}/{_SOCKET}" if isinstance(state, str) else ""
    length = len(os.fsencode(os.path.normpath(path.absolute().parent / given)))
    if given and length > _LONGEST_SOCKET_PATH:
        yield Problem(
            "aggregator.control_socket",
            f": its path has {length} bytes and may have {_LONGEST_SOCKET_PATH}; name a shorter one",
        )
