"""`owner-node check`, run as its user runs it."""

import json
import re
from pathlib import Path

import pytest

from common.cli import console
from common.errors import DataError
from owner_node import config
from owner_node.cli import application
from owner_node.loading import load

OWNER = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"

[[aggregator]]
name = "central"
address = "localhost:8443"

[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"

[[dataset]]
name = "patients"
source = "patients.csv"
total_epsilon = "2.5"
identifier = "id"
normalise = ["trim"]
missing = "drop"

[dataset.attributes.age]
type = "integer"
min = 0
max = 120
outside = "clamp"

[dataset.attributes.weight]
type = "number"
min = 0
max = 5000
decimals = 1
"""
SECOND = """
[[dataset]]
name = "visits"
source = "visits.csv"
total_epsilon = "1"

[dataset.attributes.ward]
type = "category"
categories = ["A", "B"]
"""
PATIENTS = "id,age,weight\n" + "".join(f"person{n},{n},61.25\n" for n in range(130)) + "person130,,61.2\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a configuration and good data, in which the command is run."""
    (tmp_path / "owner.toml").write_text(OWNER)
    (tmp_path / "patients.csv").write_text(PATIENTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    """Run the command line and return its exit code."""
    return console.run(application(), "owner-node", ["check", *arguments])


def test_it_shows_what_would_be_sent(folder, capsys):
    """The owner sees the schema, what stays at home, what loading changed, and what to think about."""
    assert run() == 0
    shown = capsys.readouterr().out
    assert 'records: 130 (others see "at least 100")' in shown
    assert "dropped: 1 record with a missing value" in shown
    assert "identifier: 1 column, normalised by trim; at most 1 record per person" in shown
    assert "'weight': the declared domain is more than 10 times as wide as the data" in shown
    assert "'weight': decimals = 1 distinguishes more values than there are records" in shown
    assert "every owner has dropped the same persons" in shown


def test_the_json_document_holds_the_schema_itself(folder, capsys):
    """Programs get the very document that an invitation is answered with, beside the local counts."""
    assert run("--json", "--dataset", "patients") == 0
    (document,) = json.loads(capsys.readouterr().out)["datasets"]
    assert document["schema"]["records_rounded"] == "100"
    assert [each["name"] for each in document["schema"]["attributes"]] == ["age", "weight"]
    assert document["records"] == 130
    age, weight = document["attributes"]
    assert (age["clamped"], age["values"], age["domain"]) == (9, 121, "0 … 120")
    assert (weight["rounded"], weight["settings"]) == (130, "decimals = 1")


def test_every_bad_data_set_is_told_and_good_ones_are_shown(folder, capsys):
    """One run is enough to see the state of every data set; the exit code is 2."""
    (folder / "owner.toml").write_text(OWNER + SECOND + SECOND.replace("visits", "stays"))
    (folder / "visits.csv").write_text("ward\nA\nC\n")
    assert run() == 2
    captured = capsys.readouterr()
    assert "records: 130" in captured.out
    assert "column 'ward': unknown category (1 record)" in captured.err
    assert "there is no such file" in captured.err
    assert run("--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "bad_data"
    assert [each["dataset"] for each in error["details"]["datasets"]] == ["visits", "stays"]


@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["mask", "--epsilon", "1", "--out", "m.csv", "--yes"],
        ["explore"],
        ["query", "median", "--attribute", "age", "--epsilon", "1", "--yes"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_with_another_delimiter(folder, capsys, command):
    """Whatever reads it says what is wrong, with exit code 2."""
    (folder / "patients.csv").write_text(PATIENTS.replace(",", ";"))
    assert console.run(application(), "owner-node", [*command, "--dataset", "patients"]) == 2
    assert "column 'id': not in the source" in capsys.readouterr().err


def test_a_policy_that_knows_no_attribute(folder, capsys):
    """A mistyped name would leave an intruder with less, or nothing: no plan would exceed the limit."""
    owner = OWNER.replace("[[dataset]]", '[policy]\nknown = ["Weigth"]\n\n[[dataset]]', 1)
    unknown = "policy.known names 'Weigth', which no data set has"
    told = "policy.known names no attribute of data set 'patients'; max_reidentified judges no plan for it"
    limited = 'approval = "manual"\nmax_reidentified = 0.05\n'
    for limit, words in (("", {unknown}), (limited, {unknown, told})):
        (folder / "owner.toml").write_text(owner.replace("[policy]\n", f"[policy]\n{limit}"))
        assert run() == 0
        printed = capsys.readouterr().out
        assert {each for each in (unknown, told) if f"warning: {each}; " in printed} == words
        assert f"warning: {unknown}; did you mean 'weight'?" in printed
    (folder / "owner.toml").write_text(
        (folder / "owner.toml").read_text().replace('["Weigth"]', '["weight"]')
    )
    assert run() == 0
    assert "policy.known" not in capsys.readouterr().out


def test_a_policy_that_admits_no_attribute(folder, capsys):
    """It is a warning that names the data set and what was meant; what is asked about it is refused."""
    policy = '[policy]\nattributes = ["Weigth"]\n'
    (folder / "owner.toml").write_text(OWNER.replace("[[dataset]]", f"{policy}\n[[dataset]]", 1))
    unknown = "policy.attributes names 'Weigth', which no data set has"
    told = "policy.attributes names no attribute of data set 'patients'; no release can use it"
    assert run() == 0
    printed = capsys.readouterr().out
    assert f"warning: {unknown}; did you mean 'weight'?" in printed
    assert f"warning: {told}; its attributes: " in printed
    console.run(application(), "owner-node", ["doctor"])
    assert f"WARN  policy: {unknown}\n      did you mean 'weight'?" in capsys.readouterr().out
    assert run("--epsilon", "1") == 4
    assert "policy.attributes names no attribute of data set 'patients'" in capsys.readouterr().err
    (folder / "owner.toml").write_text(
        (folder / "owner.toml").read_text().replace('["Weigth"]', '["Weigth", "age"]')
    )
    assert run() == 0
    printed = capsys.readouterr().out
    assert f"warning: {unknown}; did you mean 'weight'?" in printed
    assert "names no attribute" not in printed


def test_one_bad_data_set_is_its_own_error(folder, capsys):
    """A program that asks about one data set finds its problems at one place."""
    (folder / "patients.csv").write_text("id,age\np,7\n")
    assert run("--json", "--dataset", "patients") == 2
    details = json.loads(capsys.readouterr().out)["error"]["details"]
    assert details["problems"] == [{"column": "weight", "problem": "not in the source", "count": None}]


@pytest.mark.parametrize(("mechanisms", "warned"), [('"idp-joint"', True), ('"exponential"', False)])
def test_a_method_that_the_policy_refuses(folder, capsys, mechanisms, warned):
    """Declared to be drawn and not allowed to be: said at once, and not when a release is refused."""
    taxonomy = 'taxonomy = "wards.csv"\nmethod = "exponential"\n'
    (folder / "owner.toml").write_text(f"{OWNER}{SECOND}{taxonomy}\n[policy]\nmechanisms = [{mechanisms}]\n")
    (folder / "wards.csv").write_text("A;all\nB;all\n")
    (folder / "visits.csv").write_text("ward\nA\nB\n")
    assert run("--json") == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("visits.ward" in each for each in warnings) is warned


def test_an_unknown_data_set(folder, capsys):
    """A wrong name is answered with the known ones."""
    assert run("--dataset", "patient") == 2
    assert "patients" in capsys.readouterr().err


def test_sums_that_cannot_fit_name_the_attribute_and_what_fits(folder, capsys):
    """A domain too fine for exact sums is found here, not by every release; the suggestion works."""
    fine = OWNER.replace("decimals = 1", "decimals = 14\nspikes = [500]")
    (folder / "owner.toml").write_text(fine)
    assert run() == 2
    error = capsys.readouterr().err
    assert "data set 'patients': sums of its values do not fit 63 bits" in error
    assert "attribute 'weight': its domain has 500,000,000,000,000,001 values" in error
    found = re.search(r"attribute 'weight': declare decimals = (\d+) or fewer", error)
    assert found is not None
    (folder / "owner.toml").write_text(fine.replace("decimals = 14", f"decimals = {found[1]}"))
    assert run() == 0
    (folder / "owner.toml").write_text(fine.replace("decimals = 14", f"decimals = {int(found[1]) + 1}"))
    assert run() == 2


def test_a_logarithmic_scale_is_shown(folder, capsys):
    """It is a setting of the attribute, in the table and for programs."""
    (folder / "owner.toml").write_text(OWNER + 'scale = "log"\n')
    assert run() == 0
    assert "decimals = 1, logarithmic scale" in capsys.readouterr().out
    assert run("--json") == 0
    (dataset,) = json.loads(capsys.readouterr().out)["datasets"]
    settings = {each["name"]: each["settings"] for each in dataset["attributes"]}
    assert settings == {"age": "clamps", "weight": "decimals = 1, logarithmic scale"}
    # The advice about decimals that fit is found with the scale, too.
    (folder / "owner.toml").write_text(OWNER.replace("decimals = 1", 'decimals = 14\nscale = "log"'))
    assert run() == 2
    assert "attribute 'weight': declare decimals = " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            SECOND + 'scale = "log"',
            "attributes.ward.scale: goes with type integer or number, not with category",
        ),
        (
            '[dataset.attributes.born]\ntype = "date"\nmin = 1900-01-01\nmax = 2026-12-31\nscale = "log"',
            "attributes.born.scale: goes with type integer or number, not with date",
        ),
        (
            '[dataset.attributes.change]\ntype = "integer"\nmin = -9\nmax = 9\nscale = "log"',
            "change.scale: a logarithmic scale goes with numbers, and min = 0 or more, below max; min is -9",
        ),
        (
            'scale = "logarithmic"',
            'attributes.weight.scale = "logarithmic": expected one of "linear" or "log"',
        ),
    ],
)
def test_a_wrong_scale_is_named(folder, capsys, declared, problem):
    """With its attribute, and with what it goes with."""
    (folder / "owner.toml").write_text(f"{OWNER}{declared}\n")
    assert run() == 2
    assert problem in capsys.readouterr().err


def test_what_is_misspelt_is_named_to_its_owner(folder, capsys):
    """Labels, columns and files are named with what they are close to: here, and in no other error."""
    (folder / "owner.toml").write_text(OWNER + SECOND + SECOND.replace("visits", "stays"))
    (folder / "visits.csv").write_text("ward\na \nseverelyill\n")
    (folder / "patients.csv").write_text(PATIENTS.replace("weight", "Weigth"))
    assert run("--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    for line in (
        "column 'weight': not in the source: did you mean 'Weigth'?",
        "only in case or blanks (1 record): 'a ' did you mean 'A'?",
        "column 'ward': unknown category (1 record): 'severelyill'",
        "there is no such file: did you mean 'visits.csv'?",
    ):
        assert line in error["message"]
    problems = [each for dataset in error["details"]["datasets"] for each in dataset["problems"]]
    assert [each["examples"] for each in problems][1:3] == [["'a ' did you mean 'A'?"], ["'severelyill'"]]
    visits = config.load(folder / "owner.toml").dataset("visits")
    with pytest.raises(DataError) as caught:
        load(visits)
    assert "severelyill" not in str(caught.value.to_document())
