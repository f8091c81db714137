"""The table `[dataset.person]` of `owner.toml`: one record a person, made of the person's events by rules."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from common.daemon.settings import Names
from common.errors import did_you_mean
from common.model.events import EVENT_COLUMN, MOST_EVENTS
from common.model.schema import RESERVED_NAMES, AttributeType
from common.settings import Contradictions, Section
from owner_node.config.key_types import OneOrSeveralNames

Reads = Literal["number", "date", "text"]
"""The form in which values of events are read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to make one value of a person's events."""

    aggregate: str
    """Arrow's aggregation of the values; empty for one that is computed from other columns."""
    types: tuple[AttributeType, ...]
    """Types of attributes that it makes."""
    reads: Reads = "text"
    """Form of the values that it reads, unless the type of the attribute says so."""
    of: Literal["required", "optional", "refused"] = "required"
    """The use of `of`, the column that it reads."""
    ordered: bool = False
    """True if the order of the events matters."""


_NUMBERS = tuple(kind for kind in AttributeType if kind.is_quantity)
_DATE = (AttributeType.DATE,)
RULES: Mapping[str, Rule] = {
    "count": Rule("count", _NUMBERS, of="optional"),
    "any": Rule("count", (AttributeType.BOOLEAN,), of="refused"),
    "first": Rule("first", tuple(AttributeType), ordered=True),
    "last": Rule("last", tuple(AttributeType), ordered=True),
    "earliest": Rule("min", _DATE, "date"),
    "latest": Rule("max", _DATE, "date"),
    "minimum": Rule("min", _NUMBERS, "number"),
    "maximum": Rule("max", _NUMBERS, "number"),
    "sum": Rule("sum", _NUMBERS, "number"),
    "mean": Rule("sum", _NUMBERS, "number"),
    "time": Rule("", _NUMBERS, of="refused"),
}


def _rule(value: object) -> str:
    if not isinstance(value, str) or value not in RULES:
        raise ValueError(f"expected one of {', '.join(RULES)}")
    return value


def _values(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or any(not isinstance(each, str | int | float) for each in values):
        raise ValueError('expected a value of the column or a list of them, such as ["inpatient", 9201]')
    return tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in values)


@dataclass(frozen=True, slots=True)
class RuleTable(Section):
    """A table of `[dataset.person.columns]`: how one column of the person table is made."""

    rule: Annotated[str, PlainValidator(_rule), Field(description=f"one of {', '.join(RULES)}")]
    of: str = ""
    """Column of the events that the rule reads. With "count": only events with a value there are counted."""
    where: dict[str, Annotated[tuple[str, ...], PlainValidator(_values)]] = field(default_factory=dict)
    """Only events that have one of these values in each column, such as `{ kind = "inpatient" }`."""
    begin: Annotated[str, Field(alias="from")] = ""
    """With "time": a column of the person table with dates, from which the time runs."""
    end: Annotated[str, Field(alias="to")] = ""
    """With "time": the column with dates until which it runs."""
    unit: Literal["days", "years"] = "days"
    """With "time": "days", or "years", which are completed."""

    def __post_init__(self) -> None:
        of = RULES[self.rule].of
        faults = []
        if of == "required" and not self.of:
            faults.append(("of", f"missing; {self.rule} reads a column of the events"))
        if of == "refused" and self.of:
            faults.append(("of", f"does not go with {self.rule}"))
        if self.rule == "any" and not self.where:
            faults.append(("where", 'missing; any asks for values, such as { kind = "inpatient" }'))
        is_time = self.rule == "time"
        for key, text in (("from", self.begin), ("to", self.end)):
            if is_time is not bool(text):
                faults.append((key, "missing; time runs from one column of dates to another" if is_time
                               else "goes with time"))  # fmt: skip
        if is_time and self.where:
            faults.append(("where", "does not go with time; state it at the columns from and to"))
        if not is_time and self.unit != "days":
            faults.append(("unit", "goes with time"))
        if faults:
            raise Contradictions(faults)


@dataclass(frozen=True, slots=True)
class KeptEvents(Section):
    """The table `[dataset.person.events]`: events that synthetic releases have beside the persons."""

    at_most: Annotated[int, Field(ge=1, le=MOST_EVENTS, description="the most events of a person, such as 6")]
    """Most events of one person; the others are left out at random."""
    columns: Annotated[Names, Field(min_length=1, description='columns of the events, such as ["ward"]')]
    """Columns of the events, each declared as an attribute."""
    gap: str = ""
    """Name of an attribute: the time since the person's event before, in days, or as `order` has it."""
    number: str = "events"
    """Name of the column of the person table with the number of kept events."""

    def __post_init__(self) -> None:
        faults = [("gap", "needs at_most = 2 or more")] if self.gap and self.at_most == 1 else []
        if len(set(self.named)) < len(self.named):
            faults.append(("columns", "columns, gap and number have different names"))
        faults += [
            ("columns", f" = {name}: the name is taken by the release's own columns")
            for name in self.named
            if name in (*RESERVED_NAMES, EVENT_COLUMN)
        ]
        if faults:
            raise Contradictions(faults)

    @property
    def released(self) -> Names:
        """The columns of the table of events."""
        return (*self.columns, *filter(None, [self.gap]))

    @property
    def named(self) -> Names:
        """These, and the number of events."""
        return (*self.released, self.number)

    @property
    def slots(self) -> Names:
        """The columns of the person table that hold the events (`common.model.events`)."""
        return tuple(
            f"{name}_{number}"
            for name in self.released
            for number in range(1 + (name == self.gap), self.at_most + 1)
        )

    def faults(self, person: "PersonTable", kinds: Mapping[str, AttributeType]) -> Iterator[tuple[str, str]]:
        """Find what does not go together; arguments and results as those of `PersonTable.faults`."""
        for name in self.released:
            if name not in kinds:
                text = f" = {name}: declare its values in [dataset.attributes.{name}]"
                yield "person.events.columns", text
            elif kinds[name] is AttributeType.BOOLEAN:
                yield f"attributes.{name}.type", "events have no booleans; declare a category with two labels"
            if name in person.by:
                yield "person.events.columns", f" = {name}: is a column of person.by"
        if self.gap in kinds and not kinds[self.gap].is_quantity:
            yield f"attributes.{self.gap}.type", "the time between events is an integer or number"
        for name in (*self.slots, self.number):
            if name in (*person.by, *person.columns, *kinds):
                text = "the name is taken by the events of persons; rename the other column, or person.events"
                yield f"person.events.{name}", text
        for name in self.released:
            if name in person.columns:
                yield f"person.columns.{name}", "is a column of person.events, too; rename one"


@dataclass(frozen=True, slots=True)
class PersonTable(Section):
    """The table `[dataset.person]`: the records of the source are events of persons."""

    by: Annotated[OneOrSeveralNames, Field(min_length=1, description='such as "patient"')]
    """Columns of the events that together say whose they are."""
    columns: Annotated[
        dict[str, RuleTable],
        Field(min_length=1, description='such as visits = { rule = "count" } in [dataset.person.columns]'),
    ]
    """The other columns of the person table, each with its rule."""
    order: str = ""
    """Column of the events by which "first" and "last" order them."""
    order_type: Literal["date", "number"] = "date"
    """How `order` is read."""
    events: KeptEvents | None = None
    """Events that are kept in a table of their own; only synthetic releases have it."""

    @property
    def names(self) -> Names:
        """The columns of the person table."""
        kept = () if self.events is None else (self.events.number, *self.events.slots)
        return (*self.by, *self.columns, *kept)

    @property
    def read_columns(self) -> Names:
        """The columns of the events that are read, each once."""
        rules = self.columns.values()
        kept = () if self.events is None else self.events.columns
        named = (*self.by, self.order, *(name for each in rules for name in (each.of, *each.where)), *kept)
        return tuple(dict.fromkeys(filter(None, named)))

    def reads(self, name: str, kind: AttributeType | None) -> Reads:
        """Return the form in which a column's values are read.

        Args:
            kind: Type of the attribute of this name; None if there is none.
        """
        if kind is not None and RULES[self.columns[name].rule].ordered:
            return "number" if kind.is_quantity else "date" if kind is AttributeType.DATE else "text"
        if any(name in (each.begin, each.end) for each in self.columns.values()):
            return "date"
        return RULES[self.columns[name].rule].reads

    def reads_dates(self, kinds: Mapping[str, AttributeType]) -> bool:
        """Return whether any column of the events is read as a date; `kinds` as in `faults`."""
        of_rules = (self.reads(name, kinds.get(name)) for name in self.columns)
        kept = () if self.events is None else map(kinds.get, self.events.columns)
        return "date" in (self.order_type if self.order else "", *of_rules, *kept)

    def faults(
        self, kinds: Mapping[str, AttributeType], following: Collection[str], persons: Names
    ) -> Iterator[tuple[str, str]]:
        """Find what does not go together in a data set.

        Args:
            kinds: Types of its attributes.
            following: The attributes that follow others, which need no column.
            persons: Columns that persons are recognised by.

        Yields:
            Pairs of a key of the data set and its problem.
        """
        kept = () if self.events is None else self.events.released
        for name in kinds:
            if name not in (*self.columns, *following, *kept):
                close = did_you_mean(name, self.columns)
                text = f"no rule of person.columns makes it; declare one, such as {name} = "
                yield f"attributes.{name}", f'{text}{{ rule = "first", of = "{name}" }} {close}'.rstrip()
        for name in persons:
            if name not in self.names:
                yield "identifier", f"{name} is not in the person table: add it to person.by"
        needed = self.events is not None or any(RULES[each.rule].ordered for each in self.columns.values())
        if needed is not bool(self.order):
            text = "missing; first, last and person.events need a column that orders the events"
            yield "person.order", text if needed else "goes with first, last and person.events"
        used = {each for rule in self.columns.values() for each in (rule.begin, rule.end)} | {*persons}
        for name, each in self.columns.items():
            place, types = f"person.columns.{name}", RULES[each.rule].types
            if name in self.by:
                yield place, "is a column of person.by"
            if name not in kinds and name not in used:
                yield place, f"nothing uses it; declare its bounds in [dataset.attributes.{name}]"
            if name in kinds and kinds[name] not in types:
                text = f"{each.rule} makes {' or '.join(types)}, not {kinds[name]}"
                yield f"attributes.{name}.type", text
        yield from self._faults_of_time(kinds)
        if self.events is not None:
            yield from self.events.faults(self, kinds)

    def _faults_of_time(self, kinds: Mapping[str, AttributeType]) -> Iterator[tuple[str, str]]:
        ends = [
            (f"person.columns.{name}.{key}", date)
            for name, each in self.columns.items()
            if each.rule == "time"
            for key, date in (("from", each.begin), ("to", each.end))
        ]
        for place, date in ends:
            if date not in self.columns:
                text = f" = {date}: is not in the person table"
                yield place, f"{text} {did_you_mean(date, self.columns)}".rstrip()
            elif (
                AttributeType.DATE not in RULES[self.columns[date].rule].types
                or kinds.get(date, AttributeType.DATE) is not AttributeType.DATE
            ):
                yield place, f" = {date}: is not a date; use earliest, latest, first or last"
