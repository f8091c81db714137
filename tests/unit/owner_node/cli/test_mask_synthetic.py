"""`owner-node mask --product synthetic`: charged once, drawn from noisy counts alone, refused in words."""

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from common.cli import console
from owner_node.cli import application
from tests.fakes.owner_folder import ask_mask, make_owner_folder, spends

OWNER = """
[owner]
id = "north"
trust_domain = "example.org"
state_dir = "state"
[tls]
ca = "ca.pem"
cert = "c.pem"
key = "k.pem"
{policy}
[[dataset]]
name = "patients"
source = "patients.csv"
total_epsilon = "2.5"
{more}
[dataset.attributes.age]
type = "integer"
min = 0
max = 99
[dataset.attributes.ward]
type = "category"
categories = ["medicine", "surgery"]
[dataset.attributes.ill]
type = "boolean"
"""
APPROVED = 'approval = "auto"'
SYNTHETIC = ("--product", "synthetic")
SEVERAL = 'identifier = "id"\nmax_records_per_person = 2'


def make(folder: Path, n_records: int = 20_000, *, policy: str = "", more: str = "") -> None:
    """Write a data set in which old people are ill, and all the ill are in one ward."""
    draw = random.Random(1)
    (folder / "owner.toml").write_text(OWNER.format(policy=policy, more=more))
    rows = []
    for number in range(n_records):
        age = draw.randint(20, 79)
        ill = age >= 50
        rows.append(f"p{number},{age},{'medicine' if ill else 'surgery'},{str(ill).lower()}\n")
    (folder / "patients.csv").write_text("id,age,ward,ill\n" + "".join(rows))


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Ask without --anyway; return the exit code and the message."""
    command = ["mask", "--dataset", "patients", "--epsilon", "1", "--out", "a.csv", *SYNTHETIC, *options]
    code = console.run(application(), "owner-node", [*command, "--yes", "--json"])
    return code, json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_delta_is_charged_beside_epsilon(tmp_path, monkeypatch, capsys):
    """Without total_delta it is refused; with it, it is in ledger and report, and up to the total."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    asked = ("--delta", "0.000001", "--attributes", "ward,ill", "--out", "a.csv")
    assert refused(capsys, *asked)[1].startswith("policy.total_delta = 0: budget 'patients' has had δ 0")
    make(tmp_path, policy='[policy]\ntotal_delta = "0.000001"')
    code, document = ask_mask(capsys, *SYNTHETIC, *asked)
    assert (code, document["charged"], document["report"]["delta"]) == (0, "1", "0.000001")
    assert "δ = 0.000001" in document["report"]["promises"][0]
    code = console.run(application(), "owner-node", ["ledger", "--json"])
    (balance,) = json.loads(capsys.readouterr().out)["balances"]
    assert (code, balance["spent"], balance["delta"]) == (0, "1", "0.000001")
    code, text = refused(capsys, *asked[:-1], "b.csv")
    assert "has had δ 0.000001, this would be 0.000001 more" in text
    assert refused(capsys, "--delta", "0.00001", "--out", "c.csv")[1].startswith(
        "delta 0.00001 is too large for"
    )


def test_synthetic_values_keep_the_declared_grid(tmp_path, monkeypatch, capsys):
    """Ages come in fives, and whoever verifies draws the same."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    place = tmp_path / "owner.toml"
    place.write_text(place.read_text().replace("max = 99", "max = 100\nstep = 5"))
    code, document = ask_mask(capsys, *SYNTHETIC, "--out", "a.csv")
    assert code == 0, document
    drawn = pd.read_csv("a.csv")["age"]
    assert (drawn % 5 == 0).all()
    assert drawn.nunique() > 10
    assert console.run(application(), "owner-node", ["verify", "a.csv"]) == 0


def test_what_a_person_reads(tmp_path, monkeypatch, capsys):
    """What was made and charged, the first time and when it is delivered again."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, policy='[policy]\ntotal_delta = "0.000001"')
    command = ["mask", "--dataset", "patients", "--epsilon", "1", "--delta", "0.000001", *SYNTHETIC, "--yes"]
    for out, charged in (("a.csv", "charged ε 1, δ 0.000001"), ("b.csv", "charged nothing")):
        assert console.run(application(), "owner-node", [*command, "--out", out, "--id", "first"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert f"made: {out} (20,000 records, drawn)" in text
        assert charged in text


def test_declared_rules_hold_and_are_verified(tmp_path, monkeypatch, capsys):
    """A rule of owner.toml holds, is said and is in the report, without which nobody draws these records."""
    monkeypatch.chdir(tmp_path)
    rule = "{ age = { max = 49 }, ill = [true] }"
    make(tmp_path, more=f'structural_zeros = [{rule}, {{ ward = ["surgery"], ill = [true] }}]')
    command = ["mask", "--dataset", "patients", "--epsilon", "1", *SYNTHETIC, "--yes", "--out", "a.csv"]
    assert console.run(application(), "owner-node", command) == 0
    assert "None has: age 0 to 49 with ill true" in capsys.readouterr().out
    drawn = pd.read_csv("a.csv")
    assert drawn["ill"].any()
    assert not (drawn["ill"] & ((drawn["age"] < 50) | (drawn["ward"] == "surgery"))).any()
    assert console.run(application(), "owner-node", ["verify", "a.csv"]) == 0
    place = Path("a.csv.report.json")
    report = json.loads(place.read_text())
    place.write_text(json.dumps({key: each for key, each in report.items() if key != "structural_zeros"}))
    assert console.run(application(), "owner-node", ["verify", "a.csv"]) == 7
    report["structural_zeros"][0]["values"][0]["ranges"] = [["0", "490"]]
    place.write_text(json.dumps(report))
    assert console.run(application(), "owner-node", ["verify", "a.csv"]) == 7
    assert "structural zero 1" in capsys.readouterr().err


FOLLOWED_UP = """
[dataset.attributes.cause]
type = "integer"
min = 1
max = 300
missing = "category"
[dataset.attributes.left]
type = "date"
min = 2020-01-01
max = 2020-12-31
missing = "category"
"""


def test_rules_about_missing_values_hold_in_every_record(tmp_path, monkeypatch, capsys):
    """All who are ill, and nobody else, have a cause; they left in the first half of the year."""
    monkeypatch.chdir(tmp_path)
    rules = (
        "{ ill = [true], cause = { missing = true } }",
        "{ ill = [false], cause = { missing = false } }",
        '{ ill = [true], left = { min = "2020-07-01", missing = true } }',
    )
    make(tmp_path, more=f"structural_zeros = [{', '.join(rules)}]")
    place, draw = tmp_path / "owner.toml", random.Random(2)
    place.write_text(place.read_text() + FOLLOWED_UP)
    head, *rows = (tmp_path / "patients.csv").read_text().splitlines()
    for number, row in enumerate(rows):
        ill, month = row.endswith("true"), draw.randint(1, 12)
        # A few originals break the rules.
        cause = draw.randint(1, 300) if ill is (draw.random() < 0.98) else ""
        left = f"2020-{month:02}-15" if draw.random() < 0.7 else ""
        rows[number] = f"{row},{cause},{left}"
    (tmp_path / "patients.csv").write_text("\n".join([f"{head},cause,left", *rows]) + "\n")
    command = ["mask", "--dataset", "patients", "--epsilon", "2", *SYNTHETIC, "--yes", "--out", "a.csv"]
    assert console.run(application(), "owner-node", command) == 0
    assert "None has: cause (missing) with ill true; cause 1 to 300 with ill false" in capsys.readouterr().out
    drawn = pd.read_csv("a.csv")
    assert (drawn["cause"].notna() == drawn["ill"]).all()
    assert 0.4 < drawn["ill"].mean() < 0.6
    left = drawn.loc[drawn["ill"], "left"]
    assert left.notna().all()
    assert (left < "2020-07-01").all()
    assert drawn["left"].isna().any()
    assert console.run(application(), "owner-node", ["verify", "a.csv"]) == 0


def test_relations_survive_and_the_charge_is_epsilon(tmp_path, monkeypatch, capsys):
    """As many records as there are, in their domains, with the relations of the data; ε is charged once, and
    the same id gives the same file without a charge.
    """
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    code, document = ask_mask(capsys, *SYNTHETIC, "--out", "a.csv", "--id", "first")
    assert (code, document["charged"], document["remaining"]) == (0, "1", "1.5")
    drawn = pd.read_csv("a.csv")
    assert (len(drawn), list(drawn.columns)) == (20_000, ["age", "ward", "ill"])
    assert drawn["age"].between(0, 99).all()
    assert ((drawn["age"] >= 50) == drawn["ill"]).mean() > 0.95
    assert ((drawn["ward"] == "medicine") == drawn["ill"]).mean() > 0.97
    assert abs(drawn["ill"].mean() - 0.5) < 0.03
    report = document["report"]
    assert (report["product"], report["epsilon"], report["records"]) == ("synthetic", "1", "20000")
    assert report["relations"]
    assert any("whole records" in line for line in report["promises"])
    code, again = ask_mask(capsys, *SYNTHETIC, "--out", "b.csv", "--id", "first")
    assert (code, again["charged"]) == (0, 0)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert spends(tmp_path) == [("first", Decimal(1))]
    other = ask_mask(capsys, "--out", "c.csv", "--id", "first")
    assert other[0] == 3


@pytest.mark.parametrize(
    ("made", "options", "code", "words"),
    [
        ({"policy": '[policy]\nproducts = ["masked"]'}, (), 4, "policy.products does not list 'synthetic'"),
        ({"policy": '[policy]\nattributes = ["age"]'}, ("--attributes", "ill"), 4, "policy.attributes"),
        ({"policy": '[policy]\nmax_epsilon_per_release = "0.5"'}, (), 4, "policy.max_epsilon_per_release"),
        ({}, ("--k", "5"), 2, "--k: only with --product masked"),
        ({}, ("--rank-noise", "0.1"), 2, "--rank-noise: only with"),
        ({"n_records": 100}, (), 4, "too few records"),
        ({"more": SEVERAL}, ("--attributes", "age"), 2, "a person has one record"),
        ({}, ("--epsilon", "1E-12", "--attributes", "ill,ward"), 2, "leaves nothing of epsilon"),
        ({}, ("--epsilon", "1E-9", "--attributes", "ill", "--anyway"), 2, "the noise of this budget"),
        ({}, ("--epsilon", "1E-9", "--attributes", "ill,ward", "--anyway"), 2, "the noise of this budget"),
    ],
)
def test_what_is_refused_costs_nothing(tmp_path, monkeypatch, capsys, made, options, code, words):
    """Policy, budget and settings that are not possible, and tables that noise would hide."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, **({"n_records": 2000} | made))
    found, message = refused(capsys, *options)
    assert (found, words in message) == (code, True), message
    assert not Path("a.csv").exists()
    if (tmp_path / "state").exists():
        assert spends(tmp_path) == []


def test_a_policy_of_synthetic_tables_alone(tmp_path, monkeypatch, capsys):
    """Masked records are refused where a policy lists other products."""
    monkeypatch.chdir(tmp_path)
    make_owner_folder(tmp_path, policy='products = ["synthetic"]')
    code, document = ask_mask(capsys, "--out", "a.csv")
    assert (code, document["error"]["message"]) == (4, "policy.products does not list 'masked'")


def test_one_attribute_and_one_value(tmp_path, monkeypatch, capsys):
    """A single attribute has no relations; a table of it is its noisy list."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, 500)
    code, document = ask_mask(capsys, *SYNTHETIC, "--out", "a.parquet", "--attributes", "ward")
    assert (code, document["report"]["relations"]) == (0, [])
    assert set(pd.read_parquet("a.parquet")["ward"]) <= {"medicine", "surgery"}


def asked(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, dict[str, Any]]:
    """Run a command with --json; return exit code and document."""
    capsys.readouterr()
    code = console.run(application(), "owner-node", [*command, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_explore_says_what_epsilon_gives_which_error(tmp_path, monkeypatch, capsys):
    """Tables are tried on the data and compared with them; nothing is charged, and no table is kept."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, 3000)
    explore = ("explore", "--dataset", "patients", *SYNTHETIC, "--repetitions", "2")
    code, document = asked(capsys, *explore, "--epsilon", "0.05,5")
    assert (code, document["records"]) == (0, 3000)
    little, much = document["tables"]
    assert float(much["one_way"]) < 0.03 < float(little["one_way"])
    assert float(much["two_way"]) < 0.1 < float(little["two_way"])
    assert float(much["expected_two_way"]) < float(little["expected_two_way"])
    assert (little["fits"], much["fits"]) == (False, True)
    assert "masked records fit better, or an epsilon of" in little["noise"]
    _, less = asked(capsys, *explore, "--epsilon", "1", "--delta", "0.000001", "--attributes", "ward,ill")
    (pair,) = less["tables"][0]["pairs"]
    assert ((pair["first"], pair["second"]), less["tables"][0]["fits"]) == (("ward", "ill"), True)
    assert float(pair["found"]) < 0.05 > float(pair["expected"])
    assert {each["name"] for each in less["tables"][0]["attributes"]} == {"ward", "ill"}
    assert not (tmp_path / "state").exists()
    capsys.readouterr()
    assert console.run(application(), "owner-node", [*explore, "--epsilon", "0.05"]) == 0
    printed = capsys.readouterr().out
    assert "too few records" in printed
    assert "farthest pairs: " in printed
    assert "It depends on the data and is for their owner" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*SYNTHETIC, "--k", "5"), "--product synthetic does not take --k"),
        ((*SYNTHETIC, "--attacks", "none", "--out", "a.html"), "does not take --attacks, --out"),
        (("--delta", "0.000001"), "--delta: only with --product synthetic"),
        ((*SYNTHETIC, "--delta", "0.01"), "delta 0.01 is too large"),
        ((*SYNTHETIC, "--epsilon", "none"), "epsilon"),
    ],
)
def test_what_explore_cannot_try(tmp_path, monkeypatch, capsys, options, words):
    """Options that another product has, and budgets that are none."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, 500)
    code, document = asked(capsys, "explore", "--dataset", "patients", *options)
    assert (code, words in document["error"]["message"]) == (2, True), document


def test_check_says_what_a_plan_would_ask(tmp_path, monkeypatch, capsys):
    """The policy's answer to a synthetic release, its charge, its rounds, and what noise would leave."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, policy=f"[policy]\n{APPROVED}")
    check = ("check", "--dataset", "patients", "--epsilon", "1", *SYNTHETIC, "--aggregator", "central")
    code, document = asked(capsys, *check)
    release = document["release"]
    assert (code, release["answer"], release["charge"]) == (0, "accept", "1")
    assert "3 attributes" in release["questions"]
    assert "expected total variation" in release["questions"]
    capsys.readouterr()
    assert console.run(application(), "owner-node", list(check)) == 0
    assert "synthetic records: ε 1 for the whole record of a person" in capsys.readouterr().out
    (tmp_path / "owner.toml").write_text(
        (tmp_path / "owner.toml").read_text().replace("[policy]", '[policy]\nproducts = ["masked"]')
    )
    code, document = asked(capsys, *check)
    assert (code, "products" in document["error"]["message"]) == (4, True)
    assert not (tmp_path / "state").exists()
