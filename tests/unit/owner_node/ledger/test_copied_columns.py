"""A copy of charged data has no budget of its own, whichever of its columns were worked with before."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from common.cli import console
from common.errors import RefusedError
from owner_node.cli import application
from owner_node.notebook import Workspace
from tests.fakes.owner_folder import make_owner_folder, spends

COPY = """
[[dataset]]
name = "copy"
source = "copy.csv"
budget = "copy"
total_epsilon = "3"
"""
INCOME = """
[dataset.attributes.income]
type = "number"
min = -10
max = 9000
decimals = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An owner's folder, and the place of work."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path)


def declare_copy(folder: Path, *, identifier: str = "", frame: pd.DataFrame | None = None) -> None:
    """Declare a second data set with one attribute, whose file is a copy of the first one's."""
    copied = pd.read_csv("patients.csv", dtype=str) if frame is None else frame
    copied.to_csv("copy.csv", index=False)
    with (folder / "owner.toml").open("a") as stream:
        stream.write(COPY + (f'identifier = "{identifier}"\n' if identifier else "") + INCOME)


def ask(capsys: Any, *command: str) -> tuple[int, dict[str, Any]]:
    """Run a command with --yes and --json, a mask with --anyway, too: there are few records."""
    anyway = ["--anyway"] if command[0] == "mask" else []
    code = console.run(application(), "owner-node", [*command, *anyway, "--epsilon", "1", "--yes", "--json"])
    return code, json.loads(capsys.readouterr().out)


def query(capsys: Any, dataset: str, attribute: str) -> tuple[int, dict[str, Any]]:
    """Ask for a median."""
    return ask(capsys, "query", "median", "--dataset", dataset, "--attribute", attribute)


@pytest.mark.parametrize("first", ["query", "mask"])
def test_other_columns_of_a_copy(folder: Path, capsys: Any, first: str) -> None:
    """After one column was charged, a copy's other columns are known, to queries and masks, uncharged."""
    declare_copy(folder)
    if first == "query":
        assert query(capsys, "patients", "age")[0] == 0
    else:
        assert ask(capsys, "mask", "--dataset", "patients", "--attributes", "age", "--out", "a.csv")[0] == 0
    for command in (
        ("query", "median", "--dataset", "copy", "--attribute", "income"),
        ("mask", "--dataset", "copy", "--out", "b.csv"),
    ):
        code, document = ask(capsys, *command)
        assert (code, "charged to budget 'people'" in document["error"]["message"]) == (4, True)
    assert len(spends(folder)) == 1


def test_check_says_what_the_ledger_would(folder: Path, capsys: Any) -> None:
    """`check --epsilon` recognises a copy as well, since every release of it is refused; it keeps nothing."""
    declare_copy(folder)
    asked = ["check", "--dataset", "copy", "--epsilon", "1", "--aggregator", "central", "--json"]
    assert console.run(application(), "owner-node", asked) == 0
    assert not Path("state").exists()
    capsys.readouterr()
    assert query(capsys, "patients", "age")[0] == 0
    assert console.run(application(), "owner-node", asked) == 4
    assert "charged to budget 'people'" in capsys.readouterr().out
    assert len(spends(folder)) == 1


def test_a_copy_where_other_records_are_left_out(folder: Path, capsys: Any) -> None:
    """Which records are left out depends on the columns that are chosen; a column is known all the same."""
    table = pd.read_csv("patients.csv", dtype=str)
    table.loc[:9, "age"], table.loc[20:29, "income"] = None, None
    table.to_csv("patients.csv", index=False)
    declare_copy(folder)
    Path("owner.toml").write_text(
        Path("owner.toml").read_text().replace("total_epsilon", 'missing = "drop"\ntotal_epsilon')
    )
    chosen = ("--attributes", "age,income", "--out", "a.csv")
    assert ask(capsys, "mask", "--dataset", "patients", *chosen)[0] == 0
    assert query(capsys, "copy", "income")[0] == 4
    assert len(spends(folder)) == 1


@pytest.mark.parametrize("first", ["patients", "copy"])
def test_a_copy_that_keeps_missing_values(folder: Path, capsys: Any, first: str) -> None:
    """Columns are known whether their missing values are kept or their records left out."""
    table = pd.read_csv("patients.csv", dtype=str)
    table.loc[20:29, "income"] = None
    table.to_csv("patients.csv", index=False)
    declare_copy(folder)
    whole, copy = Path("owner.toml").read_text().split('name = "copy"')
    whole = whole.replace("total_epsilon", 'missing = "drop"\ntotal_epsilon')
    copy = copy.replace("decimals = 2", 'decimals = 2\nmissing = "category"').replace(
        "max = 9000", "max = 9500"
    )
    Path("owner.toml").write_text(f'{whole}name = "copy"{copy}')
    count = ("query", "count", "--attribute", "income", "--equals", "5")
    other = {"patients": "copy", "copy": "patients"}[first]
    assert ask(capsys, *count, "--dataset", first)[0] == 0
    assert ask(capsys, *count, "--dataset", other)[0] == 4
    assert len(spends(folder)) == 1


def test_the_same_persons_with_other_values(folder: Path, capsys: Any) -> None:
    """Equal identifiers that are no serial numbers are the same persons, whatever else the file says."""
    table = pd.read_csv("patients.csv", dtype=str)
    table["id"] = [f"secret-{number}" for number in np.random.default_rng(2).integers(0, 10**9, len(table))]
    table.to_csv("patients.csv", index=False)
    declare_copy(folder, identifier="id", frame=table[["id"]].assign(income=7.5).sample(frac=1))
    assert query(capsys, "patients", "age")[0] == 0
    code, document = query(capsys, "copy", "income")
    assert (code, "charged to budget 'people'" in document["error"]["message"]) == (4, True)


def test_serial_numbers_are_nobody(folder: Path, capsys: Any) -> None:
    """Files of other people whose identifiers count from 1 as well have a budget of their own."""
    table = pd.read_csv("patients.csv", dtype=str)
    incomes = np.random.default_rng(9).integers(0, 900_000, len(table)) / 100
    declare_copy(folder, identifier="id", frame=table[["id"]].assign(income=incomes))
    assert query(capsys, "patients", "age")[0] == 0
    assert query(capsys, "copy", "income")[0] == 0


def test_columns_that_are_not_asked_for_may_be_wrong(folder: Path, capsys: Any) -> None:
    """Values that are missing, or not as declared, in other columns stop no answer, and drop no record."""
    table = pd.read_csv("patients.csv", dtype=str)
    table.loc[3, "income"], table.loc[4, "ward"], table.loc[5, "admitted"] = "much", None, "soon"
    table.drop(columns="stage").to_csv("patients.csv", index=False)
    assert query(capsys, "patients", "age")[0] == 0
    with_missing = (
        Path("owner.toml").read_text().replace('identifier = "id"', 'identifier = "id"\nmissing = "drop"')
    )
    Path("owner.toml").write_text(with_missing)
    code, document = ask(capsys, "mask", "--dataset", "patients", "--attributes", "age", "--out", "a.csv")
    assert (code, document["report"]["records"]) == (0, str(len(table)))


def test_a_frame_that_was_charged(tmp_path: Path) -> None:
    """In a notebook, too, another budget is refused for columns that were not masked before."""
    draw = np.random.default_rng(3)
    frame = pd.DataFrame({name: draw.integers(0, 100, 60) for name in ("age", "pay")})
    frame["note"] = [None, 1, "text", 2.5, b"bytes"] * 12
    schema = {name: {"type": "integer", "min": 0, "max": 100} for name in ("age", "pay", "note")}
    options: dict[str, Any] = {"epsilon": "1", "k": 5, "missing": "drop"}
    first = Workspace(tmp_path, budget="first", total_epsilon="3")
    assert len(first.mask(frame, schema, attributes=["age"], **options).frame) == 60
    second = Workspace(tmp_path, budget="second", total_epsilon="3")
    with pytest.raises(RefusedError, match="charged to budget 'first'"):
        second.mask(frame, {"pay": schema["pay"]}, **options)
