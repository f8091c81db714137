"""The first owner.toml for a data file: what it guesses, and what it leaves to a person."""

import io
import json
import os
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.cli import console
from common.errors import ConfigurationError, DataError
from owner_node.cli import application
from owner_node.cli.init import FILL_IN, dataset_text, head
from owner_node.config import load
from owner_node.loading import load as load_data
from owner_node.sources import guessing
from owner_node.sources.guessing import guess

HEADER = ["patient", "age", "income", "admitted", "ward", "emergency", "note", "postal"]
FILLED = {
    "age": ("0", "120"),
    "income": ("0", "10000"),
    "admitted": ("2020-01-01", "2026-12-31"),
}


def written(folder: Path, delimiter: str = ",", point: str = ".", date: str = "{0:02}/{1:02}/2024") -> Path:
    """Write a CSV file of 200 people as programs of some country write it."""
    lines = [delimiter.join(HEADER)]
    for number in range(200):
        admitted = date.format(number % 28 + 1, number % 12 + 1)
        fields = [f"P-{number:04}", str(17 + number % 77), f"{(number * 37) % 4999}{point}5", admitted]
        fields += [("medicine", "surgery", "NA")[number % 3], ("yes", "no")[number % 2]]
        fields += [f"note no. {number}", ("04103", "10115")[number % 2]]
        lines.append(delimiter.join(fields))
    path = folder / "patients 2024.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def filled(text: str) -> str:
    """Fill in what a person has to."""
    for heading, ends in FILLED.items():
        before, _, rest = text.partition(f'[dataset.attributes."{heading}"]')
        for key, end in zip(("min", "max"), ends, strict=True):
            rest = rest.replace(f'{key} = "{FILL_IN}"', f"{key} = {end}", 1)
        text = f'{before}[dataset.attributes."{heading}"]{rest}'
    text = text.replace(f'categories = "{FILL_IN}"', 'categories = ["medicine", "surgery"]', 1)
    text = text.replace(f'categories = "{FILL_IN}"', 'categories = ["04103", "10115"]', 1)
    text = text.replace(f'total_epsilon = "{FILL_IN}"', 'total_epsilon = "2"')
    return text.replace(f'id = "{FILL_IN}"', 'id = "north"')


def start(path: Path) -> str:
    """Return the text that `init` writes."""
    found = guess(path)
    begin = head(path, found, trust_domain="example.org", aggregator="hub", address="hub:8443")
    return begin + "\n" + dataset_text(path, path.parent / "owner.toml", found)


@pytest.mark.parametrize(
    ("delimiter", "point", "date"),
    [(",", ".", "2024-{1:02}-{0:02}"), (";", ",", "{0:02}.{1:02}.2024"), ("\t", ".", "{1:02}/{0:02}/2024")],
)
def test_the_guess_loads_once_it_is_filled_in(tmp_path: Path, delimiter: str, point: str, date: str) -> None:
    """Delimiter, decimal mark and dates are found; what a person fills in makes the file usable as it is."""
    path = written(tmp_path, delimiter, point, date)
    (tmp_path / "owner.toml").write_text(filled(start(path)), encoding="utf-8")
    config = load(tmp_path / "owner.toml")
    (dataset,) = config.datasets
    assert [(each.name, str(each.type)) for each in dataset.attributes] == [
        ("age", "integer"), ("income", "number"), ("admitted", "date"), ("ward", "category"),
        ("emergency", "boolean"), ("postal", "category"),
    ]  # fmt: skip
    assert dataset.name == "patients-2024"
    assert load_data(dataset).n_records == 200
    assert dataset.missing_in == {"ward": "category"}


@pytest.mark.parametrize(
    ("delimiter", "cells", "form", "types"),
    [
        (";", ["1.234,56", "1.234", "0,5"], (",", "."), ["number", "integer", "number"]),
        (",", ['"1,234.56"', '"1,234"', "0.5"], (".", ","), ["number", "integer", "number"]),
        (";", ["1'234.56", "1\u2019234", "0.5"], (".", "'"), ["number", "integer", "number"]),
        ("\t", ["1 234,56", "1\u202f234", "0,5"], (",", " "), ["number", "integer", "number"]),
        # Nothing but a decimal mark is needed to read these.
        (";", ["1,234", "17", "0,5"], (",", ""), ["number", "integer", "number"]),
        (";", ["1.234", "17", "0.5"], (".", ""), ["number", "integer", "number"]),
        # Two forms in one file: the one that fits more columns, and the other column is left out.
        (";", ["1,5", "2,5", "0.5"], (",", ""), ["number", "number", ""]),
    ],
)
def test_thousands_separators_are_found(tmp_path: Path, delimiter, cells, form, types) -> None:
    """One form is found that reads the numbers of all columns, with a separator only where it is needed."""
    path = tmp_path / "numbers.csv"
    path.write_text(f"a{delimiter}b{delimiter}c\n" + f"{delimiter.join(cells)}\n" * 3, encoding="utf-8")
    found = guess(path)
    assert (found.form.delimiter, (found.form.decimal, found.form.thousands)) == (delimiter, form)
    assert [each.type for each in found.columns] == types
    written = tomllib.loads(start(path))["dataset"][0]["csv"]
    assert written.get("thousands", "") == form[1]


def test_batches_need_not_all_have_a_thousands_separator(tmp_path: Path, monkeypatch) -> None:
    """A batch of small numbers after one of large ones is read in the form that the large ones have."""
    monkeypatch.setattr("owner_node.sources.csv_files.BLOCK_BYTES", 2**10)
    path = tmp_path / "numbers.csv"
    path.write_text("a;b\n" + "1.234,5;0\n" * 200 + "12;1\n" * 300 + "1.234.567;2\n" * 200)
    (amounts, _), form = guess(path).columns, guess(path).form
    assert (form.decimal, form.thousands) == (",", ".")
    assert (amounts.type, amounts.n_values, amounts.decimals) == ("number", 700, 1)
    assert amounts.rounded_ends() == (Decimal(10), Decimal(2000000))


@pytest.mark.parametrize(
    ("cells", "doubt"),
    [
        (["18.582", "1"], 'its numbers fit decimal = "," with thousands = "." as well as decimal = "."'),
        (["18,582", "1"], 'its numbers fit decimal = "." with thousands = "," as well as decimal = ","'),
        (["18.582", "1.5"], ""),
        (["18.582", "1,5"], ""),
        (["1.234.567", "1"], ""),
        (["18", "1"], ""),
        (["07/08/2024", "1"], "its dates fit %m/%d/%Y as well as %d/%m/%Y"),
        (["07/08/2024", "07/31/2024"], ""),
        (["31/07/2024", "07/31/2024"], ""),
        (["07.08.2024", "1"], ""),
    ],
)
def test_what_can_be_read_in_two_ways_is_said(tmp_path: Path, monkeypatch, capsys, cells, doubt) -> None:
    """A number a thousand times as large, or a day in another month, would be accepted without a word."""
    monkeypatch.chdir(tmp_path)
    Path("two.csv").write_text("a;b\n" + f"{';'.join(cells)}\n" * 3)
    assert guess(Path("two.csv")).doubts == ((doubt,) if doubt else ())
    assert console.run(application(), "owner-node", ["init", "two.csv", "--out", "a.toml"]) == 0
    told, written = capsys.readouterr().out, Path("a.toml").read_text()
    for text in (told, written):
        assert ("mbiguous: " in text) == bool(doubt)
        assert doubt in text
    dates = tomllib.loads(start(Path("two.csv")))["dataset"][0]["csv"]["date_format"]
    assert dates == "%m/%d/%Y" or cells[1] != "07/31/2024" or cells[0].startswith("31")


def test_a_column_that_is_not_declared_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A person learns of every column what kept it out, in words and in JSON."""
    monkeypatch.chdir(tmp_path)
    rows = [f"p{n};{n % 7},5;{n % 3},5;{n % 3}.5;{n % 60}a;;{n % 2}" for n in range(120)]
    Path("people.csv").write_text("\n".join(["id;a;c;b;code;empty;sex", *rows]))
    reasons = {
        "id": "all of its values are different, as identifiers and free text are",
        "b": "its numbers are written in another way than most of the file's",
        "code": "it has more than 50 different texts, and they are no numbers or dates",
        "empty": "it has no values",
    }
    assert console.run(application(), "owner-node", ["init", "people.csv", "--out", "a.toml"]) == 0
    told = capsys.readouterr().out
    for name, reason in reasons.items():
        assert f'not declared, and so never read: "{name}": {reason}' in told
    assert console.run(application(), "owner-node", ["init", "people.csv", "--out", "b.toml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reasons"] == reasons
    assert document["not_declared"] == list(reasons)


@pytest.mark.parametrize("content", ["junk\n1x\n2y\n3z\n", "a,b\n,\n,\n", "\x01\x02\n\x03\n\x04\n\x05\n"])
def test_a_file_without_an_attribute_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, content: str
) -> None:
    """A configuration that declares nothing is of no use: the columns are named, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    Path("junk.csv").write_text(content)
    assert console.run(application(), "owner-node", ["init", "junk.csv"]) == 2
    told = capsys.readouterr().err
    assert "junk.csv has no column that can be an attribute" in told
    assert "column " in told
    assert not Path("owner.toml").exists()


def test_what_a_person_decides_is_refused_until_then(tmp_path: Path) -> None:
    """Every place that is left open is named, all at once; nothing else is wrong."""
    path = written(tmp_path)
    (tmp_path / "owner.toml").write_text(start(path), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "owner.toml")
    keys = [problem.split()[0].removesuffix(":") for problem in caught.value.problems]
    place = "dataset[patients-2024]"
    expected = {"owner.id", f"{place}.total_epsilon", f"{place}.attributes.ward.categories"}
    expected |= {f"{place}.attributes.postal.categories"}
    expected |= {f"{place}.attributes.{name}.{end}" for name in FILLED for end in ("min", "max")}
    assert set(keys) == expected
    assert all(FILL_IN in problem for problem in caught.value.problems)


def test_no_extreme_of_the_data_is_written_down(tmp_path: Path) -> None:
    """What the file holds is told rounded to one digit, and an identifier or a note not at all."""
    text = start(written(tmp_path))
    assert "lie within 10 and 100" in text
    assert "17" not in text.replace("2017", "")
    for secret in ("93", "P-0", "note no", "4998"):
        assert secret not in text
    assert 'Not declared below, and so never read, unless named here or there: "patient", "note".' in text


def test_parquet_and_its_types(tmp_path: Path) -> None:
    """Parquet brings its own types; one that cannot be read is left out, not an error."""
    path = tmp_path / "data.parquet"
    columns = {
        "n": pa.array([1, 2, 2, None]),
        "x": pa.array([1.25, 2.5, None, 2.5]),
        "b": pa.array([True, False, True, None]),
        "c": pa.array(["a", "b", "a", "b"]),
        "nested": pa.array([[1], [2], [3], [4]]),
    }
    pq.write_table(pa.table(columns), path)
    found = guess(path)
    assert {each.name: each.type for each in found.columns} == {
        "n": "integer", "x": "number", "b": "boolean", "c": "category", "nested": "",
    }  # fmt: skip
    assert [each.n_missing for each in found.columns] == [1, 1, 1, 0, 0]
    document = tomllib.loads(start(path))
    assert "csv" not in document["dataset"][0]
    assert document["dataset"][0]["attributes"]["x"]["decimals"] == 2


def test_headings_cannot_write_the_configuration(tmp_path: Path, capsys) -> None:
    """Whatever a column is called, the text stays TOML and says what it said."""
    names = ['a"] #', "\\u0000x", "é.ß"]
    unwritten = ['a"]\nmax = 1\n#', "line\u2028break", "\x7f", "=a", "@b", "a\u202eb"]
    path = tmp_path / 'od"d.csv'
    quoted = ['"' + name.replace('"', '""') + '"' for name in (*names, *unwritten)]
    path.write_text(",".join(quoted) + "\n" + "1,2,3,4,5,6,7,8,9\n" * 3, encoding="utf-8")
    text = start(path)
    assert list(tomllib.loads(text)["dataset"][0]["attributes"]) == names
    (tmp_path / "owner.toml").write_text(
        re.sub(r'^(min|max) = "FILL IN"', r"\1 = 1", text, flags=re.MULTILINE)
    )
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "owner.toml")
    assert [each.split()[0] for each in caught.value.problems] == ["owner.id", "dataset[od-d].total_epsilon"]
    command = ["init", str(path), "--out", str(tmp_path / "other.toml")]
    assert console.run(application(), "owner-node", command) == 0
    told = capsys.readouterr().out
    assert told.count("its name has control, invisible or bidirectional characters; rename it in") == 4
    assert told.count("its name starts like a formula, which spreadsheets would run; rename it in") == 2


def test_columns_that_no_attribute_can_be_called_by(tmp_path: Path) -> None:
    """A table's index without a heading, a heading that occurs twice, and a release's own are left out."""
    path = tmp_path / "index.csv"
    path.write_text(",age,age,record,token,ward\n" + "".join(f"{n % 9},1,2,3,4,A\n" for n in range(30)))
    text = start(path)
    (dataset,) = tomllib.loads(text)["dataset"]
    assert list(dataset["attributes"]) == ["ward"]
    assert "# No column of this file looks like one." in text
    assert "patient_id" not in text


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """What is wrong with the file is told as elsewhere: by place and count."""
    path = tmp_path / "broken.csv"
    path.write_text('a,b\n1,2\n3\n"x,4\n', encoding="utf-8")
    with pytest.raises(DataError, match="wrong number of fields"):
        guess(path)
    with pytest.raises(DataError, match="there is no such file") as caught:
        guess(tmp_path / "none.csv")
    # This path is relative to the current folder; those of owner.toml are not.
    assert caught.value.hint.startswith("correct the path; one in owner.toml is relative to")
    os.mkfifo(tmp_path / "pipe.csv")
    for endless in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(DataError, match="this is a pipe or a device, not a file"):
            guess(endless)


def test_another_encoding(tmp_path: Path) -> None:
    """A file of an older program is read as Windows wrote it."""
    path = tmp_path / "alt.csv"
    path.write_bytes("Äußeres;Größe\nGänse;1,5\nGänse;2,5\nÖl;2,5\n".encode("cp1252"))
    found = guess(path)
    assert (found.form.encoding, found.form.delimiter, found.form.decimal) == ("cp1252", ";", ",")
    assert [each.type for each in found.columns] == ["category", "number"]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """It writes beside the data, says what it left out, and never replaces a file."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path)
    arguments = ["init", path.name, "--id", "north", "--aggregator", "hub=hub.example:8443", "--json"]
    assert console.run(application(), "owner-node", arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["not_declared"] == ["patient", "note"]
    before = (tmp_path / "owner.toml").read_bytes()
    assert b'address = "hub.example:8443"' in before
    assert console.run(application(), "owner-node", arguments) == 2
    assert (tmp_path / "owner.toml").read_bytes() == before


def test_values_that_many_records_have_are_suggested_as_spikes(tmp_path: Path) -> None:
    """A comment names them, however they are written; none that few have, or in a column of few values."""
    rows = [("gain", "hours", "age", "floor")]
    for n in range(200):
        gain = ("0", "0,0", "0,00")[n % 3] if n % 2 else f"{n + 1}.234,75"
        rows.append((gain, str(40 if n < 60 else n), str(max(n, 30)), str(n % 2)))
    path = tmp_path / "incomes.csv"
    path.write_text("\n".join(map(";".join, rows)) + "\n")
    parts = (part.partition("# spikes = ") for part in start(path).split("[dataset.attributes."))
    suggested = {part.partition("]")[0]: spikes.partition("\n")[0] for part, found, spikes in parts if found}
    assert suggested == {'"gain"': "[0]", '"hours"': "[40]"}


def test_right_skewed_numbers_are_suggested_as_logarithmic(tmp_path: Path) -> None:
    """A comment says so of lognormal amounts, however they are written; not of others, or negative ones."""
    draw = np.random.default_rng(3)
    columns = {
        "crp": draw.lognormal(1, 1.2, 500).round(1),
        "income": np.where(draw.random(500) < 0.4, 0, draw.lognormal(9, 1.3, 500)).round(2),
        "balance": draw.lognormal(7, 1.3, 500).round(0) - 2000,
        "height": draw.normal(170, 9, 500).round(1),
        "wait": draw.exponential(60, 500).round(0),
        "floor": draw.integers(0, 9, 500),
    }
    rows = zip(*(map("{:.2f}".format, each.tolist()) for each in columns.values()), strict=True)
    path = tmp_path / "values.csv"
    text = "\n".join([";".join(columns), *map(";".join, rows)]) + "\n"
    for written in (text, text.replace(".", ",")):
        path.write_text(written)
        parts = start(path).split("[dataset.attributes.")
        suggested = [part.partition("]")[0] for part in parts if '# scale = "log"' in part]
        assert suggested == ['"crp"', '"income"']


COMPUTED = ("9.4", "9.53333333333333", "10.25", "11.0", "12.0666666666667")


def test_decimals_that_only_arithmetic_made_are_not_kept(tmp_path: Path) -> None:
    """Thirds of a number do not make a domain of 10^15 values; neither do noughts or exponents."""
    path = tmp_path / "wine.csv"
    rows = [f"{each},{n + 1}1.23496995123456,5.0,2.50E-3,1{n}345678.91" for n, each in enumerate(COMPUTED)]
    path.write_text("alcohol,pounds,flat,tiny,income\n" + "\n".join([*rows, rows[0]]) + "\n")
    found = {each.name: (each.decimals, each.most_decimals) for each in guess(path).columns}
    assert found == {"alcohol": (2, 14), "pounds": (4, 14), "flat": (0, 0), "tiny": (4, 4), "income": (2, 2)}


def test_a_person_is_asked_how_many_decimals_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """On a terminal the choice is a person's, with the guess as default; elsewhere it is reported."""
    monkeypatch.chdir(tmp_path)
    Path("wine.csv").write_text("alcohol\n" + "\n".join((*COMPUTED, COMPUTED[0])) + "\n")
    assert console.run(application(), "owner-node", ["init", "wine.csv", "--out", "a.toml"]) == 0
    about = "column 'alcohol': numbers have up to 14 decimal places, as computed numbers do"
    assert f"{about}; 2 are kept, finer numbers are rounded" in capsys.readouterr().err
    assert "decimals = 2\n" in Path("a.toml").read_text()
    monkeypatch.setattr("common.cli.console.can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("many\n3\n"))
    assert console.run(application(), "owner-node", ["init", "wine.csv", "--out", "b.toml"]) == 0
    asked = capsys.readouterr().err
    assert f"{about}. How many to keep? [2] " in asked
    assert "expected a whole number from 0 to 18" in asked
    assert "decimals = 3\n" in Path("b.toml").read_text()


@pytest.mark.parametrize("asks", [True, False])
def test_one_command_has_one_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool) -> None:
    """On a terminal, where a reader presses Enter, and elsewhere: the same file, without a limit on risk."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("age,sex,height\n" + "31,f,9.53333333333333\n45,m,9.25\n" * 20)
    assert console.run(application(), "owner-node", ["init", "people.csv", "--out", "a.toml"]) == 0
    assert set(tomllib.loads(Path("a.toml").read_text())["policy"]) == {"min_k"}
    monkeypatch.setattr("common.cli.console.can_ask", lambda: asks)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n" * 9))
    assert console.run(application(), "owner-node", ["init", "people.csv", "--out", "b.toml"]) == 0
    assert Path("b.toml").read_text() == Path("a.toml").read_text()


REMARK = "came again with {} and left"
PERSONAL = {
    "Name": ["A. Miller", "B. Smith"],
    "lastName": ["Miller", "Smith"],
    "patient_id": ["1", "2"],
    "Patient-Nr": ["7", "9"],
    "caseNumber": ["7", "9"],
    "Kundennummer": ["7", "9"],
    "Fall-Nr": ["7", "9"],
    "Versichertennummer": ["7", "9"],
    "contact": ["a@b.example", "c@d.example"],
    "phone": ["040123", "040124"],
    "remarks": ["none", "fine"],
    "Bemerkungen": ["gut", "so"],
    "history": [REMARK.format(word) for word in "abcdefghijklmnopqrstuvwxyz"],
}
HARMLESS = {
    "age": ["30", "31"],
    "ward_name": ["eye", "heart"],
    "drug": ["a", "b"],
    "household": ["lives in a house alone", "lives in a flat with others"],
    "email": ["yes", "no"],
    "valid": ["true", "false"],
    "identity": ["x", "y"],
    "cases": ["7", "9"],
    "Fallzahl": ["7", "9"],
}


@pytest.mark.parametrize(("name", "values"), (PERSONAL | HARMLESS).items())
def test_columns_about_the_person_itself_are_not_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, name: str, values: list[str]
) -> None:
    """Names, numbers, addresses and remarks are left out with the reason, however few of them differ."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{values[number % len(values)]},{number % 9}\n" for number in range(52))
    Path("people.csv").write_text(f"{name},visits\n{rows}")
    assert console.run(application(), "owner-node", ["init", "people.csv"]) == 0
    told = capsys.readouterr().out
    declared = tomllib.loads(Path("owner.toml").read_text())["dataset"][0]["attributes"]
    assert (name in declared) is (name in HARMLESS)
    assert (f'never read: "{name}": it looks like' in told) is (name in PERSONAL)


def test_an_attribute_that_another_one_determines_is_suggested_to_follow_it(tmp_path: Path) -> None:
    """In a comment, for a person to take over who knows that it holds for everybody."""
    path = tmp_path / "wards.csv"
    beds = {"medicine": 40, "surgery": 20, "eye": 20}
    rows = "\n".join(f"{ward},{beds[ward]},{number % 7}" for number in range(60) for ward in beds)
    path.write_text(f"ward,beds,day\n{rows}\n")
    text = start(path)
    suggested = [line for line in text.splitlines() if '"ward"' in line and line.startswith("#")]
    assert suggested == ['# In this file, each value of "ward" has one value here.', '# follows = "ward"']
    assert '# values = { "medicine" = 40, "surgery" = 20, "eye" = 20 }' in text
    assert text.index('attributes."beds"') < text.index(suggested[0]) < text.index('attributes."day"')


EVENTS = {
    "record_id": [str(n // 3 + 1) for n in range(120)],
    "redcap_event_name": [("baseline_arm_1", "month_3_arm_1", "month_6_arm_1")[n % 3] for n in range(120)],
    "age": [str(40 + n // 3) if n % 3 == 0 else "" for n in range(120)],
}
INSTRUMENTS = {
    "record_id": [str(n // 4 + 1) for n in range(120)],
    "redcap_repeat_instrument": ["" if n % 4 == 0 else "medication" for n in range(120)],
    "redcap_repeat_instance": ["" if n % 4 == 0 else str(n % 4) for n in range(120)],
    "consent___1": [str(n // 4 % 2) if n % 4 == 0 else "" for n in range(120)],
}
PERSONS = {
    "person_id": [str(1000 + n) for n in range(120)],
    "gender_concept_id": [("8507", "8532")[n % 2] for n in range(120)],
    "year_of_birth": [str(1930 + n * 7 % 70) for n in range(120)],
    "race_concept_id": [("8515", "8527", "0")[n % 3] for n in range(120)],
    "gender_source_value": [("M", "F")[n % 2] for n in range(120)],
    "location_id": [str(n % 4 + 1) for n in range(120)],
}
CONDITIONS = {
    "condition_occurrence_id": [str(n) for n in range(120)],
    "person_id": [str(1000 + n % 11) for n in range(120)],
    "condition_concept_id": [str(4000000 + n * 7919 % 500000) for n in range(120)],
    "condition_type_concept_id": ["32817", "32020"] * 60,
    "condition_start_datetime": [f"2001-01-{n % 28 + 1:02} 00:00:00" for n in range(120)],
}
FACTS = {
    "PATIENT_NUM": [str(n // 2) for n in range(120)],
    "ENCOUNTER_NUM": [str(n) for n in range(120)],
    "VITAL_STATUS_CD": ["N", "Y", "UD"] * 40,
    "CONCEPT_CD": [("ICD10CM:I10", "ICD10CM:E11.9", "LOINC:2160-0")[n % 3] for n in range(120)],
    "START_DATE": [f"2019-{n % 12 + 1:02}-11 00:00:00.0" for n in range(120)],
    "NVAL_NUM": [f"{n % 9}.{n % 7}" for n in range(120)],
}


@pytest.mark.parametrize(
    ("columns", "types", "identifier", "most"),
    [
        (EVENTS, ["", "category", "integer"], "record_id", 3),
        (INSTRUMENTS, ["", "category", "integer", "boolean"], "record_id", 4),
        (PERSONS, ["", "category", "integer", "category", "category", ""], "person_id", 1),
        (CONDITIONS, ["", "", "", "category", "date"], "person_id", 20),
        (FACTS, ["", "", "category", "category", "date", "number"], "PATIENT_NUM", 2),
    ],
    ids=["REDCap events", "REDCap instruments", "OMOP person", "OMOP condition_occurrence", "i2b2"],
)
def test_exports_of_hospitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, columns, types, identifier, most
) -> None:
    """Keys are no attributes, codes no quantities, and persons with several records are told."""
    monkeypatch.chdir(tmp_path)
    rows = [",".join(row) for row in zip(*columns.values(), strict=True)]
    Path("export.csv").write_text("\n".join([",".join(columns), *rows]) + "\n")
    assert console.run(application(), "owner-node", ["init", "export.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [document["attributes"].get(name, "") for name in columns] == types
    assert document["suggested"] == {"identifier": identifier, "max_records_per_person": most}
    text = Path("owner.toml").read_text()
    assert f'# identifier = "{identifier}"  # why: its name says so' in text
    assert (f"# max_records_per_person = {most}  # why: " in text) is (most > 1)
    assert text.count("type = ") == len(re.findall("(?m)^[^#\n].*  # why: ", text))
    assert ("# [dataset.person]  # why: " in text) is (most > 1)


def test_the_suggested_person_table_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Without its comment signs, and with domains filled in, it makes one record of each person."""
    monkeypatch.chdir(tmp_path)
    rows = [f"p{n % 20:02},2020-01-{1 + n % 28:02},{'AB'[n % 2]},{n}.5" for n in range(60)]
    Path("events.csv").write_text("\n".join(["patient_id,day,kind,cost", *rows]) + "\n")
    options = ["--id", "a", "--trust-domain", "x.example", "--aggregator", "c=localhost:1"]
    command = ["init", "events.csv", *options, "--total-epsilon", "1", "--json"]
    assert console.run(application(), "owner-node", command) == 0
    capsys.readouterr()
    text = Path("owner.toml").read_text()
    begin, end = text.index("# [dataset.person]  #"), text.index("[dataset.attributes")
    text = text[:begin] + re.sub("(?m)^# ", "", text[begin:end]) + text[end:]
    text = re.sub("(?m)^# (identifier = )", r"\1", text)
    for filled in ("2000-01-01", "2030-01-01", '["A", "B"]', "0", "99"):
        text = text.replace(f'"{FILL_IN}"\n', f"{filled}\n", 1)
    Path("owner.toml").write_text(text)
    loaded = load_data(load(Path("owner.toml")).dataset("events"))
    assert loaded.n_records == 20
    assert loaded.columns["cost"].tolist() == [205 + 10 * n for n in range(20)]


@pytest.mark.parametrize(
    ("name", "values", "kind", "why"),
    [
        ("seen", ["01JAN1960", "28FEB2001"], "date", "days written %d%b%Y"),
        ("seen", ["01JAN1960:00:00:00", "28FEB2001:00:00:00"], "date", "days written %d%b%Y:%H:%M:%S"),
        ("seen", ["01-JAN-1960", "28-Feb-2001"], "date", "days written %d-%b-%Y"),
        ("seen", ["2001-01-01 00:00:00", "2001-02-28 00:00:00"], "date", "%Y-%m-%d %H:%M:%S"),
        ("seen", ["2001-01-01T00:00:00", "2001-02-28T00:00:00"], "date", "%Y-%m-%dT%H:%M:%S"),
        ("seen", ["2001-01-01 00:00:00.000", "2001-02-28 00:00:00.000"], "date", "%H:%M:%S.%f"),
        ("seen", ["1/31/2020 0:00", "12/1/2020 0:00"], "date", "days written %m/%d/%Y %H:%M"),
        ("seen", ["01/31/2020", "12/01/2020"], "date", "days written %m/%d/%Y"),
        ("seen", ["20200131", "20201201"], "date", "days written %Y%m%d"),
        ("seen", ["20200132", "20201201"], "category", "far apart"),
        ("seen", ["2001-01-01 10:30:00", "2001-02-28 00:00:00"], "", "have times of day"),
        ("seen", ["01JAN1960:10:30:00", "28FEB2001:00:00:00"], "", "have times of day"),
        ("zip", ["04103", "10115"], "category", "different texts"),
        ("zip_code", ["10115", "10117"], "category", "its numbers are codes"),
        ("PLZ", ["10115", "10117"], "category", "its numbers are codes"),
        ("icd10", ["I10", "E11.9"], "category", "different texts"),
        ("icd9", ["250.01", "401.9"], "category", "its numbers are codes"),
        ("drg_code", ["194", "470"], "category", "its numbers are codes"),
        ("phone_number", ["+49 40 123", "+49 40 124"], "", "a direct identifier"),
        ("home phone", ["5551234", "5554321"], "", "a direct identifier"),
        ("mrn", ["71", "72"], "", "a direct identifier"),
        ("visit_occurrence_id", ["71", "72"], "", "a direct identifier"),
        ("remark", ["none", "fine"], "", "free text"),
        ("race", ["8515", "8516", "8527", "0"], "category", "far apart"),
        ("pain", ["1", "2", "3", "4", "5"], "integer", "whole numbers"),
        ("dose", ["250", "500", "1000"], "integer", "whole numbers"),
        ("born", ["1931", "1964", "1987"], "integer", "whole numbers"),
        ("count", ["0", "1", "40"], "integer", "whole numbers"),
        ("sex", ["1", "2"], "integer", "declare a category"),
        ("smoker", ["0", "1"], "boolean", "0 and 1 alone"),
        ("smoker", ["yes", "no"], "boolean", "words for yes and no"),
        ("crp", ["0.5", "12"], "number", "decimal places"),
    ],
)
def test_columns_of_many_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, name, values, kind, why
) -> None:
    """Each kind of column gets its type or none, and the reason stands beside it."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{values[n % len(values)]},{'ab'[n % 2]}\n" for n in range(60))
    Path("export.csv").write_text(f"{name},site\n{rows}")
    assert console.run(application(), "owner-node", ["init", "export.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["attributes"].get(name, "") == kind
    assert why in (document["why"] if kind else document["reasons"])[name]
    if kind:
        assert f'type = "{kind}"  # why: {document["why"][name]}\n' in Path("owner.toml").read_text()
    if kind == "date":
        (dataset,) = tomllib.loads(Path("owner.toml").read_text())["dataset"]
        assert document["why"][name].endswith(f" {dataset['csv']['date_format']}")


@pytest.mark.parametrize(
    ("first", "second", "pairs", "settings"),
    [
        (["a", "b", "c"], ["yes", "no", "no"], [("a", "true"), ("b", "false"), ("c", "false")], ""),
        (["a", "b"], ["01JAN1960", "02JAN1960"], [("a", "1960-01-01"), ("b", "1960-01-02")], "1960"),
        (["yes", "no"], ["4", "17"], [("false", "17"), ("true", "4")], "range"),
        (["3", "4", "5"], ["1,5", "2,25", "2,25"], [("3", "1.50"), ("4", "2.25"), ("5", "2.25")], "range"),
        (["01JAN1960", "02JAN1960"], ["x", "y"], [("1960-01-01", "x"), ("1960-01-02", "y")], "1960"),
        (["yes", "Yes", "no"], ["4", "4", "17"], [("false", "17"), ("true", "4")], "range"),
    ],
)
def test_suggested_tables_of_values_can_be_taken_over(tmp_path, first, second, pairs, settings) -> None:
    """Values of each type are written as settings accept them, not as the file writes them."""
    path = tmp_path / "two.csv"
    rows = "".join(f"{first[n % len(first)]};{second[n % len(first)]}\n" for n in range(90))
    path.write_text(f"a;b\n{rows}")
    text = re.sub(r"^# (follows|values) = ", r"\1 = ", start(path), flags=re.MULTILINE)
    text = text.replace('id = "FILL IN"', 'id = "north"').replace('_epsilon = "FILL IN"', '_epsilon = "2"')
    if first[0] == "3":
        text = text.replace('min = "FILL IN"', "min = 3", 1).replace('max = "FILL IN"', "max = 5", 1)
    low, high = ("1960-01-01", "1960-01-02") if settings == "1960" else ("0", "20")
    text = text.replace('min = "FILL IN"', f"min = {low}").replace('max = "FILL IN"', f"max = {high}")
    text = re.sub(r'(\["?.*\])\ncategories = "FILL IN"', r"\1\ncategories = \1", text)
    (tmp_path / "owner.toml").write_text(text)
    (dataset,) = load(tmp_path / "owner.toml").datasets
    assert [list(each.derivation.values) for each in dataset.following if each.derivation] == [pairs]


@pytest.mark.parametrize(("other", "suggested"), [("4", True), ("5", False)])
def test_texts_of_one_value_are_one_value_in_suggestions(tmp_path: Path, other: str, suggested: bool) -> None:
    """A person who writes Yes means yes: what holds for one of the texts alone is not suggested."""
    path = tmp_path / "births.csv"
    texts = [
        ("m", "no", "17", "a"),
        ("f", "yes", "4", "b"),
        ("m" if other == "5" else "f", "Yes", other, "a"),
    ]
    rows = [(*texts[n % 3], "xyz"[n // 3 % 3]) for n in range(360)]
    rows += [("f", "no", "17", "b", "x")] * 100
    path.write_text("\n".join(map(",".join, [("sex", "pregnant", "beds", "site", "ward"), *rows])) + "\n")
    text = start(path)
    assert ('# follows = "pregnant"' in text) is suggested
    zero = '{ "sex" = ["m"], "pregnant" = [true] }'
    assert (zero in text) is suggested


def test_long_texts_of_several_columns_are_looked_at_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One array of Arrow holds less than 2 GiB of texts, and together the columns of a batch have more."""
    path, update, sizes = written(tmp_path), guessing._update, []
    expected = guess(path)

    def measured(columns: list[guessing.ColumnGuess], texts: list[pa.Array]) -> None:
        sizes.append((len(columns), sum(array.nbytes for array in texts)))
        update(columns, texts)

    monkeypatch.setattr(guessing, "_update", measured)
    monkeypatch.setattr(guessing, "_BYTES_AT_ONCE", 4000)
    assert guess(path) == expected
    assert sum(n_columns for n_columns, _ in sizes) == len(HEADER)
    assert 1 < len(sizes) < len(HEADER)
    assert all(n_bytes <= 4000 or n_columns == 1 for n_columns, n_bytes in sizes)


def test_values_that_never_occur_together_are_suggested_as_rules(tmp_path: Path) -> None:
    """As comments that load once they are taken over; not where the values are too rare to tell."""
    path = tmp_path / "births.csv"
    rows = [("m", "no", "abc"[n % 3], "u" if n % 50 else "v") for n in range(150)]
    rows += [("f", ("yes", "no")[n % 2], "abc"[n % 3], "u") for n in range(150)]
    path.write_text("\n".join(map(",".join, [("sex", "pregnant", "ward", "rare"), *rows])) + "\n")
    text = start(path)
    rules = text.partition("# structural_zeros = [\n")[2].partition("# ]\n")[0]
    assert rules == '#     { "sex" = ["m"], "pregnant" = [true] },\n'
    text = re.sub(r"# (structural_zeros = \[\n)#(.+\n)# \]", r"\1\2]", text)
    text = text.replace('id = "FILL IN"', 'id = "north"').replace('_epsilon = "FILL IN"', '_epsilon = "2"')
    for labels in ('["m", "f"]', '["a", "b", "c"]', '["u", "v"]'):
        text = text.replace('categories = "FILL IN"', f"categories = {labels}", 1)
    (tmp_path / "owner.toml").write_text(text)
    (dataset,) = load(tmp_path / "owner.toml").datasets
    assert [str(rule) for rule in dataset.structural_zeros] == ["pregnant true with sex m"]


def test_texts_of_one_value_suggest_nothing(tmp_path: Path) -> None:
    """Two sites write yes and Yes: no rule and no table is made of that."""
    path = tmp_path / "sites.csv"
    rows = [(("yes", "no")[n % 2], "XY"[n // 2 % 2]) for n in range(200)]
    rows += [(("Yes", "No")[n % 2], "ZW"[n // 2 % 2]) for n in range(200)]
    path.write_text("dead,cause\n" + "".join(f"{dead},{cause}\n" for dead, cause in rows))
    text = start(path)
    assert 'type = "boolean"' in text
    assert "structural_zeros" not in text
    assert "follows" not in text
