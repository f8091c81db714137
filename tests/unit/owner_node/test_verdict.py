"""The verdict on a plan: one intruder, one figure and one judgement, in document, text and numbers."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from owner_node.config import PolicyConfig
from owner_node.masking.foreseen import AttributeForecast, Forecast, Reidentification
from owner_node.risk.attacks import WORDS
from owner_node.views.verdict import attack_rows, knows_text, limits_of, verdict_of

D = Decimal
NAMES = ("age", "alcohol", "density")
INTRUDER = Reidentification(
    ("alcohol", "density"), "likelihood", D("0.0081"), D("0.006"), D("0.011"), D("0.0001")
)
ERRORS = {"age": D("0.01"), "alcohol": D("0.84"), "density": D("0.2")}
FORECAST = Forecast(
    tuple(AttributeForecast(name, error, D("0.1"), D(0)) for name, error in ERRORS.items()),
    D("0.1"), D("0.12"), D("0.003"), D(0), D(0), D("0.0081"), INTRUDER,
)  # fmt: skip


def plan(forecast: Forecast | None = FORECAST, **other):
    """Return a plan as `request_view` does, reduced to what a verdict reads."""
    return {
        "state": "awaiting_approval",
        "records": {"rounded": 10_000, "at_most": 19_999, "exact": 18_000},
        "max_records_per_person": 1,
        "product": "masked",
        "forecast": None if forecast is None else json.loads(forecast.to_text()),
        "attributes": [{"name": name, "k": 20, "rank_noise": D("0.03")} for name in NAMES],
        "co_owners": [{"id": "b"}],
        "charge": D("0.999999999996"),
    } | other


def risk(knows, mean, attack="likelihood", attribute=None, without=0.0001):
    """Return what one attack found."""
    rate = {"mean": mean, "low": mean / 2, "high": 2 * mean}
    return {
        "attack": attack, "rate": rate, "baseline": without, "control": None, "targets": 100, "meaning": "",
        "knows": knows, "attribute": attribute,
    }  # fmt: skip


ATTACKS = {
    "expected": "alcohol, density",
    "risks": [risk("alcohol, density", 0.0081), risk("all", 0.1), risk("", 0.4, "interval", without=0.1)],
    "risks_with_earlier": [risk("all, with 1 earlier release", 0.207)],
    "risks_without_rank_noise": None,
}


@pytest.mark.parametrize("known", [("alcohol", "density"), ()])
def test_one_intruder_one_figure_one_judgement(known) -> None:
    """The policy's intruder is judged, by the stored figure; an intruder who finds more is another one."""
    policy = PolicyConfig(known=known, max_reidentified=D("0.05"), approval="manual")
    found = verdict_of(plan(attacks=ATTACKS), policy)
    assert (found["intruder"]["share"], found["intruder"]["kept"]) == (D("0.0081"), True)
    assert (found["intruder"]["number"], found["intruder"]["of"]) == (146, 18_000)
    (limit,) = [each for each in found["limits"] if each["rule"] == "max_reidentified"]
    assert (limit["found"], limit["kept"]) == (found["intruder"]["share"], found["intruder"]["kept"])
    assert [each["share"] for each in found["others"]] == [0.207, 0.1]
    assert "about 3,730 of 18,000" in found["others"][0]["says"]
    assert verdict_of(plan(), policy)["intruder"] == found["intruder"]


@pytest.mark.parametrize(
    ("limit", "kept", "unsure", "says"),
    [
        ("0.05", True, False, "is kept"),
        ("0.01", True, True, "within the confidence interval"),
        ("0.001", False, False, "above"),
        (None, None, False, "sets no limit"),
    ],
)
def test_the_judgement_is_that_of_the_limit(limit, kept, unsure, says) -> None:
    """Kept, kept on average, or not; without a limit there is none."""
    policy = PolicyConfig(max_reidentified=limit and D(limit), approval="manual")
    found = verdict_of(plan(), policy)["intruder"]
    assert (found["kept"], found["unsure"]) == (kept, unsure)
    assert says in found["judgement"]


def test_what_was_not_tried_is_not_claimed() -> None:
    """Without a forecast nothing is known, and without an attack no limit of it is said to be kept."""
    assert verdict_of(plan(None), PolicyConfig())["intruder"] is None
    bare = replace(FORECAST, intruder=None, reidentified=D(0))
    assert verdict_of(plan(bare), PolicyConfig())["intruder"] is None
    (line,) = [each for each in limits_of(plan(bare), PolicyConfig()) if each["rule"] == "max_reidentified"]
    assert line["found"] is None
    policy = PolicyConfig(known=("ward",), max_reidentified=D("0.05"), approval="manual")
    assert "knows none of these attributes" in verdict_of(plan(bare), policy)["intruder"]["says"]


def test_numbers_stand_beside_shares() -> None:
    """Values, records and persons as numbers; of persons with several records no number is made up."""
    found = verdict_of(plan(), PolicyConfig())
    assert found["unchanged"]["says"] == (
        "12 % of values, about 6,480 of 54,000, and 0.3 % of whole records, about 54 of 18,000"
    )
    assert found["intruder"]["figure"] == "0.81 % of persons, about 146 of 18,000"
    several = verdict_of(plan(max_records_per_person=3), PolicyConfig())
    assert several["intruder"]["figure"] == "0.81 % of records, about 146 of 18,000"


def test_limits_that_are_not_set_are_one_sentence() -> None:
    """A table of limits has those that are set."""
    found = verdict_of(plan(), PolicyConfig(max_unchanged_share=D("0.5"), approval="manual"))
    assert {each["rule"] for each in found["limits"]} == {"max_unchanged_share", "min_k"}
    assert found["unset_says"].startswith("This organisation sets no limit for charge (ε), persons")
    assert found["unset_says"].count(".") == 1


@pytest.mark.parametrize(
    ("errors", "worthless", "says"),
    [
        (("0.01", "0.84", "0.2"), False, "mostly lost: alcohol 0.84"),
        (("1", "2300", "0.2"), True, "for 2 of 3 attributes the mean would do as well (age, alcohol)"),
        (("1.2", None, None), True, "for 1 of 1 attribute the"),
        (("0.01", "1.3", None), True, "for 1 of 2 attributes the mean would do as well (alcohol)"),
        (("0.01", "0.2", "0.3"), False, ""),
        ((None, None, None), False, ""),
    ],
)
def test_what_is_lost_is_named(errors, worthless, says) -> None:
    """Attributes of which little is left, and a release that nobody needs."""
    attributes = tuple(
        AttributeForecast(name, error and D(error), D(0), D(0))
        for name, error in zip(NAMES, errors, strict=True)
    )
    found = verdict_of(plan(replace(FORECAST, attributes=attributes)), PolicyConfig())
    assert found["worthless"] is worthless
    assert says in found["loss"]
    assert bool(found["loss"]) == bool(says)


def test_every_attack_says_what_it_means() -> None:
    """Better than without the release, not measurably, or worse: each has a line."""
    for attack, words in WORDS.items():
        means = [
            attack_rows(ATTACKS | {"risks": [risk("", mean, attack, without=0.5)], "risks_with_earlier": []})[
                0
            ]
            for mean in (1.0 + 1e-9, 0.5, 0.1)
        ]
        assert [each["means"] for each in means] == [
            words.better,
            "not measurably better than without the release",
            "less often right than without the release: it misleads",
        ]
        assert words.name in means[0]["name"]


def test_intruders_are_named_as_people_say_it() -> None:
    """What an intruder knows is not an identifier of the program."""
    assert [knows_text(each) for each in ("all", "all, approximately", "any 3", "age, ward")] == [
        "all attributes", "all attributes approximately", "any 3 attributes", "age, ward",
    ]  # fmt: skip
