"""A table of one record a person, made of events by the rules of `[dataset.person]`, whatever their source.

Every number that is computed is exact: values are read in units of a few decimals more than the attribute
has, and summed as integers of 128 bits. Events are ordered by all of their values, so that the order in which
a source returns them, and the engine, change nothing. All events are in memory while they are grouped.

Of the events of `[dataset.person.events]`, each person keeps at most g in slots of its record. Which ones is
random, by a hash of the person's identifier: the same data give the same table, and no other person matters.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import DataError
from common.model.presence import ABSENT
from common.model.schema import MISSING_CATEGORY, MOST_DECIMALS, Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.config.person import RULES, KeptEvents, RuleTable
from owner_node.loading import PersonCounts
from owner_node.loading.reading import decodable
from owner_node.sources import texts
from owner_node.sources.findings import Findings
from owner_node.sources.person_texts import identifier_texts
from owner_node.sources.source import Reader
from owner_node.sources.values import examples_of, parse, without_codes
from owner_node.values import dates
from owner_node.values.missing_codes import MissingCodes
from owner_node.values.normal_forms import NormalForm, normalise
from owner_node.values.numerals import bools

BATCH_PERSONS = 2**16
"""Records of persons that are returned at a time."""
_FINER = 4
"""Decimals of an event's number beyond those of the attribute; still finer ones are rounded half to even."""
_WIDEST = 2**62
_WIDE = pa.decimal128(38, 0)
_KEY, _ORDER, _WRITTEN, _COMPLETE = "key", "order", "written", "complete"


class PersonReader(Reader):
    """The person table of a source of events.

    Args:
        dataset: The data set; it has rules.
        events: The opened source.
    """

    def __init__(self, dataset: DatasetConfig, events: Reader) -> None:
        if dataset.person is None:
            raise ValueError("the data set has no rules")
        self._dataset, self._events, self._person = dataset, events, dataset.person
        self.names: Sequence[str] = self._person.names
        self.opt_out = events.opt_out
        declared = {each.name: each for each in (*dataset.attributes, *dataset.following)}
        self._rules: dict[str, RuleTable] = dict(self._person.columns)
        self._attributes: Mapping[str, Attribute] = declared
        self._reads = {
            name: self._person.reads(name, declared[name].type if name in declared else None)
            for name in self._rules
        }

    def close(self) -> None:
        """Close the source."""
        self._events.close()

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read all events, group them, and yield persons in the order of their identifiers (see `Reader`)."""
        pieces = [each for each in self._read(findings) if each is not None and each.num_rows]
        self.listed, self.left_out = self._events.listed, self._events.left_out
        if findings or not pieces:
            return
        made = self._grouped(pa.concat_tables(pieces))
        for first in range(0, len(made[self.names[0]]), BATCH_PERSONS):
            yield [made[name].slice(first, BATCH_PERSONS) for name in columns]

    # --- events ------------------------------------------------------------------------------------------

    def _read(self, findings: Findings) -> Iterator[Any]:
        """Yield the events in the form in which they are grouped; None if a batch cannot be used."""
        names, self._without, self._incomplete = self._person.read_columns, 0, 0
        for arrays in self._events.batches(names, findings):
            came = decodable(dict(zip(names, arrays, strict=True)), findings)
            unreadable = [name for name, array in came.items() if not texts.is_readable(array.type)]
            for name in unreadable:
                kind = came[name].type
                problem = f"values of type {texts.type_name(kind)} cannot be read"
                findings.add(name, problem, len(came[name]), texts.advice(kind))
            yield None if unreadable else self._event_table(came, findings)

    def _event_table(self, came: Mapping[str, Any], findings: Findings) -> Any:
        came = {name: texts.plain(array) for name, array in came.items()}
        written, key = person_keys(self._dataset, came, findings)
        if key.null_count:
            self._without += key.null_count
            if self._dataset.missing != "drop":
                hint = 'every event needs its person; complete them, or set missing = "drop"'
                for name in self._person.by:
                    findings.add(name, "missing identifier", written[name].null_count, hint)
            there = key.is_valid()
            came = {name: array.filter(there) for name, array in came.items()}
            written = {name: array.filter(there) for name, array in written.items()}
            key = key.filter(there)
        made = {_KEY: key, **{f"by {name}": array for name, array in written.items()}}
        if self._person.order:
            order = came[self._person.order]
            made[_ORDER] = self._values(
                self._person.order, self._person.order_type, order, AttributeType.NUMBER, findings
            )
            made[_WRITTEN] = texts.as_text(order)
        for name, rule in self._rules.items():
            if rule.rule != "time":
                made |= self._of_rule(name, rule, came, made, findings)
        if self._person.events is not None:
            made |= self._kept_columns(self._person.events, came, made[_ORDER].is_valid(), findings)
        return pa.table(made)

    def _kept_columns(
        self, events: KeptEvents, came: Mapping[str, Any], ordered: Any, findings: Findings
    ) -> dict[str, Any]:
        """Return the columns of the table of events, and which events can be in it."""
        made, complete = {}, ordered
        for name in events.columns:
            array, codes = came[name], self._dataset.na_values.get(name)
            if codes:
                array = without_codes(array, codes, self._dataset.csv)
            slot = self._attributes[f"{name}_1"]
            reads = "number" if slot.type.is_quantity else "date" if slot.type.accepted else "text"
            values = self._values(name, reads, array, slot.type, findings, f"{name}_1")
            if slot.categories:
                reserved = pc.sum(pc.equal(values, ABSENT)).as_py() or 0
                findings.add(name, f"{ABSENT!r}, the label of no event", reserved, "write another label")
            treatment = self._dataset.missing_in.get(name, self._dataset.missing)
            made[f"event {name}"] = values
            if slot.is_optional:
                continue
            if treatment == "category" and slot.categories:
                made[f"event {name}"] = values = pc.fill_null(values, MISSING_CATEGORY)
            lacking = pc.and_(ordered, values.is_null())
            if treatment != "drop":
                hint = 'complete them, or set missing = "category", or "drop" to leave these events out'
                findings.add(name, "missing value of an event", pc.sum(lacking).as_py() or 0, hint)
            complete = pc.and_(complete, values.is_valid())
        self._incomplete += int(np.count_nonzero(bools(ordered) & ~bools(complete)))
        return made | {_COMPLETE: complete}

    def _of_rule(
        self,
        name: str,
        rule: RuleTable,
        came: Mapping[str, Any],
        made: Mapping[str, Any],
        findings: Findings,
    ) -> dict[str, Any]:
        """Return what a rule reads of each event, null where it takes no part."""
        kept = self._matching(rule, came)
        if not rule.of:
            one = pa.array(np.ones(len(kept), dtype=np.int64))
            return {f"of {name}": pc.if_else(kept, one, pa.scalar(None, pa.int64()))}
        if RULES[rule.rule].ordered:
            kept = pc.and_(kept, made[_ORDER].is_valid())
        array = came[rule.of]
        array = pc.if_else(kept, array, pa.scalar(None, array.type))
        codes = self._dataset.na_values.get(name)
        if codes:
            array = without_codes(array, codes, self._dataset.csv)
        kind = self._attributes[name].type if name in self._attributes else None
        values = self._values(f"{rule.of} ({name})", self._reads[name], array, kind, findings, name)
        result = {f"of {name}": values}
        if rule.rule == "sum":
            result[f"matching {name}"] = kept
        return result

    def _matching(self, rule: RuleTable, came: Mapping[str, Any]) -> Any:
        """Return which events have the values that a rule asks for."""
        kept = pa.array(np.ones(len(next(iter(came.values()))), dtype=np.bool_))
        for name, accepted in rule.where.items():
            array = came[name]
            others = without_codes(array, MissingCodes(accepted), self._dataset.csv)
            kept = pc.and_(kept, pc.and_(array.is_valid(), others.is_null()))
        return kept

    def _values(
        self,
        column: str,
        reads: str,
        array: Any,
        kind: AttributeType | None,
        findings: Findings,
        name: str = "",
    ) -> Any:
        """Parse values of events: numbers to units of `_decimals`, dates to days, others to text."""
        if reads == "text":
            if kind is None:
                version = self._dataset.texts_version
                return identifier_texts(column, array, NormalForm(), findings, version)
            return texts.as_text(array)
        present = array.drop_null()
        if reads == "number":
            wide = Attribute(column, AttributeType.NUMBER, -_WIDEST, _WIDEST, decimals=self._decimals(name))
            units = parse(wide, present, self._dataset.csv, findings).units
        else:
            units = self._days(column, present, findings)
        values = np.zeros(len(array), dtype=np.int64)
        if len(units) == len(present):
            values[bools(array.is_valid())] = units
        made = pa.array(values, mask=~bools(array.is_valid()))
        return made if reads == "number" else made.cast(pa.int32()).cast(pa.date32())

    def _days(self, column: str, present: Any, findings: Findings) -> Any:
        """Return the days of dates and timestamps; a time of day is cut off."""
        if pa.types.is_date(present.type) or pa.types.is_timestamp(present.type):
            return texts.whole_days(present)[0]
        form = self._dataset.csv.date_format
        days, proper = dates.days(texts.as_text(present), form, whole=False)
        hint = f"write dates as {form}; for a CSV file, csv.date_format can say otherwise"
        wrong = int(np.count_nonzero(~proper))
        findings.add(column, "not a date", wrong, hint, examples=partial(examples_of, present, ~proper))
        return days

    def _decimals(self, name: str) -> int:
        """Return the decimals in which the numbers of a column's events are read."""
        own = self._attributes[name].decimals if name in self._attributes else 0
        return min(own + _FINER, MOST_DECIMALS)

    # --- persons -----------------------------------------------------------------------------------------

    def _grouped(self, events: Any) -> Mapping[str, Any]:
        """Return the columns of the person table, in the order of the persons' identifiers."""
        persons = pc.unique(events[_KEY])
        persons = persons.take(pc.sort_indices(persons))
        person = pc.index_in(events[_KEY], value_set=persons)
        events = events.append_column("person", person)
        if self._person.order:
            keys = [each for each in events.column_names if each.startswith(("of ", "event "))]
            order = [("person", "ascending"), *((key, "ascending") for key in (_ORDER, _WRITTEN, *keys))]
            events = events.take(pc.sort_indices(events, sort_keys=order))
        asked: list[tuple[Any, str]] = [
            ([], "count_all"),
            *((f"by {name}", "min") for name in self._person.by),
        ]
        for name, rule in self._rules.items():
            if rule.rule == "time":
                continue
            aggregate = RULES[rule.rule].aggregate
            if aggregate == "sum":
                column = f"of {name}"
                place = events.column_names.index(column)
                events = events.set_column(
                    place, column, events[column].cast(pa.decimal128(19, 0)).cast(_WIDE)
                )
                asked.append((column, "count"))
            if rule.rule == "sum":
                asked.append((f"matching {name}", "any"))
            asked.append((f"of {name}", aggregate))
        # One thread keeps the order of the events, which "first" and "last" need.
        made = events.group_by("person", use_threads=False).aggregate(asked)
        made = made.take(pc.sort_indices(made, sort_keys=[("person", "ascending")])).combine_chunks()
        columns = {name: made[f"by {name}_min"].combine_chunks() for name in self._person.by}
        for name, rule in self._rules.items():
            if rule.rule != "time":
                columns[name] = self._made(name, rule, made)
        for name, rule in self._rules.items():
            if rule.rule == "time":
                columns[name] = _time(rule.unit, columns[rule.begin], columns[rule.end])
        of_kept: dict[str, int] = {}
        if self._person.events is not None:
            unordered = events[_ORDER].null_count
            kept = events.filter(events[_COMPLETE]).combine_chunks()
            made_of_kept, of_kept = self._slots(self._person.events, kept, persons)
            columns |= made_of_kept
            of_kept |= {"unordered": unordered, "incomplete": self._incomplete}
        sizes = made["count_all"].to_numpy()
        means = {
            name: change
            for name, attribute in self._attributes.items()
            if attribute.type.is_quantity
            and name in columns
            and (change := _clamping(attribute, columns[name]))
        }
        self.persons = PersonCounts(
            int(sizes.sum()), len(sizes), int(sizes.max()), self._without, means, **of_kept
        )
        return columns

    def _slots(self, kept: KeptEvents, events: Any, persons: Any) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the number of events and the slots of each person, and counts of what was left out.

        Args:
            events: Complete events, by person and in order.
            persons: The identifiers of all persons in one text each.
        """
        person = events["person"].to_numpy().astype(np.int64)
        found = np.bincount(person, minlength=len(persons))
        starts = np.cumsum(found) - found
        stays = np.ones(len(person), dtype=np.bool_)
        for each in np.flatnonzero(found > kept.at_most):
            key = persons[int(each)].as_py()
            drawn = sorted(range(found[each]), key=lambda place: sha256(f"{place}|{key}".encode()).digest())
            stays[starts[each] + np.array(drawn[kept.at_most :])] = False
        events, person = events.filter(pa.array(stays)).combine_chunks(), person[stays]
        number = np.bincount(person, minlength=len(persons))
        place = np.arange(len(person)) - (np.cumsum(number) - number)[person]
        values = {name: events[f"event {name}"].combine_chunks() for name in kept.columns}
        for name in kept.columns:
            if self._attributes[f"{name}_1"].type.is_quantity:
                values[name] = _scaled(values[name], self._decimals(f"{name}_1"))
        if kept.gap:
            order = events[_ORDER].combine_chunks()
            is_date = pa.types.is_date(order.type)
            units = (order.cast(pa.int32()) if is_date else order).to_numpy().astype(np.int64)
            gaps = pa.array(np.diff(units, prepend=0))
            values[kept.gap] = gaps if is_date else _scaled(gaps, self._decimals(""))
        columns: dict[str, Any] = {kept.number: pa.array(number)}
        for name in kept.released:
            for slot in range(1 + (name == kept.gap), kept.at_most + 1):
                at, taken = np.flatnonzero(place == slot - 1), np.zeros(len(persons), dtype=np.int64)
                absent = np.ones(len(persons), dtype=np.bool_)
                taken[person[at]], absent[person[at]] = at, False
                columns[f"{name}_{slot}"] = values[name].take(pa.array(taken, mask=absent))
        over = found > kept.at_most
        beyond = int((found[over] - kept.at_most).sum())
        return columns, {"shortened": int(over.sum()), "beyond": beyond}

    def _made(self, name: str, rule: RuleTable, made: Any) -> Any:
        """Return a column in the type that it is parsed from, as a source's own."""
        values = made[f"of {name}_{RULES[rule.rule].aggregate}"].combine_chunks()
        if rule.rule in ("count", "any"):
            counts = pc.fill_null(values, 0)
            return counts if rule.rule == "count" else pc.greater(counts, 0)
        if rule.rule == "sum":
            # A sum of no event is 0; one of events without a value is missing.
            nothing = pc.invert(pc.fill_null(made[f"matching {name}_any"].combine_chunks(), False))
            values = pc.if_else(nothing, pa.scalar(0, _WIDE), values)
        if rule.rule == "mean":
            decimals = self._attributes[name].decimals
            counts = made[f"of {name}_count"].to_pylist()
            by = 10 ** (self._decimals(name) - decimals)
            totals = zip(values.to_pylist(), counts, strict=True)
            means = [None if not n else _half_even(int(total), n * by) for total, n in totals]
            return _scaled(pa.array(means, pa.int64()), decimals)
        return _scaled(values, self._decimals(name)) if self._reads[name] == "number" else values


def person_keys(
    dataset: DatasetConfig, came: Mapping[str, Any], findings: Findings
) -> tuple[dict[str, Any], Any]:
    """Return the identifiers of records as texts, by column, and in one normal form, which is compared.

    Args:
        came: Readable columns, with those that tell persons apart; shape (n_records,).

    Returns:
        Both with nulls where an identifier is missing.
    """
    normal = dict(zip(dataset.identifier, dataset.normal_forms, strict=True))
    written, keys = {}, []
    for name in dataset.told_apart_by:
        form = normal.get(name, NormalForm((), dataset.csv.date_format))
        written[name] = identifier_texts(name, came[name], form, findings, dataset.texts_version)
        key = written[name].cast(pa.large_string())
        with suppress(DataError):  # reported already
            (key,) = normalise([written[name]], [form])
        keys.append(key)
    # No text has the character NUL, so no two lists of identifiers become one text.
    return written, pc.binary_join_element_wise(*keys, pa.scalar("\0", pa.large_string()))


def _scaled(units: Any, decimals: int) -> Any:
    """Return integers in units of 10^-decimals as decimals, exactly."""
    wide = units if pa.types.is_decimal(units.type) else units.cast(pa.decimal128(19, 0)).cast(_WIDE)
    return pa.Array.from_buffers(pa.decimal128(38, decimals), len(wide), wide.buffers(), offset=wide.offset)


def _half_even(numerator: int, denominator: int) -> int:
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def _time(unit: str, begin: Any, end: Any) -> Any:
    """Return days, or completed years, from one date to another; null if one is missing."""
    if unit == "days":
        return pc.subtract(end.cast(pa.int32()), begin.cast(pa.int32())).cast(pa.int64())
    before = [pc.add(pc.multiply(pc.month(each), 100), pc.day(each)) for each in (begin, end)]
    years = pc.subtract(pc.year(end), pc.year(begin))
    return pc.subtract(years, pc.less(before[1], before[0]).cast(pa.int64()))


def _clamping(attribute: Attribute, values: Any) -> tuple[float, float] | None:
    """Return the mean of values before and after clamping; None if it changes none."""
    numbers = values.drop_null().cast(pa.float64()).to_numpy()
    clamped = np.clip(numbers, float(attribute.min), float(attribute.max))
    if not (numbers != clamped).any():
        return None
    return float(numbers.mean()), float(clamped.mean())
