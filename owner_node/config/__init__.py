"""`owner.toml`: what an owner node is told about itself, its policy and its data sets (DESIGN §5).

The values here are the run-time form, plain and frozen, so that pure modules can take them; the shape of the
file is in `owner_node.config.file`, imported late.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from common.daemon.audit import AuditSection
from common.errors import UsageError
from common.model.plan import Layout
from common.model.privacy import MECHANISMS, SMALLEST_K, Accounting
from common.model.schema import Attribute
from common.settings import MetricsSection, TlsSection, is_url, locate
from owner_node.config.database import parse_database_url
from owner_node.values.normal_forms import NormalForm

if TYPE_CHECKING:
    from owner_node.values.taxonomy import Taxonomy

FILE_NAME = "owner.toml"

Missing = Literal["error", "drop", "category"]


@dataclass(frozen=True, slots=True)
class OwnerSection:
    """Who the owner is and where its state is kept."""

    id: str
    """Id in its SPIFFE ID."""
    trust_domain: str
    """Trust domain of its SPIFFE ID and of the aggregators'."""
    state_dir: Path
    """Folder of the ledger, the sessions, the outbox and the linkage key."""


@dataclass(frozen=True, slots=True)
class AggregatorSection:
    """An aggregator that the owner node connects to."""

    name: str
    """Name in the aggregator's SPIFFE ID."""
    address: str
    """Where to dial, `host:port`."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What the owner consents to, and when a person is asked first. An empty tuple sets no limit."""

    max_epsilon_per_release: Decimal | None = None
    """Largest charge of one release; None sets no limit beside the budget."""
    min_k: int = SMALLEST_K
    """Smallest k of a clustered mechanism."""
    mechanisms: tuple[str, ...] = tuple(MECHANISMS)
    """Ids of the mechanisms that are allowed."""
    layouts: tuple[str, ...] = tuple(map(str, Layout))
    """Layouts that are allowed."""
    attributes: tuple[str, ...] = ()
    """Attributes that may take part."""
    aggregators: tuple[str, ...] = ()
    """Names of aggregators whose releases may be taken part in."""
    purposes: tuple[str, ...] = ()
    """Purposes, word for word, that are allowed."""
    valid_from: date | None = None
    """First day on which anything is accepted."""
    valid_until: date | None = None
    """Last day on which anything is accepted."""
    co_owners: tuple[str, ...] = ()
    """Owners that may take part beside this one: ids, or `id=fingerprint` of the key that must be theirs."""
    approval: Literal["auto", "manual"] = "auto"
    """Whether the policy alone accepts, or a person is asked about every plan."""
    manual_above_epsilon: Decimal | None = None
    """Charge above which a person is asked; None asks about none."""
    accounting: Accounting = "joint"
    """Whether the ledger takes epsilon_joint or the plain epsilon of each centroid."""
    max_zero_noise_share: Decimal | None = None
    """Largest share of a fragment's values that may get no noise; None sets no limit."""
    max_unchanged_share: Decimal | None = None
    """Largest expected share of its values, and of its records, that may leave unchanged."""
    max_unchanged_record_share: Decimal | None = None
    """Largest expected share of its records that may leave unchanged, whatever single values do."""
    max_overlap: int = 1
    """Most owners of the same attributes that may hold the same person."""
    allow_intersect: bool = False
    """Whether only the persons that all groups of owners hold may be masked, where groups differ."""
    min_rank_noise: Decimal = Decimal(0)
    """Smallest rank noise of a mechanism that releases a list."""
    total_rank_loss: Decimal | None = None
    """The most that all charges to a budget may tell about who got which entries; None sets no limit."""

    @property
    def pins(self) -> Mapping[str, frozenset[str]]:
        """Fingerprints that a co-owner's key may have, by the owner's id; none where any key will do."""
        entries = [entry.partition("=") for entry in self.co_owners]
        owners = dict.fromkeys(owner for owner, _, _ in entries)
        return {each: frozenset(pin for owner, _, pin in entries if owner == each and pin) for each in owners}


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written."""

    delimiter: str = ","
    """Character between fields."""
    decimal: str = "."
    """Decimal mark."""
    encoding: str = "utf-8"
    """Name of the encoding."""
    date_format: str = "%Y-%m-%d"
    """How dates are written, as in `strptime`."""
    na_values: tuple[str, ...] = ("",)
    """Texts that mean a missing value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetConfig:
    """A data set that the owner offers to releases."""

    name: str
    """Name that releases ask for."""
    source: str
    """Absolute path of a file, or the URL of a database, without a password."""
    query: str | None = None
    """What to ask a database, one SELECT; None for files."""
    query_timeout: timedelta = timedelta(minutes=10)
    """How long a database may take over a statement."""
    password_env: str | None = None
    """Name of the environment variable with the database's password."""
    password_file: Path | None = None
    """File with the database's password."""
    budget: str
    """Name of the budget that releases of this data set are charged to."""
    total_epsilon: Decimal
    """What that budget holds for its lifetime."""
    identifier: tuple[str, ...] = ()
    """Columns that together identify a person; empty if there are none."""
    normalise: tuple[str, ...] = ()
    """Steps applied to all identifier columns before they are compared, in this order."""
    normalise_also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further steps by identifier column, applied after those."""
    max_records_per_person: int = 1
    """Most records that one identifier may have."""
    missing: Missing = "error"
    """What happens to a missing value: an error, the record is dropped, or it becomes a category."""
    csv: CsvOptions = field(default_factory=CsvOptions)
    """How a CSV source is written."""
    attributes: tuple[Attribute, ...]
    """Declared attributes, in declared order; no other column is read."""
    taxonomies: Mapping[str, "Taxonomy"] = field(default_factory=dict)
    """Taxonomies by attribute, where there is one; a category of missing values is in them."""

    @property
    def normal_forms(self) -> tuple[NormalForm, ...]:
        """How each identifier column becomes comparable."""
        return tuple(
            NormalForm((*self.normalise, *self.normalise_also.get(name, ())), self.csv.date_format)
            for name in self.identifier
        )

    @property
    def place(self) -> str:
        """The source as it may be shown: a path, or a database's address without user and options."""
        return parse_database_url(self.source).shown if is_url(self.source) else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerConfig:
    """A whole `owner.toml`, validated."""

    path: Path
    """The file it came from."""
    owner: OwnerSection
    """Who the owner is."""
    aggregators: tuple[AggregatorSection, ...] = ()
    """Aggregators to connect to."""
    tls: TlsSection
    """What the owner proves its identity with."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """What it consents to."""
    audit: AuditSection = field(default_factory=AuditSection)
    """Where the history is copied to."""
    metrics: MetricsSection = field(default_factory=MetricsSection)
    """Where its metrics are."""
    datasets: tuple[DatasetConfig, ...] = ()
    """What it offers."""
    digest: str = ""
    """SHA-256 of the file as it was read, hexadecimal; empty if it came from none."""

    def dataset(self, name: str) -> DatasetConfig:
        """Return a data set by name.

        Raises:
            UsageError: If there is none of that name.
        """
        for dataset in self.datasets:
            if dataset.name == name:
                return dataset
        known = [dataset.name for dataset in self.datasets]
        hint = (
            f"known data sets: {', '.join(known)}" if known else f"declare one as [[dataset]] in {self.path}"
        )
        raise UsageError(f"there is no data set {name!r}", hint, {"dataset": name, "known": known})


def load(path: Path | None = None) -> OwnerConfig:
    """Read and validate the configuration.

    Args:
        path: What `--config` named; None looks for `./owner.toml`, then `/etc/tessera/owner.toml`.

    Raises:
        ConfigurationError: If there is none, or with every problem of it.
    """
    from owner_node.config.file import parse

    return parse(locate(path, FILE_NAME))
