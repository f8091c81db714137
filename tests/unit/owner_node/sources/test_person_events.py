"""Events in slots of persons' records: folded as the slow way does, and settings that are refused."""

import random
from collections import defaultdict
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import ConfigurationError, DataError
from common.model.schema import Schema
from owner_node import config
from owner_node.loading import load, schema_of
from owner_node.loading.advice import left_out_lines
from tests.unit.owner_node.sources.test_person_table import HEAD

AT_MOST = 3
EVENTS = """
identifier = "person"
[dataset.person]
by = "person"
order = "day"
[dataset.person.columns]
female = { rule = "any", where = { sex = "f" } }
[dataset.person.events]
at_most = 3
columns = ["ward", "cost"]
gap = "days"
[dataset.attributes.female]
type = "boolean"
[dataset.attributes.ward]
type = "category"
categories = ["A", "B"]
missing = "category"
[dataset.attributes.cost]
type = "number"
min = 0
max = 50
decimals = 1
missing = "drop"
[dataset.attributes.days]
type = "integer"
min = 0
max = 100
"""
Row = tuple[str, date | None, str | None, float | None]


def rows(n_persons: int = 80, seed: int = 1) -> list[Row]:
    """Events in no order: several a day, some without a day, ward or cost."""
    draw = random.Random(seed)
    made: list[Row] = [
        (
            f"p{person:02}",
            None if draw.random() < 0.1 else date(2020, 1, 1) + timedelta(days=draw.randrange(0, 400, 50)),
            draw.choice(["A", "B", None]),
            None if draw.random() < 0.1 else draw.randrange(0, 600) / 10,
        )
        for person in range(n_persons)
        for _ in range(draw.randrange(1, 8))
    ]
    draw.shuffle(made)
    return made


def declared(folder: Path, table: list[Row], change: tuple[str, str] = ("", ""), kind: str = "csv") -> Any:
    """The data set of some events, with a change of its settings."""
    names = ["person", "day", "ward", "cost", "sex"]
    whole = [(*row, "f" if row[0].endswith("1") else "m") for row in table]
    source = folder / f"events.{kind}"
    if kind == "parquet":
        columns = zip(*whole, strict=True)
        pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), source)
    else:
        lines = (",".join("" if each is None else str(each) for each in row) for row in whole)
        source.write_text("\n".join([",".join(names), *lines]) + "\n")
    text = EVENTS.replace(*change) if change[0] else EVENTS
    assert change[0] in EVENTS
    path = folder / "owner.toml"
    path.write_text(f'{HEAD}source = "{source}"\n{text}')
    return config.load(path).dataset("events")


def by_hand(table: list[Row]) -> tuple[dict[str, list[int]], dict[str, int]]:
    """The slots of each person in units, made person by person."""
    events, persons = defaultdict(list), sorted({row[0] for row in table})
    for person, day, ward, cost in table:
        if day is not None and cost is not None:
            events[person].append((day, ward or "(missing)", cost))
    columns: dict[str, list[int]] = defaultdict(list)
    beyond = shortened = 0
    for person in persons:
        ordered = sorted(events[person])
        digests = {sha256(f"{at}|{person}".encode()).digest(): at for at in range(len(ordered))}
        kept = [ordered[at] for at in sorted(digests[each] for each in sorted(digests)[:AT_MOST])]
        beyond += len(ordered) - len(kept)
        shortened += len(ordered) > AT_MOST
        columns["events"].append(len(kept))
        for slot in range(AT_MOST):
            there = slot < len(kept)
            label = kept[slot][1] if there else "(absent)"
            columns[f"ward_{slot + 1}"].append(["A", "B", "(missing)", "(absent)"].index(label))
            cost = min(round(kept[slot][2] * 10), 500) if there else 501
            columns[f"cost_{slot + 1}"].append(cost)
            if slot:
                gap = min((kept[slot][0] - kept[slot - 1][0]).days, 100) if there else 101
                columns[f"days_{slot + 1}"].append(gap)
    return columns, {"beyond": beyond, "shortened": shortened}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_slots_agree_with_the_slow_way(tmp_path, kind):
    """Each person keeps its events in order, at most three of them, and the others are counted."""
    table = rows()
    loaded = load(declared(tmp_path, table, kind=kind))
    columns, left_out = by_hand(table)
    assert {name: loaded.columns[name].tolist() for name in columns} == columns
    counts = loaded.counts.persons
    assert counts is not None
    assert {"beyond": counts.beyond, "shortened": counts.shortened} == left_out
    assert loaded.counts.left_out["events_beyond"] == counts.beyond
    said = "\n".join(left_out_lines(loaded.counts.left_out))
    assert f"{counts.beyond} events at random, of persons with more than the table has" in said
    assert f"{counts.unordered} event" in said
    assert left_out["shortened"] > 10
    assert counts.unordered == sum(day is None for _, day, _, _ in table)
    assert counts.incomplete == sum(day is not None and cost is None for _, day, _, cost in table)


def test_another_order_of_events_and_other_persons_change_no_slot(tmp_path):
    """A record is a function of its person's events alone, as the promise needs."""
    table = rows()
    whole = load(declared(tmp_path, table))
    fewer = load(declared(tmp_path, [row for row in reversed(table) if row[0] < "p40"]))
    persons = len(fewer.columns["events"])
    for name, values in fewer.columns.items():
        assert values.tolist() == whole.columns[name][:persons].tolist()
    assert load(declared(tmp_path, list(reversed(table)))).digest == whole.digest


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_event_can_lack_a_number(tmp_path, kind):
    """A missing number that is kept is an event as others are, and a date in the same way."""
    change = ('missing = "drop"', 'missing = "category"')
    table: list[Row] = [
        ("p1", date(2020, 1, 3), "A", None),
        ("p1", date(2020, 1, 1), "B", 2.0),
        ("p1", date(2020, 1, 1), "B", None),
        ("p2", date(2020, 1, 1), "A", None),
    ]
    dataset = declared(tmp_path, table, change, kind=kind)
    loaded = load(dataset)
    assert loaded.columns["events"].tolist() == [3, 1]
    costs = [loaded.columns[f"cost_{slot}"].tolist() for slot in (1, 2, 3)]
    assert costs == [[20, 501], [501, 501], [501, 501]]
    assert loaded.columns["days_2"].tolist() == [0, 101]
    schema = schema_of(dataset, None, 80)
    assert schema.by_name["cost_1"].is_optional
    assert not schema.by_name["days_2"].is_optional
    assert Schema.from_bytes(schema.to_bytes()) == schema


def test_a_person_without_events_is_a_line_without_a_day(tmp_path):
    """Persons with no event are in the release, with no value in any slot."""
    loaded = load(declared(tmp_path, [("p1", None, None, None), ("p2", date(2020, 1, 1), "A", 1.0)]))
    assert loaded.columns["events"].tolist() == [0, 1]
    assert loaded.columns["ward_1"].tolist() == [3, 0]
    assert loaded.columns["cost_1"].tolist() == [501, 10]


def test_a_schema_has_the_slots_of_every_column(tmp_path):
    """An owner offers the number of events and every slot, and the time between events from the second on."""
    schema = schema_of(declared(tmp_path, rows()), None, 80)
    columns = ["ward_1", "ward_2", "ward_3", "cost_1", "cost_2", "cost_3", "days_2", "days_3"]
    assert list(schema.names) == ["female", "events", *columns]
    assert [schema.by_name[name].slot for name in ("female", "events", "days_3")] == [-1, 0, 3]
    assert schema.by_name["ward_2"].labels == ("A", "B", "(missing)", "(absent)")


def test_numbers_order_events_and_their_distance_is_a_number(tmp_path):
    """With an order of numbers the gap is their difference; the other values decide between equal ones."""
    (tmp_path / "events.csv").write_text("person,no,ward\n1,2.5,B\n1,1,B\n1,2.5,A\n")
    text = """
identifier = "person"
[dataset.person]
by = "person"
order = "no"
order_type = "number"
[dataset.person.columns]
all = { rule = "count" }
[dataset.person.events]
at_most = 3
columns = ["ward"]
gap = "since"
number = "kept"
[dataset.attributes.all]
type = "integer"
min = 0
max = 9
[dataset.attributes.ward]
type = "category"
categories = ["A", "B"]
[dataset.attributes.since]
type = "number"
min = 0
max = 9
decimals = 1
"""
    path = tmp_path / "owner.toml"
    path.write_text(f'{HEAD}source = "events.csv"\n{text}')
    loaded = load(config.load(path).dataset("events"))
    assert {name: values.tolist() for name, values in loaded.columns.items()} == {
        "all": [3], "kept": [3], "ward_1": [1], "ward_2": [0], "ward_3": [1], "since_2": [15], "since_3": [0]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("at_most = 3", "at_most = 0"), "person.events.at_most = 0: "),
        (("at_most = 3", "at_most = 21"), "person.events.at_most = 21: "),
        (("at_most = 3", "at_most = 1"), "person.events.gap: needs at_most = 2 or more"),
        (('columns = ["ward", "cost"]', "columns = []"), "person.events.columns"),
        (('"ward", "cost"', '"ward", "days"'), "have different names"),
        (('"ward", "cost"', '"ward", "unit"'), "person.events.columns = unit: declare its values"),
        (('"ward", "cost"', '"ward", "event"'), "= event: the name is taken"),
        (("[dataset.person.columns]", '[dataset.person.columns]\nward_2 = { rule = "count" }'),
         "person.events.ward_2: the name is taken by the events"),
        (("[dataset.person.columns]", '[dataset.person.columns]\nward = { rule = "last", of = "ward" }'),
         "person.columns.ward: is a column of person.events, too"),
        (('order = "day"\n', ""), "person.order: missing; first, last and person.events need"),
        (("max = 100", 'max = 100\nmissing = "category"'), "does not go with the time between events"),
        (('["A", "B"]', '["A", "(absent)"]'), "is the label of events that there are not"),
        (('type = "integer"\nmin = 0\nmax = 100', 'type = "date"\nmin = 2020-01-01\nmax = 2021-01-01'),
         "the time between events is an integer or number"),
        (("at_most = 3\n", ""), "person.events.at_most"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_named(tmp_path, change, problem):
    """The configuration says what is wrong with the table of events, before any event is read."""
    with pytest.raises(ConfigurationError) as caught:
        declared(tmp_path, rows(2), change)
    assert problem in "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("row", "change", "problem"),
    [
        (("", date(2020, 1, 1), "A", 1.0), ("", ""), "column 'person': missing identifier (1 record)"),
        (("p1", date(2020, 1, 1), "A", None), ('missing = "drop"', 'missing = "error"'),
         "column 'cost': missing value of an event (2 records)"),
        (("p1", date(2020, 1, 1), "Z", 1.0), ("", ""), "column 'ward_"),
        (("p1", date(2020, 1, 1), "(absent)", 1.0), ("", ""), "'ward': '(absent)', the label of no event"),
    ],
)  # fmt: skip
def test_events_that_cannot_be_used_are_named(tmp_path, row, change, problem):
    """Events without a person, without a value, or with an unknown one are errors of their column."""
    with pytest.raises(DataError) as caught:
        load(declared(tmp_path, [*rows(3), row], change))
    assert problem in str(caught.value)


def test_a_column_of_events_that_is_not_there_is_named(tmp_path):
    """A column of the table of events that the source lacks is an error of that column."""
    dataset = declared(tmp_path, rows(3))
    Path(dataset.source).write_text("person,day,cost,sex\np1,2020-01-01,1,f\n")
    with pytest.raises(DataError, match="column 'ward': not in the source"):
        load(dataset)
