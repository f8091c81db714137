"""An owner checks facts that an operator states against what it declares itself."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from common.model.plan import Layout, Plan, Synthesis
from common.model.schema import Attribute, AttributeType, Derivation
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.model.task import Modelled
from owner_node.consent.judge import Accept, Refuse
from tests.fakes.consent_plans import AGE, PAY, PLAN, SCHEMA, WARD, judged, only_rule, task

SEX = Attribute("sex", AttributeType.BOOLEAN, 0, 1)
SPLIT = (Decimal("0.4"), Decimal("0.6"))
OWN = StructuralZero((ExcludedValues("age", (("0", "15"),)), ExcludedValues("ward", (("a", "a"),))))
STATED = StructuralZero((ExcludedValues("age", (("0", "9"),)), ExcludedValues("sex", (("true", "true"),))))
FOLLOWS = replace(WARD, derivation=Derivation("sex", (("false", "a"), ("true", "b"))))
NORTH = replace(SCHEMA, attributes=(AGE, WARD, PAY))


def vertical(
    names: tuple[str, ...] = ("age", "ward"), following: tuple[Attribute, ...] = (), **synthesis: Any
) -> Plan:
    """Return a plan in which north counts these attributes, and south counts sex."""
    held = {"age": AGE, "ward": WARD}
    tasks = (
        task("north", attributes=(), modelled=Modelled(names, Decimal(1))),
        task("south", group=1, attributes=(), modelled=Modelled(("sex",), Decimal(1))),
    )
    return replace(
        PLAN, layout=Layout.VERTICAL, tasks=tasks, attributes=(*(held[name] for name in names), SEX),
        following=following, synthesis=Synthesis(0, SPLIT, **synthesis),
    )  # fmt: skip


def deriving(following: Attribute = FOLLOWS) -> Plan:
    """Return a plan in which north's ward follows south's sex."""
    return vertical(("age",), (following,), stated_following=(following.name,))


def test_a_rule_over_two_owners_is_no_objection() -> None:
    """It is public knowledge that the operator answers for; the owner's own rules are all there."""
    assert isinstance(judged(vertical(stated_zeros=(STATED,))), Accept)
    declares = replace(NORTH, structural_zeros=(OWN,))
    plan = vertical(structural_zeros=(OWN,), stated_zeros=(STATED,))
    assert isinstance(judged(plan, schema=declares), Accept)


def test_a_stated_fact_takes_the_place_of_no_declared_rule() -> None:
    """A rule of this owner is in the plan as declared here, not as something that the operator says."""
    declares = replace(NORTH, structural_zeros=(OWN,))
    for plan in (vertical(stated_zeros=(STATED,)), vertical(stated_zeros=(OWN,))):
        assert "other structural zeros" in only_rule(judged(plan, schema=declares))
    assert "other structural zeros" in only_rule(judged(vertical(structural_zeros=(OWN,)), schema=NORTH))


def test_facts_that_leave_no_record_are_refused() -> None:
    """Together with the owner's own rules, too."""
    everything = StructuralZero((ExcludedValues("sex", (("false", "false"), ("true", "true"))),))
    assert "no possible record" in only_rule(judged(vertical(stated_zeros=(everything,))))


def test_an_attribute_of_this_owner_may_be_derived() -> None:
    """It is not counted, keeps its settings, and has no part in rules or tables of this owner."""
    assert isinstance(judged(deriving(), schema=NORTH), Accept)
    wider = replace(WARD, upper=3, categories=("a", "b", "c", "d"))
    refused = judged(deriving(replace(wider, derivation=FOLLOWS.derivation)), schema=NORTH)
    assert "'ward' is derived with other settings" in only_rule(refused)
    declares = replace(NORTH, structural_zeros=(OWN,))
    assert "other structural zeros" in only_rule(judged(deriving(), schema=declares))


def test_what_this_owner_declares_to_follow_is_no_fact_of_the_operator() -> None:
    """Neither another table nor another attribute to follow; and what nobody states follows as declared."""
    values = tuple((str(age), "1") for age in range(121))
    own = replace(Attribute("beds", AttributeType.INTEGER, 0, 9), derivation=Derivation("age", values))
    schema = replace(NORTH, following=(own,))
    other = replace(own, derivation=Derivation("age", (("0", "2"), *values[1:])))
    for plan in (
        vertical(following=(other,), stated_following=("beds",)),
        vertical(following=(other,)),
    ):
        verdict = judged(plan, schema=schema)
        assert isinstance(verdict, Refuse)
        assert "'beds' is derived otherwise" in only_rule(verdict)
    assert isinstance(judged(vertical(following=(own,)), schema=schema), Accept)
