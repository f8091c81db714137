"""A schema that one owner writes down and the others take over."""

from pathlib import Path

import pytest

from common.cli import console
from owner_node.cli import application
from owner_node.cli.init import FILL_IN
from owner_node.config import load

HEAD = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[[aggregator]]
name = "hub"
address = "hub:8443"
[tls]
ca = "ca.pem"
cert = "own.pem"
key = "own.key"
[[dataset]]
name = "patients"
source = "secret-place.csv"
total_epsilon = "2"
identifier = ["born", "name"]
normalise = ["trim"]
normalise_also = { born = ["date"] }
missing = "drop"
[dataset.csv]
delimiter = ";"
[dataset.attributes.weight]
type = "number"
min = 0.5
max = 250
decimals = 1
outside = "clamp"
[dataset.attributes."día de alta"]
type = "date"
min = 2015-01-01
max = 2026-12-31
[dataset.attributes.ward]
type = "category"
taxonomy = "wards.csv"
missing = "category"
"""
WARDS = "eye;surgery;all\nheart;medicine;all\nlung;medicine;all\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of two owners; the first has a configuration."""
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
    (tmp_path / "north" / "owner.toml").write_text(HEAD)
    (tmp_path / "north" / "wards.csv").write_text(WARDS)
    (tmp_path / "south" / "data.csv").write_text("born;name;weight;ward;note\n2001-01-01;a;60;eye;x\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    """Run a command and return its exit code."""
    return console.run(application(), "owner-node", arguments)


def test_a_second_owner_types_nothing_twice(place: Path, capsys) -> None:
    """What the owners have to agree on goes from one to the other unchanged, and nothing else does."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    shared = Path("patients.toml").read_text()
    assert "secret-place" not in shared
    assert "total_epsilon" not in shared
    arguments = ("--schema", "patients.toml", "--out", "south/owner.toml", "--id", "south")
    known = ("--trust-domain", "hospitals.example", "--aggregator", "hub=hub:8443")
    capsys.readouterr()
    assert run("init", "south/data.csv", *arguments, *known) == 0
    told = capsys.readouterr().out
    assert "not declared, and so never read: note" in told
    assert "declared by the schema, but no column of south/data.csv: día de alta" in told
    text = Path("south/owner.toml").read_text()
    assert text.count(f'= "{FILL_IN}"') == 1
    Path("south/owner.toml").write_text(text.replace(f'= "{FILL_IN}"', '= "3"'))
    (north,), (south,) = (load(Path(each, "owner.toml")).datasets for each in ("north", "south"))
    assert south.attributes == north.attributes
    for key in ("name", "identifier", "normal_forms", "missing", "missing_in", "taxonomies"):
        assert getattr(south, key) == getattr(north, key), key
    assert (south.csv.delimiter, south.source) == (";", str(place / "south" / "data.csv"))
    assert run("schema", "export", "again.toml", "--dataset", "patients", "--config", "south/owner.toml") == 0
    assert Path("again.toml").read_text() == shared


def test_a_data_set_is_added_to_a_configuration(place: Path) -> None:
    """An owner that is enrolled adds what it fetched; its settings stay as they are."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    renamed = Path("patients.toml").read_text().replace('name = "patients"', 'name = "visits"')
    Path("visits.toml").write_text(renamed)
    arguments = ("init", "south/data.csv", "--schema", "visits.toml", "--out", "north/owner.toml")
    assert run(*arguments) == 2
    assert run(*arguments, "--append") == 0
    text = Path("north/owner.toml").read_text()
    assert text.startswith(HEAD)
    Path("north/owner.toml").write_text(text.replace(f'= "{FILL_IN}"', '= "3"'))
    config = load(Path("north/owner.toml"))
    assert [each.name for each in config.datasets] == ["patients", "visits"]
    assert config.owner.id == "north"
    assert run("init", "south/data.csv", "--out", "none.toml", "--append") == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('source = "postgresql://x/y"', "source: is no part of a schema"),
        ('query = "select 1"', "query: is no part of a schema"),
        ('[attributes.w]\ntype = "category"\ntaxonomy = "/etc/passwd"', "attributes.w.taxonomy: is no part"),
        ('[attributes.w]\ntype = "category"\ntaxonomy = ["a;b", "c;d"]', "2 roots"),
        ('[attributes.x]\ntype = "integer"\nmin = 9\nmax = 1', "above max"),
        ('[attributes.x]\ntype = "integer"\nmin = 0', "missing; type integer needs it"),
    ],
)  # fmt: skip
def test_a_schema_of_somebody_else_is_checked(place: Path, capsys, line: str, told: str) -> None:
    """A schema sets neither sources nor files nor budgets, and what it declares makes sense."""
    Path("x.toml").write_text(f'name = "p"\n{line}\n[attributes.age]\ntype = "boolean"\n')
    assert run("init", "south/data.csv", "--schema", "x.toml", "--out", "south/owner.toml") == 2
    assert told in capsys.readouterr().err
    assert not Path("south/owner.toml").exists()


def test_a_schema_that_is_not_there_is_an_error_with_a_hint(place: Path, capsys) -> None:
    """Whoever mistypes the name of a schema file is told where to look."""
    assert run("init", "south/data.csv", "--schema", "nowhere.toml", "--out", "south/owner.toml") == 2
    assert "hint: check the path and whose file it is" in capsys.readouterr().err


def test_columns_that_cannot_be_declared_are_named_with_the_reason(tmp_path: Path, capsys) -> None:
    """Two columns of one name, one without a name, and one with a name that releases use."""
    (tmp_path / "data.csv").write_text("age,age,,token,height\n1,2,3,4,5\n3,4,5,6,7\n")
    assert run("init", str(tmp_path / "data.csv"), "--out", str(tmp_path / "owner.toml")) == 0
    told = capsys.readouterr().out
    assert "1 of 5 columns declared" in told
    assert 'cannot be declared: "age": several columns have this name' in told
    assert 'cannot be declared: "": no name' in told
    assert 'cannot be declared: "token": releases use this name' in told
    assert told.count("cannot be declared") == 3
