"""Masking DataFrames: values, types, index, charges; what the documentation shows is run."""

import doctest
import re
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.errors import (
    BalanceError,
    ConfigurationError,
    ConflictError,
    DataError,
    RefusedError,
    TesseraError,
    UnusableDataError,
    UsageError,
)
from owner_node import notebook
from owner_node.ledger.ledger import EntryKind
from owner_node.notebook import Workspace
from tests.fakes.owner_folder import make_owner_folder

AGE = {"type": "integer", "min": 0, "max": 120}
DAY = {"type": "date", "min": "2020-01-01", "max": "2026-12-31"}
SCHEMA = {
    "age": AGE,
    "pay": {"type": "number", "min": -5.5, "max": 900, "decimals": 2},
    "ward": {"type": "category", "categories": ("A", "B")},
    "stage": {"type": "category", "categories": ["mild", "bad", "worse"], "ordered": True},
    "day": DAY,
    "flag": {"type": "boolean"},
}


@pytest.fixture
def frame() -> pd.DataFrame:
    """Sixty records with an index of their own, and a column that nobody declares."""
    draw = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": np.arange(60),
            "pay": draw.uniform(0, 900, 60).round(2),
            "ward": draw.choice(["A", "B"], 60),
            "stage": draw.choice(["mild", "bad", "worse"], 60),
            "day": pd.date_range("2021-01-01", periods=60),
            "flag": draw.choice([True, False], 60),
            "name": [f"secret-{n}" for n in range(60)],
        },
        index=pd.Index([f"r{n}" for n in range(60)], name="record"),
    )


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """An empty workspace."""
    return Workspace(tmp_path / "work", budget="people", total_epsilon="3")


def spends(workspace: Workspace) -> list[Decimal]:
    """The charges of all spends, the chain checked."""
    with (records := workspace._records()).db:
        records.ledger.verify()
        return [each.charge for each in records.ledger.entries() if each.kind is EntryKind.SPEND]


def test_types_and_index(workspace, frame):
    """Masked values come in types to compute with, within their domains, under the records' index."""
    masked = workspace.mask(frame, SCHEMA, anyway=True, epsilon="1.2", k=6)
    assert {name: str(kind) for name, kind in masked.frame.dtypes.items()} == {
        "age": "int64", "pay": "float64", "ward": "category", "stage": "category", "day": "datetime64[s]",
        "flag": "bool",
    }  # fmt: skip
    assert repr(masked) == f"Masked(60 records, 6 attributes, id {masked.id!r})"
    assert masked.frame.index.equals(frame.index)
    assert masked.frame["age"].between(0, 120).all()
    assert masked.frame["pay"].between(-5.5, 900).all()
    assert all(len(f"{value!r}".partition(".")[2]) <= 2 for value in masked.frame["pay"].tolist())
    assert masked.frame["day"].between("2020-01-01", "2026-12-31").all()
    assert list(masked.frame["stage"].cat.categories) == ["mild", "bad", "worse"]
    assert masked.frame["stage"].cat.ordered
    assert masked.report["order"] == "original"
    assert spends(workspace) == [Decimal("1.2")]
    assert workspace.balance().remaining == Decimal("1.8")


def test_records_keep_their_places(workspace, frame):
    """With much epsilon and small clusters the masked ages ascend as the original ones do."""
    masked = workspace.mask(frame, SCHEMA, anyway=True, epsilon="3", k=5, attributes=["age"])
    assert masked.frame["age"].corr(pd.Series(np.arange(60), index=frame.index)) > 0.8


def test_rank_noise_and_carriers(workspace, frame):
    """By default few values are counted and ranks have noise; both can be said otherwise."""

    def ways(**asked):
        report = workspace.mask(frame, SCHEMA, anyway=True, epsilon="0.3", **asked).report
        return {
            each["name"]: (each["mechanism"], each.get("rank_noise", "0")) for each in report["attributes"]
        }

    usual = ways()
    assert (usual["pay"], usual["flag"]) == (("idp-quantiles", "0.03"), ("dp-hist", "0.03"))
    some = ways(rank_noise={"age": "0.2", "flag": 0})
    assert (some["age"][1], some["flag"][1], some["pay"][1]) == ("0.2", "0", "0.03")
    assert ways(rank_noise="0.05,age=0.2, flag=0") == {
        **ways(rank_noise="0.05"),
        **{n: some[n] for n in ("age", "flag")},
    }
    assert set(ways(mechanism="idp-ls", rank_noise="0").values()) == {("idp-ls", "0")}


def test_what_may_be_handed_on(workspace, frame):
    """The same records in another order, without the index."""
    masked = workspace.mask(frame, SCHEMA, anyway=True, epsilon="3", k=5, attributes=["age"])
    handed = masked.shuffled()
    assert sorted(handed["age"]) == sorted(masked.frame["age"])
    assert handed["age"].tolist() != masked.frame["age"].tolist()
    assert handed.index.tolist() == list(range(60))


def test_wide_numbers_stay_exact(workspace):
    """Where doubles would lose digits, numbers are exact decimals."""
    schema = {"x": {"type": "number", "min": 0, "max": 10**12, "decimals": 4}}
    frame = pd.DataFrame({"x": [f"{n * 10**9}.1234" for n in range(30)]})
    masked = workspace.mask(frame, schema, anyway=True, epsilon="1", mechanism="idp-ls", k=5)
    assert str(masked.frame["x"].dtype) == "decimal128(17, 4)[pyarrow]"


def test_the_same_id_gives_the_same_frame_uncharged(workspace, frame):
    """A cell that is run again costs nothing if it names its result; other arguments or data conflict."""
    first = workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", k=6, id="cell")
    again = workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", k=6, id="cell")
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert first.report == again.report
    with pytest.raises(ConflictError):
        workspace.mask(frame, SCHEMA, anyway=True, epsilon="0.9", k=6, id="cell")
    with pytest.raises(ConflictError):
        workspace.mask(frame.iloc[::-1], SCHEMA, anyway=True, epsilon="1", k=6, id="cell")
    assert spends(workspace) == [Decimal("0.999999999996")]
    workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", k=6)
    assert len(spends(workspace)) == 2


def test_missing_values(workspace, frame):
    """An error, left out, or a category; the index says which records were left out."""
    frame.loc["r7", "ward"] = None
    frame.loc["r9", "age"] = np.nan
    with pytest.raises(DataError) as caught:
        workspace.mask(frame, SCHEMA, anyway=True, epsilon="1")
    assert "secret" not in caught.value.message
    masked = workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", missing="drop")
    assert masked.frame.index.tolist() == [each for each in frame.index if each not in ("r7", "r9")]
    masked = workspace.mask(
        frame,
        SCHEMA,
        epsilon="1",
        missing="category",
        attributes=["ward"],
        mechanism="dp-ir",
        k=3,
        anyway=True,
    )
    assert list(masked.frame["ward"].cat.categories) == ["A", "B", "(missing)"]
    kept = {"age": {**AGE, "missing": "category"}, "day": {**DAY, "missing": "category"}}
    masked = workspace.mask(frame, kept, epsilon="1", anyway=True)
    assert masked.frame.dtypes.astype(str).to_dict() == {"age": "Int64", "day": "datetime64[s]"}
    assert masked.frame.index.tolist() == frame.index.tolist()
    assert len(spends(workspace)) == 3


def test_several_records_per_person(workspace, frame):
    """Identifiers are counted and never in the result; one that occurs too often is an error."""
    frame["name"] = [f"secret-{n // 2}" for n in range(60)]
    with pytest.raises(DataError, match="more than 1 record"):
        workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", identifier="name")
    masked = workspace.mask(
        frame, SCHEMA, anyway=True, epsilon="1", identifier=["name"], max_records_per_person=2
    )
    assert "name" not in masked.frame
    assert masked.report["max_records_per_person"] == "2"
    assert any("at most 2 records" in line for line in masked.report["promises"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"epsilon": "4"}, BalanceError),
        ({"epsilon": "0"}, UsageError),
        ({"mechanism": "ir"}, UsageError),
        ({"mechanism": "dp", "k": 5}, UsageError),
        ({"k": 2}, UsageError),
        ({"k": 61}, UnusableDataError),
        ({"attributes": ["nobody"]}, UsageError),
        ({"weights": {"age": 1}}, UsageError),
        ({"identifier": "age"}, ConfigurationError),
        ({"id": "NO"}, UsageError),
        ({"id": ""}, UsageError),
        ({"attributes": ["age"], "mechanism": "idp-cbls"}, BalanceError),
    ],
)
def test_what_cannot_be_done_costs_nothing(workspace, frame, arguments, error):
    """Every mistake is an error of the catalogue with a hint, before anything is charged."""
    with pytest.raises(error) as caught:
        workspace.mask(frame, SCHEMA, anyway=True, **({"epsilon": "1"} | arguments))
    assert caught.value.hint
    assert spends(workspace) == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"type": "intger"}, 'one of "integer"'),
        ({"type": "integer", "min": 0}, "missing"),
        ({"type": "integer", "min": 5, "max": 1}, "above max"),
        ({"type": "boolean", "min": 0}, "goes with type"),
        ({"type": "number", "min": 0, "max": 1, "decimals": 1, "decimal": 2}, "did you mean 'decimals'"),
    ],
)
def test_a_wrong_schema_is_told_as_in_a_file(workspace, frame, table, told):
    """By key, with what is accepted."""
    with pytest.raises(ConfigurationError) as caught:
        workspace.mask(frame, {"age": table}, anyway=True, epsilon="1")
    assert "attributes.age" in caught.value.message
    assert told in caught.value.message


def test_bounds_may_be_numpys_and_pandas_own(workspace, frame):
    """What people have at hand: numpy integers, floats, timestamps; decimals as they are written."""
    schema = {
        "age": {"type": "integer", "min": np.int64(0), "max": np.int64(120)},
        "pay": {"type": "number", "min": 0.0, "max": np.float64(900.5), "decimals": 2},
        "day": {"type": "date", "min": pd.Timestamp(2020, 1, 1), "max": pd.Timestamp(2026, 12, 31)},
    }
    masked = workspace.mask(frame, schema, anyway=True, epsilon="1")
    assert [each.get("max") for each in masked.report["schema"]] == ["120", "900.50", "2026-12-31"]


def test_one_attribute_by_its_name(workspace, frame):
    """A text is one attribute, not its letters."""
    masked = workspace.mask(frame, SCHEMA, anyway=True, epsilon="1", attributes="age")
    assert list(masked.frame.columns) == ["age"]


def test_what_is_no_frame_and_no_schema(workspace, frame):
    """Errors of the catalogue, not of Python."""
    ask_mean = partial(workspace.query, statistic="mean", attribute="age")
    for ask in (workspace.mask, workspace.synthesise, workspace.explore, ask_mean):
        with pytest.raises(UsageError, match="expected a DataFrame, not list"):
            ask([1, 2], schema=SCHEMA, epsilon="1")
    with pytest.raises(UsageError, match="not list"):
        workspace.mask(frame, ["age"], anyway=True, epsilon="1")
    with pytest.raises(ConfigurationError):
        workspace.mask(frame, {"age": 3}, anyway=True, epsilon="1")
    with pytest.raises(ConfigurationError) as caught:
        workspace.synthesise(frame, SCHEMA, structural_zeros=[{"height": [3]}], epsilon="1")
    assert "  structural_zeros[1].height: is no attribute" in str(caught.value)
    with pytest.raises(ConfigurationError):
        workspace.mask(frame, {}, anyway=True, epsilon="1")


def test_an_owners_data_set(tmp_path):
    """Its schema, policy and ledger: the same that the command line and the daemon charge."""
    make_owner_folder(tmp_path, policy='mechanisms = ["idp-quantiles", "dp-hist"]')
    workspace = Workspace.of_owner(tmp_path / "owner.toml", "patients")
    frame = pd.read_csv(tmp_path / "patients.csv")
    masked = workspace.mask(frame, anyway=True, epsilon="1", weights=dict.fromkeys(masked_names(), "1"))
    assert masked.frame.shape == (60, 6)
    assert workspace.balance().remaining == Decimal("1.500000000004")
    assert (tmp_path / "state" / "owner.db").exists()
    with pytest.raises(RefusedError, match=r"policy\.mechanisms"):
        workspace.mask(frame, anyway=True, epsilon="0.5", mechanism="dp")
    with pytest.raises(UsageError):
        Workspace(tmp_path / "other", budget="b", total_epsilon="1").mask(frame, epsilon="1")


def masked_names() -> tuple[str, ...]:
    """The attributes of the owner's data set."""
    return ("age", "income", "ward", "stage", "admitted", "emergency")


def test_the_docstring_is_true(tmp_path, monkeypatch):
    """The example in the module works as it is written."""
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(notebook)
    assert (result.failed, result.attempted > 5) == (0, True)


def test_a_worthless_result_is_not_charged_silently(workspace, frame):
    """Where the mean would do for most attributes, nothing is charged unless that is wanted."""
    with pytest.raises(UsageError, match="expected to be worthless: for 6 of 6 attributes"):
        workspace.mask(frame, SCHEMA, epsilon="0.01")
    assert spends(workspace) == []
    workspace.mask(frame, SCHEMA, epsilon="0.01", anyway=True)
    assert len(spends(workspace)) == 1


def test_the_page_is_true(tmp_path, monkeypatch):
    """The examples of docs/notebook.md work as they are written, one after the other."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "notebook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    make_owner_folder(tmp_path, n_records=5_000)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


def test_a_synthetic_table(workspace, frame):
    """Drawn records have the columns and types of the schema, are as many as the originals, and are charged
    once under an id; masked records under the same id are other work.
    """
    many = pd.concat([frame] * (30_000 // len(frame)), ignore_index=True)
    made = workspace.synthesise(many, SCHEMA, epsilon="1", id="drawn")
    assert len(made.frame) == len(many)
    assert [str(kind) for kind in made.frame.dtypes] == [
        "int64", "float64", "category", "category", "datetime64[s]", "bool",
    ]  # fmt: skip
    assert made.frame["pay"].between(-5.5, 900).all()
    assert made.report["product"] == "synthetic"
    assert made.counts is not None
    # One interval of 95 % in twenty would miss.
    pay = made.counts.means("pay", confidence=0.9999).loc["pay"]
    assert pay["low"] < many["pay"].mean() < pay["high"]
    again = workspace.synthesise(many, SCHEMA, epsilon="1", id="drawn")
    pd.testing.assert_frame_equal(again.counts.frame, made.counts.frame)
    pd.testing.assert_frame_equal(made.frame, again.frame)
    assert spends(workspace) == [Decimal(1)]
    with pytest.raises(ConflictError):
        workspace.mask(many, SCHEMA, epsilon="1", id="drawn", anyway=True)


def test_what_follows_a_drawn_attribute_is_in_the_frame(workspace, frame):
    """As in the table that is kept, and as `mask` returns it: after the attribute that it follows."""
    follows = {"type": "integer", "min": 0, "max": 9, "follows": "ward", "values": {"A": 3, "B": 7}}
    schema = {name: SCHEMA[name] for name in ("ward", "age")} | {"beds": follows}
    many = pd.concat([frame] * (30_000 // len(frame)), ignore_index=True)
    many["beds"] = many["ward"].map({"A": 3, "B": 7})
    drawn = workspace.synthesise(many, schema, epsilon="1")
    wards, beds = (drawn.counts.table(name)["count"] for name in ("ward", "beds"))
    assert beds.to_dict() == pytest.approx({"3": wards["A"], "7": wards["B"]})
    for made in (drawn, workspace.mask(many, schema, epsilon="1")):
        assert list(made.frame.columns) == ["ward", "beds", "age"]
        assert (made.frame["beds"] == made.frame["ward"].map({"A": 3, "B": 7}).astype(int)).all()


def test_declared_rules_hold_in_every_drawn_record(workspace, frame):
    """A rule about numbers, labels, dates and booleans; what cannot be is refused before a charge."""
    many = pd.concat([frame] * (30_000 // len(frame)), ignore_index=True)
    many.loc[many["pay"] > 100.25, "ward"] = "A"
    many.loc[many["day"] < "2021-01-15", "flag"] = False
    rules = [
        {"pay": {"min": 100.26}, "ward": ["B"]},
        {"day": {"max": "2021-01-14"}, "flag": [True]},
        {"age": [3, 5], "stage": ("mild", "worse")},
    ]
    made = workspace.synthesise(many, SCHEMA, epsilon="1", structural_zeros=rules, id="drawn").frame
    assert not ((made["pay"] > 100.25) & (made["ward"] == "B")).any()
    assert not ((made["day"] < "2021-01-15") & made["flag"]).any()
    assert not (made["age"].isin([3, 5]) & made["stage"].isin(["mild", "worse"])).any()
    assert (made["ward"] == "B").any()
    assert made["flag"].any()
    for rule, problem in (
        ({"ward": ["A", "B"]}, "no possible record"),
        ({"ward": {"max": "A"}}, "labels have no range"),
        ({"age": {"min": 200}}, "outside the domain"),
        ({"nobody": [1]}, "no attribute"),
        ({"age": 5}, "expected values"),
    ):
        with pytest.raises(TesseraError, match=problem):
            workspace.synthesise(many, SCHEMA, epsilon="1", structural_zeros=[rule], id="other")
    assert spends(workspace) == [Decimal(1)]


def test_a_query_is_answered_and_charged_once(frame, workspace):
    """The same id gives the same answer uncharged; an answer says how far it may be off."""
    asked = {"epsilon": "0.5", "id": "q1"}
    first = workspace.query(frame, "count", "age", SCHEMA, at_least="30", **asked)
    again = workspace.query(frame, "count", "age", SCHEMA, at_least="30", **asked)
    assert (first.answers, first.charged, again.charged) == (again.answers, Decimal("0.5"), 0)
    assert workspace.balance().remaining == Decimal("2.5")
    assert repr(first) == f"Answer({first.answers[0]} ± {first.error_95})"
    assert abs(int(first.answers[0]) - 30) < 200
    by_ward = workspace.query(frame, "histogram", "ward", SCHEMA, epsilon="0.5")
    assert (len(by_ward.answers), len(by_ward.ranges)) == (2, 2)
    assert workspace.query(frame, "median", "age", SCHEMA, epsilon="0.5").error_95 is None
    with pytest.raises(UsageError, match="no statistic 'modus'"):
        workspace.query(frame, "modus", "age", SCHEMA, epsilon="0.5")
    with pytest.raises(UsageError, match="no attribute 'name'"):
        workspace.query(frame, "median", "name", SCHEMA, epsilon="0.5")
    assert workspace.balance().remaining == Decimal("1.5")


def test_settings_are_explored_without_a_charge(frame, workspace):
    """One row per setting; a second look costs as little as the first."""
    found = workspace.explore(
        frame,
        SCHEMA,
        epsilon=("1", "2"),
        k=(5,),
        mechanism=("idp-joint",),
        rank_noise=("0.1",),
        repetitions=2,
    )
    assert len(found.settings) == 2
    assert "recommendation" in found.document
    assert repr(found).startswith("Explored(2 settings; No setting here is worth releasing")
    assert not workspace.folder.exists()
