"""`owner-node check --epsilon`: what the policy would say, without asking, reserving or counting anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.cli import console
from common.errors import ExitCode
from owner_node.cli import application

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

{policy}

[[dataset]]
name = "patients"
source = "patients.csv"
total_epsilon = "2.5"
identifier = "id"

[dataset.attributes.age]
type = "integer"
min = 0
max = 120

[dataset.attributes.weight]
type = "number"
min = 0
max = 500
decimals = 1
"""
PATIENTS = "id,age,weight\n" + "".join(f"person{n},{n % 97},{60 + n % 31}.2\n" for n in range(400))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch, capsys):
    """Asks about a release under a policy; returns the exit code and what was said."""
    (tmp_path / "patients.csv").write_text(PATIENTS)
    monkeypatch.chdir(tmp_path)

    def ask(*options: str, policy: str = "") -> tuple[int, dict[str, Any]]:
        (tmp_path / "owner.toml").write_text(OWNER.format(policy=f"[policy]\n{policy}" if policy else ""))
        code = console.run(application(), "owner-node", ["check", *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


def test_accepted(asked, tmp_path) -> None:
    """An owner sees what it would be charged and what would remain, and that nothing came of asking."""
    code, document = asked("--epsilon", "1", "--owners", "south,east")
    release = document["release"]
    assert (code, release["answer"], release["rule"]) == (ExitCode.DONE, "accept", 'policy.approval = "auto"')
    assert (release["charge"], release["remaining"], release["remaining_after"]) == ("1", "2.5", "1.5")
    assert release["owners"] == ["north", "south", "east"]
    assert [each["name"] for each in release["attributes"]] == ["age", "weight"]
    assert [each["name"] for each in release["forecast"]["attributes"]] == ["age", "weight"]
    assert not (tmp_path / "state").exists()


def test_the_share_of_a_layout(asked) -> None:
    """In a layout of several groups this owner's share is what counts."""
    for options, charge in (
        (("--layout", "vertical", "--owners", "north,south"), "0.5"),
        (("--layout", "mixed", "--groups", "a,b;north,c;d"), "0.333333333332"),
    ):
        release = asked("--epsilon", "1", *options)[1]["release"]
        assert release["charge"] == charge


def test_an_owner_of_two_groups(asked) -> None:
    """It says which of its attributes are in which group, and is charged for both."""
    groups = ("--epsilon", "1", "--layout", "mixed", "--groups", "a,north;north,c")
    code, document = asked(*groups, "--attributes", "age;weight")
    assert (code, document["release"]["charge"]) == (ExitCode.DONE, "1")
    assert [each["epsilon"] for each in document["release"]["attributes"]] == ["0.5", "0.5"]
    for wrong in (
        (),
        ("--attributes", "age"),
        ("--attributes", "age;age"),
        ("--attributes", "age;weight;age"),
    ):
        code, document = asked(*groups, *wrong)
        assert code == ExitCode.USAGE, document


def test_what_linking_may_find(asked) -> None:
    """Shared persons are charged as often as is asked about; policies allow that and intersections or not."""
    shared = ("--epsilon", "1", "--owners", "south", "--max-overlap", "2")
    assert "policy.max_overlap = 1" in asked(*shared)[1]["error"]["message"]
    code, document = asked(*shared, policy="max_overlap = 2")
    assert (code, document["release"]["charge"], document["release"]["epsilon"]) == (ExitCode.DONE, "2", "2")
    assert "at up to 2 owners" in " ".join(document["release"]["linking"])
    common = ("--epsilon", "1", "--layout", "vertical", "--owners", "south", "--on-mismatch", "intersect")
    assert "policy.allow_intersect = false" in asked(*common)[1]["error"]["message"]
    code, document = asked(*common, policy="allow_intersect = true")
    assert (code, document["release"]["charge"]) == (ExitCode.DONE, "0.5")
    for wrong in (("--max-overlap", "3"), ("--max-overlap", "x"), ("--on-mismatch", "intersect")):
        assert asked("--epsilon", "1", "--owners", "south", *wrong)[0] == ExitCode.USAGE


def test_a_person_would_be_asked(asked) -> None:
    """Whom the policy would ask is told, with the rule: exit 0."""
    code, document = asked("--epsilon", "1", policy="manual_above_epsilon = 0.5")
    assert (code, document["release"]["answer"]) == (ExitCode.DONE, "ask")
    assert document["release"]["rule"].startswith("policy.manual_above_epsilon = 0.5")


def test_every_rule_that_objects(asked) -> None:
    """A refusal names every rule at once, and ends with exit 4."""
    policy = 'min_k = 50\nlayouts = ["vertical"]\npurposes = ["care"]\nco_owners = ["south"]'
    code, document = asked("--epsilon", "1", "--k", "10", "--owners", "east", policy=policy)
    rules = document["error"]["details"]["rules"]
    assert code == ExitCode.REFUSED
    assert [rule.split()[0] for rule in rules] == [
        "policy.min_k", "policy.min_k", "policy.layouts", "policy.co_owners", "policy.purposes",
    ]  # fmt: skip
    named = asked(
        "--epsilon", "1", "--owners", "south", "--purpose", "care", "--layout", "vertical", policy=policy
    )
    assert named[0] == ExitCode.DONE


def test_what_the_data_would_give(asked) -> None:
    """A limit on what the data would let leave unchanged is told; a person would decide."""
    code, document = asked("--epsilon", "1", policy='approval = "manual"\nmax_unchanged_share = 0.0')
    assert (code, document["release"]["answer"]) == (0, "ask")
    (rule,) = document["release"]["exceeded"]
    assert rule.startswith("policy.max_unchanged_share = 0.0: ")


def test_the_balance(asked) -> None:
    """A charge over the balance ends with exit 5."""
    code, document = asked("--epsilon", "3")
    assert (code, document["error"]["details"]["remaining"]) == (ExitCode.BALANCE, "2.5")


@pytest.mark.parametrize(
    "options",
    [
        ("--layout", "vertical"),
        ("--epsilon", "0"),
        ("--epsilon", "1", "--layout", "round"),
        ("--epsilon", "1", "--k", "2"),
        ("--epsilon", "1", "--groups", "a,b"),
        ("--epsilon", "1", "--groups", "a;north"),
        ("--epsilon", "1", "--owners", "a", "--groups", "north"),
        ("--epsilon", "1", "--mechanism", "trust-me"),
        ("--epsilon", "1", "--attributes", "height"),
    ],
)
def test_a_question_that_makes_no_sense(asked, options) -> None:
    """What could not be asked of an aggregator is told as such, exit 2."""
    code, document = asked(*options)
    assert (code, document["error"]["code"]) == (ExitCode.USAGE, "usage")


def test_in_words(asked, capsys) -> None:
    """On a terminal the answer follows what check shows anyway."""
    asked("--epsilon", "1")
    assert console.run(application(), "owner-node", ["check", "--epsilon", "1"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "the policy would accept a horizontal release of north" in out
    assert console.run(application(), "owner-node", ["check", "--epsilon", "9"]) == ExitCode.BALANCE
