"""The shape of `[[dataset]]` in the file, and its way to `owner_node.config.DatasetConfig`."""

import codecs
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, model_validator

from common.daemon.settings import Duration, Epsilon, FilePath, Label, OneOrSeveralNames, parse_path
from common.model.schema import MISSING_CATEGORY, RESERVED_NAMES
from common.settings import Contradictions, Section, is_url
from owner_node.config import CsvOptions, DatasetConfig
from owner_node.config.attribute_table import AttributeTable
from owner_node.config.database import SQLITE, one_select, parse_database_url
from owner_node.config.policy_table import known
from owner_node.values.normal_forms import STEPS

_CSV = CsvOptions()
_QUERY_TIMEOUT = timedelta(minutes=10)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _source(value: object, info: ValidationInfo) -> str:
    """Take a path or the URL of a database; the file of a SQLite database is a path, too."""
    if not isinstance(value, str) or not is_url(value):
        return str(parse_path(value, info))
    place = parse_database_url(value)
    return f"{SQLITE}:///{parse_path(place.database, info)}" if place.dialect == SQLITE else value


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError('expected the name of an environment variable, such as "DATABASE_PASSWORD"')
    return value


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
    problems = [
        (name, "the name is taken by the release's own columns") for name in RESERVED_NAMES if name in tables
    ]
    if "" in tables:
        problems.append(('""', "an attribute needs a name; give the column one in the source"))
    if problems:
        raise Contradictions(problems)
    return tables


class CsvTable(Section):
    """How a CSV file is written."""

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

    def section(self) -> CsvOptions:
        """Return the run-time form."""
        return CsvOptions(
            self.delimiter, self.decimal, self.encoding, self.date_format, tuple(self.na_values)
        )


Steps = Annotated[OneOrSeveralNames, AfterValidator(lambda names: known(names, tuple(STEPS)))]


class DatasetTable(Section):
    """One data set and where its records are."""

    name: Label = Field(description="the name that releases ask for")
    source: Annotated[str, PlainValidator(_source)] = Field(
        description="the path of a CSV or Parquet file, or the URL of a database"
    )
    query: Annotated[str, AfterValidator(one_select)] | None = None
    query_timeout: Duration | None = None
    password_env: Annotated[str, AfterValidator(_variable)] | None = None
    password_file: FilePath | None = None
    budget: Label | None = None
    total_epsilon: Epsilon = Field(description="what the budget holds for its lifetime, such as 2.0")
    identifier: OneOrSeveralNames = Field(default_factory=list)
    normalise: Steps = Field(default_factory=list)
    normalise_also: dict[str, Steps] = Field(default_factory=dict)
    max_records_per_person: int = Field(default=1, ge=1)
    missing: Literal["error", "drop", "category"] = "error"
    csv: CsvTable = CsvTable()
    attributes: Annotated[dict[str, AttributeTable], AfterValidator(_column_names)] = Field(
        description="declare the columns to use as [dataset.attributes.NAME]"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := [*self._of_source(), *self._of_records()]:
            raise Contradictions(found)
        return self

    def _of_source(self) -> Iterator[tuple[str, str]]:
        if is_url(self.source):
            if self.query is None and "query" not in self.model_fields_set:
                yield "query", "missing; a database needs one"
            if "csv" in self.model_fields_set:
                yield "csv", "goes with a CSV file; what a database holds is converted in the query"
            if self.password_env is not None and self.password_file is not None:
                yield "password_env", "password_file is there, too; name one of them"
            if self.source.startswith(f"{SQLITE}:") and (self.password_env or self.password_file):
                yield "source", "SQLite has no passwords"
            return
        for key in ("query", "query_timeout", "password_env", "password_file"):
            if key in self.model_fields_set:
                yield key, "goes with the URL of a database as source, not with a file"

    def _of_records(self) -> Iterator[tuple[str, str]]:
        if self.normalise and not self.identifier:
            yield "normalise", "there is no identifier to normalise"
        for name in self.normalise_also:
            if name not in self.identifier:
                yield f"normalise_also.{name}", "is no column of the identifier"
        if self.max_records_per_person > 1 and not self.identifier:
            yield "max_records_per_person", "there is no identifier to tell persons by"
        if self.missing == "category":
            for name, table in self.attributes.items():
                if MISSING_CATEGORY in table.labels:
                    yield (
                        f"attributes.{name}.categories",
                        f'"{MISSING_CATEGORY}" is what missing = "category" adds',
                    )

    def section(self) -> DatasetConfig:
        """Return the run-time form."""
        return DatasetConfig(
            name=self.name,
            source=self.source,
            query=self.query,
            query_timeout=self.query_timeout or _QUERY_TIMEOUT,
            password_env=self.password_env,
            password_file=self.password_file,
            budget=self.budget or self.name,
            total_epsilon=self.total_epsilon,
            identifier=tuple(self.identifier),
            normalise=tuple(self.normalise),
            normalise_also={name: tuple(steps) for name, steps in self.normalise_also.items()},
            max_records_per_person=self.max_records_per_person,
            missing=self.missing,
            csv=self.csv.section(),
            attributes=tuple(table.attribute(name) for name, table in self.attributes.items()),
            taxonomies={
                name: tree.with_category(MISSING_CATEGORY) if self.missing == "category" else tree
                for name, table in self.attributes.items()
                if (tree := table.tree()) is not None
            },
        )
