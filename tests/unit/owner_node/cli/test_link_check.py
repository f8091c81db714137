"""`owner-node link-check`, `check` and `init` with match keys, run as their user runs them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from common.cli import console
from owner_node import config
from owner_node.cli import application
from owner_node.values.match_keys import SUGGESTED
from tests.fakes.misspelt import COLUMNS, misspelt, population

N, N_COMMON = 300, 200


def run(capsys, *arguments: str) -> tuple[int, str]:
    """Run a command; returns its exit code, and all that it printed."""
    code = console.run(application(), "owner-node", list(arguments))
    printed = capsys.readouterr()
    return code, printed.out + printed.err


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Path:
    """A folder with two files, and a configuration that `init` suggests and a person filled in."""
    everybody = population(N, seed=1)
    everybody[: N_COMMON + 50].to_csv(tmp_path / "ours.csv", index=False)
    misspelt(everybody, seed=2)[50:].to_csv(tmp_path / "theirs.csv", index=False)
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "init", "ours.csv", "--id", "a", "--trust-domain", "x.example")[0] == 0
    written = (tmp_path / "owner.toml").read_text()
    head, settings = written.split("# match = [\n", 1)
    passes = settings.split("# ]\n", 1)[0].replace("#   {", "  {")
    head = head.replace('address = "FILL IN"', 'address = "localhost:8443"').replace("FILL IN", "1")
    number = f'[dataset.attributes.truth]\ntype = "integer"\nmin = 0\nmax = {N}\n'
    (tmp_path / "owner.toml").write_text(f"{head}match = [\n{passes}]\n{number}")
    capsys.readouterr()
    return tmp_path


def test_two_files_are_linked_and_nothing_is_left_behind(folder, capsys):
    """The report of a release: by pass and in all; no name is shown, and no state is made."""
    before = sorted(folder.rglob("*"))
    code, text = run(capsys, "link-check", "ours.csv", "theirs.csv")
    assert code == 0
    assert f"ours.csv: {N_COMMON:,} of {N_COMMON + 50:,} records are linked" in text
    assert "pairs of persons were linked; an estimated" in text
    people = pd.read_csv("ours.csv", dtype=str)
    assert not [value for column in COLUMNS for value in people[column] if value in text]
    assert sorted(folder.rglob("*")) == before
    code, text = run(capsys, "link-check", "ours.csv", "theirs.csv", "--json")
    assert code == 0
    found = json.loads(text)
    assert [each["name"] for each in found["links"]["passes"]] == list(SUGGESTED)
    assert sum(int(each["linked"]) for each in found["links"]["passes"]) == N_COMMON
    assert [each["records"] for each in found["files"]] == [N_COMMON + 50, N - 50]


def test_one_file_shows_persons_who_are_entered_twice(folder, capsys):
    """Pairs alike are counted by pass; `check` shows the same of the data set."""
    people = pd.read_csv("ours.csv", dtype=str)
    pd.concat([people, people[:7]]).to_csv("ours.csv", index=False)
    code, text = run(capsys, "link-check", "ours.csv", "--json")
    assert code == 0
    (found,) = json.loads(text)["files"]
    assert [each["same"] for each in found["passes"]] == [7] * len(SUGGESTED)
    assert [each["told_apart"] for each in found["passes"]] == [N_COMMON + 50 - 7] * len(SUGGESTED)
    code, text = run(capsys, "check", "--json")
    assert json.loads(text)["datasets"][0]["match"] == found["passes"]


def test_an_entropy_without_pairs_alike_is_a_lower_bound(folder, capsys):
    """`check` says so as `link-check` does."""
    for arguments in (["check"], ["link-check", "ours.csv"]):
        code, text = run(capsys, *arguments)
        assert code == 0
        assert text.count("≥ ") >= len(SUGGESTED)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ours.csv", "theirs.csv", "ours.csv"], "one or two files"),
        (["sqlite:///ours.db"], "there is no such file"),
        (["ours.csv", "--dataset", "others"], "others"),
        (["bare.csv"], "'postcode': not in the source"),
    ],
)
def test_files_that_cannot_be_tried(folder, capsys, arguments, complaint):
    """Exit code 2, and what is wrong."""
    pd.read_csv("ours.csv").drop(columns="postcode").to_csv("bare.csv", index=False)
    code, text = run(capsys, "link-check", *arguments)
    assert code == 2
    assert complaint in text


def test_a_data_set_without_match_keys_cannot_be_tried(folder, capsys):
    """The hint says where suggestions are."""
    written = (folder / "owner.toml").read_text()
    head, rest = written.split("match = [\n", 1)
    (folder / "owner.toml").write_text(head + rest.split("]\n[", 1)[1].join(["[", ""]))
    assert not config.load(None).datasets[0].match
    code, text = run(capsys, "link-check", "ours.csv")
    assert code == 2
    assert "has no match keys" in text
    assert "owner-node init suggests some" in text
