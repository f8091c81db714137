"""A plan as an operator sees it before agreeing to it."""

from collections.abc import Iterable

from common.cli import console
from common.cli.brief import Part, clipped, listed, page, rows, text
from common.model.mechanisms import CARRIER_RULE
from common.model.plan import Plan
from common.words.guarantee import essentials, invariants, promises
from common.words.linking import allowed
from common.words.numbers import OF_UNIFORM, bound_cell, cost_text, counted, error_text, rounded_up, span_text
from common.words.worth import largest_errors


def show_plan(plan: Plan, *, details: bool) -> None:
    """Print a plan for a decision: one page, or everything."""
    if not details:
        for line in brief(plan):
            console.print_line(line)
        return
    _show_tasks(plan)
    if plan.synthesis is None:
        console.print_line()
        _show_errors(plan)
    for title, lines in (
        ("What linking may find", allowed(plan)),
        ("What is promised", promises(plan)),
        ("What is not hidden", invariants(plan)),
    ):
        if not lines:
            continue
        console.print_line()
        console.print_line(title)
        for line in lines:
            console.print_line(f"- {line}")
    console.print_line()
    console.print_line(f"plan digest: {plan.digest}")


def brief(plan: Plan) -> list[str]:
    """Return a plan as one page: who, how many, ε and charge, expected errors, and what matters most."""
    return page(
        [
            text(
                f"release {plan.release}: {plan.product}, {plan.layout}, "
                f"{counted(len(plan.owners), 'owner')}, {counted(len(plan.attributes), 'attribute')}, "
                f"{cost_text(plan.epsilon, plan.delta)}"
            ),
            *([clipped("purpose", plan.purpose)] if plan.purpose else []),
            text("every owner still decides, by its policy and balance; its stated limits are met"),
            _owners(plan),
            *([listed(f"expected error ({OF_UNIFORM})", errors)] if (errors := _errors(plan)) else []),
            *(text(line, "- ") for line in essentials(plan)),
        ],
        [text(f"plan digest: {plan.digest}"), text("everything: --details")],
    )


def _owners(plan: Plan) -> Part:
    masked = plan.synthesis is None
    return rows(
        ("owner", "records", "ε", "charge", *(("k", "mechanisms") if masked else ())),
        [
            (
                owner,
                f"≥ {each.records_rounded}",
                rounded_up(each.epsilon_at(plan.most_multiples)),
                bound_cell(each.epsilon_joint_at(plan.most_multiples)),
                *((span_text(a.k for a in each.attributes),) if masked else ()),
                *((_several(a.mechanism for a in each.attributes),) if masked else ()),
            )
            for owner, each in plan.assignments.items()
        ],
    )


def _errors(plan: Plan) -> list[str]:
    """Return every attribute with its expected error, at the owner where it is largest."""
    return [f"{name} {error_text(error)}" for name, error in largest_errors(plan).items()]


def _show_tasks(plan: Plan) -> None:
    group = ("group",) if plan.n_groups > 1 else ()
    console.table(
        f"plan of release {plan.release} ({plan.layout}, {cost_text(plan.epsilon, plan.delta)})",
        ("owner", *group, "records", "ε", "ε joint", "ε table", "k", "mechanism"),
        [
            (
                task.owner,
                *((task.group + 1,) if group else ()),
                f"≥ {task.records_rounded}",
                rounded_up(task.epsilon),
                bound_cell(task.epsilon_joint),
                bound_cell(task.epsilon_table),
                _several("–" if attribute.k is None else attribute.k for attribute in task.attributes),
                _several(attribute.mechanism for attribute in task.attributes),
            )
            for task in plan.tasks
        ],
    )


def _show_errors(plan: Plan) -> None:
    console.table(
        f"expected error of every attribute ({OF_UNIFORM})",
        ("owner", "attribute", "carried by", "rank noise", "ε", "error", ""),
        [
            (
                task.owner,
                attribute.name,
                plan.carrier_reason(attribute),
                attribute.rank_noise,
                rounded_up(attribute.epsilon),
                f"{attribute.expected_error:.3g}",
                "its mean would do as well" if attribute.expected_error >= 1 else "",
            )
            for task in plan.tasks
            for attribute in task.attributes
        ],
    )
    console.print_line(CARRIER_RULE)
    console.print_line(
        "The expected error is computed from public numbers alone, as if values were spread evenly over the "
        "whole domain and before they are clamped to it. Where real values lie in a small part of the "
        "domain, the error is a larger share of their variance; every owner sees its own."
    )


def _several(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
