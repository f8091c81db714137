"""Files of SPSS, Stata and SAS: labels, missing values and dates as their programs mean them."""

import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyreadstat
import pytest

from common.errors import DataError
from common.model.schema import Attribute, AttributeType
from owner_node.cli.init import dataset_text
from owner_node.loading import load
from owner_node.sources import labelled_files
from owner_node.sources.guessing import guess

N = 40
SEXES = ("male", "female")
SEX = Attribute("SEX", AttributeType.CATEGORY, 0, 1, categories=SEXES)
AGE = Attribute("AGE", AttributeType.INTEGER, 0, 120)
WEIGHT = Attribute("WEIGHT", AttributeType.NUMBER, 0, 2000, decimals=1)
SEEN = Attribute("SEEN", AttributeType.DATE, 0, 30_000)
WARD = Attribute("WARD", AttributeType.CATEGORY, 0, 2, categories=("A", "B", "Ç"))
ALL = (SEX, AGE, WEIGHT, SEEN, WARD)
LABELS = {"SEX": {1: "male", 2: "female"}}
DESCRIPTIONS = {"SEX": "Sex of the patient", "AGE": "Age in years"}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one record": {"n": 1},
    "many records": {"n": 3000},
    "negative codes": {"codes": {-1: "male", -2: "female"}},
    "padded labels": {"codes": {1: "male ", 2: " female"}},
}
WRITERS: dict[str, dict[str, Any]] = {
    ".sav": {"write": pyreadstat.write_sav},
    ".zsav": {"write": pyreadstat.write_sav, "compress": True},
    ".dta": {"write": pyreadstat.write_dta},
    ".xpt": {"write": pyreadstat.write_xport},
}


def records(n: int = N) -> pd.DataFrame:
    """Return records whose column SEX has 0 and 1."""
    draw = np.random.default_rng(n)
    return pd.DataFrame({
        "SEX": draw.integers(0, 2, n),
        "AGE": draw.integers(0, 100, n).astype(float),
        "WEIGHT": np.round(draw.uniform(1, 199, n), 1),
        "SEEN": [date.fromordinal(719_163 + int(day)) for day in draw.integers(0, 20_000, n)],
        "WARD": draw.choice(["A", "B", "Ç"], n),
    })  # fmt: skip


def written(path: Path, frame: pd.DataFrame, codes: dict[int, str], **settings: Any) -> None:
    """Write records with codes of SEX; a transport file of SAS has no labels of values, and holds texts."""
    how = dict(WRITERS[path.suffix])
    write, texts = how.pop("write"), list(codes.values())
    coded = frame.assign(SEX=[list(codes)[sex] for sex in frame["SEX"]])
    if path.suffix == ".xpt":
        coded = frame.assign(SEX=[texts[sex].strip() for sex in frame["SEX"]])
    else:
        settings["variable_value_labels"] = {"SEX": codes}
    write(coded, str(path), column_labels=DESCRIPTIONS, **how, **settings)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", WRITERS)
def test_round_trip(dataset, tmp_path, suffix, shape):
    """Codes become labels, and numbers, texts and dates are what was written, in each format."""
    asked = dict(SHAPES[shape])
    codes, frame = asked.pop("codes", LABELS["SEX"]), records(**asked)
    written(tmp_path / f"patients{suffix}", frame, codes)
    columns = load(dataset(None, suffix, attributes=ALL)).columns
    assert columns["SEX"].tolist() == frame["SEX"].tolist()
    assert columns["AGE"].tolist() == frame["AGE"].tolist()
    assert columns["WEIGHT"].tolist() == [round(10 * each) for each in frame["WEIGHT"]]
    assert columns["SEEN"].tolist() == [each.toordinal() - 719_163 for each in frame["SEEN"]]
    assert columns["WARD"].tolist() == ["ABÇ".index(each) for each in frame["WARD"]]


def test_files_are_read_in_parts(dataset, tmp_path, monkeypatch):
    """A file that is read in many parts gives the records of the whole, in their order."""
    frame = records(100)
    written(tmp_path / "patients.sav", frame, LABELS["SEX"])
    monkeypatch.setattr(labelled_files, "BATCH_RECORDS", 25)
    assert load(dataset(None, ".sav", attributes=(AGE,))).columns["AGE"].tolist() == frame["AGE"].tolist()


def test_user_missing_values_are_missing(dataset, tmp_path):
    """What an SPSS user declared missing is missing, single values and ranges; Stata's letters are, too."""
    codes = {1: "male", 2: "female", 9: "refused"}
    frame = records(3).assign(SEX=[0, 1, 2], AGE=[20.0, 998.0, 999.0])
    path = tmp_path / "patients.sav"
    missing = {"SEX": [9], "AGE": [{"lo": 900, "hi": 999}]}
    written(path, frame, codes, missing_ranges=missing)
    with pytest.raises(DataError) as caught:
        load(dataset(None, ".sav", attributes=(SEX, AGE)))
    counts = {each["column"]: each["count"] for each in caught.value.details["problems"]}
    assert counts == {"SEX": 1, "AGE": 2}
    stata = frame.assign(SEX=[0, 1, 0], AGE=pd.Series([20, "a", "b"], dtype=object))
    written(tmp_path / "patients.dta", stata, LABELS["SEX"], missing_user_values={"AGE": ["a", "b"]})
    with pytest.raises(DataError) as caught:
        load(dataset(None, ".dta", attributes=(SEX, AGE)))
    assert [each["count"] for each in caught.value.details["problems"]] == [2]


def test_init_proposes_the_code_book(tmp_path):
    """Declared labels are filled in without those of missing values, and descriptions are comments."""
    codes = {2: "female", 1: "male", 3: "other", 9: "refused"}
    written(tmp_path / "patients.sav", records(), codes, missing_ranges={"SEX": [9]})
    guessed = guess(tmp_path / "patients.sav")
    column = next(each for each in guessed.columns if each.name == "SEX")
    assert column.codebook == ("male", "female", "other")
    assert {each.name: each.type for each in guessed.columns}["SEEN"] == "date"
    text = dataset_text(tmp_path / "patients.sav", tmp_path / "owner.toml", guessed)
    assert 'categories = ["male", "female", "other"]' in text
    assert "# Sex of the patient" in text
    assert "refused" not in text


def test_init_keeps_declared_labels_beside_a_code_without_one(tmp_path):
    """Where a value has no label, the labels to start from are the declared ones, then the code."""
    labels: dict[str, dict[int | float, str]] = {"SEX": {1: "male", 5: "other"}}
    coded = records().replace({"SEX": {0: 1, 1: 2}})
    pyreadstat.write_sav(coded, str(tmp_path / "patients.sav"), variable_value_labels=labels)
    text = dataset_text(tmp_path / "patients.sav", tmp_path / "owner.toml", guess(tmp_path / "patients.sav"))
    listed = next(line for line in text.splitlines() if line.startswith('# ["male"'))
    assert listed == '# ["male", "other", "2"]'


def test_a_file_that_is_not_what_its_name_says(dataset):
    """It is not read as CSV, whose first line would be quoted as names of columns."""
    with pytest.raises(DataError, match="does not begin like one") as caught:
        load(dataset(b"secret,age\n1,2\n", ".sav"))
    assert "secret" not in str(caught.value) + caught.value.hint


def test_one_label_for_several_values_is_refused(dataset, tmp_path):
    """Two codes that read alike would become one category without a word."""
    written(tmp_path / "patients.sav", records(), {1: "male", 2: "male"})
    with pytest.raises(DataError, match="several values with one label"):
        load(dataset(None, ".sav", attributes=(SEX,)))


@pytest.mark.parametrize(
    "head", [b"$FL2@(#) SPSS", bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf", b"<stata_dta>"]
)
def test_damaged_files_are_named(dataset, head):
    """A file that begins like one of these programs and is none is an error that quotes nothing."""
    with pytest.raises(DataError, match="cannot be read"):
        load(dataset(head + bytes(200), ".csv"))


def test_without_the_extra(dataset, tmp_path, monkeypatch):
    """The error names the package and what to install."""
    written(tmp_path / "patients.sav", records(), LABELS["SEX"])
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    with pytest.raises(DataError, match="pyreadstat is not installed") as caught:
        load(dataset(None, ".sav", attributes=(SEX,)))
    assert "tessera-release[labelled]" in caught.value.hint
