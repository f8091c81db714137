"""`aggregator export`: SPSS and Stata have the records of a release with labels, types and missing values."""

import json
import os
import subprocess
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyreadstat
import pytest

from aggregator.cli import application
from common.analysis.reading import read_release
from common.cli import console
from common.model.schema import Attribute, AttributeType
from common.release.labelled import short_names
from common.release.values import to_units
from owner_node.config import DatasetConfig
from owner_node.loading import load
from tests.fakes.published import make_release
from tests.fakes.releases import make_plan

STAGE = Attribute(
    "stage", AttributeType.CATEGORY, 0, 3, categories=("low, 1", "mid", "hoch ä", "(missing)"), ordered=True
)
ATTRIBUTES = (
    STAGE,
    Attribute("first seen", AttributeType.DATE, -10_000, 20_000, keeps_missing=True),
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("visits", AttributeType.INTEGER, -5, 4, keeps_missing=True),
    Attribute("salary", AttributeType.INTEGER, 0, 2**40),
    Attribute("weight", AttributeType.NUMBER, 0, 2000, decimals=1),
    Attribute("smoker", AttributeType.BOOLEAN, 0, 1),
)
READERS = {".sav": pyreadstat.read_sav, ".zsav": pyreadstat.read_sav, ".dta": pyreadstat.read_dta}


def published(folder: Path, *attributes: Attribute) -> Path:
    """Publish a release of random values."""
    names = tuple(each.name for each in attributes)
    plan = replace(make_plan(((names, ("a", "b")),), attributes=attributes), described=True)
    return make_release(folder, ((names, ("a", "b")),), plan=plan).folder


def export(folder: Path, out: Path) -> int:
    """Run the command and return its exit code."""
    return console.run(application(), "aggregator", ["export", str(folder), "--out", str(out), "--json"])


@pytest.mark.parametrize("suffix", READERS)
def test_a_release_is_written_with_its_labels(tmp_path, capsys, suffix):
    """Types, labels, descriptions, dates and missing values come back as the program reads them."""
    folder, out = published(tmp_path, *ATTRIBUTES), tmp_path / f"release{suffix}"
    assert export(folder, out) == 0
    assert json.loads(capsys.readouterr().out)["renamed"] == {"first seen": "first_seen"}
    table, about = READERS[suffix](out)
    released = read_release(folder).table.to_pandas()
    stage = released["stage"].astype(str)
    labels = dict(enumerate(STAGE.categories[:3], 1))
    assert about.variable_value_labels["stage"] == labels
    assert table["stage"].map(labels).fillna("(missing)").tolist() == stage.tolist()
    assert about.variable_value_labels["smoker"] == {0: "false", 1: "true"}
    assert table["smoker"].astype(bool).tolist() == released["smoker"].tolist()
    for name in ("record", "age", "salary", "weight", "visits"):
        pd.testing.assert_series_equal(
            table[name].astype(float), released[name].astype(float), check_exact=True
        )
    dates = [day if isinstance(day, date) else None for day in table["first_seen"]]
    assert dates == released["first seen"].tolist()
    assert str(about.column_names_to_labels["age"]).startswith("integer, 0 to 120")
    assert str(about.column_names_to_labels["first_seen"]).startswith("first seen: date, ")
    if suffix == ".dta":
        assert about.readstat_variable_types["age"] == "int32"
    assert [each for each in tmp_path.iterdir() if each.name.startswith(".release")] == []


@pytest.mark.needs("haven")
@pytest.mark.parametrize("suffix", READERS)
def test_r_reads_an_export(tmp_path, suffix):
    """The package haven of R finds types, labels, descriptions, dates and missing values."""
    folder, out = published(tmp_path, *ATTRIBUTES), tmp_path / f"release{suffix}"
    assert export(folder, out) == 0
    program = tmp_path / "read.R"
    program.write_text(
        f"""library(haven)
        data <- {"read_dta" if suffix == ".dta" else "read_sav"}({str(out)!r})
        cat(sapply(data, function(each) class(each)[1]), fill = 1000)
        cat(attr(data$age, "label"), fill = 1000)
        cat(names(attr(data$stage, "labels")), sep = "|", fill = 1000)
        stage <- as.character(as_factor(data$stage))
        cat(ifelse(is.na(stage), "(missing)", stage), sep = "|", fill = 1e6)
        cat(as.character(as_factor(data$smoker)), fill = 1e6)
        cat(as.character(data$first_seen), fill = 1e6)
        cat(sprintf("%.1f", c(data$age, data$visits, data$salary, data$weight)), fill = 1e6)
        """,
        encoding="utf-8",
    )
    ran = subprocess.run(
        ["Rscript", "--vanilla", str(program)],
        env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    classes, label, labels, stages, smokers, days, numbers = ran.stdout.splitlines()
    frame = read_release(folder).table.to_pandas()
    assert classes.split() == [
        "numeric", "haven_labelled", "Date", "numeric", "numeric", "numeric", "numeric", "haven_labelled",
    ]  # fmt: skip
    assert label.startswith("integer, 0 to 120")
    assert labels.split("|") == list(STAGE.categories[:3])
    assert stages.split("|") == frame["stage"].astype(str).tolist()
    assert smokers.split() == frame["smoker"].astype(str).str.lower().tolist()
    assert days.split() == [str(each or "NA") for each in frame["first seen"]]
    values = pd.concat([frame[name].astype(float) for name in ("age", "visits", "salary", "weight")])
    assert numbers.split() == ["NA" if pd.isna(each) else f"{each:.1f}" for each in values]


@pytest.mark.parametrize("suffix", READERS)
def test_an_owner_reads_what_was_written(tmp_path, suffix):
    """The way in has the same values as the way out."""
    kept = [
        each for each in ATTRIBUTES if each is not STAGE and " " not in each.name and not each.keeps_missing
    ]
    labelled = Attribute("stage", AttributeType.CATEGORY, 0, 2, categories=("low, 1", "mid", "hoch ä"))
    attributes = (labelled, *kept)
    folder, out = published(tmp_path, *attributes), tmp_path / f"release{suffix}"
    assert export(folder, out) == 0
    dataset = DatasetConfig(
        name="back", source=str(out), budget="back", total_epsilon=Decimal(1), attributes=attributes
    )
    loaded, table = load(dataset), read_release(folder).table
    for each in attributes:
        assert loaded.columns[each.name].tolist() == to_units(each, table.column(each.name)).to_pylist()


LONG = Attribute("long", AttributeType.CATEGORY, 0, 1, categories=("a" * 121, "b"))
OLD = Attribute("old", AttributeType.DATE, -200_000, 0)
WIDE = Attribute("wide", AttributeType.INTEGER, 0, 2**60)


@pytest.mark.parametrize(
    ("attribute", "suffix"), [(LONG, ".sav"), (OLD, ".sav"), (WIDE, ".sav"), (WIDE, ".dta"), (LONG, ".csv")]
)
def test_what_a_format_cannot_hold_is_refused_by_name(tmp_path, capsys, attribute, suffix):
    """Nothing is cut or rounded in silence, and no file is left."""
    out = tmp_path / f"release{suffix}"
    assert export(published(tmp_path, attribute), out) == 2
    assert (suffix if suffix == ".csv" else attribute.name) in capsys.readouterr().out
    assert not out.exists()


def test_a_file_that_is_there_stays(tmp_path, capsys):
    """An export replaces nothing, and a release that does not verify is not exported."""
    out = tmp_path / "release.dta"
    folder = published(tmp_path, ATTRIBUTES[2])
    out.write_text("mine")
    assert export(folder, out) == 2
    assert out.read_text() == "mine"
    with (folder / "data.csv").open("a") as file:
        file.write("99,1\r\n")
    assert export(folder, tmp_path / "other.dta") == 7
    assert not (tmp_path / "other.dta").exists()
    capsys.readouterr()


@pytest.mark.parametrize(("name", "problem"), [("release.csv", "ends with none of"), ("there.sav", "exists")])
def test_a_file_is_refused_before_the_release_is_read(tmp_path, capsys, name, problem):
    """Nobody waits for a verification to hear that the file cannot be written."""
    (tmp_path / "there.sav").touch()
    assert export(tmp_path / "no release", tmp_path / name) == 2
    assert problem in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    """What the file system refuses is an error of the call, with the path."""
    assert export(published(tmp_path, ATTRIBUTES[2]), tmp_path / "absent" / "release.sav") == 2
    assert "release.sav cannot be written: " in "".join(capsys.readouterr())


def test_names_are_those_of_both_programs():
    """Names that fit stay; others are made from them, and no two are the same in any case."""
    names = ["age", "a b", "a_b", "A_B", "7", "with", "_x", "str12", "ä", "n" * 40, "n" * 41]
    short = short_names(names)
    assert short["age"] == "age"
    assert [short[name] for name in ("a b", "a_b", "7", "with", "_x", "str12")] == [
        "a_b_3", "a_b", "v_7", "v_with", "v__x", "v_str12",
    ]  # fmt: skip
    assert len({name.lower() for name in short.values()}) == len(names)
    assert max(map(len, short.values())) == 32
