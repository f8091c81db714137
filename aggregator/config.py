"""`aggregator.toml`: the settings of an aggregator."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from common.daemon.audit import AuditSection
from common.daemon.console import ConsoleSection
from common.daemon.notify import NotifySection
from common.daemon.settings import Duration, EngineSection, ListenAddress, MetricsSection, Name, TrustDomain
from common.settings import FilePath, Problem, Section, TlsSection, locate, read, validate

FILE_NAME = "aggregator.toml"
DEFAULT_LISTEN = "0.0.0.0:8443"
_LONGEST_SOCKET_PATH = 103
"""Bytes that the path of a Unix socket may have on every system that we run on (macOS allows fewest)."""
_SOCKET = "control/aggregator.sock"


@dataclass(frozen=True, slots=True)
class AggregatorSection(Section):
    """The table `[aggregator]`: who the aggregator is and where it keeps its files."""

    name: Annotated[Name, Field(description='the name in its SPIFFE ID, such as "central"')]
    trust_domain: Annotated[TrustDomain, Field(description='such as "hospitals.example"')]
    """Trust domain of its SPIFFE ID and of every owner's."""
    state_dir: Annotated[FilePath, Field(description="a folder for its database")]
    """Folder of the database and of uploads in progress."""
    release_dir: Annotated[FilePath, Field(description="a folder for the releases")]
    control_socket: FilePath = Path()
    """Unix socket of its command line; in the state folder if it is not given."""
    listen: ListenAddress = DEFAULT_LISTEN
    """Address of the TLS port, `host:port`; port 0 lets the system choose."""

    def __post_init__(self) -> None:
        if self.control_socket == Path():
            object.__setattr__(self, "control_socket", self.state_dir / _SOCKET)


@dataclass(frozen=True, slots=True)
class DeadlineSettings(Section):
    """The table `[deadlines]`: how long each step of a release may take."""

    invite: Duration = timedelta(seconds=30)
    """Until every owner has described its data set."""
    consent: Duration = timedelta(days=7)
    """Until every owner has accepted the plan."""
    link: Duration = timedelta(minutes=10)
    """Until every owner has sent what linking needs."""
    mask: Duration = timedelta(hours=1)
    """Until every owner has sealed its fragment."""
    collect: Duration = timedelta(hours=1)
    """Until every fragment has arrived."""


@dataclass(frozen=True, slots=True)
class EnrolmentSection(Section):
    """The table `[enrolment]`: what the aggregator may do as the owners' certificate authority."""

    ca_key: FilePath | None = None
    """Private key of the CA, one of those in `[tls] ca`; leave it out if certificates come from elsewhere."""
    auto_renew: bool = True
    """Whether the daemon renews certificates that expire soon, with that key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Section):
    """The tables of the file."""

    aggregator: Annotated[AggregatorSection, Field(description="the table [aggregator] says who this is")]
    tls: Annotated[TlsSection, Field(description="the table [tls] names ca, cert and key")]
    deadlines: DeadlineSettings = field(default_factory=DeadlineSettings)
    enrolment: EnrolmentSection = field(default_factory=EnrolmentSection)
    engine: EngineSection = field(default_factory=EngineSection)
    audit: AuditSection = field(default_factory=AuditSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    notify: NotifySection = field(default_factory=NotifySection)
    console: ConsoleSection = field(default_factory=ConsoleSection)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorConfig(_File):
    """A whole `aggregator.toml`, validated."""

    path: Path


def load(path: Path | None = None) -> AggregatorConfig:
    """Read and validate the configuration.

    Args:
        path: What `--config` named; None looks for `./aggregator.toml`, then `/etc/tessera/aggregator.toml`.
    """
    path = locate(path, FILE_NAME)
    file = validate(_File, read(path), path, lambda document: _contradictions(document, path))
    return AggregatorConfig(path=path, **{field.name: getattr(file, field.name) for field in fields(file)})


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
