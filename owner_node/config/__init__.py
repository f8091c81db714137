"""`owner.toml`: the settings of an owner node, its policy and its data sets."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from common.daemon.audit import AuditSection
from common.daemon.console import ConsoleSection
from common.daemon.notify import NotifySection
from common.daemon.settings import Duration, MetricsSection, Name, TrustDomain
from common.errors import ConfigurationError, RefusedError, UsageError, did_you_mean
from common.files import file_digest
from common.model.schema import derivable
from common.settings import FilePath, Listed, Problem, Section, TlsSection, locate, read, validate
from common.workspace import Workspace
from owner_node.config.dataset import DatasetConfig, DatasetTable, misdeclared
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.config.key_types import DialAddress
from owner_node.config.policy import PolicyConfig
from owner_node.sources import kind_of
from owner_node.sources.options import SourceOptions

__all__ = [
    "FILE_NAME",
    "DatasetConfig",
    "KnownAggregator",
    "OwnerConfig",
    "OwnerSection",
    "PolicyConfig",
    "identity_in",
    "load",
    "load_identity",
]

FILE_NAME = "owner.toml"


@dataclass(frozen=True, slots=True)
class OwnerSection(Section):
    """The table `[owner]`: the owner's identity and its state directory."""

    id: Annotated[Name, Field(description='the id in its SPIFFE ID, such as "north"')]
    trust_domain: Annotated[TrustDomain, Field(description='such as "hospitals.example"')]
    """Trust domain of the SPIFFE IDs of this owner and of the aggregators."""
    state_dir: Annotated[FilePath, Field(description="a folder for its ledger and sessions")]
    """Folder of the ledger, the sessions, the outbox and the linkage key."""
    keep_for_audit: Duration = timedelta(0)
    """How long after publication of a synthetic release `owner-node verify --messages` can compute what this
    owner sent; by default the seed and keys that it needs are deleted then."""


@dataclass(frozen=True, slots=True)
class KnownAggregator(Section):
    """The table `[[aggregator]]`: an aggregator that the owner node connects to."""

    name: Annotated[Name, Field(description="the name in the aggregator's SPIFFE ID")]
    address: Annotated[DialAddress, Field(description='where to dial, such as "aggregator.example:8443"')]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity(Section):
    """The tables that say who this owner is, and whom it dials."""

    owner: Annotated[OwnerSection, Field(description="the table [owner] says who this is")]
    aggregators: Annotated[Listed[KnownAggregator], Field(alias="aggregator")] = ()
    tls: Annotated[TlsSection, Field(description="the table [tls] names ca, cert and key")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables(_Identity):
    """The tables whose run-time form equals their form in the file."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    audit: AuditSection = field(default_factory=AuditSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    notify: NotifySection = field(default_factory=NotifySection)
    console: ConsoleSection = field(default_factory=ConsoleSection)
    engine: OwnerEngineSection = field(default_factory=OwnerEngineSection)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(_Tables):
    dataset: Listed[DatasetTable] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerConfig(_Tables):
    """A whole `owner.toml`, validated."""

    path: Path
    datasets: tuple[DatasetConfig, ...] = ()
    digest: str = ""
    """SHA-256 of the file when it was read, hexadecimal; empty without a file."""

    @property
    def workspace(self) -> Workspace:
        """What the daemon's long steps may use of the machine."""
        return self.engine.workspace(self.owner.state_dir)

    @property
    def uses_spark(self) -> bool:
        """Whether Spark masks the data sets, or reads one."""
        return self.engine.kind is EngineKind.SPARK or any(
            dataset.origin.needs_spark for dataset in self.datasets
        )

    def admitted(self, dataset: DatasetConfig) -> tuple[str, ...] | None:
        """Return the attributes of a data set that `policy.attributes` lists; None if there is no such list.

        It is one list for all data sets, so it can name attributes of others.

        Raises:
            RefusedError: If it lists none of this data set.
        """
        allowed = self.policy.attributes
        names = tuple(attribute.name for attribute in dataset.attributes if attribute.name in allowed)
        names += tuple(other.name for other in derivable(dataset.following, names, allowed))
        if allowed and not names:
            raise RefusedError(
                f"policy.attributes names no attribute of data set {dataset.name!r}",
                "list there which of its attributes may take part",
            )
        return names or None

    def unmatched_attributes(self) -> Iterator[tuple[str, str]]:
        """Yield where names of attributes in the policy and the data sets do not meet, each with a hint."""
        policy = self.policy
        limited = () if policy.max_reidentified is None else policy.known
        declared = {
            each.name: [
                *(attribute.name for attribute in each.attributes),
                *(other.name for other in each.following),
            ]
            for each in self.datasets
        }
        every = list(dict.fromkeys(chain.from_iterable(declared.values())))
        for key, listed in (("attributes", policy.attributes), ("known", policy.known)):
            for name in listed:
                if every and name not in every:
                    meant = did_you_mean(name, every) or f"declared attributes: {', '.join(every)}"
                    yield f"policy.{key} names {name!r}, which no data set has", meant
        for key, listed, effect in (
            ("attributes", policy.attributes, "no release can use it"),
            ("known", limited, "max_reidentified judges no plan for it"),
        ):
            for dataset, names in declared.items():
                if listed and not set(names) & set(listed):
                    text = f"policy.{key} names no attribute of data set {dataset!r}; {effect}"
                    yield text, f"its attributes: {', '.join(names)}"

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
        path: The argument of `--config`; None looks for `./owner.toml`, then `/etc/tessera/owner.toml`.

    Raises:
        ConfigurationError: If there is no file, or with all its problems.
    """
    path = locate(path, FILE_NAME)
    digest = ""
    # Computed before reading: if the file changes in between, the daemon notices and reports it.
    with suppress(OSError):  # `read` says why
        digest = file_digest(path)
    file = validate(_File, read(path), path, lambda document: _contradictions(document, path.parent))
    tables = {field.name: getattr(file, field.name) for field in fields(_Tables)}
    workspace = file.engine.workspace(file.owner.state_dir)
    datasets = tuple(replace(table.config(), spark=file.engine.spark(workspace)) for table in file.dataset)
    # Whoever knows an attribute knows what it follows, or nearly so: attacks compare that one.
    followed = (
        other.base for each in datasets for other in each.following if other.name in file.policy.known
    )
    known = tuple(dict.fromkeys((*file.policy.known, *followed)))
    tables["policy"] = replace(file.policy, known=known)
    return OwnerConfig(path=path, datasets=datasets, digest=digest, **tables)


def load_identity(path: Path | None = None) -> OwnerConfig:
    """Read who this owner is and whom it dials, for its enrolment and for fetching schemas.

    Args:
        path: As `load`.

    Returns:
        The whole configuration where it is valid; else these tables alone, without data sets and policy.

    Raises:
        ConfigurationError: If there is no file, or with all problems of these tables.
    """
    try:
        return load(path)
    except ConfigurationError:
        path = locate(path, FILE_NAME)
        return identity_in(read(path), path)


def identity_in(document: Mapping[str, Any], path: Path) -> OwnerConfig:
    """Return what a document says about the owner and its aggregators; its other tables are not looked at.

    Raises:
        ConfigurationError: With all problems of these tables.
    """
    tables = {key: document[key] for key in ("owner", "aggregator", "tls") if key in document}
    identity = validate(_Identity, tables, path, lambda part: _contradictions(part, path.parent))
    return OwnerConfig(path=path, owner=identity.owner, aggregators=identity.aggregators, tls=identity.tls)


# --- contradictions between tables, found in the document as it was read -----------------------------------


def _tables(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tables of a list that have a name; other problems are reported elsewhere."""
    listed = document.get(key)
    entries = listed if isinstance(listed, list) else []
    return [table for table in entries if isinstance(table, dict) and isinstance(table.get("name"), str)]


def _contradictions(document: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    datasets, aggregators = _tables(document, "dataset"), _tables(document, "aggregator")
    for key, tables in (("dataset", datasets), ("aggregator", aggregators)):
        names = [table["name"] for table in tables]
        yield from (
            Problem(f"{key}[{n}]", ": declared twice") for n in dict.fromkeys(names) if names.count(n) > 1
        )
    yield from _budgets(datasets, folder)
    for dataset in datasets:
        yield from misdeclared(dataset, f"dataset[{dataset['name']}].")


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _budgets(datasets: list[dict[str, Any]], folder: Path) -> Iterator[Problem]:
    """Check that a budget has one total and a source one budget: else a person's data would have two."""
    budget_of = {id(dataset): str(dataset.get("budget") or dataset["name"]) for dataset in datasets}
    by_budget = sorted(datasets, key=lambda dataset: budget_of[id(dataset)])
    for first, second in pairwise(by_budget):
        totals = [_decimal(dataset.get("total_epsilon")) for dataset in (first, second)]
        if budget_of[id(first)] == budget_of[id(second)] and None not in totals and totals[0] != totals[1]:
            text = f" = {totals[1]}: data set {first['name']!r} has the same budget with {totals[0]}"
            yield Problem(f"dataset[{second['name']}].total_epsilon", text)

    def place(dataset: dict[str, Any]) -> str:
        source = str(dataset.get("source"))
        with suppress(ValueError):  # reported elsewhere
            kind = kind_of(source)
            address = kind.normal(source, lambda path: Path(os.path.realpath(folder / path)))
            return kind("", address, SourceOptions(query=str(dataset.get("query", "")))).place
        return source

    for first, second in pairwise(sorted((d for d in datasets if "source" in d), key=place)):
        if place(first) == place(second) and budget_of[id(first)] != budget_of[id(second)]:
            text = f": data set {first['name']!r} has the same source and budget {budget_of[id(first)]!r}"
            yield Problem(f"dataset[{second['name']}].budget", text)
