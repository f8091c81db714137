"""Releases whose numbers and dates keep missing values, of every type that a release has for them."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest

import tessera
from common.errors import IntegrityError, UsageError
from common.model.compatibility import features_of
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.release.data_files import check_values, read_data
from common.release.verification import verify_release
from tests.fakes.masked_releases import draws, plan_of, publish_masked
from tests.fakes.published import make_release

BASE = 10**16
KEPT = (
    Attribute("visits", AttributeType.INTEGER, -3, 40, keeps_missing=True),
    Attribute("weight", AttributeType.NUMBER, 0, 250, decimals=1, keeps_missing=True),
    Attribute("exact", AttributeType.NUMBER, BASE, BASE + 60, decimals=2, keeps_missing=True),
    Attribute("seen", AttributeType.DATE, 0, 300, keeps_missing=True),
    Attribute("nothing", AttributeType.NUMBER, -10, 20, decimals=3, keeps_missing=True),
)
AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
N = 3_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two owners' records, a fifth of whose values are missing, and all of one attribute, really masked."""
    draw = np.random.default_rng(4)
    columns = {each.name: draw.integers(each.lower, each.upper, N, endpoint=True) for each in (*KEPT, AGE)}
    for each in KEPT:
        columns[each.name][draw.random(N) < (1 if each.name == "nothing" else 0.2)] = each.highest
    plan = plan_of((*KEPT, AGE), N, "20", owners="ab", rank_noise=["0.01"])
    return publish_masked(tmp_path_factory.mktemp("made"), plan, columns), columns


@pytest.mark.parametrize("asked", ["auto", "idp-quantiles"])
def test_missing_values_are_counted_whatever_mechanism_is_asked_for(asked):
    """They have no place among the others; the plan says so, and needs owners that know of it."""
    plan = plan_of((*KEPT, AGE), N, "1", mechanism=asked)
    ways = {each.name: each.mechanism for each in plan.tasks[0].attributes}
    assert {ways.pop(each.name) for each in KEPT} == {"dp-hist"}
    assert ways == {"age": {"auto": "dp-hist"}.get(asked, asked)}
    assert features_of(plan) == ("missing-values", "rank-noise")
    assert Plan.from_bytes(plan.to_bytes()).attributes == (*KEPT, AGE)
    assert "missing values are kept" in plan.carrier_reason(plan.tasks[0].attributes[0])


def test_files_hold_nulls_and_empty_fields(made):
    """Both formats have the same values, about as many are missing as before, and the release verifies."""
    folder, columns = made[0].folder, made[1]
    assert verify_release(folder).n_records == N
    table = tessera.read_release(folder).table
    header, *rows = csv.reader(io.StringIO((folder / "data.csv").read_text(), newline=""), strict=True)
    for place, name in enumerate(header):
        texts = pc.fill_null(pc.cast(table.column(name), "string"), "").to_pylist()
        found = [row[place] for row in rows]
        if pc.sum(table.column(name).is_null()).as_py() == 0 or name in ("exact", "seen", "visits"):
            assert found == texts
        assert [each == "" for each in found] == [each == "" for each in texts]
    for each in KEPT:
        before = np.count_nonzero(columns[each.name] == each.highest)
        assert table.column(each.name).null_count == pytest.approx(before, abs=40)
        assert table.schema.field(each.name).nullable
    assert not table.schema.field("age").nullable


def test_frames_have_the_types_of_pandas_for_missing_values(made, tmp_path):
    """A release of CSV alone gives the same frame."""
    frame = tessera.read_release(made[0].folder).frame
    kinds = {name: str(kind) for name, kind in frame.dtypes.items() if name != "exact"}
    assert kinds == {
        "visits": "Int64", "weight": "float64", "seen": "datetime64[s]", "nothing": "float64", "age": "int64",
    }  # fmt: skip
    assert frame["visits"].isna().sum() == pytest.approx(N / 5, abs=120)
    assert frame["weight"].mean() == pytest.approx(12.5, abs=0.5)
    assert frame["nothing"].isna().mean() > 0.98
    of_csv = make_release(
        tmp_path, plan=made[0].plan, columns=made[0].columns, n_records=N, formats=("csv",),
        linking="asserted",
    )  # fmt: skip
    again = tessera.read_release(of_csv.folder).frame
    order = frame.columns.tolist()
    pd.testing.assert_frame_equal(
        again.sort_values(order, ignore_index=True), frame.sort_values(order, ignore_index=True)
    )


def test_figures_are_of_present_values(made):
    """Report and codebook say how many are missing; no estimate takes the value for missing as a number."""
    release = tessera.read_release(made[0].folder)
    assert release.codebook.loc["weight", "domain"] == "0.0 to 25.0, or missing"
    assert "missing values" in str(release.codebook.loc["weight", "note"])
    report = (made[0].folder / "report.html").read_text("utf-8")
    weights = release.table.column("weight")
    missing = weights.null_count
    assert re.search(rf">missing</th><td class=\"n\">{missing}</td>", report)
    # Missing is one of them; noise decides whether each of the others occurs.
    different = pc.count_distinct(weights, mode="all").as_py()
    assert f"{different} of 252 possible values occur" in report
    assert "0.0 to 25.0, or missing, 1 decimal places" in report
    for estimate in (
        lambda: release.estimates.regress("age", ["weight"]),
        lambda: release.estimates.regress("weight", ["age"]),
        lambda: release.estimates.correlations(["age", "weight"]),
    ):
        with pytest.raises(UsageError, match="'weight' has missing values"):
            estimate()
    age, weight, nothing = release.estimates.means(["age", "weight", "nothing"]).to_dict("records")
    assert age["low"] < age["high"]
    # Noise made up an eighth of the weights.
    assert "each of its 252 values was counted" in weight["note"]
    assert "missing" in nothing["note"]


def test_estimates_of_present_values_hold(tmp_path):
    """Intervals of means and quartiles leave missing values out, say how many, and hold the originals."""
    draw, visits = np.random.default_rng(6), KEPT[0]
    columns = {"visits": draw.binomial(40, 0.2, N) - 3, "age": draw.integers(0, 120, N, endpoint=True)}
    present, at = columns["visits"].copy(), (0.25, 0.5, 0.75)
    columns["visits"][draw.random(N) < 0.2] = visits.highest
    present = present[columns["visits"] <= visits.upper]
    held = []
    for release in draws(tmp_path, plan_of((visits, AGE), N, "4", rank_noise=["0.03"]), columns, 20):
        mean, quartiles = release.estimates.means("visits"), release.estimates.quantiles("visits", at)
        assert "visits" in release.estimates.means().index
        for lines, true in (
            (mean, [present.mean()]),
            (quartiles, np.quantile(present, at, method="inverted_cdf")),
        ):
            held += ((lines["low"] <= true) & (np.array(true) <= lines["high"])).tolist()
            said = re.fullmatch(r"of present values; (\d+\.\d)% are missing", lines["note"].iloc[0])
            assert said
            assert float(said[1]) == pytest.approx(20, abs=4)
        assert (mean["high"] - mean["low"]).item() < 8 * present.std() / present.size**0.5
    assert np.mean(held) > 0.88


def test_a_number_beyond_the_domain_is_no_missing_value(made, tmp_path):
    """The number that stands for missing values inside is no value of a file; nor is an empty `age`."""
    data = made[0].folder / "data.csv"
    check_values({"data.csv": read_data(data, made[0].plan, N)}, made[0].plan, 0)
    header, first, *rest = data.read_bytes().split(b"\r\n")
    for place, text in ((1, b"41"), (2, b"25.1"), (4, b"1970-10-29"), (6, b"")):
        fields = first.split(b",")
        fields[place] = text
        path = tmp_path / "data.csv"
        path.write_bytes(b"\r\n".join((header, b",".join(fields), *rest)))
        with pytest.raises(IntegrityError, match=r"data\.csv"):
            check_values({path.name: read_data(path, made[0].plan, N)}, made[0].plan, 0)
