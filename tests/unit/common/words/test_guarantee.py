"""The words of a release: what they promise follows from the plan, and never more than that."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from common.canonical import canonical
from common.model.mechanisms import MECHANISMS
from common.model.plan import Linking, Plan
from common.model.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules, MatchPass
from common.words.essentials import essentials
from common.words.guarantee import composition, invariants, promise_as_linked, promises
from common.words.linking import allowed_findings, compared_as
from common.words.masked import SCALES_GIVEN
from tests.fakes.releases import ATTRIBUTES, make_plan

RISK = Path(__file__).parents[4] / "docs" / "risk.md"


def with_mechanism(plan, mechanism, factor):
    """The same plan under another mechanism."""
    tasks = [
        replace(
            task,
            attributes=tuple(
                replace(
                    each,
                    mechanism=mechanism,
                    epsilon_joint=each.epsilon * factor,
                    k=each.k if MECHANISMS[mechanism].clustered else None,
                )
                for each in task.attributes
            ),
        )
        for task in plan.tasks
    ]
    return replace(plan, tasks=tuple(tasks))


def noisy(plan):
    """The same plan with rank noise."""
    tasks = tuple(
        replace(task, attributes=tuple(replace(a, rank_noise=Decimal("0.03")) for a in task.attributes))
        for task in plan.tasks
    )
    return replace(plan, tasks=tasks)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_has_its_words(mechanism):
    """A mechanism that can be in a plan has a promise, with its own ε, its joint bound and its notion."""
    factor = int(MECHANISMS[mechanism].joint_factor or 3)
    notion = "individual differential privacy" if MECHANISMS[mechanism].individual else "differential privacy"
    plan = with_mechanism(make_plan([(["age", "income"], ["a", "b"])]), mechanism, factor)
    told = " ".join(promises(plan))
    assert f"age, income of a, b ({mechanism}): {notion} with ε = 0.1 " in told
    if factor != 1:
        assert f"released values ε = 0.{factor}" in told
    assert f"All attributes of one person together: {notion} with ε = 0.{2 * factor}" in told
    assert ("Individual differential" in told) is MECHANISMS[mechanism].individual


@pytest.mark.parametrize("mechanism", ["dp", "idp"])
def test_without_clusters_nothing_is_said_of_them(mechanism):
    """Where every record is released by itself the bound covers which record has which value."""
    plan = with_mechanism(make_plan([(["age"], ["a"])]), mechanism, 1)
    told = " ".join([*promises(plan), *invariants(plan)])
    assert "which record has which" in told
    assert "for the released table" in told
    assert "cluster" not in told
    assert "as a whole" not in told
    assert ("size of the noise of age: it is calibrated" in told) is (mechanism == "idp")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bounds_of_individual_mechanisms_take_the_noise_scales_as_given(mechanism):
    """Every sentence with such a bound states its condition; global mechanisms say that they need none."""
    factor = int(MECHANISMS[mechanism].joint_factor or 3)
    plan = with_mechanism(make_plan([(["age"], ["a", "b"])]), mechanism, factor)
    plan = replace(plan, linking=Linking(tokens=True, max_overlap=2))
    if MECHANISMS[mechanism].listed:
        plan = noisy(plan)
    bounds = [
        line
        for line in (*promises(plan), promise_as_linked(plan, (2,)))
        if "with ε =" in line or "exp(ε)" in line or ": ε =" in line
    ]
    assert len(bounds) >= 4
    individual = MECHANISMS[mechanism].individual
    assert {SCALES_GIVEN in line for line in bounds} == {individual}
    assert ("so the promise includes it" in " ".join(bounds)) is not individual
    assert any("The size of the noise of age" in line for line in invariants(plan)) is individual


def test_several_records_of_a_person_are_what_is_replaced():
    """With g records per person the words speak of a change of all of them."""
    told = " ".join(promises(make_plan([(["age"], ["a"])], max_records_per_person=4)))
    assert "values of up to 4 records, all that one person has at an owner," in told


def test_individual_differential_privacy_is_never_shortened():
    """The words never call it DP, and differential privacy only to say that this is weaker."""
    plan = make_plan([(["age"], ["a"]), (["income"], ["b"])])
    told = " ".join([*promises(plan), *invariants(plan)])
    assert "DP" not in told
    rest = told.replace("individual differential privacy", "").replace("Individual differential privacy", "")
    assert rest.count("differential privacy") == 1
    assert "weaker promise than differential privacy" in rest


def test_frequency_order_has_no_joint_bound():
    """Categories ordered by the data get no bound, for the attribute and for the whole."""
    ward = Attribute(
        "ward", AttributeType.CATEGORY, 0, 1, categories=("x", "y"), order=CategoryOrder.FREQUENCY
    )
    plan = make_plan([(["age", "ward"], ["a"])], attributes=(ATTRIBUTES[0], ward))
    tasks = [
        replace(task, attributes=(task.attributes[0], replace(task.attributes[1], epsilon_joint=None)))
        for task in plan.tasks
    ]
    told = promises(replace(plan, tasks=tuple(tasks)))
    line = next(each for each in told if each.startswith("ward"))
    assert "no bound for the whole list" in line
    assert "for the whole list of the attribute's released values" not in line
    assert any("All attributes of one person together: no bound" in each for each in told)


def test_unit_of_privacy():
    """Without an identifier the words say record, and that disjointness was asserted, not checked."""
    asserted = " ".join(promises(make_plan([(["age"], ["a", "b"])], tokens=False)))
    assert "unit of privacy is the record" in asserted
    assert "disjointness asserted, not checked" in asserted
    assert "person together" not in asserted
    alone = " ".join(promises(make_plan([(["age"], ["a"])], tokens=False)))
    assert "nothing is promised about several records of one person" in alone
    assert "asserted" not in alone
    checked = " ".join(promises(make_plan([(["age"], ["a", "b"])])))
    assert "unit of privacy is the person" in checked
    assert "asserted" not in checked
    several = " ".join(promises(make_plan([(["age"], ["a"])], max_records_per_person=4)))
    assert "at most 4 records" in several


def test_only_what_was_compared_is_promised_of_persons():
    """No person is said to be at one owner only: no equal identifier is, and how they were made equal."""
    plan = make_plan([(["age"], ["a", "b"])])
    shared = replace(plan, linking=Linking(tokens=True, max_overlap=2))
    asserted = make_plan([(["age"], ["a", "b"])], tokens=False)
    told = " ".join(promises(plan))
    assert "No identifier is at two owners of the same attributes (as normalised: trim)" in told
    for each in (plan, shared):
        assert "written differently at two owners counts as two" in composition(each)
    assert "which was not checked" in composition(asserted)
    for each in (plan, shared, asserted):
        assert "hold different records" not in composition(each)


def test_columns_of_an_identifier_are_told_with_their_steps():
    """What was done to every column before it was compared is in the words, and that nothing was."""
    steps = IdentifierRules(2, ("trim",), also=((), ("date",)))
    assert compared_as(steps) == "as normalised: trim; column 2: date"
    assert compared_as(IdentifierRules()) == "as they are written: no normalisation is declared"


def test_composition_follows_the_grid():
    """Parallel composition is named only where a group has several owners."""
    assert "parallel" in composition(make_plan([(["age"], ["a", "b"])]))
    vertical = composition(make_plan([(["age"], ["a"]), (["income"], ["b"])]))
    assert "parallel" not in vertical
    assert "different owners hold them" in vertical


def test_invariants_name_everything_that_is_not_hidden():
    """Every invariant is listed, with the plan's k."""
    told = " ".join(invariants(make_plan([(["age"], ["a"])], k=25)))
    for word in (
        "exact number",
        "a record exists",
        "owner",
        "missing",
        "size of the noise",
        "k = 25",
        "as a whole",
    ):
        assert word in told
    assert "same records" not in told
    assert "same records" in " ".join(invariants(make_plan([(["age"], ["a"]), (["income"], ["b"])])))


@pytest.mark.parametrize(
    ("mechanism", "shown", "without_noise"),
    [
        ("idp-joint", "Which records share a cluster (k = 10): they have equal", "pattern of equal values"),
        ("dp-ir", "Which records share a cluster (k = 10): they have equal", "pattern of equal values"),
        ("idp-quantiles", "To which cluster a record was assigned (k = 10)", "what these ranks show"),
        ("dp-quantiles", "To which cluster a record was assigned (k = 10)", "what these ranks show"),
        ("exponential", "Which records were in different clusters (k = 10)", "what that pattern shows"),
    ],
)
def test_clusters_are_spoken_of_as_their_carrier_shows_them(mechanism, shown, without_noise):
    """Records of a cluster are said to have equal values only where lists are made of clusters."""
    plan = with_mechanism(make_plan([(["age"], ["a"])], k=10), mechanism, 1)
    (line,) = [each for each in invariants(plan) if "cluster" in each]
    assert line.startswith(shown)
    assert without_noise in line
    (moved,) = [each for each in invariants(noisy(plan)) if "cluster" in each]
    assert moved.startswith(shown)
    assert moved.endswith("the cluster of a record's original value can be another one.")


def measured(section: str) -> dict[str, int]:
    """Re-identified persons in per cent by rank noise, of an intruder who knows all: from docs/risk.md."""
    page = RISK.read_text(encoding="utf-8")
    table = page.split(f"<!-- {section} persons -->")[1].split("<!-- end")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    column = lines[0].index("all")
    return {line[1]: round(100 * float(line[column].split()[0])) for line in lines if line[0] == "auto"}


def test_stated_figures_are_the_measured_ones():
    """A table that is measured again changes the sentence that every plan and report has."""
    plan = make_plan([(["age"], ["a"])])
    adult, dealt = measured("adult"), measured("adult of four owners")
    smaller = sorted((measured("census")["0.03"], measured("wine")["0.03"]))
    (line,) = [each for each in invariants(noisy(plan)) if "Adult" in each]
    assert f"{adult['0']} % without rank noise, {adult['0.03']} % with 0.03 and {adult['0.1']} %" in line
    assert f"over four owners {dealt['0.03']} % with 0.03" in line
    assert f"{smaller[0]} to {smaller[1]} % with 0.03" in line
    plain = " ".join(invariants(with_mechanism(plan, "idp-quantiles", 1)))
    assert {measured("census")["0"], measured("wine")["0"]} == {81}
    assert "81 % of the records of the data sets Census and Wine Quality" in plain


def test_what_is_not_read_is_named_before_a_consent():
    """A plan can state more than is shown: a short sentence says so, however much it is."""
    plan = make_plan([(["age"], ["a", "b"])])
    document = json.loads(plan.to_bytes())
    document["tasks"][0]["attributes"][0]["depth"] = {"metres": "3"}
    document |= {f"term_{number}": "you agree" for number in range(1000)}
    read = Plan.from_bytes(canonical(document))
    assert len(read.ignored) == 1001
    first, *others = essentials(read)
    assert "does not follow: depth, term_0, term_1, term_10, term_100 and 996 more." in first
    assert tuple(others) == essentials(plan)


def test_match_keys_are_in_the_words_of_a_plan():
    """Passes and the agreed quality are shown to those who decide; what match keys cannot see is said."""
    rules = IdentifierRules(
        0, passes=(MatchPass("names", ("name:fold",)), MatchPass("sound", ("name:soundex",)))
    )
    exact = make_plan([(["age"], ["a"]), (["income"], ["b"])])
    linking = replace(exact.linking, min_match_quality=Decimal("0.95"))
    plan = replace(exact, identifier=rules, linking=linking)
    (same,) = allowed_findings(exact)
    assert same.startswith("The owners of different attributes have to hold the same persons.")
    compared, quality, also = allowed_findings(plan)
    assert also == same
    assert compared == "Persons are compared by match keys, pass by pass: names, sound."
    assert "unless at least 95.00 % of the links are right" in quality
    told = " ".join(promises(plan))
    assert "one record at an owner, which the owners assert and match keys do not check" in told
    assert "match keys, which can miss a person or take two for one" in told
    assert "match keys" not in " ".join(promises(exact))
    horizontal = replace(make_plan([(["age"], ["a", "b"])]), identifier=rules)
    assert "incompletely or like another person of the owner" in " ".join(promises(horizontal))


def test_promises_are_for_persons_with_all_their_events():
    """Whoever has several records of a person promises something for all of them together, or g times."""
    plan = make_plan([(["age"], ["a", "b"])])
    said = "An owner with several events of a person makes this record of all of them."
    assert said in " ".join(promises(plan))
    several = " ".join(promises(replace(plan, max_records_per_person=3)))
    assert "at most 3 records" in several
    assert said not in several
