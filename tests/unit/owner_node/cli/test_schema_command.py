"""A schema that one owner writes down and the others take over."""

import tomllib
from decimal import Decimal
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
missing = "category"
scale = "log"
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
    assert "in the schema, but no column of south/data.csv, so not declared: día de alta" in told
    text = Path("south/owner.toml").read_text()
    assert text.count(f'= "{FILL_IN}"') == 1
    Path("south/owner.toml").write_text(text.replace(f'= "{FILL_IN}"', '= "3"'))
    (north,), (south,) = (load(Path(each, "owner.toml")).datasets for each in ("north", "south"))
    assert south.attributes == tuple(each for each in north.attributes if each.name != "día de alta")
    for key in ("name", "identifier", "normal_forms", "missing", "missing_in", "taxonomies"):
        assert getattr(south, key) == getattr(north, key), key
    capsys.readouterr()
    Path("south/data.csv").write_text("born;name;weight;ward;día de alta\n2001-01-01;a;60;eye;2020-01-01\n")
    assert run("schema", "apply", "patients.toml", "--config", "south/owner.toml") == 0
    assert "added: día de alta" in capsys.readouterr().out
    (south,) = load(Path("south/owner.toml")).datasets
    assert south.attributes == north.attributes
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


BLOCK = """[[dataset]]
# Kept: what the owner decides.
name = "patients"  # agreed
source = "../south/data.csv"
total_epsilon = "FILL IN"
match = [
  { name = "x", keys = ["born:date"] },
]
missing = "error"
"""
LABELS = '[dataset.attributes.ward]\ncategories = [\n  "a",\n  "b",\n]\n'
OTHERS = {
    "alone": ("", ""),
    "between others": (
        '[[dataset]]\nname = "a"\nsource = "a.csv"\n[dataset.csv]\ndelimiter = ";"\n\n',
        '\n[[dataset]]\nname = "z"\nmissing = "drop"\n[dataset.attributes.b]\ntype = "boolean"\n[notify]\n',
    ),
}


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize(
    "tables",
    [
        '[dataset.csv]\ndelimiter = ";"\n',
        '[dataset.csv]\ndelimiter = ";"\n\n# about ward\n[dataset.attributes.ward]\ntype = "boolean"\n',
        '[dataset.attributes."old one"]\ntype = "integer"\nmin = "FILL IN"\n[dataset.csv]\ndelimiter = ";"\n',
        '[dataset.normalise_also]\nborn = "trim"\n[dataset.csv]\ndelimiter = ";"\n' + LABELS,
    ],
)
def test_a_changed_schema_is_applied(place: Path, capsys, others: str, tables: str) -> None:
    """Settings and attributes become the schema's; budget, source, comments and other data sets stay."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    before, after = OTHERS[others]
    path = Path("north/other.toml")
    identity = HEAD.partition("[[dataset]]")[0]
    path.write_text(identity + before + BLOCK + tables + after)
    old = tomllib.loads(path.read_text())
    assert run("schema", "apply", "patients.toml", "--config", str(path)) == 0, capsys.readouterr().err
    text = path.read_text()
    new, schema = tomllib.loads(text), tomllib.loads(Path("patients.toml").read_text())
    assert text.startswith(identity + before)
    assert text.endswith(after)
    assert "# Kept: what the owner decides." in text
    position = 1 if before else 0
    found = new["dataset"].pop(position)
    own = old["dataset"].pop(position)
    assert new == old
    del schema["attributes"]["día de alta"]  # no column of the source
    assert found == {key: own[key] for key in ("source", "total_epsilon", "csv") if key in own} | schema


def test_a_schema_is_applied_to_a_data_set_that_is_there(place: Path, capsys) -> None:
    """Where there is none, or it cannot be changed, nothing happens and the way out is named."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    other = Path("patients.toml").read_text().replace('"patients"', '"visits"')
    Path("visits.toml").write_text(other)
    assert run("schema", "apply", "visits.toml", "--config", "north/owner.toml") == 2
    assert "add it: owner-node init DATA --schema FILE --append" in capsys.readouterr().err
    assert Path("north/owner.toml").read_text() == HEAD
    entry = (
        '{ name = "patients", source = "../south/data.csv", total_epsilon = "1", csv = { delimiter = ";" } }'
    )
    inline = f"dataset = [{entry}]\n" + HEAD.partition("[[dataset]]")[0]
    Path("north/inline.toml").write_text(inline)
    assert run("schema", "apply", "patients.toml", "--config", "north/inline.toml") == 2
    assert "write it yourself" in capsys.readouterr().err
    assert Path("north/inline.toml").read_text() == inline


def test_a_data_set_is_not_written_twice(place: Path, capsys) -> None:
    """A second data set of one name would stop the daemon; one of the same source shares the budget."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    append = ("init", "south/data.csv", "--out", "north/owner.toml", "--append")
    assert run(*append, "--schema", "patients.toml") == 2
    told = capsys.readouterr().err
    assert "north/owner.toml has a data set 'patients' already; nothing was changed" in told
    assert "owner-node schema apply FILE --config north/owner.toml" in told
    assert Path("north/owner.toml").read_text() == HEAD
    for name in ("visits", "more"):
        renamed = Path("patients.toml").read_text().replace('"patients"', f'"{name}"')
        Path(f"{name}.toml").write_text(renamed)
    assert run(*append, "--schema", "visits.toml", "--total-epsilon", "3") == 0
    assert run(*append, "--schema", "more.toml", "--total-epsilon", "4") == 2
    assert run(*append, "--schema", "more.toml", "--total-epsilon", "3") == 0
    renamed = Path("patients.toml").read_text().replace('"patients"', '"most"')
    Path("most.toml").write_text(renamed)
    assert run(*append, "--schema", "most.toml") == 0
    budgets = {
        each.name: (each.budget, each.total_epsilon) for each in load(Path("north/owner.toml")).datasets
    }
    assert budgets["more"] == budgets["most"] == budgets["visits"] == ("visits", Decimal(3))


def test_owners_of_different_columns_share_one_schema(place: Path, capsys) -> None:
    """Each declares what its file has; a file that has none of it is an error."""
    assert (
        run("schema", "export", "patients.toml", "--dataset", "patients", "--config", "north/owner.toml") == 0
    )
    files = {"one.csv": "weight", "two.csv": "ward,día de alta", "none.csv": "height"}
    for file, columns in files.items():
        values = {"weight": "60", "ward": "eye", "día de alta": "2020-01-01", "height": "1"}
        row = ",".join(values[each] for each in columns.split(","))
        Path(file).write_text(f"born,name,{columns}\n2001-01-01,a,{row}\n")
        out = file.replace("csv", "toml")
        code = run(
            *("init", file, "--schema", "patients.toml", "--out", out, "--total-epsilon", "2", "--id", "x"),
            *("--trust-domain", "x.example", "--aggregator", "hub=hub:8443"),
        )
        if columns == "height":
            assert code == 2
            assert "no attribute of the schema: weight" in capsys.readouterr().err
            assert not Path(out).exists()
            continue
        (dataset,) = load(Path(out)).datasets
        assert {each.name for each in dataset.attributes} == set(columns.split(","))


IDENTITY = ("--id", "north", "--trust-domain", "x.example", "--aggregator", "hub=hub:8443")


def test_identity_and_connection_are_enough_to_enrol(place: Path, capsys) -> None:
    """A new owner has a request before it has a data set; only blanks of its identity are an obstacle."""
    assert run("init", *IDENTITY, "--out", "new.toml", "--request", "north.csr") == 0
    assert "fingerprint of the key, to read on the telephone" in capsys.readouterr().out
    assert load(Path("new.toml")).datasets == ()
    assert run("init", "south/data.csv", "--out", "new.toml", "--append") == 0
    assert run("check", "--config", "new.toml") == 2
    for command in (
        ("enroll", "request", "--out", "again.csr"),
        ("enroll", "install", "no.bundle", "--ca-fingerprint", "ab" * 32),
        ("enroll", "renew"),
        ("schema", "fetch", "x.toml", "--dataset", "patients"),
    ):
        capsys.readouterr()
        run(*command, "--config", "new.toml")
        assert "FILL IN" not in capsys.readouterr().err
    assert Path("again.csr").exists()
    assert run("init", "--out", "blank.toml") == 0
    assert run("enroll", "request", "--out", "blank.csr", "--config", "blank.toml") == 2
    told = capsys.readouterr().err
    assert [word in told for word in ("owner.id", "owner.trust_domain", "aggregator", "dataset")] == [
        *(True, True, True, False)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--schema", "patients.toml"),
        ("--total-epsilon", "2"),
        ("--request", "x.csr", "--id", "north"),
        ("--request", "x.csr", *IDENTITY[:1], "No Name", *IDENTITY[2:]),
        ("south/data.csv", "--total-epsilon", "-1"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(place: Path, arguments: tuple[str, ...]) -> None:
    """Arguments that do not fit are found before anything is written."""
    assert run("init", *arguments, "--out", "new.toml") == 2
    assert not Path("new.toml").exists()
    assert not Path("x.csr").exists()


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
