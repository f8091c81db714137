"""The shape of `owner.toml` as a person writes it, and its way to `owner_node.config`."""

import codecs
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from common.schema import MISSING_CATEGORY
from common.setting_types import (
    AuditTable,
    DialAddress,
    Epsilon,
    FilePath,
    Label,
    Name,
    OneOrSeveralNames,
    Source,
    TlsTable,
    TrustDomain,
)
from common.settings import Contradictions, Problem, Section, is_url, read, validate
from owner_node.attribute_table import AttributeTable, unfitting
from owner_node.config import (
    AggregatorSection,
    CsvOptions,
    DatasetConfig,
    OwnerConfig,
    OwnerSection,
)
from owner_node.normalisation import STEPS
from owner_node.policy_table import PolicyTable, known

_RESERVED = ("record", "token")
"""Names of columns that a release and a fragment bring along themselves."""
_CSV = CsvOptions()


def _encoding(value: str) -> str:
    try:
        "".encode(value)
        return codecs.lookup(value).name
    except (LookupError, UnicodeError, ValueError):
        raise ValueError('expected the name of an encoding, such as "utf-8" or "latin-1"') from None


def _delimiter(value: str) -> str:
    if len(value) != 1 or value in '"\r\n':
        raise ValueError('expected one character, such as "," or ";"')
    return value


def _column_names(tables: dict[str, AttributeTable]) -> dict[str, AttributeTable]:
    if not tables:
        raise ValueError("expected at least one attribute")
    reserved = [name for name in tables if name in _RESERVED or not name]
    if reserved:
        raise Contradictions([(name, "the name is taken by the release's own columns") for name in reserved])
    return tables


class _Owner(Section):
    id: Name = Field(description='the id in its SPIFFE ID, such as "north"')
    trust_domain: TrustDomain = Field(description='such as "hospitals.example"')
    state_dir: FilePath = Field(description="a folder for its ledger and sessions")


class _Aggregator(Section):
    name: Name = Field(description="the name in the aggregator's SPIFFE ID")
    address: DialAddress = Field(description='where to dial, such as "aggregator.example:8443"')


class _Csv(Section):
    delimiter: Annotated[str, AfterValidator(_delimiter)] = _CSV.delimiter
    decimal: Literal[".", ","] = "."
    encoding: Annotated[str, AfterValidator(_encoding)] = _CSV.encoding
    date_format: str = Field(default=_CSV.date_format, min_length=1)
    na_values: list[str] = Field(default_factory=lambda: [*_CSV.na_values])

    @model_validator(mode="after")
    def _marks(self) -> Self:
        if self.delimiter == self.decimal:
            raise Contradictions([("decimal", f'"{self.decimal}" is the delimiter too')])
        return self


class _Dataset(Section):
    name: Label = Field(description="the name that releases ask for")
    source: Source = Field(description="the path of a CSV or Parquet file")
    query: str | None = None
    budget: Label | None = None
    total_epsilon: Epsilon = Field(description="what the budget holds for its lifetime, such as 2.0")
    identifier: OneOrSeveralNames = Field(default_factory=list)
    normalise: Annotated[OneOrSeveralNames, AfterValidator(lambda names: known(names, tuple(STEPS)))] = Field(
        default_factory=list
    )
    max_records_per_person: int = Field(default=1, ge=1)
    missing: Literal["error", "drop", "category"] = "error"
    csv: _Csv = _Csv()
    attributes: Annotated[dict[str, AttributeTable], AfterValidator(_column_names)] = Field(
        description="declare the columns to use as [dataset.attributes.NAME]"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        found = []
        if self.query is not None and not is_url(self.source):
            found.append(("query", "goes with the URL of a database as source, not with a file"))
        if self.query is None and is_url(self.source):
            found.append(("query", "missing; a database needs one"))
        if self.normalise and not self.identifier:
            found.append(("normalise", "there is no identifier to normalise"))
        if self.max_records_per_person > 1 and not self.identifier:
            found.append(("max_records_per_person", "there is no identifier to tell persons by"))
        if self.missing == "category":
            found += [
                (f"attributes.{name}.categories", f'"{MISSING_CATEGORY}" is what missing = "category" adds')
                for name, table in self.attributes.items()
                if MISSING_CATEGORY in table.labels
            ]
        if found:
            raise Contradictions(found)
        return self

    def section(self) -> DatasetConfig:
        return DatasetConfig(
            name=self.name,
            source=self.source,
            query=self.query,
            budget=self.budget or self.name,
            total_epsilon=self.total_epsilon,
            identifier=tuple(self.identifier),
            normalise=tuple(self.normalise),
            max_records_per_person=self.max_records_per_person,
            missing=self.missing,
            csv=CsvOptions(
                self.csv.delimiter,
                self.csv.decimal,
                self.csv.encoding,
                self.csv.date_format,
                tuple(self.csv.na_values),
            ),
            attributes=tuple(table.attribute(name) for name, table in self.attributes.items()),
            taxonomies={
                name: tree.with_category(MISSING_CATEGORY) if self.missing == "category" else tree
                for name, table in self.attributes.items()
                if (tree := table.tree()) is not None
            },
        )


class _File(Section):
    owner: _Owner = Field(description="the table [owner] says who this is")
    aggregator: list[_Aggregator] = Field(default_factory=list)
    tls: TlsTable = Field(description="the table [tls] names ca, cert and key")
    policy: PolicyTable = PolicyTable()
    audit: AuditTable = AuditTable()
    dataset: list[_Dataset] = Field(default_factory=list)


def parse(path: Path) -> OwnerConfig:
    """Read a file and return its run-time form.

    Raises:
        ConfigurationError: With every problem of the file.
    """
    file = validate(_File, read(path), path, lambda document: _contradictions(document, path.parent))
    return OwnerConfig(
        path=path,
        owner=OwnerSection(file.owner.id, file.owner.trust_domain, file.owner.state_dir),
        aggregators=tuple(AggregatorSection(each.name, each.address) for each in file.aggregator),
        tls=file.tls.section(),
        policy=file.policy.section(),
        audit=file.audit.section(),
        datasets=tuple(each.section() for each in file.dataset),
    )


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
        for key, text in _columns(dataset):
            yield Problem(f"dataset[{dataset['name']}].attributes.{key}", f": {text}")


def _columns(dataset: dict[str, Any]) -> Iterator[tuple[str, str]]:
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
        source = str(dataset.get("source"))
        return source if is_url(source) else os.path.realpath(folder / source)

    for first, second in pairwise(sorted((d for d in datasets if "source" in d), key=place)):
        if place(first) == place(second) and budget_of[id(first)] != budget_of[id(second)]:
            text = f": data set {first['name']!r} has the same source and budget {budget_of[id(first)]!r}"
            yield Problem(f"dataset[{second['name']}].budget", text)
