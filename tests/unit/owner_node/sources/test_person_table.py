"""One record a person from events: every rule, on every source, and what is wrong with events."""

import json
import random
import re
import sqlite3
from collections import defaultdict
from dataclasses import replace
from datetime import date, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from common.cli import console
from common.errors import ConfigurationError, DataError
from common.workspace import Workspace
from owner_node import config
from owner_node.cli import application
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import pin
from owner_node.loading import column_names, count_records, load
from owner_node.sources import spark_session
from owner_node.sources.spark_session import SparkSettings
from tests.spark_cluster import QUIET, SMALL

HEAD = """
[owner]
id = "north"
trust_domain = "x.example"
state_dir = "state"
[[aggregator]]
name = "central"
address = "localhost:1"
[tls]
ca = "a.pem"
cert = "b.pem"
key = "c.key"
[[dataset]]
name = "events"
total_epsilon = 2
"""
PERSON = """
[dataset.person]
by = "patient"
order = "day"
[dataset.person.columns]
visits = { rule = "count" }
priced = { rule = "count", of = "cost" }
urgent = { rule = "any", where = { kind = ["er", "9203"] } }
dx = { rule = "first", of = "dx" }
last_dx = { rule = "last", of = "dx" }
total = { rule = "sum", of = "cost" }
stays = { rule = "sum", of = "cost", where = { kind = "inpatient" } }
mean = { rule = "mean", of = "cost" }
most = { rule = "maximum", of = "cost" }
least = { rule = "minimum", of = "cost" }
begin = { rule = "earliest", of = "day" }
end = { rule = "latest", of = "day" }
followed = { rule = "time", from = "begin", to = "end" }
years = { rule = "time", from = "begin", to = "end", unit = "years" }
"""
MONEY = 'type = "number"\nmin = -100000\nmax = 100000\ndecimals = 2\nmissing = "category"\n'
ATTRIBUTES = "".join(
    f"[dataset.attributes.{name}]\n{text}"
    for name, text in {
        "visits": 'type = "integer"\nmin = 0\nmax = 100\n',
        "priced": 'type = "integer"\nmin = 0\nmax = 100\n',
        "urgent": 'type = "boolean"\n',
        "dx": 'type = "category"\ncategories = ["A", "B", "C"]\n',
        "last_dx": 'type = "category"\ncategories = ["A", "B", "C"]\n',
        **dict.fromkeys(("total", "stays", "mean", "most", "least"), MONEY.replace("100000", "10000")),
        "begin": 'type = "date"\nmin = 2000-01-01\nmax = 2030-12-31\n',
        "followed": 'type = "integer"\nmin = 0\nmax = 4000\n',
        "years": 'type = "integer"\nmin = 0\nmax = 20\n',
    }.items()
)
CODES = {"A": 0, "B": 1, "C": 2}
DAY = date(2020, 1, 1)


def events(n_persons: int = 60, seed: int = 1) -> list[tuple[str, date, str, Decimal | None, str]]:
    """Events of persons, in no order: several a day, some without a cost."""
    draw = random.Random(seed)
    made = [
        (
            f"p{person:02}",
            DAY + timedelta(days=draw.randrange(0, 800, 40)),
            draw.choice(["er", "inpatient", "home"]),
            None if draw.random() < 0.2 else Decimal(draw.randrange(-500, 100_000)).scaleb(-3),
            draw.choice("ABC"),
        )
        for person in range(n_persons)
        for _ in range(draw.randrange(1, 9))
    ]
    draw.shuffle(made)
    return made


def csv(rows) -> str:
    """The events as a CSV file."""
    lines = (",".join("" if value is None else str(value) for value in row) for row in rows)
    return "\n".join(["patient,day,kind,cost,dx", *lines]) + "\n"


def declared(folder: Path, source: str, text: str = PERSON + ATTRIBUTES, *, keys: str = ""):
    """The data set of an owner.toml over a source."""
    identifier = "" if "identifier" in keys else 'identifier = "patient"\n'
    path = folder / "owner.toml"
    path.write_text(f'{HEAD}source = "{source}"\n{identifier}{keys}{text}')
    return config.load(path).dataset("events")


def by_hand(rows) -> Any:
    """The person table of the slow way, in units."""

    def cents(value: Decimal) -> int:
        return int((value * 100).quantize(Decimal(1), ROUND_HALF_EVEN))

    persons = defaultdict(list)
    for row in rows:
        persons[row[0]].append(row)
    made: Any = defaultdict(list)
    for _, own in sorted(persons.items()):
        costs = [row[3] for row in own if row[3] is not None]
        days = sorted(row[1] for row in own)
        stays = [row for row in own if row[2] == "inpatient"]
        stay_costs = [row[3] for row in stays if row[3] is not None]
        begin, end = days[0], days[-1]
        made["visits"].append(len(own))
        made["priced"].append(len(costs))
        made["urgent"].append(int(any(row[2] == "er" for row in own)))
        for name, value in (
            ("total", sum(costs) if costs else None),
            ("stays", sum(stay_costs) if stay_costs or not stays else None),
            ("mean", Decimal(sum(costs)) / len(costs) if costs else None),
            ("most", max(costs, default=None)),
            ("least", min(costs, default=None)),
        ):
            made[name].append(1_000_001 if value is None else cents(Decimal(value)))
        made["begin"].append((begin - date(1970, 1, 1)).days)
        made["followed"].append((end - begin).days)
        made["years"].append(end.year - begin.year - ((end.month, end.day) < (begin.month, begin.day)))
        made["first_of_day"].append({row[4] for row in own if row[1] == begin})
        made["last_of_day"].append({row[4] for row in own if row[1] == end})
    return made


def test_every_rule_agrees_with_the_slow_way(tmp_path):
    """Grouping is exact: sums and means of decimals as by hand, and first and last of the right day."""
    rows = events()
    (tmp_path / "events.csv").write_text(csv(rows))
    dataset = declared(tmp_path, "events.csv")
    loaded, expected = load(dataset), by_hand(rows)
    columns = {name: values.tolist() for name, values in loaded.columns.items()}
    labels = {name: ["ABC"[code] for code in columns.pop(name)] for name in ("dx", "last_dx")}
    assert all(
        label in among for label, among in zip(labels["dx"], expected.pop("first_of_day"), strict=True)
    )
    last = zip(labels["last_dx"], expected.pop("last_of_day"), strict=True)
    assert all(label in among for label, among in last)
    assert columns == expected
    assert loaded.identifiers[0].to_pylist() == sorted({row[0] for row in rows})
    counts = loaded.counts.persons
    assert counts is not None
    assert (counts.events, counts.persons) == (len(rows), 60)
    assert count_records(dataset) == 60
    assert column_names(dataset)[:3] == ("patient", "visits", "priced")


def _written(folder: Path, kind: str, rows) -> str:
    """Write events as a source of a kind; return its address."""
    table = pa.table(
        {
            name: pa.array(column, pa.decimal128(20, 3)) if name == "cost" else pa.array(column)
            for name, column in zip(
                ("patient", "day", "kind", "cost", "dx"), map(list, zip(*rows, strict=True)), strict=True
            )
        }
    )
    if kind == "csv":
        (folder / "events.csv").write_text(csv(rows))
        return "events.csv"
    if kind == "parquet":
        pq.write_table(table, folder / "events.parquet")
        return "events.parquet"
    if kind == "floats":
        place = table.column_names.index("cost")
        floats = table["cost"].cast(pa.float64())
        days = pc.add(table["day"].cast(pa.timestamp("s")), timedelta(hours=9))
        table = table.set_column(place, "cost", floats).set_column(1, "day", days)
        pq.write_table(table, folder / "floats.parquet")
        return "floats.parquet"
    if kind == "spark":
        (folder / "spark").mkdir()
        half = len(rows) // 2
        pq.write_table(table.slice(half), folder / "spark" / "part-0.parquet")
        pq.write_table(table.slice(0, half), folder / "spark" / "part-1.parquet")
        return f"spark:parquet:{folder / 'spark'}"
    with sqlite3.connect(folder / "events.db") as made:
        made.execute("create table e (patient text, day text, kind text, cost numeric, dx text)")
        values = [(p, str(d), k, None if c is None else float(c), x) for p, d, k, c, x in rows]
        made.executemany("insert into e values (?, ?, ?, ?, ?)", values)
    return "sqlite:///events.db"


@pytest.mark.parametrize("kind", ["parquet", "floats", "sqlite", pytest.param("spark", marks=QUIET)])
def test_every_source_and_engine_gives_the_same_bits(tmp_path, request, kind):
    """Digests agree, whatever holds the events, in which order, and on which engine they are pinned."""
    rows = events(seed=2)
    first = load(declared(tmp_path, _written(tmp_path, "csv", rows)))
    address = _written(tmp_path, kind, rows[::-1])
    keys = 'query = "select * from e"\n' if kind == "sqlite" else ""
    dataset = declared(tmp_path, address, keys=keys)
    workspace = Workspace(256 * 10**6, tmp_path / "scratch", 2)
    if kind == "spark":
        dataset = replace(dataset, spark=SparkSettings("local[2]", workspace, SMALL))
        request.addfinalizer(spark_session.stop)
    assert load(dataset).digest == first.digest
    assert pin(dataset, None, EngineKind.DISK, workspace).digest == first.digest


def test_persons_are_grouped_by_the_normal_form_of_their_identifiers(tmp_path):
    """A person whose identifier is written in two ways has one record, and codes are those of events."""
    rows = "patient,cost\np1,1\n P1 ,2\np2,999\np2,4\n"
    (tmp_path / "events.csv").write_text(rows)
    text = """
[dataset.person]
by = "patient"
columns = { total = { rule = "sum", of = "cost" }, n = { rule = "count" } }
[dataset.attributes.total]
type = "integer"
min = 0
max = 5000
na_values = [999]
[dataset.attributes.n]
type = "integer"
min = 0
max = 9
"""
    dataset = declared(tmp_path, "events.csv", text, keys='normalise = ["trim", "casefold"]\n')
    loaded = load(dataset)
    assert loaded.columns["total"].tolist() == [3, 4]
    assert loaded.columns["n"].tolist() == [2, 2]


def test_numbers_order_events_and_times_before_birth_are_clamped(tmp_path):
    """A declared number decides first and last, and a negative time counts as clamped."""
    (tmp_path / "events.csv").write_text(
        "patient,no,day,born,dx\n1,10,2019-01-01,2020-01-01,B\n1,9,2019-06-01,2020-01-01,A\n"
    )
    text = """
[dataset.person]
by = "patient"
order = "no"
order_type = "number"
[dataset.person.columns]
dx = { rule = "first", of = "dx" }
born = { rule = "first", of = "born" }
seen = { rule = "earliest", of = "day" }
age = { rule = "time", from = "born", to = "seen", unit = "years" }
[dataset.attributes.dx]
type = "category"
categories = ["A", "B"]
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""
    loaded = load(declared(tmp_path, "events.csv", text))
    assert (loaded.columns["dx"].tolist(), loaded.columns["age"].tolist()) == ([0], [0])
    assert loaded.counts.clamped == {"age": 1}
    assert loaded.counts.persons is not None
    assert loaded.counts.persons.means == {"age": (-1.0, 0.0)}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("visits = {", "visit = {"), "attributes.visits: no rule of person.columns makes it"),
        (('order = "day"\n', ""), "person.order: missing; first, last and person.events need"),
        (('by = "patient"', 'by = "person"'), "identifier: patient is not in the person table"),
        (('rule = "mean"', 'rule = "median"'), "expected one of count, any, first"),
        (('rule = "mean", of = "cost"', 'rule = "mean"'), "person.columns.mean.of: missing; mean reads"),
        (('from = "begin"', 'from = "begun"'), "person.columns.followed.from = begun: is not in"),
        (('from = "begin"', 'from = "dx"'), "person.columns.followed.from = dx: is not a date"),
        (('rule = "any", where = { kind = ["er", "9203"] }', 'rule = "any"'), "where: missing; any asks"),
        (('dx = { rule = "first"', 'dx = { rule = "sum"'), "sum makes integer or number, not category"),
        (("[dataset.person.columns]\n", '[dataset.person.columns]\nspare = { rule = "count" }\n'),
         "person.columns.spare: nothing uses it"),
        (("max = 100\n", 'max = 100\noutside = "error"\n'), "values of a person table are clamped"),
    ],
)  # fmt: skip
def test_rules_that_do_not_fit_are_named(tmp_path, change, problem):
    """The configuration says what is wrong with a rule, before any event is read."""
    with pytest.raises(ConfigurationError) as caught:
        declared(tmp_path, "events.csv", (PERSON + ATTRIBUTES).replace(change[0], change[1], 1))
    assert problem in "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("lines", "keys", "problem"),
    [
        (",2020-01-01,er,1,A\np,2020-01-01,er,1,A\n", "", "column 'patient': missing identifier (1 record)"),
        ("p,2020-01-01,er,much,A\n", "", "column 'cost (total)': not a number (1 record): 'much'"),
        ("p,January,er,1,A\n", "", "column 'day': not a date (1 record): 'January'"),
        ("p,2020-01-01,er,1,Z\n", "", "column 'dx': unknown category"),
        ("", "", "there are no records"),
        ("p,,er,1,A\n", "", "column 'dx': missing value (1 record)"),
    ],
)
def test_events_that_cannot_be_used_are_counted(tmp_path, capsys, lines, keys, problem):
    """`check` says what is wrong with events, and where."""
    (tmp_path / "events.csv").write_text(f"patient,day,kind,cost,dx\n{lines}")
    declared(tmp_path, "events.csv", keys=keys)
    status, _, err = _check(tmp_path, capsys)
    assert status == DataError.exit_code
    assert problem in err


def _check(folder: Path, capsys, *arguments: str) -> tuple[int, str, str]:
    command = ["check", "--config", str(folder / "owner.toml"), *arguments]
    status = console.run(application(), "owner-node", command)
    return status, *capsys.readouterr()


def test_a_column_that_is_not_there_is_named(tmp_path):
    """A rule about a column that the source lacks is an error of that column."""
    (tmp_path / "events.csv").write_text("patient,day,kind,dx\np,2020-01-01,er,A\n")
    with pytest.raises(DataError, match="column 'cost': not in the source"):
        load(declared(tmp_path, "events.csv"))


def test_repeated_identifiers_without_rules_lead_to_them(tmp_path):
    """The error of repeated identifiers names the person table."""
    (tmp_path / "events.csv").write_text("patient,visits\np,1\np,2\n")
    text = '[dataset.attributes.visits]\ntype = "integer"\nmin = 0\nmax = 9\n'
    with pytest.raises(DataError) as caught:
        load(declared(tmp_path, "events.csv", text))
    assert "[dataset.person] makes one record of each person" in caught.value.hint


def test_check_shows_events_and_what_clamping_changes(tmp_path, capsys):
    """The owner sees how many events became records, and which means clamping moves."""
    (tmp_path / "events.csv").write_text(
        "patient,day,kind,cost,dx\np,2020-01-01,er,20000,A\np,2020-01-02,er,1,A\n,2020-01-02,er,1,A\n"
    )
    declared(tmp_path, "events.csv", keys='missing = "drop"\n')
    status, out, _ = _check(tmp_path, capsys)
    assert status == 0
    assert "one record a person: 2 events of 1 person, at most 2 of one" in out
    assert "left out: 1 event without an identifier" in out
    assert "clamping changes the mean of 'total' from 20001 to 10000" in out
    shown = json.loads(_check(tmp_path, capsys, "--json")[1])["datasets"][0]
    assert shown["events"]["most"] == 2


@pytest.mark.parametrize("rules", [True, False])
def test_persons_who_opted_out_are_in_no_record(tmp_path, capsys, rules):
    """Their events are as if they were not there; the list alone changes the digest; check counts them."""
    rows = events(20, seed=3)
    text = PERSON + ATTRIBUTES if rules else ATTRIBUTES.split("[dataset.attributes.")[4]
    if not rules:
        text = f"[dataset.attributes.{text}"
        rows = list({row[0]: row for row in rows}.values())
    (tmp_path / "events.csv").write_text(csv(rows))
    (tmp_path / "out.csv").write_text("patient\np03\n p07\nnobody\n")
    keys = 'opt_out = "out.csv"\nnormalise = ["trim"]\n'
    left = load(declared(tmp_path, "events.csv", text, keys=keys))
    status, out, _ = _check(tmp_path, capsys)
    assert status == 0
    assert "opted out: 2 of 3 listed persons, in no record" in out
    assert not re.search("p03|p07|nobody", out)
    (tmp_path / "events.csv").write_text(csv([row for row in rows if row[0] not in ("p03", "p07")]))
    gone = load(declared(tmp_path, "events.csv", text, keys='normalise = ["trim"]\n'))
    assert {name: list(each) for name, each in left.columns.items()} == {
        name: list(each) for name, each in gone.columns.items()
    }
    assert left.identifiers == gone.identifiers
    assert left.digest != gone.digest
    again = load(declared(tmp_path, "events.csv", text, keys=keys))
    assert again.digest == left.digest


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (None, "out.csv\n  there is no such file"),
        ("id\np1\n", "column 'patient': not in the source"),
        ("patient,why\n,x\n", "column 'patient': missing identifier (1 record)"),
    ],
)
def test_a_list_of_persons_that_cannot_be_used_stops_everything(tmp_path, listed, problem):
    """Nobody who opted out stays in since a file is wrong."""
    (tmp_path / "events.csv").write_text(csv(events(3)))
    if listed is not None:
        (tmp_path / "out.csv").write_text(listed)
    with pytest.raises(DataError) as caught:
        load(declared(tmp_path, "events.csv", keys='opt_out = "out.csv"\n'))
    assert problem in caught.value.message


def test_persons_listed_as_decimals_do_not_stay_in(tmp_path):
    """A list that a spreadsheet wrote otherwise than the source stops a release; the same text is found."""
    age = '[dataset.attributes.age]\ntype = "integer"\nmin = 0\nmax = 99\n'
    (tmp_path / "events.csv").write_text("patient,age\n17,3\n18,4\n")
    (tmp_path / "out.csv").write_text("patient\n17.0\n")
    listed = declared(tmp_path, "events.csv", age, keys='opt_out = "out.csv"\n')
    with pytest.raises(DataError) as caught:
        load(listed)
    assert "none of which is in the source" in caught.value.message
    # Digits alone are 170, which shows no numeral.
    digits = declared(tmp_path, "events.csv", age, keys='opt_out = "out.csv"\nnormalise = ["digits-only"]\n')
    with pytest.raises(DataError, match="none of which is in the source"):
        load(digits)
    (tmp_path / "events.csv").write_text("patient,age\n17.0,3\n18.0,4\n")
    assert load(listed).n_records == 1
