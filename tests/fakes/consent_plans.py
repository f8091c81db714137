"""An honest plan, the owner that judges it, and ways to change one thing about it."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from common.errors import RefusedError
from common.model.mechanisms import PublicNumbers, rules_of
from common.model.plan import BudgetSplit, Layout, Linking, Plan
from common.model.privacy import is_rank_noise, is_share
from common.model.schema import Attribute, AttributeType, CategoryOrder, IdentifierRules, Schema
from common.model.task import Assignment, PlannedAttribute, Task
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent.judge import Refuse, Verdict, judge
from owner_node.consent.plan_rules import PlannedWork, Request

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, 0, "error", ("a", "b", "c"))
BY_FREQUENCY = replace(WARD, order=CategoryOrder.FREQUENCY)
PAY = Attribute("pay", AttributeType.NUMBER, 0, 100_000, 2)
UNSTATED = Decimal(0)
"""Expected error that `judged` replaces with what the formula gives, which is never 0."""
RULES = IdentifierRules(1, ("trim",))


def planned(name: str, **changes: Any) -> PlannedAttribute:
    """Return how an attribute is masked."""
    share = Decimal("0.5")
    return replace(PlannedAttribute(name, "idp-joint", share, 10, share, UNSTATED), **changes)


def task(owner: str, **changes: Any) -> Task:
    """Return a task of an owner."""
    return replace(Task(owner, "patients", 0, 7000, (planned("age"), planned("ward"))), **changes)


PLAN = Plan(
    release="r1", aggregator="spiffe://trust/aggregator/hub", created="2026-01-02T03:04:05+00:00",
    version="0.1.0",
    purpose="study", layout=Layout.HORIZONTAL, epsilon=Decimal(1),
    budget_split=BudgetSplit.OWNER,
    attributes=(AGE, WARD), identifier=RULES, max_records_per_person=1,
    linking=Linking(tokens=True, key_proofs=True),
    tasks=(task("north"), task("south")),
)  # fmt: skip
SCHEMA = Schema((AGE, WARD, PAY), RULES, 1, 7000)
DATASET = DatasetConfig(
    name="patients", source=str(Path("/data/patients.csv")), budget="people", total_epsilon=Decimal(3),
    identifier=("id",), normalise=("trim",), attributes=SCHEMA.attributes,
)  # fmt: skip


def judged(plan: Plan = PLAN, **changes: Any) -> Verdict:
    """Return what owner north says to a plan; `changes` are other arguments of `judge`."""
    arguments: dict[str, Any] = {
        "owner_id": "north", "aggregator_name": "hub", "trust_domain": "trust", "policy": PolicyConfig(),
        "dataset": DATASET, "schema": SCHEMA, "balance": Decimal(3), "today": date(2026, 1, 2),
    }  # fmt: skip
    arguments |= changes
    records = arguments["schema"].records_rounded
    asked = arguments.pop("assignment", plan.assignment_of("north"))
    own = Assignment(tuple(_stated(plan, each, records) for each in asked.tasks))
    plan = replace(plan, tasks=tuple(_stated(plan, each, records) for each in plan.tasks))
    return judge(Request(plan=plan, assignment=own, **arguments))


def local_work(
    *attributes: PlannedAttribute, policy: PolicyConfig | None = None, **changes: Any
) -> PlannedWork:
    """Return what the policy is asked about a mask or query of the owner itself."""
    assignment = Assignment((Task("", "patients", 0, 7000, attributes),))
    settings = {"policy": policy or PolicyConfig(), "dataset": DATASET, "today": date(2026, 1, 2)}
    return PlannedWork(assignment=assignment, **{**settings, **changes})


def _stated(plan: Plan, task: Task, records: int) -> Task:
    """State the formula's expected error wherever a test states none."""
    return replace(
        task,
        attributes=tuple(
            replace(
                each,
                expected_error=rules_of(each.mechanism).expected_error(
                    each.k,
                    PublicNumbers(
                        records,
                        plan.attribute(each.name).n_values,
                        each.epsilon_list,
                        plan.max_records_per_person,
                    ),
                    each.rank_noise,
                ),
            )
            if each.expected_error == UNSTATED and is_share(each.epsilon) and is_rank_noise(each.rank_noise)
            else each
            for each in task.attributes
        ),
    )


def with_task(**changes: Any) -> Plan:
    """The plan with both tasks changed alike: the owners of a group mask the same attributes."""
    return replace(PLAN, tasks=tuple(replace(each, **changes) for each in PLAN.tasks))


def with_attribute(**changes: Any) -> Plan:
    """Return the plan with attribute age masked otherwise by both owners."""
    return with_task(attributes=(planned("age", **changes), planned("ward")))


def only_rule(verdict: Verdict) -> str:
    """Return the rule of a refusal by policy, and check that no other objects."""
    assert isinstance(verdict, Refuse)
    assert type(verdict.error) is RefusedError
    assert verdict.error.details["rules"] == [verdict.rule]
    assert verdict.error.code == "refused"
    return verdict.rule


def schema(**changes: Any) -> Schema:
    """The owner's schema with other settings."""
    settings = {"attributes": SCHEMA.attributes, "identifier": RULES, "max_records_per_person": 1}
    return Schema(**{**settings, "records_rounded": 7000, **changes})
