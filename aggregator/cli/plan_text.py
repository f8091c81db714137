"""A plan as an operator sees it before agreeing to it."""

from typing import TYPE_CHECKING

from common.cli import console
from common.model.mechanisms import CARRIER_RULE
from common.words.guarantee import invariants, promises
from common.words.linking import allowed
from common.words.numbers import bound_cell, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.model.plan import Plan


def show_plan(plan: "Plan") -> None:
    """Print who masks what and how, and what is promised and what is not."""
    _show_tasks(plan)
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


def _show_tasks(plan: "Plan") -> None:
    group = ("group",) if plan.n_groups > 1 else ()
    console.table(
        f"plan of release {plan.release} ({plan.layout}, ε {plan.epsilon:f})",
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


def _show_errors(plan: "Plan") -> None:
    console.table(
        "expected error of every attribute, as a share of the variance of a uniform attribute",
        ("owner", "attribute", "carried by", "rank noise", "ε", "error", ""),
        [
            (
                task.owner,
                attribute.name,
                plan.carrier_reason(attribute, task.records_rounded),
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
        "whole domain and before they are brought back into it; what the data really give is often less."
    )


def _several(values: "Iterable[object]") -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
