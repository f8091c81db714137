"""A plan as an operator sees it before agreeing to it."""

from typing import TYPE_CHECKING

from aggregator.control.plan_sections import plan_sections, several
from common.cli import console
from common.cli.brief import PagePart, clip, list_items, page, rows, text
from common.cli.sections import Facts, show
from common.model.plan import Plan
from common.words.essentials import essentials
from common.words.numbers import (
    OF_UNIFORM,
    bound_cell,
    cost_text,
    count_text,
    delta_text,
    error_text,
    rounded_up,
    span_text,
)
from common.words.worth import largest_errors

if TYPE_CHECKING:
    from common.analysis.forecast import Forecast


def show_plan(plan: Plan, *, details: bool, model: str = "") -> None:
    """Print a plan for a decision: one page, or everything; then what to expect of a model."""
    if details:
        show([Facts({"release": plan.release, "purpose": plan.purpose}), *plan_sections(plan)])
    else:
        for line in brief(plan):
            console.print_line(line)
    if found := _forecasts(plan, model):
        from common.analysis.forecast import ASSUMED

        lines = [
            (_regressor(each), f"{each.width:.2g}", f"{each.times_sampling:.2g}")
            if each.is_answered
            else (_regressor(each), "no interval: not counted together", "")
            for each in found
        ]
        console.print_line()
        columns = ("regressor", "width", "times that of sampling the records")
        console.table(f"expected 95 % intervals of {model}", columns, lines)
        console.print_line(ASSUMED)


def _forecasts(plan: Plan, model: str) -> "tuple[Forecast, ...]":
    if not model or plan.synthesis is None:
        return ()
    from common.analysis.estimates import read_formula
    from common.analysis.forecast import forecasts
    from common.planning.synthetic import design_of

    return forecasts(design_of(plan), read_formula(model))


def _regressor(forecast: "Forecast") -> str:
    if not forecast.at_means:
        return forecast.regressor
    return f"{forecast.regressor} (at the mean of {', '.join(forecast.at_means)}; answers are at 0)"


def forecast_document(plan: Plan, model: str) -> list[dict[str, str | list[str] | None]]:
    """Return the same for `--json`; null where a coefficient has no interval."""
    return [
        {
            "regressor": each.regressor,
            "at_means": list(each.at_means),
            "width": f"{each.width:.3g}" if each.is_answered else None,
            "times_sampling": f"{each.times_sampling:.3g}" if each.is_answered else None,
        }
        for each in _forecasts(plan, model)
    ]


def brief(plan: Plan) -> list[str]:
    """Return a plan as one page: who, how many, ε and charge, expected errors, and what matters most."""
    errors = [f"{name} {error_text(error)}" for name, error in largest_errors(plan).items()]
    return page(
        [
            text(
                f"release {plan.release}: {plan.product}, {plan.layout}, "
                f"{count_text(len(plan.owners), 'owner')}, {count_text(len(plan.attributes), 'attribute')}, "
                f"{cost_text(plan.epsilon, plan.delta)}"
            ),
            *([clip("purpose", plan.purpose)] if plan.purpose else []),
            text("every owner still decides, by its policy and balance; its stated limits are met"),
            _owners(plan),
            *([list_items(f"expected error ({OF_UNIFORM})", errors)] if errors else []),
            *(text(line, "- ") for line in essentials(plan)),
        ],
        [text(f"plan digest: {plan.digest}"), text("everything: --details")],
    )


def _owners(plan: Plan) -> PagePart:
    masked, delta = plan.product.rules.by_record, ("δ",) if plan.delta else ()
    return rows(
        ("owner", "records", "ε", "charge", *delta, *(("k", "mechanisms") if masked else ())),
        [
            (
                owner,
                f"≥ {assignment.records_rounded}",
                rounded_up(assignment.epsilon_at(plan.most_multiples)),
                bound_cell(assignment.epsilon_joint_at(plan.most_multiples)),
                *((delta_text(plan.delta),) if plan.delta else ()),
                *((span_text(a.k for a in assignment.attributes),) if masked else ()),
                *((several(a.mechanism for a in assignment.attributes),) if masked else ()),
            )
            for owner, assignment in plan.assignments.items()
        ],
    )
