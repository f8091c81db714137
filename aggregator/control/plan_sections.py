"""All about a plan for its operator: sections that the command line prints and the pages show."""

from collections.abc import Iterable

from common.cli.sections import Facts, Listing, Section, SectionTable
from common.model.mechanisms import CARRIER_RULE
from common.model.permit import condition_texts
from common.model.plan import Plan
from common.words.guarantee import invariants, promises
from common.words.linking import allowed_findings
from common.words.numbers import (
    OF_UNIFORM,
    bound_cell,
    cost_text,
    delta_text,
    first_text,
    moment_text,
    rounded_up,
    span_text,
)

_MOST_NAMES = 12


def plan_sections(plan: Plan) -> list[Section]:
    """Return facts about a plan, what it asks of owners and does to attributes, and what it promises."""
    facts = {
        "data permit": plan.permit,
        "conditions of use": ", ".join(condition_texts(plan.duo)),
        "product": plan.product,
        "layout": plan.layout,
        "cost": cost_text(plan.epsilon, plan.delta),
        "attributes": f"{len(plan.attributes):,}",
        "made": moment_text(plan.created),
    }
    return [
        Facts(facts),
        _owners(plan),
        *([_attributes(plan)] if plan.product.rules.by_record else []),
        Listing("What linking may find", allowed_findings(plan)),
        Listing("What is promised", promises(plan)),
        Listing("What is not hidden", invariants(plan)),
        Facts({"plan digest": plan.digest}),
    ]


def _owners(plan: Plan) -> SectionTable:
    most, masked, grouped = plan.most_multiples, plan.product.rules.by_record, plan.n_groups > 1
    rows = [
        (
            owner,
            *((", ".join(str(task.group + 1) for task in each.tasks),) if grouped else ()),
            f"≥ {each.records_rounded:,}",
            rounded_up(each.epsilon_at(most)),
            bound_cell(each.epsilon_joint_at(most)),
            *((delta_text(plan.delta),) if plan.delta else ()),
            *((bound_cell(each.epsilon_table), span_text(a.k for a in each.attributes)) if masked else ()),
            *((several(a.mechanism for a in each.attributes),) if masked else ()),
            first_text(each.names, _MOST_NAMES),
        )
        for owner, each in plan.assignments.items()
    ]
    group = ("group",) if grouped else ()
    delta = ("δ",) if plan.delta else ()
    of_masked = ("ε table", "k", "mechanism") if masked else ()
    return SectionTable(
        "What the plan asks of every owner",
        ("owner", *group, "records", "ε", "charge", *delta, *of_masked, "attributes"),
        rows,
        ["The charge bounds what all attributes together disclose of a person."],
    )


def _attributes(plan: Plan) -> SectionTable:
    rows = [
        (
            task.owner,
            each.name,
            str(plan.attribute(each.name).type),
            plan.attribute(each.name).domain,
            each.mechanism,
            plan.carrier_reason(each),
            each.k,
            each.rank_noise,
            rounded_up(each.epsilon),
            f"{each.expected_error:.3g}",
            "its mean would do as well" if each.expected_error >= 1 else "",
        )
        for task in plan.tasks
        for each in task.attributes
    ]
    error = (
        f"Error: expected squared error, {OF_UNIFORM}, from public numbers alone, as if values were spread "
        "evenly over the whole domain and before they are clamped to it. Where real values lie in a small "
        "part of the domain, the error is a larger share of their variance; every owner sees its own."
    )
    about = ("owner", "attribute", "type", "domain", "mechanism", "carried by")
    columns = (*about, "k", "rank noise", "ε", "error", "")
    return SectionTable("How every attribute is masked", columns, rows, [error, CARRIER_RULE])


def several(values: Iterable[object]) -> str:
    """Return values, each once, separated by commas."""
    return ", ".join(dict.fromkeys(map(str, values)))
