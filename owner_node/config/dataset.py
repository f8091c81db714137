"""The tables `[[dataset]]` of `owner.toml`: the source, its identifiers, its budget and its attributes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo

from common.daemon.settings import Excluded, Followed, Names, parse_bound
from common.model.events import number_attribute, slots_of
from common.model.mechanisms import MOST_HISTOGRAM_VALUES
from common.model.presence import ABSENT
from common.model.schema import (
    MISSING_CATEGORY,
    MOST_DECIMALS,
    MOST_PASSES,
    PASS_NAME,
    PASS_NAME_RULE,
    PROPERTIES,
    RESERVED_NAMES,
    TEXTS_VERSION,
    Attribute,
    AttributeType,
    MalformedProperty,
    MatchPass,
    excluded_codes,
    excluded_values,
    fault_of_cell,
)
from common.model.structural_zeros import MOST_RULES, StructuralZero
from common.settings import (
    Contradictions,
    FilePath,
    Listed,
    Problem,
    Section,
    matching,
    parse_path,
    value_text,
)
from owner_node.config.key_types import Bound, Epsilon, Label, OneOrSeveralNames, Share, one_of
from owner_node.config.person import PersonTable
from owner_node.sources import kind_of
from owner_node.sources.options import SourceOptions
from owner_node.sources.source import Source
from owner_node.sources.spark_session import SparkSettings
from owner_node.values.date_formats import is_without_century
from owner_node.values.match_keys import DATES, parse_key
from owner_node.values.missing_codes import MissingCodes, comparable
from owner_node.values.normal_forms import STEPS, NormalForm
from owner_node.values.taxonomy import Taxonomy, read_hierarchy, taxonomy_of

# --- attributes --------------------------------------------------------------------------------------------

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_EPOCH = date(1970, 1, 1).toordinal()
_TYPES = [f'"{kind}"' for kind in AttributeType]
_ONE_TYPE = f"one of {', '.join(_TYPES[:-1])} or {_TYPES[-1]}"
_NUMBERS = (AttributeType.INTEGER, AttributeType.NUMBER)
_RANGED = tuple(str(kind) for kind in AttributeType if kind.accepted)
_GOES_WITH = {
    "min": _RANGED,
    "max": _RANGED,
    "categories": ("category",),
    # Of these two, some values go with every type.
    **{each.key: each.types for each in PROPERTIES if each.key not in ("outside", "missing")},
}


def _attribute_type(value: object) -> AttributeType:
    if not isinstance(value, str) or value not in set(AttributeType):
        raise ValueError(f"expected {_ONE_TYPE}")
    return AttributeType(value)


def _hierarchy(value: object, info: ValidationInfo) -> Mapping[str, tuple[str, ...]]:
    """Read a hierarchy from a file, or from its lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return read_hierarchy("\n".join(value))
    try:
        text = parse_path(value, info).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not encoded in UTF-8") from None
    except OSError as problem:
        raise ValueError(f"it cannot be read: {problem.strerror}") from None
    return read_hierarchy(text)


def _bounds(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("expected values of the attribute, such as [0]")
    return tuple(map(parse_bound, value))


def _codes(value: object) -> tuple[str, ...]:
    codes = value if isinstance(value, list) else [value]
    if any(
        isinstance(code, bool) or not isinstance(code, str | int | float | Decimal | date) for code in codes
    ):
        raise ValueError('expected values that stand for a missing one, such as [99, "refused"]')
    return tuple(map(str, codes))


Bounds = Annotated[tuple[str, ...], PlainValidator(_bounds)]
Missing = Literal["error", "drop", "category"]
"""Treatment of a missing value: an error, dropping the record, or a category."""
Hierarchy = Annotated[Mapping[str, tuple[str, ...]], PlainValidator(_hierarchy)]


@dataclass(frozen=True)
class AttributeTable(Section):
    """The table `[dataset.attributes.NAME]`, from which an `Attribute` and its taxonomy are made."""

    type: Annotated[AttributeType, PlainValidator(_attribute_type), Field(description=_ONE_TYPE)]
    min: Bound | None = None
    """Lowest value of the domain, from public knowledge; required for numbers, integers and dates."""
    max: Bound | None = None
    """Highest value of the domain, from public knowledge; required for numbers, integers and dates."""
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] | None = None
    """Decimal places of a number; required for numbers. Finer values are rounded half to even and counted."""
    step: Bound | None = None
    """Distance between two values of a number or integer whose grid is coarser than its decimals, such as
    "0.25"; `min` and `max` are multiples of it. Values between are rounded half to even and counted."""
    outside: Literal["error", "clamp"] = "error"
    """What happens to a value outside the domain: "error" or "clamp"."""
    missing: Missing | None = None
    """What happens to a missing value: "error", "drop", or "category", which keeps it: as a label of
    a category, or as a null of a number or date, whose values are then counted. Without it as the data set
    says."""
    na_values: Annotated[tuple[str, ...], PlainValidator(_codes)] = ()
    """Values of this column that stand for a missing one, such as `[99, "refused"]`. Numbers are compared by
    their value, other texts without blanks around them."""
    spikes: Bounds = ()
    """Values of numbers, integers or dates that many records are known to have, such as `[0]`. Where
    releases average values, the records that have them are counted, so that their share is kept."""
    scale: Literal["linear", "log"] = "linear"
    """How a number or integer is spread: "linear", or "log" for amounts and laboratory values. The counts of
    a synthetic release are then made in parts of equal ratio. `min` is 0 or more."""
    categories: Annotated[Names, Field(min_length=1)] | None = None
    """Labels in their declared order; required for categories without a taxonomy."""
    ordered: bool = False
    """Whether the declared order of the categories has a meaning."""
    order: Literal["declared", "frequency"] = "declared"
    """Order that masking uses: "declared", or "frequency" in the data, for which no joint bound holds."""
    taxonomy: Hierarchy | None = None
    """Hierarchy file of the categories, one leaf per line with its ancestors, or the lines themselves."""
    method: Literal["rank", "exponential"] | None = None
    """How a taxonomy is used: "rank" (the default) for its order, or "exponential" to draw categories."""
    follows: str = ""
    """Name of another attribute that determines this one: releases derive it, and it needs no ε."""
    values: Followed = field(default_factory=dict)
    """With `follows`: every value of that attribute, with the value of this one that follows from it."""

    def __post_init__(self) -> None:
        if faults := [*self._domain(), *self._taxonomy(), *self._labels()]:
            raise Contradictions(faults)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories in declared order; without a list, those of the taxonomy, line by line."""
        return self.categories or tuple(self.taxonomy or ())

    @cached_property
    def tree(self) -> Taxonomy | None:
        """The taxonomy of the categories, if there is one.

        Raises:
            MalformedTaxonomy: If its categories differ from the declared ones.
        """
        return taxonomy_of(self.taxonomy, self.labels) if self.taxonomy is not None else None

    def _taxonomy(self) -> Iterator[tuple[str, str]]:
        if self.taxonomy is None:
            if self.method is not None:
                yield "method", "goes with a taxonomy, and there is none"
            return
        if self.order == "frequency":
            yield "order", '"frequency" does not go with a taxonomy, which has an order of its own'
        try:
            _ = self.tree
        except ValueError as problem:
            yield "taxonomy", str(problem)

    def _labels(self) -> Iterator[tuple[str, str]]:
        if bool(self.follows) is not bool(self.values):
            yield "values" if self.follows else "follows", "missing; follows and values go together"
        codes = set(map(comparable, self.na_values))
        if twice := [label for label in self.labels if comparable(label) in codes]:
            yield "na_values", f" = {value_text('', twice[0])}: is declared as a category, too"
        for label in self.labels:
            if fault := fault_of_cell(label):
                yield "categories", f" = {value_text('', label)}: {fault}; rename it, also in the source"

    def _domain(self) -> Iterator[tuple[str, str]]:
        if not self.type.accepted or None in (self.min, self.max):
            return
        try:
            attribute = self.attribute("it")
        except MalformedProperty as problem:
            yield from problem.faults
            return
        ends = attribute.lower * attribute.step, attribute.upper * attribute.step
        if attribute.keeps_missing and attribute.n_values > MOST_HISTOGRAM_VALUES:
            most = f'"category" goes with at most {MOST_HISTOGRAM_VALUES - 1:,} possible values'
            yield "missing", f"{most}, which are counted; declare a narrower domain or fewer decimals"
        elif ends[0] < _SMALLEST or ends[1] > _LARGEST or attribute.upper - attribute.lower >= _LARGEST:
            yield "", "the domain from min to max has more values than 64-bit integers can count"

    def attribute(self, name: str) -> Attribute:
        """Return the attribute under its name."""
        stated = {
            each.key: value
            for each in PROPERTIES
            if (value := getattr(self, each.key, None)) is not None and each.word in ("", value)
        }
        if self.tree is not None:
            stated["taxonomy"] = self.tree.digest
        ends = {"min": self.min or "", "max": self.max or ""}
        return Attribute.from_document(
            {"name": name, "type": self.type, "categories": self.labels, **ends, **stated}
        )


def _unfitting(table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Find missing keys and keys that do not apply to a type, in a table as it was read.

    Yields:
        Pairs of a key and its problem; none if the type itself is unknown.
    """
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in set(AttributeType):
        return
    for key, kinds in _GOES_WITH.items():
        if key in table and kind not in kinds:
            yield key, f"goes with type {' or '.join(kinds)}, not with {kind}"
    if table.get("outside") == "clamp" and kind not in _RANGED:
        yield "outside", f'"clamp" goes with type {" or ".join(_RANGED)}, not with {kind}'
    if table.get("missing") == "category" and kind == "boolean":
        yield (
            "missing",
            '"category" does not go with type boolean; use "drop" or "error", or declare a category',
        )
    for key in AttributeType(kind).needs:
        if key not in table and (key, "taxonomy" in table) != ("categories", True):
            yield key, f"missing; type {kind} needs it"


# --- data sets ---------------------------------------------------------------------------------------------


def _source(value: object, info: ValidationInfo) -> str:
    return kind_of(str(value)).normal(cast("str", value), lambda path: parse_path(path, info))


def _column_names(tables: dict[str, AttributeTable]) -> dict[str, AttributeTable]:
    if not tables:
        raise ValueError("expected at least one attribute")
    problems = [
        (name, "the name is taken by the release's own columns") for name in RESERVED_NAMES if name in tables
    ]
    problems += [(name, fault) for name in tables if (fault := fault_of_cell(name))]
    if "" in tables:
        problems.append(('""', "an attribute needs a name; give the column one in the source"))
    if problems:
        raise Contradictions(problems)
    return tables


def _keys(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Bring the keys of a pass to one form: every building block is named."""
    keys = []
    for text in texts:
        try:
            keys.append(str(parse_key(text)))
            MatchPass("key", (keys[-1],))
        except ValueError as problem:
            raise ValueError(f"{value_text('', text)}: {problem}") from None
    if not keys or len(set(keys)) != len(keys):
        raise ValueError("expected at least one key, each once")
    return tuple(keys)


def _passes(tables: tuple["MatchTable", ...]) -> tuple["MatchTable", ...]:
    if len({table.name for table in tables}) != len(tables):
        raise ValueError("expected passes with different names")
    if len(tables) > MOST_PASSES:
        raise ValueError(f"expected at most {MOST_PASSES} passes")
    return tables


@dataclass(frozen=True, slots=True)
class MatchTable(Section):
    """A table `[[dataset.match]]`: one pass of linking by match keys."""

    name: Annotated[
        str, matching(PASS_NAME, PASS_NAME_RULE), Field(description="a name for reports and policies")
    ]
    keys: Annotated[
        Names, AfterValidator(_keys), Field(description='such as ["surname:soundex", "born:date"]')
    ]
    """Columns with their building blocks, all of which have to be equal."""


def _columns_in(tables: Iterable[MatchTable]) -> tuple[str, ...]:
    """Return the columns that match keys name, each once, in their order."""
    keys = (parse_key(text) for table in tables for text in table.keys)
    return tuple(dict.fromkeys(column for key in keys for column in key.columns))


Steps = Annotated[OneOrSeveralNames, one_of(tuple(STEPS))]


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(SourceOptions):
    """The settings of a data set except its attributes."""

    name: Annotated[Label, Field(description="the name that releases ask for")]
    source: Annotated[
        str,
        PlainValidator(_source),
        Field(
            description="the path of a CSV or Parquet file, the address of one in an object store, the URL "
            "of a database, or what Spark reads"
        ),
    ]
    """Path of a CSV or Parquet file or folder, or its address in an object store, URL of a database, or what
    Spark reads; without credentials."""
    budget: Label = ""
    """Name of the budget that is charged for this data set; without it the data set's name."""
    total_epsilon: Annotated[
        Epsilon, Field(description="what the budget holds for its lifetime, such as 2.0")
    ]
    identifier: OneOrSeveralNames = ()
    """Columns that together identify a person; without them the unit of privacy is the record."""
    normalise: Steps = ()
    """Steps applied to all identifier columns before they are compared, in this order."""
    normalise_also: dict[str, Steps] = field(default_factory=dict)
    """Further steps by identifier column, applied after `normalise`."""
    match: Annotated[Listed[MatchTable], AfterValidator(_passes)] = ()
    """Passes of match keys, in this order, where owners have no common identifier."""
    match_columns: dict[str, str] = field(default_factory=dict)
    """Columns of the source, by the names that match keys use, if these differ."""
    max_records_per_person: Annotated[int, Field(ge=1)] = 1
    """Most records that one identifier may have."""
    missing: Missing = "error"
    """What happens to missing identifiers, and to missing values of attributes without a `missing`. Here
    "category" holds for categories only."""
    rank_noise: Share | None = None
    """Smallest rank noise of its attributes in any plan, which aggregators see."""
    person: PersonTable | None = None
    """How one record a person is made, where the records of the source are a person's events."""
    opt_out: FilePath | None = None
    """CSV or Parquet file with the identifiers of persons who are in no release from now on."""

    def __post_init__(self) -> None:
        if not self.budget:
            object.__setattr__(self, "budget", self.name)

    @property
    def told_apart_by(self) -> tuple[str, ...]:
        """The columns of the source that tell persons apart, by their values alone."""
        return self.identifier if self.person is None else self.person.by


@dataclass(frozen=True, kw_only=True)
class DatasetTable(DatasetSettings):
    """The table `[[dataset]]` in the file."""

    attributes: Annotated[
        dict[str, AttributeTable],
        AfterValidator(_column_names),
        Field(description="declare the columns to use as [dataset.attributes.NAME]"),
    ]
    structural_zeros: Listed[dict[str, Excluded]] = ()
    """Rules about synthetic records: of each, no record has all of the values, such as
    `{ age = { max = 15 }, status = ["married", "widowed"] }`. Where missing values are kept,
    `{ missing = true }` is such a value, and `{ missing = false }` every other one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.person is not None:
            # A sum or count has no largest value of its own, so it is moved to the declared one.
            clamped = {
                name: replace(table, outside="clamp") if table.type.accepted else table
                for name, table in self.attributes.items()
            }
            object.__setattr__(self, "attributes", clamped)
        if faults := list(self._contradictions()):
            raise Contradictions(faults)

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.normalise and not self.identifier:
            yield "normalise", "there is no identifier to normalise"
        for name in self.normalise_also:
            if name not in self.identifier:
                yield f"normalise_also.{name}", "is no column of the identifier"
        if self.max_records_per_person > 1 and not self.identifier:
            yield "max_records_per_person", "there is no identifier to distinguish persons by"
        if self.match and self.identifier:
            yield "match", "there is an identifier; declare it as the first pass, or leave one of the two out"
        named = _columns_in(self.match)
        for name in self.match_columns:
            if name not in named:
                yield f"match_columns.{name}", "is no column of a match key"
        yield from self._uncertain_centuries()
        for name, table in self.attributes.items():
            if (table.missing or self.missing) == "category" and MISSING_CATEGORY in table.labels:
                yield (
                    f"attributes.{name}.categories",
                    f'"{MISSING_CATEGORY}" is what missing = "category" adds',
                )
        yield from self._faults_of_following()
        yield from self._faults_of_rules()
        if self.opt_out is not None and not self.told_apart_by:
            yield "opt_out", "there is no identifier to recognise persons by; declare one, or person.by"
        if self.person is not None:
            yield from self.person.faults(
                {name: table.type for name, table in self.attributes.items()},
                {name for name, table in self.attributes.items() if table.follows},
                self.identifier or tuple(self.match_columns.get(name, name) for name in named),
            )
            yield from self._faults_of_events()

    @property
    def _event_columns(self) -> tuple[str, ...]:
        """The attributes that are columns of events."""
        events = None if self.person is None else self.person.events
        return () if events is None else events.released

    def _faults_of_events(self) -> Iterator[tuple[str, str]]:
        gap = "" if self.person is None or self.person.events is None else self.person.events.gap
        for name in filter(self.attributes.__contains__, self._event_columns):
            table = self.attributes[name]
            if table.missing == "category" and name == gap:
                yield f"attributes.{name}.missing", '"category" does not go with the time between events'
            if ABSENT in table.labels:
                yield f"attributes.{name}.categories", f'"{ABSENT}" is the label of events that there are not'
            if table.follows:
                yield f"attributes.{name}.follows", "a column of events follows no other one"
        for name, table in self.attributes.items():
            if table.follows in self._event_columns:
                yield f"attributes.{name}.follows", f" = {table.follows}: is a column of events"
        for number, rule in enumerate(self.structural_zeros, start=1):
            for name in filter(self._event_columns.__contains__, rule):
                yield f"structural_zeros[{number}].{name}", "is a column of events; rules are about persons"

    def _faults_of_following(self) -> Iterator[tuple[str, str]]:
        for name, table in self.attributes.items():
            base = self.attributes.get(table.follows)
            if not table.follows:
                continue
            if base is None or base.follows or table.follows == name:
                what = "is no other attribute of the data set" if base is None else "follows another one"
                yield f"attributes.{name}.follows", f" = {table.follows}: {what}"
                continue
            try:
                self._derived(name).derived_units(self._with_missing(table.follows))
            except ValueError as problem:
                yield f"attributes.{name}.values", f": {problem}"

    def _derived(self, name: str) -> Attribute:
        """Return an attribute that is derived from another one.

        Raises:
            ValueError: If one is no value of its attribute.
        """
        table = self.attributes[name]
        return self._with_missing(name).derive_from(self._with_missing(table.follows), table.values)

    def _faults_of_rules(self) -> Iterator[tuple[str, str]]:
        for number, rule in enumerate(self.structural_zeros, start=1):
            if not rule:
                yield f"structural_zeros[{number}]", "names no attribute"
            for name in rule:
                place = f"structural_zeros[{number}].{name}"
                if name not in self.attributes:
                    yield place, "is no attribute of the data set"
                    continue
                if follows := self.attributes[name].follows:
                    yield place, f"follows {follows}: make the rule about that attribute"
                    continue
                try:
                    attribute = self._with_missing(name)
                    excluded_codes(excluded_values(attribute, rule[name]), attribute)
                except ValueError as problem:
                    yield place, str(problem)
        if len(self.structural_zeros) > MOST_RULES:
            yield "structural_zeros", f"has {len(self.structural_zeros)} rules, at most {MOST_RULES} can be"

    def _with_missing(self, name: str) -> Attribute:
        """Return an attribute with the label of its missing values, where they are kept."""
        table = self.attributes[name]
        attribute = table.attribute(name)
        keeps = (table.missing or self.missing) == "category"
        return attribute.with_missing_label() if keeps else attribute

    def _uncertain_centuries(self) -> Iterator[tuple[str, str]]:
        """Find dates whose years have two digits and whose domain does not determine the century."""
        if not is_without_century(self.csv.date_format):
            return
        steps = {*self.normalise, *(step for also in self.normalise_also.values() for step in also)}
        if "date" in steps or any(
            parse_key(key).block in DATES for match_pass in self.match for key in match_pass.keys
        ):
            yield "csv.date_format", "%y does not say the century of dates that persons are recognised by"
        if self.person is not None and self.person.reads_dates(
            {name: table.type for name, table in self.attributes.items()}
        ):
            yield "csv.date_format", "%y does not say the century of the dates of events"
            return
        for name, table in self.attributes.items():
            if table.type != "date":
                continue
            attribute = table.attribute(name)
            if attribute.upper >= _century_after(attribute.lower):
                problem = "has to be less than 100 years after min: csv.date_format has no century (%y)"
                yield f"attributes.{name}.max", problem
            if table.outside == "clamp":
                problem = '"clamp" does not go with a csv.date_format without the century (%y)'
                yield f"attributes.{name}.outside", problem

    def config(self) -> "DatasetConfig":
        """Return the run-time form."""
        tables = self.attributes.items()
        rules = (
            tuple(excluded_values(self._with_missing(name), rule[name]) for name in sorted(rule))
            for rule in self.structural_zeros
        )
        of_persons = tuple(
            table.attribute(name)
            for name, table in tables
            if not table.follows and name not in self._event_columns
        )
        slots: tuple[Attribute, ...] = ()
        if self.person is not None and (events := self.person.events) is not None:
            of_persons += (number_attribute(events.number, events.at_most),)
            slots = tuple(
                slot
                for name in events.released
                for slot in slots_of(self._with_missing(name), 1 + (name == events.gap), events.at_most)
            )
        missing_in = {name: table.missing for name, table in tables if table.missing is not None}
        return DatasetConfig(
            **{field.name: getattr(self, field.name) for field in fields(DatasetSettings)},
            attributes=(*of_persons, *slots),
            following=tuple(self._derived(name) for name, table in tables if table.follows),
            missing_in={**missing_in, **dict.fromkeys((each.name for each in slots), "category")},
            na_values={
                name: MissingCodes(table.na_values, of_numbers=table.type in _NUMBERS)
                for name, table in tables
                if table.na_values
            },
            taxonomies={
                name: table.tree.with_category(MISSING_CATEGORY)
                if (table.missing or self.missing) == "category"
                else table.tree
                for name, table in tables
                if table.tree is not None and not table.follows and name not in self._event_columns
            },
            structural_zeros=tuple(map(StructuralZero, rules)),
        )


@dataclass(frozen=True, kw_only=True)
class DatasetConfig(DatasetSettings):
    """A data set that the owner offers to releases."""

    attributes: tuple[Attribute, ...]
    """Declared attributes that are masked, in declared order; no other column is released."""
    following: tuple[Attribute, ...] = ()
    """Declared attributes that are derived from some of these."""
    missing_in: Mapping[str, Missing] = field(default_factory=dict)
    """Treatment of a missing value by attribute, where it is not that of the data set."""
    na_values: Mapping[str, MissingCodes] = field(default_factory=dict)
    """Values that stand for a missing one, by attribute that has any."""
    taxonomies: Mapping[str, Taxonomy] = field(default_factory=dict)
    """Taxonomies by attribute, if it has one; including the category of missing values."""
    structural_zeros: tuple[StructuralZero, ...] = ()
    """What no synthetic record is."""

    simulated: int | None = None
    """The owner's place in its group whose records are simulated for a trial; None: the source is read."""
    texts_version: int = TEXTS_VERSION
    """Version of the texts that persons are recognised by, in the release that the data are loaded for."""
    spark: SparkSettings | None = None
    """How the Spark session is started that reads or masks it; None where there is none."""

    @property
    def dropping(self) -> frozenset[str]:
        """The attributes and identifier columns whose missing values drop the record."""
        columns = (*self.identifier, *(attribute.name for attribute in self.attributes))
        return frozenset(name for name in columns if self.missing_in.get(name, self.missing) == "drop")

    @property
    def optional(self) -> frozenset[str]:
        """The derived attributes whose missing values are not compared with these.

        A record is dropped for values that are masked. What is derived has a value in any case.
        """
        names = (each.name for each in self.following)
        return frozenset(name for name in names if self.missing_in.get(name, self.missing) == "drop")

    def without_dropping(self) -> "DatasetConfig":
        """Return these settings with an error for each missing value that drops the record."""
        errors: dict[str, Missing] = dict.fromkeys(self.dropping, "error")
        return replace(self, missing_in={**self.missing_in, **errors})

    def fills(self, attribute: Attribute) -> bool:
        """Return whether missing values of an attribute are a value of their own: a category, or a null.

        What the data set says is for categories: it does not decide how numbers and dates are masked.
        """
        treatment = self.missing_in.get(attribute.name, self.missing)
        return attribute.keeps_missing or (bool(attribute.categories) and treatment == "category")

    @property
    def passes(self) -> tuple[MatchPass, ...]:
        """The passes of match keys as they are in the schema."""
        return tuple(MatchPass(match.name, match.keys) for match in self.match)

    @property
    def match_sources(self) -> Mapping[str, str]:
        """The column of the source for every column that match keys name."""
        return {name: self.match_columns.get(name, name) for name in _columns_in(self.match)}

    @property
    def person_columns(self) -> tuple[str, ...]:
        """The columns of the source that persons are recognised by."""
        return self.identifier or tuple(dict.fromkeys(self.match_sources.values()))

    @property
    def normal_forms(self) -> tuple[NormalForm, ...]:
        """The normal form of each identifier column."""
        return tuple(
            NormalForm((*self.normalise, *self.normalise_also.get(name, ())), self.csv.date_format)
            for name in self.identifier
        )

    @cached_property
    def origin(self) -> Source:
        """The source that `source` names.

        Raises:
            ValueError: If it is malformed.
        """
        return kind_of(self.source)(self.name, self.source, self, self.spark)


def _century_after(day: int) -> int:
    """Return the day 100 years later, in days since 1970-01-01; of 29 February, 1 March if there is none."""
    begin = date.fromordinal(day + _EPOCH)
    if begin.year + 100 > date.max.year:
        return date.max.toordinal() - _EPOCH + 1
    try:
        later = begin.replace(year=begin.year + 100)
    except ValueError:
        later = date(begin.year + 100, 3, 1)
    return later.toordinal() - _EPOCH


def misdeclared(dataset: Mapping[str, Any], place: str = "") -> Iterator[Problem]:
    """Find contradicting keys in the table of a data set as it was read; `place` comes before each key."""
    for key, text in _misfits(dataset):
        yield Problem(place + key, f": {text}")


def _misfits(dataset: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    source = dataset.get("source")
    if isinstance(source, str):
        yield from kind_of(source).contradictions(dataset)
    columns, declared = dataset.get("identifier"), dataset.get("attributes")
    identifiers = columns if isinstance(columns, list) else [columns]
    for name, table in declared.items() if isinstance(declared, dict) else ():
        if name in identifiers:
            yield f"attributes.{name}", "an identifier is never released; declare it as one of the two"
        for key, text in _unfitting(table) if isinstance(table, dict) else ():
            yield f"attributes.{name}.{key}", text
        if "person" in dataset and isinstance(table, dict) and table.get("outside") == "error":
            yield f"attributes.{name}.outside", "values of a person table are clamped and counted"
