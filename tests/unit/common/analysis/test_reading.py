"""Reading a release for analysis: verified first, in types for computation, with what is known about it."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import tessera
from common.analysis.answers import answer, with_missing
from common.analysis.attenuation import Drawn
from common.analysis.masked_models import Term, cells
from common.errors import IntegrityError, UsageError
from common.model.schema import Attribute, AttributeType
from common.release.verification import verify_release
from tests.fakes.masked_releases import plan_of, publish_masked
from tests.fakes.published import NAMES, make_release
from tests.fakes.releases import ATTRIBUTES, LABELS, make_plan

WARDS = ("medicine", "surgery", "children")
STUDY = (
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("cost", AttributeType.NUMBER, 0, 100_000, decimals=2),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=WARDS),
    Attribute("smoker", AttributeType.BOOLEAN, 0, 1),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release of two owners, in both formats, with every type of attribute."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=60)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A release of 3,000 really masked records, by the default mechanisms."""
    rng = np.random.default_rng(3)
    age = rng.integers(18, 95, 3000)
    columns = {
        "age": age,
        "cost": np.clip(500 * age + rng.normal(0, 9000, 3000), 0, 100_000).astype(np.int64),
        "ward": rng.integers(0, 3, 3000),
        "smoker": rng.integers(0, 2, 3000),
    }
    plan = plan_of(STUDY, 3000, "4", rank_noise=["0.05"])
    return tessera.read_release(publish_masked(tmp_path_factory.mktemp("study"), plan, columns).folder)


def test_types_for_computation(made, tmp_path):
    """A frame has numpy's types, all declared categories, and the record's number as index."""
    release = tessera.read_release(made.folder, ca=made.ca_file(tmp_path))
    frame = release.frame
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "age": "int64", "income": "float64", "admitted": "datetime64[s]", "ward": "category",
        "smoker": "bool", "dose": "float64",
    }  # fmt: skip
    assert (frame.index.name, frame.index.tolist()) == ("record", list(range(1, 61)))
    assert frame["ward"].cat.categories.tolist() == list(LABELS)
    for each in ATTRIBUTES[:2]:
        units = np.rint(frame[each.name] * 10**each.decimals).astype(int)
        assert sorted(units) == sorted(made.columns[each.name])
    first, kept = repr(release).splitlines()
    assert first == (
        "<release demo-1: 60 records, 6 attributes, 2 owners, ε = 1; verified, identities checked>"
    )
    assert release.caveats == (kept,)
    assert release.guarantee == verify_release(made.folder).guarantee


def test_either_file_gives_the_same(made, tmp_path):
    """A release of CSV alone reads as one of Parquet."""
    made_of_csv = make_release(tmp_path, n_records=60, formats=("csv",))
    text, typed = (tessera.read_release(each.folder) for each in (made_of_csv, made))
    assert text.table.schema == typed.table.schema
    first, second = (
        each.frame.sort_values(["age", "income", "dose"]).reset_index(drop=True) for each in (text, typed)
    )
    pd.testing.assert_frame_equal(first, second)


def test_the_owner_of_a_record(tmp_path):
    """Where the release states owners, they are a column of the frame and no attribute."""
    columns = {"age": np.arange(300) % 80, "cost": np.arange(300)}
    plan = plan_of(STUDY[:2], 300, "4", owners="ab", owner_column=True)
    release = tessera.read_release(publish_masked(tmp_path, plan, columns).folder)
    assert release.frame["owner"].value_counts().to_dict() == {"a": 150, "b": 150}
    assert release.frame.columns.tolist() == ["owner", "age", "cost"]
    assert release.codebook.index.tolist() == ["age", "cost"]


def test_what_does_not_verify_is_not_read(made, tmp_path):
    """A changed or missing file, a folder of something else: an error that says which, and what to do."""
    with pytest.raises(UsageError, match="there is no folder"):
        tessera.read_release(tmp_path / "none")
    folder = shutil.copytree(made.folder, tmp_path / "copy")
    data = (folder / "data.csv").read_bytes()
    (folder / "data.csv").write_bytes(data.replace(b"1", b"2", 1))
    with pytest.raises(IntegrityError, match=r"data\.csv was changed") as caught:
        tessera.read_release(folder)
    assert caught.value.hint.startswith("do not use this folder")
    (folder / "data.csv").unlink()
    with pytest.raises(IntegrityError, match=r"data\.csv is missing"):
        tessera.read_release(folder)


def test_identities_that_were_not_checked_are_named(made):
    """Without a CA the release says so wherever it shows itself."""
    release = tessera.read_release(made.folder)
    assert repr(release).splitlines()[0].endswith("verified, identities not checked>")
    assert "not checked against a CA" in release.caveats[0]
    with pytest.raises(IntegrityError, match="another key"):
        tessera.read_release(made.folder, owners={"a": "ab" * 32})


def test_a_trial_says_first_that_it_is_one(tmp_path):
    """Its records are made up: whoever verifies, reads or shows it is told before anything else."""
    plan = replace(make_plan(((NAMES, ("a", "b")),)), release="trial-1")
    release = tessera.read_release(make_release(tmp_path, plan=plan).folder)
    said = "This is a trial: the owners made up every record"
    assert release.verified.to_lines()[0].startswith(said)
    assert release.caveats[0].startswith(said)
    assert repr(release).startswith("<trial of simulated records trial-1: ")


def test_what_records_lose_is_said_wherever_they_are(made, study):
    """Caveats, text, frame and report have the same sentences, which name rank noise where there is some."""
    for release, ranked in ((tessera.read_release(made.folder), False), (study, True)):
        kept = release.caveats[-1]
        assert kept.startswith("Rank noise weakens relations" if ranked else "Values have noise")
        assert "release.estimates" in kept
        assert kept == repr(release).splitlines()[-1] == release.frame.attrs["caveats"][-1]
    report = (made.folder / "report.html").read_text(encoding="utf-8")
    assert tessera.read_release(made.folder).caveats[-1] in report


def test_survival_of_masked_records_is_refused_by_name(study):
    """Calls that synthetic releases answer name the reason, whatever else they ask for."""
    with pytest.raises(UsageError, match="survival has no true intervals"):
        study.estimates.survival("age", "smoker", [40], confidence=0.9)


def test_codebook(study):
    """One line per attribute with what was agreed, and what masking did to it."""
    book = study.codebook
    assert book.index.tolist() == ["age", "cost", "ward", "smoker"]
    line = book.loc["cost"]
    assert line[["type", "domain", "resolution", "epsilon", "rank_noise"]].tolist() == [
        "number", "0.00 to 1000.00", "0.01", "1", "0.05",
    ]  # fmt: skip
    assert line["mechanism"].endswith(("idp-joint", "quantiles"))
    assert int(line["k"]) > 3
    assert 0.8 < line["attenuation"] < 1
    # √2·b, with the range of the values, or its triple, as the width.
    spread = study.frame["cost"].max() - study.frame["cost"].min()
    assert 1.4 * spread <= line["value_noise"] * int(line["k"]) <= 1.42 * 1000
    assert line["assignment_noise"] == pytest.approx(
        study.frame["cost"].std() * (2 * (1 - line["attenuation"])) ** 0.5, rel=1e-3
    )
    assert book.loc["ward", "mechanism"] == "dp-hist"
    assert book.loc["ward", "note"] == "its labels have no order"
    assert 0 < book.loc["ward", "assignment_noise"] < 0.5
    # The noise of a count: a discrete Laplace of scale 2/ε.
    assert book.loc["ward", "value_noise"] == pytest.approx(2 * 2**0.5)
    assert 0.5 < book.loc["smoker", "attenuation"] < 1


def test_what_cannot_be_corrected_is_refused(study, tmp_path):
    """Categories, unknown names, noise on every record: a reason and a way out, never a number."""
    refusals = {
        "'ward' cannot be corrected: it is a category": lambda: study.estimates.correlations(["age", "ward"]),
        "the response 'ward' is a category": lambda: study.estimates.regress("ward", "age"),
        "no attribute 'income'": lambda: study.estimates.correlations(["age", "income"]),
        "named twice": lambda: study.estimates.regress("cost", ["age", "age"]),
        "other attributes than the response": lambda: study.estimates.logistic("smoker", "smoker"),
        "no regressor is named": lambda: study.estimates.regress("cost", []),
        "no pair": lambda: study.estimates.correlations("age"),
        "'age' is neither boolean nor category": lambda: study.estimates.logistic("age", "cost"),
        "'ward' needs an event": lambda: study.estimates.logistic("ward", "age"),
        "'ward' has no category 'attic'": lambda: study.estimates.logistic("ward", "age", "attic"),
        "'age:smoker' needs both": lambda: study.estimates.regress("cost", ["age", "age:smoker"]),
        "'cost' were not counted": lambda: study.estimates.logistic("smoker", "age*cost"),
        "hazard ratios have no true": lambda: study.estimates.cox("age", "smoker", "cost"),
        "survival has no true intervals here: rank noise moves": lambda: study.estimates.survival(
            "age", "smoker"
        ),
        "an attribute is named twice": lambda: study.estimates.crosstab("ward", "ward"),
        "'age' is a number": lambda: study.estimates.crosstab("smoker", "age"),
    }
    for reason, ask in refusals.items():
        with pytest.raises(UsageError, match=reason) as caught:
            ask()
        assert caught.value.hint
    for confidence in (0, 1, 95):
        for estimate, names in (
            (study.estimates.regress, ("cost", "age")),
            (study.estimates.logistic, ("smoker", "age")),
            (study.estimates.correlations, ()),
        ):
            with pytest.raises(UsageError, match="not between 0 and 1"):
                estimate(*names, confidence=confidence)
    columns = {"age": np.arange(300) % 80, "cost": np.arange(300)}
    plan = plan_of(STUDY[:2], 300, "1", mechanism="dp", rank_noise=["0"])
    release = tessera.read_release(publish_masked(tmp_path, plan, columns).folder)
    assert release.codebook["attenuation"].isna().all()
    with pytest.raises(UsageError, match="every record has noise of its own"):
        release.estimates.regress("cost", "age")


ESTIMATES = {
    "cells": (
        lambda study: study.estimates.crosstab("smoker", "ward"),
        [(smokes, ward) for smokes in ("false", "true") for ward in WARDS],
    ),
    "a number": (lambda study: study.estimates.regress("cost", "age"), ["age"]),
    "a boolean": (lambda study: study.estimates.regress("cost", ["smoker", "age"]), ["smoker", "age"]),
    "a factor": (
        lambda study: study.estimates.regress("cost", ["age", "ward"]),
        ["age", "ward: surgery (against medicine)", "ward: children (against medicine)"],
    ),
    "odds of a boolean": (lambda study: study.estimates.logistic("smoker", "age"), ["age"]),
    "odds by several regressors": (
        lambda study: study.estimates.logistic("smoker", ["age", "ward"]),
        ["age", "ward: surgery (against medicine)", "ward: children (against medicine)"],
    ),
    "odds of a category": (lambda study: study.estimates.logistic("ward", "smoker", "surgery"), ["smoker"]),
    "correlations": (
        lambda study: study.estimates.correlations(),
        [("age", "cost"), ("age", "smoker"), ("cost", "smoker")],
    ),
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_have_one_form(study, name):
    """Whatever is estimated: a line each, as released and corrected, with standard errors and intervals."""
    ask, lines = ESTIMATES[name]
    found = ask(study)
    assert found.index.tolist() == lines
    assert found.columns.tolist() == ["released", "estimate", "standard_error", "low", "high", "note"]
    assert (found["standard_error"] > 0).all()
    assert (found["low"] < found["estimate"]).all()
    assert (found["estimate"] < found["high"]).all()


def test_labels_that_are_too_rare_are_one_level(tmp_path):
    """A factor keeps its frequent labels, and a line says which were combined."""
    rng = np.random.default_rng(4)
    labels = ("a", "b", "c", "d", "e")
    attributes = (Attribute("group", AttributeType.CATEGORY, 0, 4, categories=labels), STUDY[1])
    columns = {
        "group": rng.choice(5, 5000, p=[0.4, 0.01, 0.3, 0.005, 0.285]),
        "cost": rng.integers(0, 100_000, 5000),
    }
    plan = plan_of(attributes, 5000, "4", rank_noise=["0.05"])
    release = tessera.read_release(publish_masked(tmp_path, plan, columns).folder)
    levels = release.estimates.regress("cost", "group").index.tolist()
    (combined,) = (each for each in levels if "," in each)
    assert {"b", "d"} <= set(combined.removeprefix("group: ").split(" (")[0].split(", "))


def test_cells_of_masked_labels_hold_the_originals(tmp_path):
    """Rank noise makes labels independent; cells are corrected, and those of a rare label are refused."""
    rng = np.random.default_rng(4)
    group = rng.choice(4, 5000, p=[0.4, 0.355, 0.24, 0.005])
    attributes = (
        Attribute("group", AttributeType.CATEGORY, 0, 3, categories=("a", "b", "c", "rare")),
        Attribute("ill", AttributeType.BOOLEAN, 0, 1),
    )
    ill = (rng.random(5000) < np.array([0.1, 0.3, 0.8, 0.5])[group]).astype(np.int64)
    plan = plan_of(attributes, 5000, "4", rank_noise=["0.1"])
    made = publish_masked(tmp_path, plan, {"group": group, "ill": ill})
    table = tessera.read_release(made.folder).estimates.crosstab("group", "ill")
    # Rank noise mixes the rare label with the one before it, so neither can be told apart.
    assert table["note"].ne("").tolist() == [False] * 4 + [True] * 4
    assert "category 'rare' of attribute 'group' cannot be corrected" in table["note"].iloc[-1]
    truth = np.bincount(2 * group + ill, minlength=8)[:4] / 5000
    cells = table.iloc[:4]
    assert ((cells["low"] <= truth) & (truth <= cells["high"])).all()
    assert abs(cells["estimate"] - truth).max() < abs(cells["released"] - truth).max() / 2
    assert (cells["high"] - cells["low"]).max() < 0.1


def test_what_too_few_records_have_is_refused(tmp_path):
    """Cells of a rare label and odds of a rare event have a reason; what is frequent has its interval."""
    rng = np.random.default_rng(6)
    attributes = (
        Attribute("group", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
        Attribute("ill", AttributeType.BOOLEAN, 0, 1),
        Attribute("marital", AttributeType.CATEGORY, 0, 2, categories=("single", "married", "widowed")),
    )
    columns = {
        "group": rng.integers(0, 3, 8000),
        "ill": (rng.random(8000) < 0.02).astype(np.int64),
        "marital": rng.choice(3, 8000, p=[0.012, 0.6, 0.388]),
    }
    plan = plan_of(attributes, 8000, "4", rank_noise=["0.001"])
    of = tessera.read_release(publish_masked(tmp_path, plan, columns).folder).estimates
    table = of.crosstab("marital", "group")
    assert table.index[table["note"] != ""].unique(0).tolist() == ["single"]
    assert "less than 3% of the records have it" in table["note"].iloc[0]
    kept = table[table["note"] == ""]
    assert (kept["released"] >= 0).all()
    assert (kept["low"] < kept["high"]).all()
    for event in (True, False):
        with pytest.raises(UsageError, match=r"of attribute 'ill' cannot be corrected: less than 3%"):
            of.logistic("ill", "group", event)
    with pytest.raises(UsageError, match="less than 3%"):
        of.logistic("marital", "group", "single")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_value_that_hardly_anyone_has_is_no_division_by_zero(tmp_path):
    """In some draws of the noise nobody is ill: the correlation is wide, and nothing is infinite."""
    rng = np.random.default_rng(6)
    attributes = (Attribute("ill", AttributeType.BOOLEAN, 0, 1), STUDY[1])
    columns = {"ill": (rng.random(2000) < 0.011).astype(np.int64), "cost": rng.integers(0, 100_000, 2000)}
    plan = plan_of(attributes, 2000, "1", rank_noise=["0.001"])
    of = tessera.read_release(publish_masked(tmp_path, plan, columns).folder).estimates
    (line,) = of.correlations(["ill", "cost"]).to_dict("records")
    assert -1 <= line["low"] < 0 < line["high"] <= 1


def as_drawn(name: str, holds: np.ndarray) -> Term:
    """The indicator of a label whose only draw is what was released."""
    mean, zero = holds.mean(), np.zeros((1, 1))
    drawn = Drawn(zero, zero + mean, zero[0] + mean, zero[0] + holds.var(), zero[0] + 1, zero[0], 1.0)
    return Term(name, name, mean, holds - mean, holds - mean, np.zeros(holds.size, dtype=np.int64), drawn)


def test_no_interval_is_clipped_to_a_point():
    """An estimate outside of the bounds has the width of its noise; released shares are counts of records."""
    index = pd.Index(["below", "within", "above"])
    made = answer(index, np.zeros(3), np.array([-0.2, 0.5, 1.3]), np.full(3, 0.05), 2, (0, 1))
    sides = made[["estimate", "low", "high"]].to_numpy()
    assert np.allclose(sides, [[0, 0, 0.1], [0.5, 0.4, 0.6], [1, 0.9, 1]])
    one, other = (np.arange(1000) % 7 == place for place in (1, 2))
    a, b = (as_drawn(name, each) for name, each in (("a", one), ("b", other)))
    assert cells([a], [b], 0.95)["released"].tolist() == [0.0]


def test_few_missing_values_are_not_said_to_be_none():
    """A note never says that 0.0% are missing where some are."""
    table = answer(pd.Index(["age"]), np.ones(1), np.ones(1), np.ones(1), 2)
    notes = {share: with_missing(table, share)["note"].iloc[0] for share in (0.0, 1e-5, 0.17)}
    assert list(notes.values()) == [
        "", "of present values; less than 0.1% are missing", "of present values; 17.0% are missing",
    ]  # fmt: skip


def test_few_records_and_much_noise_are_said(tmp_path):
    """Where noise outweighs the values nothing is corrected, and the codebook says why."""
    columns = {"age": np.arange(40) % 5 + 30, "cost": np.arange(40)}
    plan = plan_of(STUDY[:2], 40, "0.1", k="20", mechanism="idp-joint", rank_noise=["0"])
    release = tessera.read_release(publish_masked(tmp_path, plan, columns).folder)
    assert set(release.codebook["note"]) <= {
        "the noise of its values is too large",
        "all released values are equal",
    }
    with pytest.raises(UsageError, match="no pair of attributes that can be corrected"):
        release.estimates.correlations()


def test_importing_takes_no_library_that_reading_does_not_need():
    """Many scripts only look at the table: pandas and SciPy are loaded with the first frame or estimate."""
    code = "import sys, tessera; sys.exit(bool({'pandas', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_any_analysis_of_masked_records(study, tmp_path):
    """Tables made again have the corrected relations, and are written for other software."""

    def slope(frame):
        return {"slope": np.polyfit(frame["age"].astype(float), frame["cost"].astype(float), 1)[0]}

    (line,) = study.analyse(slope, ["age", "cost"], 6).to_dict("records")
    corrected = study.estimates.regress("cost", "age").loc["age"]
    assert line["estimate"] == pytest.approx(corrected["estimate"], abs=4 * corrected["standard_error"])
    assert line["low"] < line["estimate"] < line["high"]
    written = study.replicates(tmp_path / "tables", ["age", "cost"], 4)
    assert [each.name for each in written][:3] == ["released.csv", "estimated.csv", "noisy-1.csv"]
    assert {len(each.read_text().splitlines()) for each in written} == {study.table.num_rows + 1}
    assert "Rubin" in (tmp_path / "tables" / "README.txt").read_text()
    with pytest.raises(UsageError, match="not an empty folder"):
        study.replicates(tmp_path / "tables", ["age", "cost"], 4)
    with pytest.raises(UsageError, match="too few"):
        study.replicates(tmp_path / "other", "age", 1)
    with pytest.raises(UsageError, match="no attribute"):
        study.replicates(tmp_path / "new", ["weight"], 4)
    assert not (tmp_path / "new").exists()


def test_an_analysis_does_not_change_the_release(study):
    """A function may change its frame: the release and later analyses have all records still."""

    def changed(frame):
        frame["age"] = 0
        del frame["cost"]
        return {"age": frame["age"].mean()}

    assert study.analyse(changed, ["age", "cost"], 4)["estimate"].tolist() == [0]
    assert "cost" in study.frame
    assert study.frame["age"].all()


def test_odds_of_a_boolean_that_is_false(study):
    """They are those of true with the other sign, as of every pair of labels."""
    of_true, of_false = (study.estimates.logistic("smoker", "age", event) for event in (True, False))
    assert of_false.index.name == "smoker: false"
    for one, other in (("estimate", "estimate"), ("released", "released"), ("low", "high")):
        assert of_false[one].to_numpy() == pytest.approx(-of_true[other].to_numpy(), abs=2e-4)


def test_wrong_arguments_are_refused(study):
    """Names that are no texts, quantiles that are no numbers, confidence as text: a reason and a hint."""
    of = study.estimates
    for ask in (
        lambda: of.means(None),
        lambda: of.means([3]),
        lambda: of.means("age", confidence="0.9"),
        lambda: of.shares(["ward"]),
        lambda: of.quantiles("age", ["first"]),
        lambda: of.quantiles("age", []),
        lambda: of.regress(["cost"], "age"),
        lambda: of.correlations(["age", 3]),
        lambda: study.analyse(lambda frame: {"x": 1}, "age", 4.5),
    ):
        with pytest.raises(UsageError) as caught:
            ask()
        assert caught.value.hint
    assert of.quantiles("age", 0.5).index.tolist() == [0.5]
    assert of.quantiles("age", np.array([0.2, 0.5])).index.tolist() == [0.2, 0.5]
    assert "no attribute" in study.supports("weight ~ age")


def test_old_names_stay_one_version(study):
    """What was `release.means` is so still, says where it is now, and has its old columns."""
    with pytest.warns(DeprecationWarning, match=r"release.estimates.means now"):
        found = study.means("age")
    assert found.columns.tolist() == ["released", "corrected", "standard_error", "low", "high"]
    assert not study.supports("cost ~ age + smoker")
    assert "both of its attributes" in study.supports("cost ~ age + age:smoker")
    assert not study.supports("smoker ~ age*ward")
    with pytest.raises(AttributeError):
        _ = study.medians


def test_a_number_with_two_values_is_not_a_level(tmp_path):
    """Log odds of a number are open for no level of it: it has none."""
    draw = np.random.default_rng(5)
    dose = 2 * draw.integers(0, 2, 4000)
    events = (draw.random(4000) < 0.3 + 0.05 * dose).astype(np.int64)
    plan = plan_of(
        (Attribute("dose", AttributeType.INTEGER, 0, 2), Attribute("event", AttributeType.BOOLEAN, 0, 1)),
        4000, "4", rank_noise=["0.03"],
    )  # fmt: skip
    made = publish_masked(tmp_path, plan, {"dose": dose, "event": events}, 5)
    found = tessera.read_release(made.folder).estimates.logistic("event", "dose")
    assert np.isfinite(found[["low", "high"]]).all(axis=None)


@pytest.mark.parametrize(
    ("rates", "separated"),
    [
        ((0.3, 0.0, 0.6), [True, False]),
        ((0.3, 1.0, 0.6), [True, False]),
        ((0.0, 0.3, 0.6), [True, True]),
        ((0.3, 0.1, 0.6), [False, False]),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_odds_of_a_level_without_events_are_open(tmp_path, rates, separated, seed):
    """Masking moves records with the event into such a level: released odds are finite, true ones are not."""
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, 3, 4000)
    events = (draw.random(4000) < np.array(rates)[groups]).astype(np.int64)
    group = Attribute("group", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c"))
    event = Attribute("event", AttributeType.BOOLEAN, 0, 1)
    plan = plan_of((group, event), 4000, "4", rank_noise=["0.03"])
    made = publish_masked(tmp_path, plan, {"group": groups, "event": events}, seed)
    found = tessera.read_release(made.folder).estimates.logistic("event", "group")
    assert np.isfinite(found["released"]).all()
    assert np.isinf(found[["low", "high"]]).all(axis=1).tolist() == separated
    assert found["note"].ne("").tolist() == separated
    assert found["estimate"].isna().tolist() == separated
