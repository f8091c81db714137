"""Noisy counts as a table, and records that follow from it: what is changed is found and named."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from common.errors import IntegrityError
from common.model.schema import Attribute, AttributeType
from common.release.counts import COLUMNS, COUNTS_FILE, check_drawn, counts_table, measured_in, pair_errors
from common.synthesis.schedule import Design, OneWay, Table, run_rounds, split
from owner_node.synthesis.counts import exact_answer
from owner_node.synthesis.own_table import synthesise_together
from tests.fakes.bits import SeededBits

AGE = Attribute("age", AttributeType.INTEGER, 18, 90)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 3, categories=("eye, ear", "heart", "rare", "rarer"))
INCOME = Attribute("income", AttributeType.NUMBER, -1000, 10**7, decimals=2, keeps_missing=True)
ILL = Attribute("ill", AttributeType.BOOLEAN, 0, 1)
ATTRIBUTES = (AGE, WARD, INCOME, ILL)


def columns(n_records: int) -> list[np.ndarray]:
    """Return codes of records in which the old are ill, and some incomes are missing."""
    draw = np.random.default_rng(1)
    age = draw.integers(0, AGE.n_values, n_records)
    ward = np.where(draw.random(n_records) < 0.5, 0, 1)
    income = np.minimum(draw.exponential(30_000, n_records) * 100, INCOME.n_values - 2).astype(np.int64)
    income[draw.random(n_records) < 0.1] = INCOME.n_values - 1
    return [age, ward, income, (age > 40).astype(np.int64)]


def made(delta: str = "0"):
    """Return a release of one owner: its design, its counts, and what it is."""
    design = Design(ATTRIBUTES, 20_000, Decimal(1), Decimal(delta))
    drawn = synthesise_together(design, [columns(20_000)], [SeededBits(7)])
    return design, counts_table(drawn.measured), drawn


@pytest.fixture(scope="module")
def release():
    """A release without δ."""
    return made()


def changed(table: pa.Table, name: str, place: int, value: object) -> pa.Table:
    """Return a table with another value at one place."""
    field, values = table.schema.field(name), table.column(name).to_pylist()
    values[place] = value
    kind = pa.string() if pa.types.is_dictionary(field.type) else field.type
    column = pa.array(values, kind)
    if pa.types.is_dictionary(field.type):
        column = column.dictionary_encode()
    return table.set_column(table.schema.get_field_index(name), field, column)


@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_every_noisy_number_is_published_with_its_cell_and_noise(delta):
    """The table says what each number is about: counted by its words in the original records, the numbers
    are off by their noise alone.
    """
    design, table, drawn = made(delta)
    assert table.schema.equals(COLUMNS)
    rows = table.to_pylist()
    assert len(rows) == sum(each.size for each in drawn.measured.sums)
    original = columns(design.n_records)
    asked = [question for each in drawn.measured.rounds for question in each]
    exact = np.concatenate([exact_answer(each, original) for each in drawn.measured.rounds])
    deviations = np.array([each["standard_deviation"] for each in rows])
    assert np.mean(np.abs([each["count"] for each in rows] - exact) < 3.5 * deviations) > 0.98
    assert {each["kind"] for each in rows} == {"one-way", "two-way"}
    assert [each["table"] for each in rows] == sorted(each["table"] for each in rows)
    assert rows[-1]["table"] == len(asked)
    old = [each for each in rows if (each["first"], each["first_cell"]) == ("age", "89")]
    assert len(old) == 1
    missing = [each for each in rows if (each["kind"], each["first_cell"]) == ("one-way", "(missing)")]
    assert missing
    assert all(abs(each["count"] - 2000) < 600 for each in missing)
    assert any(each["second_cell"] == "true" for each in rows if each["kind"] == "two-way")
    assert {"rare", "rarer"} < {each["first_cell"] for each in rows if each["first"] == "ward"}
    assert [each.pair for each in asked if isinstance(each, Table)] == list(design.pairs)
    assert all(isinstance(each, OneWay) for each in drawn.measured.rounds[0])


def test_tables_of_two_owners_say_that_both_added_noise():
    """The release follows from them all the same."""
    design = Design(ATTRIBUTES, 20_000, Decimal(1), owner_groups=(0, 0, 1, 1))
    asked = run_rounds(design, lambda asked: exact_answer(asked, columns(20_000)))
    table = counts_table(asked)
    frame = table.to_pandas()
    deviations = frame.groupby(["kind", "first", "second"], observed=True)["standard_deviation"].first()
    alone = asked.rounds[-1][0].noise.variance(1) ** 0.5
    assert deviations["two-way", "age", "ward"] == pytest.approx(alone)
    assert deviations["two-way", "age", "ill"] == pytest.approx(2**0.5 * alone)
    again = measured_in(design, table)
    assert again.seed == asked.seed


@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_records_follow_from_counts(delta):
    """Anyone draws them again from the published table."""
    design, table, drawn = made(delta)
    again = check_drawn(design, drawn.measured.seed.hex(), table, drawn.codes)
    assert [each.tobytes() for each in again.codes] == [each.tobytes() for each in drawn.codes]


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("count", 10_000, "the stated seed is not the digest of the counts"),
        ("count", 2**41, "numbers that are no counts"),
        ("count", -(2**63), "numbers that are no counts"),
        ("first", "ward", "line 1 has another first"),
        ("first_cell", "19", "line 1 has another first_cell"),
        ("second", "age", "line 1 has another second"),
        ("kind", "two-way", "line 1 has another kind"),
        ("round", 2, "line 1 has another round"),
        ("standard_deviation", 0.0, "line 1 has another standard_deviation"),
    ],
)
def test_a_changed_count_is_named(release, name, value, named):
    """Also one that is said to have less noise, or to be of something else."""
    design, table, drawn = release
    with pytest.raises(IntegrityError, match=named):
        check_drawn(design, drawn.measured.seed.hex(), changed(table, name, 0, value), drawn.codes)


def test_a_changed_record_is_named(release):
    """With its number and its attribute, and never its value."""
    design, table, drawn = release
    codes = [each.copy() for each in drawn.codes]
    codes[2][17] = (codes[2][17] + 1) % INCOME.n_values
    with pytest.raises(IntegrityError, match="record 18 has another value of income") as raised:
        check_drawn(design, drawn.measured.seed.hex(), table, codes)
    assert raised.value.details == {"attribute": "income", "differing": 1}


def test_other_one_way_counts_are_refused_before_anything_is_drawn(release, monkeypatch):
    """Swaps keep these, so records of other ones, or fewer, cost no time; the attribute is named."""
    monkeypatch.setattr("common.release.counts.synthesise", lambda *_: pytest.fail("was drawn"))
    design, table, drawn = release
    age, *others = drawn.codes
    moved = np.where(np.arange(age.size) == 17, (age + AGE.n_values // 2) % AGE.n_values, age)
    for codes, named in (([moved, *others], "age"), ([age, *(each[:-1] for each in others)], "ward")):
        said = f"{named} has other one-way counts"
        with pytest.raises(IntegrityError, match=said):
            check_drawn(design, drawn.measured.seed.hex(), table, codes)


@pytest.mark.parametrize(
    ("change", "other", "said"),
    [
        (lambda table: table.slice(0, table.num_rows - 1), {}, r"lacks numbers of round \d"),
        (lambda table: table.slice(0, 0), {}, "lacks numbers of round 1"),
        (lambda table: pa.concat_tables([table, table.slice(0, 2)]), {}, "2 numbers that nothing asked for"),
        (lambda table: table.drop_columns(["count"]), {}, "other columns"),
        (lambda table: table, {"epsilon": Decimal(2)}, COUNTS_FILE),
        (lambda table: table, {"attributes": ATTRIBUTES[:3]}, COUNTS_FILE),
    ],
)
def test_tables_of_another_form_or_release(release, change, other, said):
    """Missing numbers or some that nothing asked for, other columns, another ε, other attributes."""
    design, table, _ = release
    with pytest.raises(IntegrityError, match=said):
        measured_in(replace(design, **other), change(table))


def test_the_expected_error_of_a_pair_bounds_what_noise_did(release):
    """Of every counted pair there is one; without noise there is none, and it is near what noise moved."""
    design, counts, drawn = release
    errors = pair_errors(counts, design.n_records)
    names = [each.name for each in ATTRIBUTES]
    assert set(errors) == {tuple(names[place] for place in pair) for pair in design.pairs}
    questions, sums = drawn.measured.rounds[-1], drawn.measured.sums[-1]
    exact = split(questions, exact_answer(questions, columns(design.n_records)))
    for question, noisy, true in zip(questions, split(questions, sums), exact, strict=True):
        moved = np.abs(np.maximum(noisy, 0) - true).sum() / (2 * design.n_records)
        expected = errors[tuple(names[place] for place in question.pair)]
        assert 0.5 * moved < expected < 2 * moved
    place = counts.schema.get_field_index("standard_deviation")
    silent = counts.set_column(place, counts.schema.field(place), pa.array(np.zeros(counts.num_rows)))
    assert set(pair_errors(silent, design.n_records).values()) == {0.0}


def test_counts_of_other_records_are_refused_before_anything_is_drawn(release, monkeypatch):
    """A table of its own shape, with a matching seed, whose counts are those of no 20,000 records."""
    monkeypatch.setattr("common.release.counts.synthesise", lambda *_: pytest.fail("was drawn"))
    design, _, drawn = release
    *before, last = drawn.measured.sums
    invented = replace(drawn.measured, sums=(*before, last // 5))
    table = counts_table(invented)
    said = r"counts.parquet is implausible: the total of age and ward, counted by a, b, is [34],"
    with pytest.raises(IntegrityError, match=said):
        measured_in(design, table, [("a", "b")])
    with pytest.raises(IntegrityError, match=r"is implausible: the total of age and ward is [34],"):
        check_drawn(design, invented.seed.hex(), table, drawn.codes)
