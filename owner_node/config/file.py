"""The shape of `owner.toml` as a person writes it, and its way to `owner_node.config`."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field

from common.daemon.settings import (
    AuditTable,
    DialAddress,
    FilePath,
    MetricsTable,
    Name,
    TlsTable,
    TrustDomain,
)
from common.settings import Problem, Section, is_url, read, validate
from owner_node.config import (
    AggregatorSection,
    OwnerConfig,
    OwnerSection,
)
from owner_node.config.attribute_table import unfitting
from owner_node.config.database import SQLITE, parse_database_url
from owner_node.config.dataset_table import DatasetTable
from owner_node.config.policy_table import PolicyTable


class _Owner(Section):
    id: Name = Field(description='the id in its SPIFFE ID, such as "north"')
    trust_domain: TrustDomain = Field(description='such as "hospitals.example"')
    state_dir: FilePath = Field(description="a folder for its ledger and sessions")


class _Aggregator(Section):
    name: Name = Field(description="the name in the aggregator's SPIFFE ID")
    address: DialAddress = Field(description='where to dial, such as "aggregator.example:8443"')


class _File(Section):
    owner: _Owner = Field(description="the table [owner] says who this is")
    aggregator: list[_Aggregator] = Field(default_factory=list)
    tls: TlsTable = Field(description="the table [tls] names ca, cert and key")
    policy: PolicyTable = PolicyTable()
    audit: AuditTable = AuditTable()
    metrics: MetricsTable = MetricsTable()
    dataset: list[DatasetTable] = Field(default_factory=list)


def parse(path: Path) -> OwnerConfig:
    """Read a file and return its run-time form.

    Raises:
        ConfigurationError: With every problem of the file.
    """
    # Taken first: a file that changes meanwhile differs from what the daemon notes, and that is said.
    digest = _digest(path)
    file = validate(_File, read(path), path, lambda document: _contradictions(document, path.parent))
    return OwnerConfig(
        path=path,
        owner=OwnerSection(file.owner.id, file.owner.trust_domain, file.owner.state_dir),
        aggregators=tuple(AggregatorSection(each.name, each.address) for each in file.aggregator),
        tls=file.tls.section(),
        policy=file.policy.section(),
        audit=file.audit.section(),
        metrics=file.metrics.section(),
        datasets=tuple(each.section() for each in file.dataset),
        digest=digest,
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""  # `read` says why


# --- what does not fit together between tables, found in the document as it was read -----------------------


def _tables(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the named tables of a list, whatever else is wrong with the document."""
    found = document.get(key)
    entries = found if isinstance(found, list) else []
    return [each for each in entries if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _contradictions(document: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    datasets, aggregators = _tables(document, "dataset"), _tables(document, "aggregator")
    for key, tables in (("dataset", datasets), ("aggregator", aggregators)):
        names = [table["name"] for table in tables]
        yield from (
            Problem(f"{key}[{n}]", ": declared twice") for n in dict.fromkeys(names) if names.count(n) > 1
        )
    yield from _budgets(datasets, folder)
    for dataset in datasets:
        for key, text in misdeclared(dataset):
            yield Problem(f"dataset[{dataset['name']}].attributes.{key}", f": {text}")


def misdeclared(dataset: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find what does not fit among the attributes of a data set, in its table as it was read.

    Returns:
        Pairs of a key below `attributes` and what is wrong with it.
    """
    columns, declared = dataset.get("identifier"), dataset.get("attributes")
    identifiers = columns if isinstance(columns, list) else [columns]
    for name, table in declared.items() if isinstance(declared, dict) else ():
        if name in identifiers:
            yield name, "an identifier is never released; declare it as one of the two"
        for key, text in unfitting(table) if isinstance(table, dict) else ():
            yield f"{name}.{key}", text


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _budgets(datasets: list[dict[str, Any]], folder: Path) -> Iterator[Problem]:
    """One budget has one total, and one source has one budget: else a person's data would have two."""
    budget_of = {id(each): str(each.get("budget") or each["name"]) for each in datasets}
    by_budget = sorted(datasets, key=lambda each: budget_of[id(each)])
    for first, second in pairwise(by_budget):
        totals = [_decimal(each.get("total_epsilon")) for each in (first, second)]
        if budget_of[id(first)] == budget_of[id(second)] and None not in totals and totals[0] != totals[1]:
            text = f" = {totals[1]}: data set {first['name']!r} has the same budget with {totals[0]}"
            yield Problem(f"dataset[{second['name']}].total_epsilon", text)

    def place(dataset: dict[str, Any]) -> str:
        source, query = str(dataset.get("source")), " ".join(str(dataset.get("query", "")).split())
        try:
            found = parse_database_url(source) if is_url(source) else None
        except ValueError:
            return source
        if found is None:
            return os.path.realpath(folder / source)
        file = os.path.realpath(folder / found.database) if found.dialect == SQLITE else ""
        return f"{file or found.shown}#{query}"

    for first, second in pairwise(sorted((d for d in datasets if "source" in d), key=place)):
        if place(first) == place(second) and budget_of[id(first)] != budget_of[id(second)]:
            text = f": data set {first['name']!r} has the same source and budget {budget_of[id(first)]!r}"
            yield Problem(f"dataset[{second['name']}].budget", text)
