"""`[[dataset]]` with a database: the keys that go together, and an address without secrets."""

import re
import tomllib
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from common.errors import ConfigurationError, DataError
from common.model.schema import Attribute, Derivation, Schema, excesses
from owner_node.config import DatasetConfig, load
from owner_node.config.shared_schema import export_schema, read_schema
from owner_node.loading import count_records, schema_of
from owner_node.loading import load as load_data
from owner_node.sources import kind_of
from owner_node.sources.options import SourceOptions

HEAD = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"
"""
PAGE = Path(__file__).parents[4] / "docs" / "databases.md"
HIDDEN = "source = (not shown)"
AGE = '[dataset.attributes.age]\ntype = "integer"\nmin = 0\nmax = 120\n'
URL = "postgresql+psycopg://tessera@db.example/clinic"
QUERY = 'query = "select age from people;"\n'


def text(settings: str, name: str = "people", budget: str = "") -> str:
    """Return one data set of a file."""
    line = f'budget = "{budget}"\n' if budget else ""
    return f'[[dataset]]\nname = "{name}"\ntotal_epsilon = 1\n{line}{settings}\n{AGE}'


def read(folder: Path, *datasets: str) -> dict[str, DatasetConfig]:
    """Return the data sets of a file by name."""
    path = folder / "owner.toml"
    path.write_text(HEAD + "\n".join(datasets))
    return {each.name: each for each in load(path).datasets}


def problems(folder: Path, *datasets: str) -> list[str]:
    """Return what is wrong with a file, after checking that no password is told."""
    with pytest.raises(ConfigurationError) as caught:
        read(folder, *datasets)
    assert "hunter2" not in f"{caught.value.message}{caught.value.details}"
    return list(caught.value.problems)


def test_everything_about_a_database_reaches_the_run_time_form(tmp_path):
    """Query, limit and password file are kept; the semicolon is not, and paths start at the file's folder."""
    settings = (
        f'source = "{URL}?sslmode=verify-full"\nquery_timeout = "5m"\npassword_file = "secret"\n{QUERY}'
    )
    dataset = read(tmp_path, text(settings))["people"]
    assert dataset.source == f"{URL}?sslmode=verify-full"
    assert (dataset.query, dataset.query_timeout) == ("select age from people", timedelta(minutes=5))
    assert (dataset.password_file, dataset.password_env) == (tmp_path / "secret", None)
    assert dataset.origin.shown == "postgresql://db.example:5432/clinic"


def test_the_file_of_a_sqlite_database_is_a_path(tmp_path, monkeypatch):
    """A daemon finds it wherever it is started from."""
    monkeypatch.chdir("/")
    for written in ("data/../people.db", f"{tmp_path}/people.db"):
        dataset = read(tmp_path, text(f'source = "sqlite:///{written}"\n{QUERY}'))["people"]
        assert dataset.source == dataset.origin.shown == f"sqlite:///{tmp_path}/people.db"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (f'source = "{URL}"', "query: missing; a database needs one"),
        (f'source = "{URL}"\nquery = "drop table people"', "query = *: expected one SELECT, not DROP"),
        (f'source = "x.csv"\n{QUERY}', "query: goes with the URL of a database"),
        ('source = "x.csv"\npassword_file = "y"', "password_file: goes with the URL of a database"),
        ('source = "x.csv"\nquery_timeout = "5m"', "query_timeout: goes with the URL of a database"),
        (
            f'source = "{URL}"\n{QUERY}password_env = "A"\npassword_file = "y"',
            "password_env: password_file is",
        ),
        (f'source = "{URL}"\n{QUERY}password_env = "hunter2!"', "password_env = *: expected the name of an"),
        (f'source = "sqlite:///x.db"\n{QUERY}password_env = "A"', "source: SQLite and DuckDB have no"),
        (f'source = "duckdb:///x.db"\n{QUERY}password_env = "A"', "source: SQLite and DuckDB have no"),
        (f'source = "{URL}"\n{QUERY}[dataset.csv]\ndelimiter = ";"', "csv: goes with a CSV file"),
        (f'source = "postgresql://me:hunter2@h/d"\n{QUERY}', HIDDEN + ": it contains a password"),
        (f'source = "postgresql://me:hunter2/@h/d"\n{QUERY}', HIDDEN + ": it contains a password"),
        (f'source = "{URL}?password=hunter2"\n{QUERY}', HIDDEN + ": one of its options is a secret"),
        (
            f'source = "{URL}?sslpassword=hunter2"\n{QUERY}',
            HIDDEN + ": one of its options is a secret",
        ),
        (f'source = "Postgres://h/d"\n{QUERY}', HIDDEN + ": expected a URL such as"),
        (f'source = "postgresql://h:99999/d"\n{QUERY}', HIDDEN + ": expected a URL such as"),
        (f'source = "sqlite:///:memory:"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "sqlite://x.db"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "sqlite+aiosqlite:///x.db"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "duckdb:///:memory:"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "duckdb:///:memory:people"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "duckdb://"\n{QUERY}', HIDDEN + ": expected the path of its file"),
        (f'source = "duckdb:///"\n{QUERY}', HIDDEN + ": expected the path of its file"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path, settings, problem):
    """Each mistake is one line with the key, and no address and no password is printed with it."""
    (found,) = problems(tmp_path, text(settings))
    pattern = re.escape(problem).replace(r"=\ \*:", "= .*:")
    assert re.match(rf"dataset\[people\]\.{pattern}", found), found


def test_a_wrong_value_does_not_hide_a_key_that_does_not_go_with_the_source(tmp_path):
    """A person corrects the table of a data set once."""
    settings = 'source = "x.csv"\nquery_timeout = "5m"\nmax_records_per_person = 0'
    assert problems(tmp_path, text(settings)) == [
        "dataset[people].max_records_per_person = 0: expected at least 1",
        "dataset[people].query_timeout: goes with the URL of a database as source, not with a file",
    ]


@pytest.mark.parametrize(
    ("second", "same"),
    [
        ('source = "postgresql://other@DB.example:5432/clinic?sslmode=require"\n' + QUERY, True),
        (f'source = "{URL}"\nquery = "select  age\\n from people"', True),
        (f'source = "{URL}"\nquery = "select age from staff"', False),
        ('source = "postgresql://db.example:5433/clinic"\n' + QUERY, False),
    ],
)
def test_one_query_on_one_database_has_one_budget(tmp_path, second, same):
    """Another user, driver, option or line break does not open a second budget for the same people."""
    first = text(f'source = "{URL}"\nquery = "select age from people"')
    if same:
        second = second.replace("people;", "people")
        (found,) = problems(tmp_path, first, text(second, "second"))
        assert "has the same source and budget" in found
    else:
        assert set(read(tmp_path, first, text(second, "second"))) == {"people", "second"}


def test_the_path_of_a_sqlite_database_may_hold_anything(tmp_path):
    """Folders have all kinds of names, and none of it is a password or an option."""
    folder = tmp_path / "a@b:c #1?x=%20"
    folder.mkdir()
    dataset = read(folder, text(f'source = "sqlite:///x.db"\n{QUERY}'))["people"]
    assert dataset.origin.shown == f"sqlite:///{folder}/x.db"


@pytest.mark.parametrize("address", ["duckdb:///md:clinic", "duckdb:///motherduck:clinic"])
def test_the_service_of_duckdb_is_no_file(tmp_path, address):
    """Its address is the driver's, and no path in the folder of the configuration."""
    dataset = read(tmp_path, text(f'source = "{address}"\n{QUERY}'))["people"]
    assert (dataset.origin.address, dataset.origin.files) == (address, ())
    assert dataset.origin.place.startswith(f"{address}#")


def test_two_names_of_one_sqlite_file_have_one_budget(tmp_path):
    """A link to the file is the file."""
    (tmp_path / "link.db").symlink_to(tmp_path / "people.db")
    first, second = (text(f'source = "sqlite:///{each}"\n{QUERY}', each) for each in ("people.db", "link.db"))
    (found,) = problems(tmp_path, first, second)
    assert "has the same source and budget" in found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u@[2001:db8::1]:6543/d", "postgresql://2001:db8::1:6543/d"),
        ("postgresql+psycopg://u@/d?host=%2Fvar%2Frun", "postgresql:///var/run/d"),
        ("mysql+pymysql://h/d", "mysql://h:3306/d"),
        ("duckdb:///file", "duckdb:///file"),
    ],
)
def test_addresses_of_any_kind_are_shown_without_users(url, shown):
    """Host, port and database are enough to know a database by."""
    assert kind_of(url)("people", url, SourceOptions()).shown == shown


def test_the_example_of_the_page_is_valid(tmp_path):
    """What a newcomer pastes is read without a complaint."""
    (example,) = re.findall(r"^ *```toml\n(.*?)^ *```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    dataset = read(tmp_path, example)["treatments"]
    assert dataset.origin.shown == "postgresql://database.hospital.example:5432/clinic"
    assert dataset.password_file == tmp_path / "database-password"


def test_every_option_of_a_csv_file_counts(tmp_path):
    """Each key of [dataset.csv], written in the file, changes how the data are read."""
    form = """[dataset.csv]
        delimiter = ";"
        decimal = ","
        encoding = "cp1252"
        date_format = "%d.%m.%Y"
        na_values = ["", "k. A."]
        """
    more = """[dataset.attributes."Größe"]
        type = "number"
        min = 0
        max = 3
        decimals = 2
        [dataset.attributes.seen]
        type = "date"
        min = 1970-01-01
        max = 2030-01-01
        """
    content = "age;Größe;seen\n40;1,75;31.12.1999\n41;k. A.;1.1.2000\n"
    (tmp_path / "x.csv").write_bytes(content.encode("cp1252"))
    settings = f'source = "x.csv"\nmissing = "drop"\n{form}'
    loaded = load_data(read(tmp_path, text(settings) + more)["people"])
    found = {name: column.tolist() for name, column in loaded.columns.items()}
    assert found == {"age": [40], "Größe": [175], "seen": [10956]}
    assert loaded.counts.dropped == 1


BORN = '[dataset.attributes.born]\ntype = "date"\nmin = {}\nmax = {}\n'
CENTURY = BORN.format("1920-01-01", "2019-12-31")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (CENTURY, []),
        ('normalise = ["trim"]\nidentifier = ["id"]\n' + CENTURY, []),
        (BORN.format("1904-02-29", "2004-02-28"), []),
        (BORN.format("9950-01-01", "9999-12-31"), []),
        (
            BORN.format("1920-01-01", "2020-01-01"),
            ["attributes.born.max: has to be less than 100 years*"],
        ),
        (
            BORN.format("1904-02-29", "2004-02-29"),
            ["attributes.born.max: has to be less than 100 years*"],
        ),
        (CENTURY + 'outside = "clamp"\n', ['attributes.born.outside: "clamp" does not go with *']),
        ('identifier = ["id"]\nnormalise = ["date"]\n' + CENTURY, ["csv.date_format: %y does not say *"]),
        (
            'identifier = ["id"]\nnormalise_also = { id = ["date"] }\n' + CENTURY,
            ["csv.date_format: %y does not say *"],
        ),
        (
            CENTURY + '[[dataset.match]]\nname = "born"\nkeys = ["born:year-month"]\n',
            ["csv.date_format: %y does not say *"],
        ),
    ],
)
def test_a_year_of_two_digits_needs_a_domain_that_determines_the_century(tmp_path, settings, found):
    """No century is guessed, for values and for dates that persons are recognised by."""
    written = f'source = "x.csv"\ncsv = {{ date_format = "%d.%m.%y" }}\n{settings}'
    if not found:
        (tmp_path / "x.csv").write_text("id,age,born\np,5,29.02.04\n")
        read(tmp_path, text(written))
        return
    (problem,) = problems(tmp_path, text(written))
    pattern = re.escape(found[0]).replace(r"\*", ".*")
    assert re.fullmatch(rf"dataset\[people\]\.{pattern}", problem), problem


def test_values_with_a_year_of_two_digits_are_read(tmp_path):
    """The domain of each attribute says which century its values are of."""
    (tmp_path / "x.csv").write_text("age,born,died\n5,31.12.19,01.02.20\n6,1.1.20,29.02.04\n")
    settings = f'source = "x.csv"\ncsv = {{ date_format = "%d.%m.%y" }}\n{CENTURY}'
    settings += CENTURY.replace("born", "died").replace("1920", "1970").replace("2019", "2069")
    loaded = load_data(read(tmp_path, text(settings))["people"])
    found = {
        name: [(date(1970, 1, 1) + timedelta(days=day)).isoformat() for day in loaded.columns[name].tolist()]
        for name in ("born", "died")
    }
    assert found == {"born": ["2019-12-31", "1920-01-01"], "died": ["2020-02-01", "2004-02-29"]}


@pytest.mark.parametrize("date_format", ["a", "%d.%m", "%H:%M", "%Y-%m", "%Y-%m-%d %d", "%F", ""])
def test_a_format_of_dates_is_judged_with_the_file(tmp_path, date_format):
    """Nobody learns from the data that a format means no day."""
    written = f'source = "x.csv"\ncsv = {{ date_format = "{date_format}" }}'
    (problem,) = problems(tmp_path, text(written))
    assert problem.startswith(f'dataset[people].csv.date_format = "{date_format}": ')


def test_structural_zeros_are_declared_by_values_and_ranges(tmp_path):
    """Open ends are those of the domain, and each value is written in one way."""
    ward = '[dataset.attributes.ward]\ntype = "category"\ncategories = ["A", "B"]\nmissing = "category"\n'
    rules = 'structural_zeros = [{ ward = ["B", "(missing)"], age = { max = 15 } }, { age = [7, "+9"] }]\n'
    dataset = read(tmp_path, text('source = "people.csv"\n' + rules) + ward)["people"]
    assert list(map(str, dataset.structural_zeros)) == [
        "age 0 to 15 with ward B or (missing)", "age 7 or 9",
    ]  # fmt: skip
    assert schema_of(dataset, None, 10).structural_zeros == dataset.structural_zeros
    assert list(map(str, schema_of(dataset, ["age"], 10).structural_zeros)) == ["age 7 or 9"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{}", "structural_zeros[1]: names no attribute"),
        ("{ ward = [1] }", "structural_zeros[1].ward: is no attribute"),
        ("{ age = [130] }", "structural_zeros[1].age: 130 is outside the domain"),
        ("{ age = { max = -1 } }", "outside the domain"),
        ("{ age = { min = 9, max = 3 } }", "'9' to '3' is no range"),
        ("{ age = { from = 9 } }", "expected values"),
        ("{ age = [] }", "expected values"),
        ("{ age = { missing = true } }", ".age: it keeps no missing values"),
        ("{ age = { missing = false } }", ".age: it keeps no missing values"),
        ("{ age = { min = 9, missing = true } }", ".age: it keeps no missing values"),
        ('{ age = ["(missing)"] }', ".age: it keeps no missing values"),
        ("{ age = { missing = 1 } }", "expected missing = true"),
    ],
)
def test_wrong_structural_zeros_are_named(tmp_path, rule, problem):
    """Each with its place in the file."""
    found = problems(tmp_path, text(f'source = "people.csv"\nstructural_zeros = [{rule}]\n'))
    assert len(found) == 1
    assert problem in found[0]


KEPT = (
    '[dataset.attributes.months]\ntype = "integer"\nmin = 0\nmax = 24\nmissing = "category"\n'
    '[dataset.attributes.dose]\ntype = "number"\nmin = 0\nmax = 9\ndecimals = 1\nmissing = "category"\n'
    '[dataset.attributes.died]\ntype = "date"\nmin = 2020-01-01\nmax = 2020-12-31\nmissing = "category"\n'
    '[dataset.attributes.ward]\ntype = "category"\ncategories = ["A", "B"]\nmissing = "category"\n'
    '[dataset.attributes.ill]\ntype = "boolean"\n'
)


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("{ months = { missing = true } }", "months (missing)"),
        ("{ months = { missing = false } }", "months 0 to 24"),
        ("{ months = { min = 12, missing = true } }", "months 12 to 24 or (missing)"),
        ("{ months = { max = 3, missing = false } }", "months 0 to 3"),
        ('{ months = [7, "(missing)"] }', "months 7 or (missing)"),
        ("{ dose = { min = 0.5, max = 1, missing = true } }", "dose 0.5 to 1.0 or (missing)"),
        ("{ died = { missing = false } }", "died 2020-01-01 to 2020-12-31"),
        ("{ ward = { missing = true }, ill = [true] }", "ill true with ward (missing)"),
        ("{ ward = { missing = false } }", "ward A or B"),
    ],
)
def test_missing_values_are_values_of_rules(tmp_path, rule, shown):
    """Of all types that keep them; a schema file can have such rules."""
    dataset = read(tmp_path, text(f'source = "people.csv"\nstructural_zeros = [{rule}]\n') + KEPT)["people"]
    assert list(map(str, dataset.structural_zeros)) == [shown]
    schema = schema_of(dataset, None, 10)
    assert not list(excesses(schema))
    assert Schema.from_bytes(schema.to_bytes()).structural_zeros == dataset.structural_zeros
    (tmp_path / "shared.toml").write_text(export_schema(load(tmp_path / "owner.toml"), "people"))
    (again,) = read_schema(tmp_path / "shared.toml")["structural_zeros"]
    assert again == tomllib.loads(f"rule = {rule}", parse_float=Decimal)["rule"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "{ ill = { missing = true } }",
            "ill: it keeps no missing values; categories, numbers, integers and",
        ),
        ("{ ward = { max = 'B', missing = true } }", "ward: labels have no range"),
        ('{ months = { max = "(missing)" } }', "months: '(missing)' is not a whole number"),
        ("{ months = { max = 25, missing = true } }", "months: 25 is outside the domain"),
    ],
)
def test_wrong_rules_about_missing_values_are_named(tmp_path, rule, problem):
    """With the rule and the attribute."""
    (found,) = problems(tmp_path, text(f'source = "people.csv"\nstructural_zeros = [{rule}]\n') + KEPT)
    assert f"structural_zeros[1].{problem}" in found


def test_spikes_are_values_of_the_domain(tmp_path):
    """In any order; the schema and its document have them as they are declared, and none where none are."""
    plain = text('source = "people.csv"\n')
    (attribute,) = schema_of(read(tmp_path, plain + "spikes = [65, 0]\n")["people"], None, 10).attributes
    assert attribute.spikes == (0, 65)
    assert attribute.to_document()["spikes"] == ["0", "65"]
    assert Attribute.from_document(attribute.to_document()) == attribute
    (without,) = schema_of(read(tmp_path, plain)["people"], None, 10).attributes
    assert "spikes" not in without.to_document()


@pytest.mark.parametrize(
    ("spikes", "problem"),
    [
        ("[121]", "a spike is outside the domain, 0 to 120"),
        ("[0, 1]", "with at least one value between two"),
        ("[7, 7]", "with at least one value between two"),
        ("[0, 2, 4, 6, 8, 10, 12, 14, 16]", "9 spikes, at most 8 are possible"),
        ('["a"]', "'a' is not a whole number"),
        ("0", "expected values of the attribute, such as [0]"),
    ],
)
def test_wrong_spikes_are_named(tmp_path, spikes, problem):
    """With the attribute and the key."""
    (found,) = problems(tmp_path, text('source = "people.csv"\n') + f"spikes = {spikes}\n")
    assert found.startswith("dataset[people].attributes.age.spikes")
    assert problem in found


def test_a_step_is_the_distance_between_two_values(tmp_path):
    """The schema counts steps, its document writes values; without a step it is what it was."""
    plain = text('source = "people.csv"\n')
    (stepped,) = schema_of(read(tmp_path, plain + "spikes = [65]\nstep = 5\n")["people"], None, 10).attributes
    assert (stepped.upper, stepped.n_values, stepped.spikes, stepped.resolution) == (24, 25, (13,), "5")
    document = stepped.to_document()
    assert (document["max"], document["spikes"], document["step"]) == ("120", ["65"], "5")
    assert Attribute.from_document(document) == stepped
    (without,) = schema_of(read(tmp_path, plain + "step = 1\n")["people"], None, 10).attributes
    assert "step" not in without.to_document()
    assert without == schema_of(read(tmp_path, plain)["people"], None, 10).attributes[0]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("0", "age.step: a step is above 0"),
        ("-5", "age.step: a step is above 0"),
        ("0.5", "age.step: '0.5' is not a whole number"),
        ('"a"', "age.step: 'a' is not a whole number"),
        ("7", "age.max: '120' is not a multiple of 7"),
        ("5\nspikes = [7]", "age.spikes: '7' is not a multiple of 5"),
    ],
)
def test_wrong_steps_are_named(tmp_path, step, problem):
    """With the attribute and the key."""
    (found,) = problems(tmp_path, text('source = "people.csv"\n') + f"step = {step}\n")
    assert problem in found


def test_dates_have_no_step(tmp_path):
    """Their resolution is a day."""
    day = '[dataset.attributes.day]\ntype = "date"\nmin = 2020-01-01\nmax = 2021-01-01\nstep = 7\n'
    (found,) = problems(tmp_path, text('source = "people.csv"\n') + day)
    assert "step: goes with type integer or number, not with date" in found


def test_a_scale_is_logarithmic_or_linear(tmp_path):
    """The schema and its document say so; a linear one is the default, and nothing is written."""
    plain = text('source = "people.csv"\n')
    (attribute,) = schema_of(read(tmp_path, plain + 'scale = "log"\n')["people"], None, 10).attributes
    assert attribute.to_document()["scale"] == "log"
    assert Attribute.from_document(attribute.to_document()) == attribute
    assert attribute.domain.endswith(", logarithmic")
    linear, default = (
        schema_of(read(tmp_path, plain + more)["people"], None, 10).attributes[0]
        for more in ('scale = "linear"\n', "")
    )
    assert linear == default
    assert "scale" not in linear.to_document()


WARD = '[dataset.attributes.ward]\ntype = "category"\ncategories = ["A", "B"]\n'
DAY = '[dataset.attributes.day]\ntype = "date"\nmin = 2020-01-01\nmax = 2021-01-01\n'
DOSE = '[dataset.attributes.dose]\ntype = "number"\ndecimals = 1\n'


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (WARD + 'scale = "log"', "ward.scale: goes with type integer or number, not with category"),
        (DAY + 'scale = "log"', "day.scale: goes with type integer or number, not with date"),
        (DOSE + 'min = -0.5\nmax = 9\nscale = "log"', "dose.scale: a logarithmic scale goes with numbers"),
        (DOSE + 'min = 5\nmax = 5\nscale = "log"', "below max; min is 5"),
        (DOSE + 'min = 0\nmax = 9\nscale = "root"', "dose.scale"),
        (DOSE + "min = 0\nmax = 9\nscale = true", "dose.scale"),
    ],
)
def test_wrong_scales_are_named(tmp_path, declared, problem):
    """With the attribute and the key, once."""
    (found,) = problems(tmp_path, text('source = "people.csv"\n') + declared + "\n")
    assert problem in found


def test_labels_have_no_spikes(tmp_path):
    """Each label is counted anyway."""
    ward = '[dataset.attributes.ward]\ntype = "category"\ncategories = ["A", "B"]\nspikes = ["A"]\n'
    (found,) = problems(tmp_path, text('source = "people.csv"\n') + ward)
    assert "spikes: goes with type integer or number or date, not with category" in found


SCHOOL = (
    '[dataset.attributes.school]\ntype = "category"\ncategories = ["none", "primary"]\nmissing = "category"\n'
    '[dataset.attributes.years]\ntype = "integer"\nmin = 0\nmax = 20\nmissing = "category"\n'
)
FOLLOWS = 'follows = "school"\nvalues = { primary = 6, none = 0, "(missing)" = "(missing)" }\n'


def test_an_attribute_can_follow_another_one(tmp_path):
    """It is no attribute to mask, is in the schema with its whole table, and need not be in the source."""
    dataset = read(tmp_path, text('source = "x.csv"\n') + SCHOOL + FOLLOWS)["people"]
    assert [each.name for each in dataset.attributes] == ["age", "school"]
    (following,) = schema_of(dataset, None, 10).following
    assert (following.name, following.base) == ("years", "school")
    table = (("none", "0"), ("primary", "6"), ("(missing)", "(missing)"))
    assert following.derivation == Derivation("school", table)
    assert schema_of(dataset, ["age", "years"], 10).following == ()
    assert schema_of(dataset, ["age", "school"], 10).following == ()
    (tmp_path / "x.csv").write_text("age,school\n5,none\n")
    assert set(load_data(dataset).columns) == {"age", "school"}
    assert set(load_data(dataset, ["school", "years"]).columns) == {"school"}


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ("5,none,0\n6,primary,6\n7,,\n", 0),
        ("5,none,6\n6,primary,6\n7,,6\n", 2),
        ("5,none,\n6,primary,6\n", 1),
    ],
)
def test_records_that_contradict_the_table_are_counted(tmp_path, rows, wrong):
    """Whenever the data are loaded; which records they are is not said."""
    dataset = read(tmp_path, text('source = "x.csv"\n') + SCHOOL + FOLLOWS)["people"]
    (tmp_path / "x.csv").write_text(f"age,school,years\n{rows}")
    if not wrong:
        assert load_data(dataset).n_records == 3
        return
    with pytest.raises(DataError) as caught:
        load_data(dataset)
    (problem,) = caught.value.details["problems"]
    assert problem == {"column": "years", "problem": "not what follows from school", "count": wrong}


def test_a_value_that_is_not_stated_contradicts_nothing(tmp_path):
    """Where missing values drop records: what follows is derived, and no record is dropped for it."""
    declared = text('source = "x.csv"\nmissing = "drop"\n') + SCHOOL + FOLLOWS
    declared = declared.replace('max = 20\nmissing = "category"', "max = 20")
    declared = declared.replace(', "(missing)" = "(missing)"', ', "(missing)" = 0')
    dataset = read(tmp_path, declared)["people"]
    (tmp_path / "x.csv").write_text("age,school,years\n5,none,0\n6,primary,\n,none,0\n")
    assert load_data(dataset).n_records == count_records(dataset) == 2
    (tmp_path / "x.csv").write_text("age,school,years\n5,none,6\n6,primary,\n")
    with pytest.raises(DataError, match="not what follows from school"):
        load_data(dataset)


def test_a_policy_can_name_what_follows(tmp_path):
    """It is admitted with what it follows, and who knows it knows that one, as far as attacks go."""
    policy = '[policy]\nattributes = ["age", "school", "years"]\nknown = ["years"]\n'
    path = tmp_path / "owner.toml"
    read(tmp_path, text('source = "x.csv"\n') + SCHOOL + FOLLOWS)
    path.write_text(policy + path.read_text())
    owner = load(path)
    assert owner.admitted(owner.dataset("people")) == ("age", "school", "years")
    assert owner.policy.known == ("years", "school")


@pytest.mark.parametrize(
    ("follows", "problem"),
    [
        ('follows = "home"\nvalues = { a = 1 }\n', "years.follows = home: is no other attribute"),
        ('follows = "years"\nvalues = { a = 1 }\n', "years.follows = years: follows another one"),
        ('follows = "school"\n', "years.values: missing; follows and values go together"),
        ("values = { a = 1 }\n", "years.follows: missing; follows and values go together"),
        ('follows = "school"\nvalues = { none = 0, "(missing)" = 0 }\n', "nothing follows from 'primary'"),
        (
            'follows = "school"\nvalues = { none = 0, primary = 21, "(missing)" = 0 }\n',
            "21 is outside the domain",
        ),
        (
            'follows = "school"\nvalues = { none = 0, second = 9 }\n',
            "'second' is not a value of 'school'",
        ),
    ],
)
def test_wrong_tables_are_named(tmp_path, follows, problem):
    """With the attribute and the key."""
    (found,) = problems(tmp_path, text('source = "x.csv"\n') + SCHOOL + follows)
    assert problem in found


def test_rules_are_about_what_others_follow(tmp_path):
    """A structural zero of an attribute that follows would hold in no record that is drawn."""
    rule = "structural_zeros = [{ years = [6], age = { max = 3 } }]\n"
    (found,) = problems(tmp_path, text('source = "x.csv"\n' + rule) + SCHOOL + FOLLOWS)
    assert "structural_zeros[1].years: follows school: make the rule about that attribute" in found
