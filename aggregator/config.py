"""`aggregator.toml`: what an aggregator is told about itself (DESIGN §5).

The values here are the run-time form; the shape of the file is in `aggregator.config`, imported late.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from common.daemon.audit import AuditSection
from common.daemon.settings import (
    AuditTable,
    Duration,
    FilePath,
    ListenAddress,
    MetricsTable,
    Name,
    TlsTable,
    TrustDomain,
)
from common.settings import MetricsSection, Problem, Section, TlsSection, locate, read, validate

FILE_NAME = "aggregator.toml"
DEFAULT_LISTEN = "0.0.0.0:8443"


@dataclass(frozen=True, slots=True)
class AggregatorSection:
    """Who the aggregator is and where it keeps what it has."""

    name: str
    """Name in its SPIFFE ID."""
    trust_domain: str
    """Trust domain of its SPIFFE ID and of every owner's."""
    state_dir: Path
    """Folder of its database and of uploads under way."""
    release_dir: Path
    """Folder in which release folders appear."""
    control_socket: Path
    """Unix socket of its command line."""
    listen: str = DEFAULT_LISTEN
    """Address of the TLS port, `host:port`; port 0 lets the system choose."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each step of a release may take."""

    invite: timedelta = timedelta(seconds=30)
    """Until every owner has described its data set."""
    consent: timedelta = timedelta(days=7)
    """Until every owner has accepted."""
    link: timedelta = timedelta(minutes=10)
    """Until every owner has sent what linking needs."""
    mask: timedelta = timedelta(hours=1)
    """Until every owner has sealed its fragment."""
    collect: timedelta = timedelta(hours=1)
    """Until every fragment has arrived."""


@dataclass(frozen=True, slots=True)
class EnrolmentSection:
    """What the aggregator may do as the owners' certificate authority."""

    ca_key: Path | None = None
    """Private key of the CA, one of those in `[tls] ca`; None if certificates come from elsewhere."""
    auto_renew: bool = True
    """Whether the daemon renews certificates that near their end, with that key."""


@dataclass(frozen=True, slots=True)
class AggregatorConfig:
    """A whole `aggregator.toml`, validated."""

    path: Path
    """The file it came from."""
    aggregator: AggregatorSection
    """Who the aggregator is."""
    tls: TlsSection
    """What it proves that with."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """How long each step may take."""
    audit: AuditSection = field(default_factory=AuditSection)
    """Where operators' actions are copied to."""
    enrolment: EnrolmentSection = field(default_factory=EnrolmentSection)
    """What it may do as a certificate authority."""
    metrics: MetricsSection = field(default_factory=MetricsSection)
    """Where its metrics are."""


def load(path: Path | None = None) -> AggregatorConfig:
    """Read and validate the configuration.

    Args:
        path: What `--config` named; None looks for `./aggregator.toml`, then `/etc/tessera/aggregator.toml`.

    Raises:
        ConfigurationError: If there is none, or with every problem of it.
    """
    return parse(locate(path, FILE_NAME))


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
