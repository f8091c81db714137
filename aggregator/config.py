"""`aggregator.toml`: what an aggregator is told about itself (DESIGN §5).

The values here are the run-time form; the shape of the file is in `aggregator.config_file`, imported late.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from common.audit import AuditSection
from common.settings import MetricsSection, TlsSection, locate

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
    from aggregator.config_file import parse

    return parse(locate(path, FILE_NAME))
