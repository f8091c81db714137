"""A sweep: sorted once, equal to masking record by record, and the same again with the same seed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from threading import Event
from typing import Any

import numpy as np
import pytest

from common.errors import DataError, UsageError
from common.model.schema import (
    Attribute,
    AttributeType,
    CategoryOrder,
    Schema,
    TaxonomyMethod,
    round_to_leading_digit,
)
from common.progress import StepStoppedError
from owner_node.explore import sweep
from owner_node.explore.advice import USEFUL
from owner_node.explore.assessment import (
    ALL_MEASURES,
    PMSE,
    Grid,
    GridSetting,
    plan_cell,
)
from owner_node.explore.results import FORMAT, Results
from owner_node.explore.sweep import INTERRUPTED, ExploredTable, ExploreRequest, explore
from owner_node.masking.arrays import Purpose
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.lists import ReleasedList
from owner_node.masking.mechanisms import SumMechanism
from owner_node.masking.tasks import AttributeTask, mechanism_of
from owner_node.risk.attacks import ATTACKS, MaskedRecords
from owner_node.risk.draws import Draw, SortedAttribute, released_lists
from owner_node.risk.measures import attribute_sse, mean_sse
from owner_node.risk.trials import CONTROL_SHARE, Randomness, masked
from owner_node.risk.utility import UNCHANGED, OriginalRecords, measure
from owner_node.values.taxonomy import read_hierarchy, taxonomy_of
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute

N = 400
LABELS = ("a", "b", "c", "d")
TREE = taxonomy_of(read_hierarchy("a;x;*\nb;x;*\nc;y;*\nd;y;*\n"), LABELS)
ABOUT = {"created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
NOISES = (Decimal(0), Decimal("0.03"))
AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
INCOME = Attribute("income", AttributeType.NUMBER, -1000, 900_000, decimals=2)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 3, categories=LABELS)
TOWN = Attribute("town", AttributeType.CATEGORY, 0, 3, categories=LABELS, order=CategoryOrder.FREQUENCY)
JOB = Attribute(
    "job",
    AttributeType.CATEGORY,
    0,
    3,
    categories=LABELS,
    taxonomy="0" * 64,
    method=TaxonomyMethod.EXPONENTIAL,
)
ALL = (AGE, INCOME, WARD, TOWN)


def columns():
    """Four attributes, the second one related to the first."""
    draw = np.random.default_rng(1)
    age = draw.integers(18, 90, N)
    return {
        "age": age,
        "income": np.clip(age * 6000 + draw.integers(-40_000, 40_000, N), -1000, 900_000),
        "ward": draw.integers(0, 4, N),
        "town": np.minimum(draw.geometric(0.5, N) - 1, 3)[::-1].copy(),
        "job": draw.integers(0, 4, N),
    }


def table(attributes=ALL):
    """The table of these attributes."""
    schema = Schema(tuple(attributes), records_rounded=round_to_leading_digit(N))
    values = columns()
    records = MemoryEngine({each.name: values[each.name] for each in attributes})
    return ExploredTable("people", schema, records, {"job": TREE})


def explored(question, seed=1, attributes=ALL, calls=None):
    """The document of an exploration with a seed."""
    randomness = Randomness(SeededBits(seed), np.random.default_rng(seed))
    done = [] if calls is None else calls
    return explore(
        table(attributes), question, ABOUT, randomness, lambda *each: done.append(each), 1
    ).to_document()


QUICK = ExploreRequest(Grid((Decimal("0.5"), Decimal(1)), (None, 10), ("auto",), NOISES), 2, 1, (), ())


@pytest.mark.parametrize("attribute", [AGE, INCOME, WARD, TOWN, JOB], ids=lambda each: each.name)
@pytest.mark.parametrize("rank_noise", NOISES)
@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-ls", "dp-hist", "dp"])
def test_error_without_records(attribute, mechanism, rank_noise):
    """The error from sums of clusters is that of the records, whatever the order of categories; and a draw of
    a sorted attribute is one of masking: with equal bits the same values, where no ties are broken.
    """
    taxonomy = TREE if attribute is JOB else None
    if attribute is JOB:
        mechanism = "exponential"
    k = None if mechanism in ("dp", "dp-hist") else 7
    noise = Decimal(0) if mechanism == "dp" else rank_noise
    task = AttributeTask(attribute, Decimal(1), k, mechanism, 1, taxonomy, noise)
    values = columns()[attribute.name]
    sorted_once = SortedAttribute.of(values, task, SeededBits(2))
    draw = sorted_once.draw(task, SeededBits(3).spawn().of(Purpose.LIST))
    masked = sorted_once.by_record(draw)
    assert sorted_once.error(draw) == pytest.approx(
        attribute_sse(sorted_once.scale, values, masked), abs=1e-9
    )
    # What has no list is drawn record by record, in whatever order they are.
    if not noise and mechanism != "dp":
        assert np.array_equal(masked, mask_attribute(values, task, SeededBits(3)).by_record())


@pytest.mark.parametrize("mechanism", ["idp-joint", "dp-ir", "dp-hist"])
def test_several_draws_at_once(mechanism):
    """One of several is what a single draw is with the same bits, and several differ from each other."""
    task = AttributeTask(INCOME, Decimal(1), None if mechanism == "dp-hist" else 7, mechanism)
    if mechanism == "dp-hist":
        task = replace(task, attribute=AGE)
    sorted_once = SortedAttribute.of(columns()[task.attribute.name], task, SeededBits(1))
    (only,) = sorted_once.draws(task, SeededBits(4), 1)
    assert np.array_equal(only.released.values, sorted_once.draw(task, SeededBits(4)).released.values)
    several = [sorted_once.by_record(each) for each in sorted_once.draws(task, SeededBits(5), 3)]
    assert len({each.tobytes() for each in several}) == 3


@pytest.mark.parametrize("attribute", [INCOME, TOWN], ids=lambda each: each.name)
@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-ls", "dp"])
def test_errors_of_many_settings_at_once(attribute, mechanism):
    """Lists of all ε are drawn together; each error is that of its own list, record by record, and each
    setting gets its own noise.
    """
    k = None if mechanism == "dp" else 7
    tasks = [AttributeTask(attribute, Decimal(each), k, mechanism) for each in ("0.01", "1", "100000")]
    values = columns()[attribute.name]
    sorted_once = SortedAttribute.of(values, tasks[0], SeededBits(2))
    found = sorted_once.errors(tasks, SeededBits(3), 4)
    expected: list[list[float | None]] = [[], [], []]
    settings = [task.setting for task in tasks]
    chosen = mechanism_of(tasks[0])
    assert isinstance(chosen, SumMechanism)
    for lists in released_lists(chosen, sorted_once.ascending, settings, SeededBits(3), 4):
        for number, entries in zip(lists.numbers, lists.values, strict=True):
            draw = Draw(ReleasedList(entries, lists.sizes), sorted_once.order, sorted_once.positions, True)
            masked = sorted_once.by_record(draw)
            expected[number].append(attribute_sse(sorted_once.scale, values, masked))
    assert [len(each) for each in found] == [4, 4, 4]
    assert found[0] == pytest.approx(expected[0])
    assert found[1] == pytest.approx(expected[1])
    if attribute is INCOME:
        much, some, little = (np.array(each, dtype=float).mean() for each in found)
        assert much > some > little
    assert found[2] == pytest.approx(expected[2], abs=1e-9)
    assert len({tuple(each) for each in found}) == 3


def test_errors_of_settings_in_any_order():
    """Different k, mechanisms and rank noise in one call: every task gets its own errors back."""
    tasks = [
        AttributeTask(AGE, Decimal(10**5), k, mechanism, 1, None, noise)
        for mechanism, k, noise in (
            *(("idp-joint", 7, Decimal(0)), ("dp-hist", None, Decimal(0))),
            *(("idp-joint", 60, Decimal(0)), ("idp-joint", 7, Decimal("0.9"))),
        )
    ]
    sorted_once = SortedAttribute.of(columns()["age"], tasks[0], SeededBits(2))
    found = np.array(sorted_once.errors(tasks, SeededBits(3), 5), dtype=float)
    seven, counted, sixty, moved = found.mean(axis=1)
    assert counted == 0
    assert 0 < seven < sixty < moved


def test_plain_ranking_is_the_reference():
    """Without noise: every cluster of k gets its rounded mean, as sorting and averaging by hand gives."""
    task = AttributeTask(AGE, Decimal(1), 30, "idp-joint")
    values = columns()["age"]
    ordered = np.sort(values)
    parts = [ordered[i * 30 : (i + 1) * 30] if i < 12 else ordered[360:] for i in range(13)]
    squares = sum(float(np.square(part - np.rint(part.mean())).sum()) for part in parts)
    expected = squares / (N * float(np.var(values, ddof=1)))
    assert SortedAttribute.of(values, task, SeededBits(1)).without_noise(30) == pytest.approx(expected)


def test_measures_are_those_of_the_draws():
    """Mean SSE and the share unchanged are what record by record masking with the same bits gives."""
    cell = plan_cell(GridSetting("idp-joint", Decimal(4), 10), table().schema, {})
    values = columns()
    whole = OriginalRecords.of(
        [SortedAttribute.of(values[t.attribute.name], t, SeededBits(1)) for t in cell.tasks]
    )
    found = measure(whole, cell.tasks, 1, ALL_MEASURES, SeededBits(5))
    bits = SeededBits(5)
    masked = [own.by_record(own.draw(t, bits)) for own, t in zip(whole.attributes, cell.tasks, strict=True)]
    errors = [
        attribute_sse(each.scale, each.original, column)
        for each, column in zip(whole.attributes, masked, strict=True)
    ]
    overall = found.mean_sse()
    assert overall is not None
    assert overall.mean == pytest.approx(mean_sse(errors))
    assert found.of_attribute(UNCHANGED, 0) == pytest.approx(float((masked[0] == values["age"]).mean()))


def test_every_setting_once_in_order():
    """Mechanism, rank noise, k, epsilon; a mechanism without clusters has one column and no rank noise."""
    question = ExploreRequest(
        Grid((Decimal("0.5"), Decimal(1)), (None, 10), ("idp-joint", "dp"), NOISES), 1, 1, (), ()
    )
    calls: list[tuple[int, int]] = []
    document = explored(question, calls=calls)
    names = [(c["mechanism"], c["rank_noise"], c["k"], c["epsilon"]) for c in document["cells"]]
    assert names == [
        *(("idp-joint", w, k, e) for w in ("0", "0.03") for k in ("auto", "10") for e in ("0.5", "1")),
        ("dp", "0", None, "0.5"),
        ("dp", "0", None, "1"),
    ]
    assert calls == [(done, 10) for done in range(11)]
    assert document["format"] == FORMAT
    assert document["mean_sse_of_means"] == 0.25
    assert document["cells"][0]["risks"] == []
    assert document["control_records"] == 0


def test_bounds_are_those_of_a_release():
    """Two attributes with rank noise 0.03 cost 2 · 2/0.03 more for the table; without it, no bound."""
    grid = Grid((Decimal(1),), (10,), ("idp-joint",), NOISES)
    found = explored(ExploreRequest(grid, 1, 1, (), ()), attributes=(AGE, WARD))["cells"]
    assert [cell["epsilon_joint"] for cell in found] == ["1", "1"]
    assert found[0]["epsilon_table"] is None
    assert float(found[1]["epsilon_table"]) == pytest.approx(1 + 4 / 0.03)
    assert explored(ExploreRequest(grid, 1, 1, (), ()))["cells"][0]["epsilon_joint"] is None


def test_same_seed_same_document():
    """An evaluation with a seed is reproducible, and another seed draws anew."""
    assert explored(QUICK, 1) == explored(QUICK, 1)
    assert explored(QUICK, 1)["cells"] != explored(QUICK, 2)["cells"]


def test_everything_that_is_asked_for_is_there():
    """Measures, models, classes, attacks and distributions; the document is JSON without infinities."""
    grid = Grid((Decimal(2),), (10,), ("idp-joint",), (Decimal("0.03"),))
    document = explored(ExploreRequest(grid, 2, 2, class_attribute="ward", known=("age", "income")))
    json.dumps(document, allow_nan=False)
    (cell,) = document["cells"]
    for name in ("mean_sse", "relative_error", "variance_change", "divergence", "correlation_error", PMSE):
        assert cell[name]["low"] <= cell[name]["mean"] <= cell[name]["high"], name
    assert [each["class"] for each in cell["f_measure"]] == list(LABELS)
    found = {(each["attack"], each["attribute"], each["knows"]) for each in cell["risks"]}
    by_knowledge = {(name, None, "age, income") for name in ("linkage", "likelihood", "structure")}
    of_everybody = ("unchanged-values", "unchanged-records", "interval", "membership", "extremes", "scales")
    assert found == {
        *by_knowledge,
        ("likelihood", None, "age, income, approximately"),
        *((name, None, "") for name in of_everybody),
        ("inference", "ward", ""),
        ("inference", "town", ""),
    }
    assert document["intruders"] == ["age, income", "age, income, approximately"]
    assert document["control_records"] == 40
    assert [each["name"] for each in document["shown"]["attributes"]] == ["age", "income", "ward", "town"]
    assert all(sum(each["masked"]) == N for each in document["shown"]["attributes"])
    distortions = {each["name"]: each for each in document["shown"]["distortions"]}
    assert list(distortions) == ["age", "income", "ward", "town"]
    assert distortions["age"]["mean"]["before"] == pytest.approx(columns()["age"].mean())
    assert distortions["ward"]["mean"] is None


def test_more_epsilon_less_error():
    """What the sweep finds goes the way that it must: less noise, less error, more linkage."""
    grid = Grid((Decimal("0.05"), Decimal(50)), (10,), ("idp-joint",))
    low, high = explored(ExploreRequest(grid, 3, 2, (), ("linkage",)))["cells"]
    assert high["mean_sse"]["mean"] < low["mean_sse"]["mean"] / 10
    assert high["risks"][0]["rate"]["mean"] > low["risks"][0]["rate"]["mean"]


def test_rank_noise_protects_who_is_who():
    """With noise on ranks, structure alone links fewer."""
    grid = Grid((Decimal(4),), (10,), ("idp-joint",), (Decimal(0), Decimal("0.2")))
    without, with_noise = explored(ExploreRequest(grid, 1, 2, (), ("structure",)))["cells"]
    assert with_noise["risks"][0]["rate"]["mean"] < without["risks"][0]["rate"]["mean"] / 2


def test_attacks_run_on_useful_settings():
    """What nobody would release is not attacked; without a useful setting the one with least error is."""
    grid = Grid((Decimal("0.001"), Decimal(50)), (10,), ("idp-joint",))
    question = ExploreRequest(grid, 1, 3, (), ("linkage",), thorough=False)
    useless, useful = explored(question)["cells"]
    assert (useless["risks"], len(useful["risks"])) == ([], 1)
    assert useless["mean_sse"]["mean"] > USEFUL * 0.25 > useful["mean_sse"]["mean"]
    grid = Grid((Decimal("0.001"), Decimal("0.002")), (10,), ("idp-joint",))
    cells = explored(replace(question, grid=grid))["cells"]
    (attacked,) = [cell for cell in cells if cell["risks"]]
    assert attacked["mean_sse"]["mean"] == min(cell["mean_sse"]["mean"] for cell in cells)


def test_a_draw_that_is_unsafe_is_enough(monkeypatch):
    """A setting that one draw shows to be unsafe is attacked no further, and others in all draws."""
    draws: list[Decimal] = []

    def counted(tasks: Sequence[AttributeTask], *rest: Any) -> MaskedRecords:
        draws.append(tasks[0].epsilon)
        return masked(tasks, *rest)

    monkeypatch.setattr("owner_node.risk.trials.masked", counted)
    grid = Grid((Decimal("0.001"), Decimal(50)), (10,), ("idp-joint",))
    explored(ExploreRequest(grid, 1, 3, (), ("linkage",)))
    assert len(draws) == 6
    draws.clear()
    explored(ExploreRequest(grid, 1, 3, (), ("linkage",), thorough=False))
    assert len(draws) == 1


def test_ctrl_c_keeps_what_was_assessed():
    """The settings that are done are results; before the first there is nothing to keep."""

    def interrupt(least: int) -> Results:
        def progress(done: int, _of: int) -> None:
            if done >= least:
                raise KeyboardInterrupt

        randomness = Randomness(SeededBits(1), np.random.default_rng(1))
        return explore(table(), QUICK, ABOUT, randomness, progress, 1)

    done, *others = interrupt(1).cells
    assert done.mean_sse is not None
    assert {cell.problem for cell in others} == {INTERRUPTED}
    with pytest.raises(KeyboardInterrupt):
        interrupt(0)


def test_what_is_impossible_is_said_cell_by_cell():
    """A k above the number of records is a problem of its own cells and of no other."""
    grid = Grid((Decimal(1),), (10, 5000), ("idp-joint",))
    fine, impossible = explored(ExploreRequest(grid, 1, 1, (), ()))["cells"]
    assert fine["problem"] is None
    assert fine["mean_sse"]["mean"] > 0
    assert "at least 5000 are needed" in impossible["problem"]
    assert impossible["mean_sse"] is None


def test_the_number_of_records_is_told_of_all():
    """Those who are left out for the attacks do not make the table smaller in what is said of it."""
    grid = Grid((Decimal(1),), (10, N - 5, N + 10), ("idp-joint",))
    _, without_some, without_any = explored(ExploreRequest(grid, 1, 1, (), ATTACKS))["cells"]
    assert without_some["problem"].startswith(f"{N - N // CONTROL_SHARE} records")
    assert without_any["problem"].startswith(f"{N} records")


def test_values_outside_their_domain():
    """Nothing is sorted before they are found."""
    outside = replace(table([AGE]), records=MemoryEngine({"age": columns()["age"] + 200}))
    with pytest.raises(DataError, match="outside the declared domain"):
        explore(
            outside, QUICK, ABOUT, Randomness(SeededBits(1), np.random.default_rng(1)), lambda *_: None, 1
        )


def test_a_sweep_ends_within_a_setting(monkeypatch):
    """What stops it, such as a person or Ctrl-C, stops the settings that are under way, too."""
    begun = Event()

    def endless(_cell, _subject, _randomness, _found, check):
        begun.set()
        while True:
            check()

    def progress(_done, _of):
        if begun.is_set():
            raise StepStoppedError

    monkeypatch.setattr(sweep, "assess", endless)
    question = ExploreRequest(Grid((Decimal(1),), (5, 10, 20), ("idp-joint",)))
    with pytest.raises(StepStoppedError):
        explore(table(), question, ABOUT, Randomness.of_system(), progress, n_threads=2)


def test_one_record():
    """Nobody can be left out of it: a usage error, as everything that exploring has against its data."""
    only = replace(table([AGE]), records=MemoryEngine({"age": columns()["age"][:1]}))
    with pytest.raises(UsageError, match="1 record is too little"):
        explore(only, QUICK, ABOUT, Randomness(SeededBits(1), np.random.default_rng(1)), lambda *_: None, 1)


def test_attributes_without_variation():
    """They are their mean already: the bar is that of the others, and without any others nothing is tried."""
    still = np.full(N, 30)
    randomness = Randomness(SeededBits(1), np.random.default_rng(1))
    among_others = replace(table([AGE, INCOME]), records=MemoryEngine(columns() | {"age": still}))
    found = explore(among_others, QUICK, ABOUT, randomness, lambda *_: None, 1).to_document()
    assert found["mean_sse_of_means"] == 0.25
    alone = replace(table([AGE]), records=MemoryEngine({"age": still}))
    with pytest.raises(UsageError, match="the same value in all records"):
        explore(alone, QUICK, ABOUT, randomness, lambda *_: None, 1)


def test_attributes_that_are_not_there():
    """Unknown names, and classes with too many values, are usage errors."""
    for wrong in (
        ExploreRequest(QUICK.grid, known=("shoe",)),
        ExploreRequest(QUICK.grid, class_attribute="shoe"),
    ):
        with pytest.raises(UsageError, match="shoe"):
            explored(wrong)
    with pytest.raises(UsageError, match=r"cannot be a class: it can have \d+ values"):
        explored(ExploreRequest(QUICK.grid, class_attribute="income"))
    with pytest.raises(UsageError, match="cannot be a class: there is no other attribute"):
        explored(ExploreRequest(QUICK.grid, class_attribute="ward"), attributes=[WARD])


@pytest.mark.parametrize(
    ("n_records", "ks", "problem"),
    [
        (10, (10,), None),
        (300, (10, 300), "; 30 of 300 are left out for the attacks (--attacks none: none)"),
    ],
)
def test_few_records_are_explored_as_they_are_masked(n_records, ks, problem):
    """Nobody is left out where every cluster needs everybody; a setting that needs more says so."""
    schema = Schema((AGE,), records_rounded=round_to_leading_digit(n_records))
    few = MemoryEngine({"age": columns()["age"][:n_records]})
    grid = Grid((Decimal(1),), ks, ("idp-joint",))
    asked = replace(QUICK, grid=grid, attacks=ATTACKS[:1])
    randomness = Randomness(SeededBits(1), np.random.default_rng(1))
    found = explore(ExploredTable("few", schema, few, {}), asked, ABOUT, randomness, lambda *_: None, 1)
    assert [each.problem is None for each in found.cells] == [True, problem is None][: len(ks)]
    assert str(found.cells[-1].problem).endswith(str(problem))
