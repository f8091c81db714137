"""Planning against plain arithmetic, and arguments that are refused."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import exp
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.release.conflicts import conflicts
from common.errors import RefusedError, UnusableDataError, UsageError
from common.model.mechanisms import MECHANISMS, PublicNumbers
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, CategoryOrder, Limits, TaxonomyMethod
from common.planning.arguments import ReleaseArguments, parse_arguments
from common.planning.attributes import check_records
from common.planning.limits import check_limits, differing_counts
from common.planning.planner import make_plan
from common.words.linking import allowed_findings
from tests.fakes.protocol_peers import category, request, schema, vertical

MADE = {"aggregator": "spiffe://d/aggregator/a", "created": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}


def test_horizontal_shares():
    """Every owner of a horizontal release gets the whole epsilon, each attribute its share of it."""
    schemas = {owner: schema("x", "y", "z", records=1000) for owner in "ab"}
    plan = make_plan(request("a", "b", k=10), schemas, **MADE)
    shares = {attribute.epsilon for task in plan.tasks for attribute in task.attributes}
    assert shares == {Decimal("0.333333333333")}
    assert [task.epsilon for task in plan.tasks] == [Decimal("0.999999999999")] * 2
    assert plan.epsilon_joint == Decimal("0.999999999999")
    assert plan.linking.tokens
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_vertical_shares():
    """The owners of a vertical release share epsilon, then divide their share among their attributes."""
    schemas = {"a": schema("x"), "b": schema("y", "z")}
    plan = make_plan(vertical("a", "b"), schemas, **MADE)
    assert [[each.epsilon for each in task.attributes] for task in plan.tasks] == [
        [Decimal("0.5")],
        [Decimal("0.25")] * 2,
    ]
    assert [attribute.name for attribute in plan.attributes] == ["x", "y", "z"]


@given(
    epsilon=st.decimals("0.001", "100", places=3),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_shares_never_exceed_the_whole(epsilon, sizes):
    """However epsilon is divided, a person's total over all groups is never above it, and barely below."""
    owners = [f"o{i}" for i in range(len(sizes))]
    schemas = {
        owner: schema(*(f"{owner}-{i}" for i in range(size)))
        for owner, size in zip(owners, sizes, strict=True)
    }
    plan = make_plan(vertical(*owners, epsilon=epsilon), schemas, **MADE)
    spent = sum((Fraction(task.epsilon) for task in plan.tasks), Fraction(0))
    assert 0 <= Fraction(epsilon) - spent <= Fraction(sum(sizes) + len(sizes), 10**12)


@given(
    k=st.integers(1, 5000),
    n=st.integers(1, 10**7),
    epsilon=st.decimals("0.0001", "50", places=4),
    g=st.integers(1, 4),
)
def test_expected_error_is_the_formula(k, n, epsilon, g):
    """The squared share of a cluster and 24 (g/(kε))², to six digits; idp-cbls adds far less noise.

    Quantiles err within a cluster twice: by the record's place and by the entry that it gets.
    """
    within = Fraction(1, max(n // k, 1)) ** 2
    twice = 2 * within if n >= 2 * k else within
    kinds = (
        ("idp-joint", k, within),
        ("dp", k, within),
        ("idp-cbls", n, within),
        ("idp-quantiles", k, twice),
    )
    for mechanism, steady, of_list in kinds:
        exact = of_list + 24 * (Fraction(g) / (steady * Fraction(epsilon))) ** 2
        found = MECHANISMS[mechanism].expected_error(k, PublicNumbers(n, 100, epsilon, g))
        assert abs(Fraction(found) / exact - 1) < Fraction(1, 10**4)


@given(
    k=st.integers(3, 5000),
    n=st.integers(1, 10**6),
    v=st.integers(2, 2000),
    epsilon=st.decimals("0.001", "50", places=3),
    g=st.integers(1, 3),
)
def test_expected_error_of_drawn_categories_is_the_formula(k, n, v, epsilon, g):
    """Mixed clusters and wrong draws together never pass 1, where one category for all would do."""
    mixed = v * k / n / (v * k / n + 8)
    wrong = (v - 1) / (v - 1 + exp(min(0.4 * k * float(epsilon) / g, 99)))
    found = MECHANISMS["exponential"].expected_error(k, PublicNumbers(n, v, epsilon, g))
    assert 0 <= found <= 1
    assert abs(float(found) - (1 - (1 - mixed) * (1 - wrong))) < 1e-4


def test_frequency_order_has_no_joint_bound():
    """An attribute ordered by the data has no joint bound, and so has the plan."""
    frequency = schema(attributes=(category("u", "v", order=CategoryOrder.FREQUENCY),))
    plan = make_plan(request("a", mechanism="idp-joint"), {"a": frequency}, **MADE)
    assert plan.tasks[0].attributes[0].epsilon_joint is None
    assert plan.epsilon_joint is None


def test_drawn_categories_have_a_mechanism_of_their_own():
    """What owners declare to be drawn is planned so, whatever was asked for, with a bound by clusters."""
    drawn = replace(category("u", "v"), taxonomy=64 * "0", method=TaxonomyMethod.EXPONENTIAL)
    x = Attribute("x", AttributeType.INTEGER, 0, 100)
    plan = make_plan(request("a", k=10), {"a": schema(attributes=(x, drawn), records=200)}, **MADE)
    asked, own = plan.tasks[0].attributes
    assert (asked.mechanism, own.mechanism) == ("idp-quantiles", "exponential")
    assert own.epsilon_joint == 29 * own.epsilon


@pytest.mark.parametrize("mechanism", ["auto", "idp-joint", "dp-ir", "dp"])
def test_sums_that_do_not_fit_are_refused_by_the_plan(mechanism):
    """From public numbers, with every such attribute; a narrower domain would do."""
    wide, fitting = (Attribute(f"x{n}", AttributeType.INTEGER, 0, 2**n) for n in (60, 40))
    schemas = {"a": schema(attributes=(wide, fitting), records=2000)}
    plan = make_plan(request("a", k=None, mechanism=mechanism), schemas, **MADE)
    with pytest.raises(UnusableDataError, match="do not fit 63 bits for 'x60'") as refused:
        check_records(plan.tasks, schemas)
    assert "narrower domain" in refused.value.hint
    assert refused.value.details["attributes"] == ["x60"]


def test_attributes_choose_and_order():
    """--attributes picks a subset and decides the order of the columns."""
    schemas = {owner: schema("x", "y", "z") for owner in "ab"}
    asked = request("a", "b", attributes=("z", "x"))
    assert conflicts(asked, schemas) == ()
    less = {"a": schemas["a"], "b": schema("y", "x")}
    (found,) = conflicts(request("a", "b"), less)
    assert found.fix.endswith("--attributes x,y")
    plan = make_plan(asked, schemas, **MADE)
    assert [attribute.name for attribute in plan.attributes] == ["z", "x"]
    assert plan.tasks[0].attributes[0].epsilon == Decimal("0.5")


@pytest.mark.parametrize(("rounded", "fits"), [(0, False), (3, False), (4, False), (5, True), (10, True)])
def test_too_few_records(rounded, fits):
    """An owner is refused at planning only if it has fewer than k records whatever was rounded away."""
    schemas = {"a": schema("x", records=1000), "b": schema("x", records=rounded)}
    if fits:
        check_records(make_plan(request("a", "b"), schemas, **MADE).tasks, schemas)
    else:
        with pytest.raises(UnusableDataError) as caught:
            check_records(make_plan(request("a", "b"), schemas, **MADE).tasks, schemas)
        assert [each["owner"] for each in caught.value.details["owners"]] == ["b"]
    nineteen = {"a": schema("x", records=10)}
    check_records(make_plan(request("a", k=19), nineteen, **MADE).tasks, nineteen)
    with pytest.raises(UnusableDataError):
        check_records(make_plan(request("a", k=20), nineteen, **MADE).tasks, nineteen)


def test_k_is_chosen_for_every_owner_and_attribute():
    """Without a k the owner's records and the attribute's domain decide, and every policy counts."""
    x, y = Attribute("x", AttributeType.INTEGER, 0, 10**6), Attribute("y", AttributeType.INTEGER, 0, 39)
    schemas = {
        owner: schema(attributes=(x, y), records=n) for owner, n in {"a": 10_000, "b": 200, "c": 90}.items()
    }
    asked = request("a", "b", "c", k=None, epsilon=Decimal(2), mechanism="idp-joint")
    plan = make_plan(asked, schemas, **MADE)
    assert [[each.k for each in task.attributes] for task in plan.tasks] == [[150, 40], [21, 21], [14, 14]]
    stricter = schemas | {"c": replace(schemas["c"], limits=Limits(min_k=20))}
    plan = make_plan(asked, stricter, **MADE)
    assert [[each.k for each in task.attributes] for task in plan.tasks] == [[150, 40], [21, 21], [20, 20]]
    assert Plan.from_bytes(plan.to_bytes()) == plan


@pytest.mark.parametrize("mechanism", ["dp", "idp"])
def test_mechanisms_without_clusters(mechanism):
    """They have no k in the plan, and the joint bound is epsilon."""
    asked = request("a", k=None, mechanism=mechanism)
    plan = make_plan(asked, {"a": schema("x", records=1000)}, **MADE)
    (planned,) = plan.tasks[0].attributes
    assert (planned.k, planned.epsilon_joint, planned.expected_error) == (
        None,
        Decimal(1),
        Decimal("24.0000"),
    )
    assert Plan.from_bytes(plan.to_bytes()) == plan
    changed = plan.to_bytes().replace(b'"k":null', b'"k":"5"')
    with pytest.raises(ValueError, match="not a valid Plan"):
        Plan.from_bytes(changed)


def test_the_joint_bound_of_idp_cbls_counts_the_most_clusters_there_can_be():
    """7,000 records may be 7,999, which make 1,599 clusters of 5; from public numbers alone."""
    plan = make_plan(request("a", mechanism="idp-cbls"), {"a": schema("x", records=7000)}, **MADE)
    assert plan.tasks[0].attributes[0].epsilon_joint == 1599
    assert plan.epsilon_joint == 1599


def test_several_records_of_a_person_only_in_one_group():
    """Groups are aligned on persons with one record each; the conflict names the owner and the way out."""
    several = replace(schema("y"), max_records_per_person=2)
    (found,) = conflicts(vertical("a", "b"), {"a": schema("x"), "b": several})
    assert found.owner == "b"
    assert "up to 2 records" in found.what
    assert "horizontal" in found.fix
    assert conflicts(request("a", "b"), {"a": schema("y"), "b": several}) == ()


def test_k_and_records_per_person():
    """The smallest k is 2g + 3 where centroids are trimmed deeply, g being the largest of all owners."""
    schemas = {"a": schema("x"), "b": replace(schema("x"), max_records_per_person=3)}
    with pytest.raises(UsageError):
        make_plan(request("a", "b", k=8), schemas, **MADE)
    assert make_plan(request("a", "b", k=9), schemas, **MADE).max_records_per_person == 3


GOOD: dict[str, Any] = {
    "release": "r1",
    "dataset": "d",
    "layout": "horizontal",
    "groups": [["a", "b"]],
    "epsilon": "1",
    "k": "5",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"release": "../x"},
        {"release": ""},
        {"dataset": ""},
        {"purpose": "two\nlines"},
        {"purpose": "x" * 401},
        {"purpose": "wide  gap"},
        {"layout": "diagonal"},
        {"layout": "mixed"},
        {"groups": []},
        {"groups": [["a", "a"]]},
        {"groups": [["A!"]]},
        {"groups": [["a"], ["b"]]},
        {"layout": "vertical"},
        {"epsilon": "0"},
        {"epsilon": "-1"},
        {"epsilon": "one"},
        {"epsilon": "nan"},
        {"epsilon": "1e9"},
        {"k": "2"},
        {"k": "2.5"},
        {"k": "many"},
        {"mechanism": "dp"},
        {"mechanism": "idp"},
        {"mechanism": "ir"},
        {"attributes": ["x", "x"]},
        {"budget_split": "weights"},
        {"budget_split": "size"},
        {"weights": ["x=1"]},
        {"budget_split": "attribute", "weights": ["x=1"]},
        *(
            {"budget_split": "weights", "weights": [weight, "y=1"]}
            for weight in ("x", "=1", "x=0", "x=-1", "x=one", "x=nan", "x=1e-13", "y=2")
        ),
        {"formats": ["xlsx"]},
    ],
)
def test_arguments_that_are_refused(changed):
    """What an operator cannot ask for is refused with a hint before any owner hears of it."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(**(GOOD | changed))
    assert caught.value.hint


def test_weights_without_their_split_are_not_judged():
    """What nobody may give is refused as such, whatever it says."""
    with pytest.raises(UsageError, match="weights go with another budget split than owner"):
        parse_arguments(**(GOOD | {"weights": ["x"]}))


def test_ir_is_refused_with_its_reason():
    """The papers' baseline without noise is no release, and the operator is told why."""
    with pytest.raises(UsageError, match=r"for evaluation only .* no noise"):
        parse_arguments(**(GOOD | {"mechanism": "ir"}))


def test_weights_survive_the_journal():
    """Weights are exact decimals in the journal as well; an attribute's name may hold an equals sign."""
    weights = {"budget_split": "weights", "weights": ["x=1.50", "a=b=2"]}
    asked = parse_arguments(**(GOOD | weights))
    assert asked.weights == (("x", Decimal("1.5")), ("a=b", Decimal(2)))
    assert ReleaseArguments.from_document(json.loads(json.dumps(asked.to_document()))) == asked


def test_request_survives_the_journal():
    """A request that is stored and read back is equal, so that repeating it re-attaches."""
    asked = parse_arguments(**(GOOD | {"epsilon": "1.50", "attributes": ["x"], "purpose": "p", "out": "/o"}))
    assert ReleaseArguments.from_document(asked.to_document()) == asked
    assert asked == parse_arguments(
        **(GOOD | {"epsilon": "1.5", "attributes": ["x"], "purpose": "p", "out": "/o"})
    )


def test_everything_that_two_owners_lack_is_named_at_once():
    """No linkage key, no intersection, other persons: one answer to the first plan, for both owners."""
    lacking = Limits(allow_intersect=False, linkage_key=False)
    schemas = {
        "a": replace(schema("x", records=2000), limits=lacking),
        "b": replace(schema("y", records=1000), limits=lacking),
    }
    assert Limits.from_document(lacking.to_document()) == lacking
    assert not {"allow_intersect", "linkage_key"} & Limits().to_document().keys()
    plan = make_plan(vertical("a", "b", on_mismatch="intersect"), schemas, **MADE)
    with pytest.raises(RefusedError) as refused:
        check_limits(plan, schemas)
    for owner in "ab":
        assert f"{owner}: policy.allow_intersect = false" in refused.value.message
        assert f"{owner}: there is no linkage key (owner-node linkage-key new" in refused.value.message
    assert differing_counts(plan) == ""
    plan = make_plan(vertical("a", "b"), schemas, **MADE)
    with pytest.raises(RefusedError, match="there is no linkage key") as refused:
        check_limits(plan, schemas)
    assert "a has at least 2,000 records, b has at least 1,000 records" in refused.value.hint
    assert "--on-mismatch" in refused.value.hint
    assert "a has at least 2,000" in " ".join(allowed_findings(plan))
    equal = {owner: replace(each, records_rounded=1000) for owner, each in schemas.items()}
    assert differing_counts(make_plan(vertical("a", "b"), equal, **MADE)) == ""


def test_many_labels_are_compared_in_linear_time():
    """100,000 labels at five owners, who differ at the last one: seconds, where it was hours."""
    labels = [f"code {number}" for number in range(100_000)]
    schemas = {owner: schema(attributes=(category(*labels),)) for owner in "abcd"}
    schemas["e"] = schema(attributes=(category(*labels[:-1], "other"),))
    started = process_time()
    found = conflicts(request(*"abcde"), schemas)
    assert process_time() - started < 10
    assert {each.owner for each in found} == {"e"}
