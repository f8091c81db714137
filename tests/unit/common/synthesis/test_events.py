"""Events in slots: the table that they make, what is counted of them, and the rules that records keep."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.events import EventTable, number_attribute, slots_of
from common.model.schema import Attribute, AttributeType, MalformedProperty
from common.release.events import events_table, fold, read_events, unfold
from common.release.table import write_csv_header, write_csv_records
from common.synthesis.schedule import Design
from owner_node.synthesis.own_table import synthesise_together
from tests.fakes.bits import SeededBits
from tests.papers.synthetic_events import simulated

AGE = Attribute("age", AttributeType.INTEGER, 0, 99)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 1, categories=("A", "B"))
DAYS = Attribute("days", AttributeType.INTEGER, 0, 50)
NUMBER = number_attribute("events", 3)
ALL = (AGE, NUMBER, *slots_of(WARD, 1, 3), *slots_of(DAYS, 2, 3))


def table_of(attributes=ALL) -> EventTable:
    """The table of events of some attributes."""
    events = EventTable.of(attributes)
    assert events is not None
    return events


def written(path: Path, events: EventTable, columns: dict[str, Int64Array]) -> Path:
    """Write a file of events as releases have it."""
    table = events_table(events, columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return path
    with path.open("wb") as stream:
        write_csv_header(stream, table.schema)
        write_csv_records(stream, table)
    return path


def test_columns_are_those_of_events():
    """A slot has a value for events that there are not; a column has it where a first event has no other."""
    events = table_of()
    assert [(each.name, each.labels, each.keeps_missing, each.slot) for each in events.columns] == [
        ("ward", ("A", "B"), False, -1),
        ("days", (), True, -1),
    ]
    assert Attribute.from_document(ALL[2].to_document()) == ALL[2]


def test_few_pairs_are_counted():
    """Persons' attributes, these with the first event, and columns of one event and of two neighbours."""
    names = [(ALL[i].name, ALL[j].name) for i, j in table_of().pairs]
    assert names == [
        ("age", "events"), ("age", "ward_1"), ("events", "ward_1"),
        ("ward_1", "ward_2"), ("ward_1", "days_2"), ("ward_2", "ward_3"), ("ward_2", "days_2"),
        ("ward_2", "days_3"), ("ward_3", "days_2"), ("ward_3", "days_3"), ("days_2", "days_3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ((AGE, *ALL[2:]), "one attribute with their number"),
        ((NUMBER, replace(NUMBER, name="more"), *ALL[2:]), "one attribute with their number"),
        ((NUMBER, ALL[2], ALL[4]), "all of ward_1 to ward_3"),
        ((NUMBER, *slots_of(WARD, 1, 4)), "all of ward_1 to ward_3"),
        ((NUMBER, *ALL[2:4], replace(ALL[4], ordered=True)), "different domains of 'ward'"),
        ((NUMBER, WARD, *ALL[2:]), "and another one are called 'ward'"),
    ],
)
def test_slots_of_no_table_are_refused(attributes, fault):
    """A plan is untrusted: its slots are those of one table, or it is refused."""
    with pytest.raises(ValueError, match=fault):
        EventTable.of(attributes)


@pytest.mark.parametrize(
    ("attribute", "changes"),
    [(WARD, {"slot": -2}), (ALL[3], {"slot": 1}), (DAYS, {"name": "days_1", "slot": 1})],
)
def test_malformed_slots_are_refused(attribute, changes):
    """A slot has its number in its name, and a value for persons without this event."""
    with pytest.raises(MalformedProperty):
        replace(attribute, **changes)


def test_folding_undoes_unfolding():
    """Records have the same slots after their events were a table."""
    attributes, columns = simulated(500, 1)
    events = table_of(attributes)
    units = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    table = unfold(events, units)
    assert table["record"].size == units["events"].sum()
    slots = fold(events, table, 500)
    assert set(slots) == {each.name for each in attributes if each.slot > 0}
    for name, values in slots.items():
        assert np.array_equal(values, units[name])
    later = unfold(events, units, 1001)
    assert np.array_equal(later["record"], table["record"] + 1000)


@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_records_have_as_many_events_as_their_number_says(delta):
    """Every record has a value in the slots of its events and in no other, whatever the noise."""
    attributes, columns = simulated(2000, 2)
    design = Design(attributes, 2000, Decimal(2), Decimal(delta))
    codes = [column - each.lower for each, column in zip(attributes, columns, strict=True)]
    made = synthesise_together(design, [codes], [SeededBits(1)]).codes
    number = made[table_of(attributes).number]
    for attribute, column in zip(attributes, made, strict=True):
        if attribute.slot > 0:
            absent = column == attribute.n_values - 1
            assert np.array_equal(absent, number < attribute.slot)


def test_records_can_lack_an_optional_number():
    """As many events lack the number as were counted, no person has one more event, and files can be read."""
    draw, n = np.random.default_rng(3), 4000
    attributes = (AGE, NUMBER, *slots_of(replace(DAYS, name="dose", keeps_missing=True), 1, 3))
    number = draw.integers(0, 4, n)
    doses = [np.where((number >= slot) & (draw.random(n) < 0.7), 10 * slot, 51) for slot in (1, 2, 3)]
    design = Design(attributes, n, Decimal(20), Decimal("0.000001"))
    columns = [draw.integers(0, 100, n), number, *doses]
    made = synthesise_together(design, [columns], [SeededBits(1)]).codes
    events, units = table_of(attributes), {}
    for attribute, column in zip(attributes, made, strict=True):
        units[attribute.name] = column
        if attribute.slot > 0:
            there = units["events"] >= attribute.slot
            assert (column[~there] == 51).all()
            assert (column[there] == 51).mean() == pytest.approx(0.3, abs=0.05)
    assert [(each.name, each.keeps_missing, each.is_optional) for each in events.columns] == [
        ("dose", True, False)
    ]
    table = unfold(events, units)
    assert events_table(events, table).column("dose").null_count == (table["dose"] == 51).sum()
    assert all(np.array_equal(values, units[name]) for name, values in fold(events, table, n).items())


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_can_lack_an_optional_number(tmp_path, kind):
    """What was written is read, and a time between events is still missing in first ones alone."""
    events = table_of((NUMBER, *slots_of(replace(DAYS, name="dose", keeps_missing=True), 1, 3), *ALL[5:]))
    units = {"events": np.array([0, 2]), "dose_1": np.array([51, 51]), "dose_2": np.array([51, 7])}
    units |= {name: np.array([51, 51]) for name in ("dose_3", "days_3")} | {"days_2": np.array([51, 4])}
    columns = unfold(events, units)
    path = written(tmp_path / f"events.{kind}", events, columns)
    assert {name: values.tolist() for name, values in read_events(path, events, units["events"]).items()} == {
        "record": [2, 2], "event": [1, 2], "dose": [51, 7], "days": [51, 4]
    }  # fmt: skip


def test_the_budget_is_that_of_all_tables_together():
    """Parts of persons and slots sum to at most the budget, and persons have four fifths of the tables'."""
    attributes, _ = simulated(10, 1)
    design = Design(attributes, 100_000, Decimal(2), Decimal("0.000001"))
    paid = {True: Decimal(0), False: Decimal(0)}
    for pair in design.pairs:
        paid[design.is_of_slots(pair)] += 1 / Decimal(design.table_noise(pair).size)
    whole = design.budgets[1].amount
    assert sum(paid.values()) <= whole
    assert paid[False] / whole == pytest.approx(Decimal("0.8"), rel=Decimal("0.02"))


def _other_ward(columns):
    columns["ward"][0] = 1 - columns["ward"][0]


def _gap_of_first(columns):
    columns["days"][0] = 1


def _no_gap(columns):
    columns["days"][columns["event"] > 1] = 51


def _other_order(columns):
    columns["event"][:2] = columns["event"][1::-1]


def _other_record(columns):
    columns["record"][-1] -= 1


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (None, ""),
        (_other_ward, "changed"),
        (_gap_of_first, "are not those of the records, in order"),
        (_no_gap, "are not those of the records, in order"),
        (_other_order, "are not those of the records, in order"),
        (_other_record, "are not those of the records, in order"),
    ],
)
def test_files_of_events_are_read_as_untrusted_input(tmp_path, suffix, change, fault):
    """Events of other records, in another order, or with times that cannot be, are refused."""
    events, number = table_of(), np.array([2, 0, 3, 1])
    units = {"events": number, "age": number}
    for each in ALL[2:]:
        units[each.name] = np.where(number >= each.slot, each.slot % 2, each.highest)
    columns = unfold(events, units)
    if change is not None:
        change(columns)
    path = written(tmp_path / f"events.{suffix}", events, columns)
    if "order" in fault:
        with pytest.raises(IntegrityError, match=fault):
            read_events(path, events, number)
        return
    slots = fold(events, read_events(path, events, number), 4)
    assert all(np.array_equal(slots[name], units[name]) for name in slots) is not bool(fault)
    with pytest.raises(IntegrityError, match="other columns, or another number of events"):
        read_events(path, events, number + 1)
