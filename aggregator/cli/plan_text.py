"""A plan as an operator sees it before agreeing to it."""

from typing import TYPE_CHECKING

from common import console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.plan import Plan


def show_plan(plan: "Plan") -> None:
    """Print who masks what and how, and what is promised and what is not."""
    from common.guarantee import invariants, promises

    console.table(
        f"plan of release {plan.release} ({plan.layout}, ε {plan.epsilon:f})",
        ("owner", "records", "ε", "ε joint", "k", "mechanism"),
        [
            (
                task.owner,
                f"≥ {task.records_rounded}",
                task.epsilon,
                "unbounded" if task.epsilon_joint is None else task.epsilon_joint,
                _several("–" if attribute.k is None else attribute.k for attribute in task.attributes),
                _several(attribute.mechanism for attribute in task.attributes),
            )
            for task in plan.tasks
        ],
    )
    console.print_line()
    console.table(
        "expected error of every attribute, as a share of the variance of a uniform attribute",
        ("owner", "attribute", "ε", "error", ""),
        [
            (
                task.owner,
                attribute.name,
                attribute.epsilon,
                f"{attribute.expected_error:.3g}",
                "its mean would do as well" if attribute.expected_error >= 1 else "",
            )
            for task in plan.tasks
            for attribute in task.attributes
        ],
    )
    console.print_line(
        "The expected error is computed from public numbers alone, as if values were spread evenly over the "
        "whole domain and before they are brought back into it; what the data really give is often less."
    )
    for title, lines in (("What is promised", promises(plan)), ("What is not hidden", invariants(plan))):
        console.print_line()
        console.print_line(title)
        for line in lines:
            console.print_line(f"- {line}")
    console.print_line()
    console.print_line(f"plan digest: {plan.digest}")


def _several(values: "Iterable[object]") -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
