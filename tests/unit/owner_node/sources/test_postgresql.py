"""A query on a real PostgreSQL server: types, order, snapshot, limits, and what is never told."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from common.errors import DataError
from common.model.schema import Attribute, AttributeType
from common.progress import Progress
from deploy.local_setup import HOST
from owner_node.config import DatasetConfig
from owner_node.loading import count_records, load
from owner_node.sources.findings import Findings
from owner_node.sources.options import one_select
from owner_node.sources.sql import BATCH_RECORDS
from tests.postgres_server import ADMIN, PASSWORD, PostgresServer
from tests.unit.owner_node.sources.conftest import AGE, SEEN, SEX, SMOKER
from tests.unit.owner_node.sources.people_server import asking, failure, people_server, values

pytestmark = pytest.mark.needs("postgres")

NUMBER = Attribute("x", AttributeType.NUMBER, -(10**18), 10**18, decimals=2)
FINE = Attribute("x", AttributeType.NUMBER, -(10**18), 10**18, decimals=17)
WHOLE = Attribute("x", AttributeType.INTEGER, -(2**62), 2**62)
DAY = replace(SEEN, name="x", lower=-10_000)
ALIKE = "a declared category only in case or blanks"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with two tables."""
    with people_server() as running:
        yield running


@pytest.fixture
def ask(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a maker of data sets: `ask(query, attribute, ..., **settings)`."""
    return asking(server, monkeypatch)


def problems(settings: DatasetConfig) -> list[tuple]:
    """Return what is wrong with the data."""
    return [
        (each["column"], each["problem"], each["count"]) for each in failure(settings).details["problems"]
    ]


@pytest.mark.parametrize(
    ("written", "attribute", "units"),
    [
        ("12345678901234.56::numeric", NUMBER, 1234567890123456),
        ("0.30000000000000004::numeric", FINE, 30000000000000004),
        ("0.1::double precision + 0.2::double precision", FINE, 30000000000000004),
        ("0.1::double precision", FINE, 10000000000000000),
        ("0.1::real", FINE, 10000000000000000),
        ("1e3::double precision", NUMBER, 100_000),
        ("1e-3::numeric", FINE, 10**14),
        ("4611686018427387903::bigint", WHOLE, 2**62 - 1),
        ("7::smallint", WHOLE, 7),
        ("7.00::numeric(5,2)", WHOLE, 7),
        ("'42'::text", WHOLE, 42),
        ("date '1969-12-31'", DAY, -1),
        ("timestamp '1970-01-02 00:00:00'", DAY, 1),
        ("(timestamp '1970-01-02 00:00:00' at time zone current_setting('TimeZone'))", DAY, 1),
        ("'1970-01-03'::varchar", DAY, 2),
        ("true", replace(SMOKER, name="x"), 1),
        ("'f'", replace(SMOKER, name="x"), 0),
        ("'male'::varchar(9)", replace(SEX, name="x"), 1),
        ("(enum_range(null::sexes))[1]", replace(SEX, name="x"), 0),
    ],
)
def test_types_are_read_exactly(server, ask, written, attribute, units):
    """Every type means what it shows: decimals are not made binary, floats are their shortest decimal."""
    server.run("do $$ begin create type sexes as enum ('female', 'male'); exception when others then end $$")
    assert values(ask(f"select {written} as x", attribute)) == [units]


def test_settings_of_the_database_change_no_value(server, ask):
    """A date style, a time zone or a digit limit that somebody set for the role are not obeyed."""
    for setting in ("datestyle = 'German'", "extra_float_digits = 0", "timezone = 'America/Lima'"):
        server.run(f"alter role reader set {setting}")
    try:
        assert values(ask("select date '2024-02-29' as x", DAY)) == [19782]
        assert values(ask("select 0.1::float8 + 0.2::float8 as x", FINE)) == [30000000000000004]
        assert values(ask("select timestamptz '2024-02-29 05:00:00+00' as x", DAY)) == [19782]
    finally:
        server.run("alter role reader reset all")


@pytest.mark.parametrize(
    ("written", "attribute", "problem"),
    [
        ("'NaN'::numeric", NUMBER, "NaN or infinite"),
        ("'-infinity'::float8", NUMBER, "NaN or infinite"),
        *[
            (f"{value}::{kind}", DAY, "infinite, or not in the years 1 to 9999")
            for kind in ("date", "timestamp", "timestamptz")
            for value in ("'infinity'", "'-infinity'", "'0044-03-15 BC'", "'10000-01-01'", "'12345-06-07'")
        ],
        ("timestamp '2020-01-01 10:00'", DAY, "a time of day where a date is declared"),
        ("1e40::numeric", WHOLE, "outside the declared domain"),
        ("1.5::numeric", WHOLE, "not an integer"),
        (
            "'male'::char(9)",
            replace(SEX, name="x"),
            "differs from a declared category only in case or blanks",
        ),
        ("'{}'::json", NUMBER, "values of type json cannot be read"),
        ("'{}'::jsonb", NUMBER, "values of type jsonb cannot be read"),
        ("array[1]", NUMBER, "values of type int4[] cannot be read"),
        ("int4range(1, 2)", NUMBER, "values of type int4range cannot be read"),
        ("'\\xff'::bytea", replace(SEX, name="x"), "not in the encoding utf-8"),
        ("interval '1 day'", NUMBER, "values of type interval cannot be read"),
        ("interval '999999 years'", NUMBER, "values of type interval cannot be read"),
        ("time '24:00'", NUMBER, "values of type time cannot be read"),
        ("timetz '24:00+15'", NUMBER, "values of type timetz cannot be read"),
    ],
)
def test_values_that_cannot_be_used_are_counted(ask, written, attribute, problem):
    """What no attribute can be is a problem of its column, as it is in a file."""
    assert problems(ask(f"select {written} as x from generate_series(1, 3)", attribute)) == [
        ("x", problem, 3)
    ]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_one_infinite_date_spoils_no_other(ask, kind):
    """Only the values that no date can be are counted, and a release without that column is not disturbed."""
    query = f"select 1 as age, x::{kind} from (values ('2020-01-01'), ('infinity'), ('0044-03-15 BC')) v (x)"
    expected = [("x", "infinite, or not in the years 1 to 9999", 2)]
    assert problems(ask(query, DAY)) == expected
    assert load(ask(query, AGE, DAY), ["age"], others=True).n_records == 3
    usual = f"select x from ({query}) v where isfinite(x) and x > '0001-01-01'"
    assert values(ask(usual, DAY)) == [18262]


def test_a_database_that_checks_no_bytes(server, ask):
    """SQL_ASCII takes any bytes as text: the error says so, and the encoding can be part of the URL."""
    server.run("create database unchecked encoding 'SQL_ASCII' template template0 locale 'C'")
    with psycopg.connect(
        host=HOST,
        port=server.port,
        user=ADMIN,
        password=PASSWORD,
        dbname="unchecked",
        client_encoding="latin1",
    ) as connection:
        connection.execute("create table people as select 'männlich' as sex")
    settings = ask("select sex from people", replace(SEX, categories=("männlich", "x")))
    url = settings.source.removesuffix("postgres") + "unchecked"
    error = failure(replace(settings, source=url))
    assert "some of the texts are not in UTF-8" in error.message
    assert "client_encoding=latin1" in error.hint
    assert values(replace(settings, source=f"{url}?client_encoding=latin1")) == [0]


def test_identifiers_may_be_of_any_plain_type(ask):
    """UUIDs and numbers identify as their text does."""
    query = "select 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as id, 17::numeric as jd, 5 as age"
    loaded = load(ask(query, AGE, identifier=("id", "jd")))
    written = ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "17"]
    assert [column.to_pylist() for column in loaded.identifiers] == [[each] for each in written]


def test_columns_that_are_not_declared_are_not_read(ask):
    """The database is not even asked to compute them."""
    query = "select age, 1 / (age - age) as broken, age as twice, age as twice from people"
    assert load(ask(query, AGE)).n_records == 40_000
    assert problems(ask(query, AGE, replace(AGE, name="twice"))) == [("twice", "occurs more than once", 2)]


def test_records_come_in_batches(ask):
    """Memory holds some records at a time, and joining them loses none."""
    findings = Findings()
    source = ask("select * from people", AGE).origin.open(findings, Progress())
    assert source is not None
    sizes = [len(age) for (age,) in source.batches(["age"], findings)]
    source.close()
    assert sizes == [BATCH_RECORDS, BATCH_RECORDS, 40_000 - 2 * BATCH_RECORDS]


def test_the_order_of_records_is_not_part_of_the_data(server, ask):
    """An update that only moves records within the table is no change; a value that changes is one."""
    settings = ask("select * from people", AGE, identifier=("id",))
    without = ask("select * from people", AGE)
    before, pinned, pinned_without = load(settings), load(settings).digest, load(without).digest
    server.run("update people set secret = secret || 'x' where age < 45")
    after = load(settings)
    assert after.identifiers[0].to_pylist() != before.identifiers[0].to_pylist()
    assert (after.digest, load(without).digest) == (pinned, pinned_without)
    server.run("update people set age = 89 - age where id in ('p1', 'p2')")
    assert load(settings).digest != pinned
    assert load(without).digest != pinned_without
    server.run("update people set age = 89 - age where id in ('p1', 'p2')")
    assert load(settings).digest == pinned


def test_one_snapshot_for_everything(server, ask):
    """Records that arrive while a data set is read are not in it, whatever is asked of it afterwards."""
    server.run("create table arriving as select 1 as age")
    findings = Findings()
    source = ask("select * from arriving", AGE).origin.open(findings, Progress())
    assert source is not None
    server.run("insert into arriving values (2)")
    assert [age.to_pylist() for (age,) in source.batches(["age"], findings)] == [[1]]
    tally = source.tally(["age"], [], (), findings)
    assert tally is not None
    assert tally.n_records == 1
    source.close()
    assert load(ask("select * from arriving", AGE)).n_records == 2


@pytest.mark.parametrize(
    "query",
    [
        "select nextval('numbers') as age",
        "select erase() as age",
        "select age from people for update",
    ],
)
def test_a_query_changes_nothing(server, ask, query):
    """A transaction that only reads stops what a SELECT can still do."""
    server.run(
        "create or replace function erase() returns int language sql as 'delete from people returning 1' "
        "security definer"
    )
    error = failure(ask(query, AGE))
    assert "tries to change the database" in error.message
    assert load(ask("select age from people", AGE)).n_records == 40_000


@pytest.mark.parametrize(
    "query",
    [
        "delete from people returning age",
        "with gone as (delete from people returning age) select * from gone",
        "select 1 as age) as x; drop table people; --",
        "select 1 as age) as x; commit; drop table people; --",
    ],
)
def test_a_statement_that_is_no_query_does_not_run(ask, query):
    """What reading the configuration would have refused does no harm at the database either."""
    assert "does not accept the query" in failure(ask(query, AGE)).message
    assert load(ask("select age from people", AGE)).n_records == 40_000


@pytest.mark.parametrize("option", ["", "?autocommit=1", "?options=-c%20default_transaction_read_only%3Doff"])
def test_several_statements_do_not_run(ask, option):
    """One that the configuration takes for a text could end the transaction, and change what it likes."""
    query = r"select 1 as age, E'\'') x; commit; drop table people; select * from (select 1 as age, 'b' --'"
    assert one_select(query) == query
    asked = ask(query, AGE)
    assert "more than one statement" in failure(replace(asked, source=asked.source + option)).message
    assert load(ask("select age from people", AGE)).n_records == 40_000


def test_a_query_cannot_begin_to_write(ask):
    """A transaction that has read stays read-only, also if the query asks otherwise."""
    query = "select set_config('transaction_read_only', 'off', false)::text as sex"
    assert "25001" in failure(ask(query, SEX)).message


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select age from peopel", "UndefinedTable (42P01), at 'peopel'"),
        ("select age, 5%2, agee from people", "UndefinedColumn (42703), at 'agee'"),
        ("select age from people where secret = 'Zq7Qz", "SyntaxError (42601)"),
        ("select secret::int as age from people", "InvalidTextRepresentation (22P02)"),
        ("select 1 / (age - age) as age from people", "DivisionByZero (22012)"),
        ("select pg_read_file('/etc/passwd') as age", "does not let this user read"),
    ],
)
def test_what_a_database_does_not_take_is_explained_without_its_own_words(ask, query, told):
    """Kind and place of a fault are told; the database's message, which can quote a value, is not."""
    assert told in failure(ask(query, AGE)).message


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select age from peopel", "UndefinedTable (42P01), at 'peopel'"),
        ("select secret::int as age from people", "InvalidTextRepresentation (22P02)"),
    ],
)
def test_counting_explains_a_fault_as_loading_does(ask, query, told):
    """An owner hears at the invitation what is wrong with its query, if counting comes across it."""
    with pytest.raises(DataError) as caught:
        count_records(ask(query, AGE))
    assert told in caught.value.message
    assert "Zq7Qz" not in str(caught.value.to_document())


def test_colons_and_percent_signs_are_the_querys_own(ask):
    """Nothing in a query is taken for a parameter, and a comment at its end hides nothing of ours."""
    query = """
        select 5 % 3 as "50%s", 'a' as a, '12:30 :name %(x)s ?' as b, 1::int as c, '\\:x' as d -- :end )
    """
    assert values(ask(query, Attribute("50%s", AttributeType.INTEGER, 0, 9))) == [2]


def test_a_query_has_only_so_much_time(ask):
    """A query that blocks does not block a release for ever."""
    settings = ask("select age from people where pg_sleep(60) is null", AGE)
    error = failure(replace(settings, query_timeout=timedelta(seconds=1)))
    assert "the query was stopped after 1 s" in error.message
    assert "query_timeout" in error.hint


@pytest.mark.parametrize("place", ["role", "session"])
def test_a_shorter_time_out_of_the_database_stays(ask, server, place):
    """Who runs the database may give this owner node less time than it would take, and is named."""
    settings = ask("select age from people where pg_sleep(60) is null", AGE)
    with ExitStack() as restored:
        if place == "role":
            server.run("alter role reader set statement_timeout = '1500ms'")
            restored.callback(server.run, "alter role reader reset statement_timeout")
        else:
            joint = "&" if "?" in settings.source else "?"
            option = f"{joint}options=-c%20statement_timeout%3D1500"
            settings = replace(settings, source=settings.source + option)
        error = failure(settings)
        assert "stopped after 1.5 s, by the database's own statement_timeout" in error.message
        assert "query_timeout" not in error.hint
        shorter = failure(replace(settings, query_timeout=timedelta(seconds=1)))
        assert "the query was stopped after 1 s" in shorter.message
        assert "query_timeout" in shorter.hint
