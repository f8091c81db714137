"""What a plan that waits for a person would do to the data it asks for, tried on them before they answer."""

import logging
from itertools import repeat
from typing import Any

from common import console
from common.errors import TesseraError
from common.log import places
from owner_node.config import OwnerConfig
from owner_node.state.session import State
from owner_node.state.sessions import Session

_log = logging.getLogger(__name__)
_ATTACKS = {
    "unchanged-values": "values that leave as they are",
    "unchanged-records": "records that leave as they are",
    "linkage": "linked by the values of all attributes",
    "likelihood": "linked by how likely values are",
    "structure": "linked by what is equal or larger, by no value",
    "interval": "values within 5 % of the ranks",
    "inference": "told from the nearest record:",
}


def preview_of(session: Session, owner: OwnerConfig) -> dict[str, Any] | None:
    """Try a plan that waits for a person; None for any other.

    Returns:
        What `owner_node.explore.preview` found and, as `others_attributes`, how many attributes of the
        release only other owners have; or `{problem}`: that nothing was found is no reason not to
        show the plan.
    """
    if session.state is not State.AWAITING_APPROVAL or session.plan is None:
        return None
    try:
        return _tried(session.plan, session.dataset, owner)
    except TesseraError as error:
        return {"problem": error.message}
    except Exception as fault:  # noqa: BLE001 - no fault of a trial may hide the plan; its text could quote a value
        _log.warning("plan not tried", exc_info=fault)
        return {
            "problem": f"internal fault ({type(fault).__name__} at {places(fault)[-2]}); please report it"
        }


def _tried(plan_bytes: bytes, dataset: str, owner: OwnerConfig) -> dict[str, Any]:
    import numpy as np

    from common.plan import Plan
    from owner_node.explore.assessment import Randomness
    from owner_node.explore.preview import MOST_EFFORT, effort, preview
    from owner_node.masking.bits import SystemBits
    from owner_node.release.preparation import prepare

    plan = Plan.from_bytes(plan_bytes)
    asked = plan.assignment_of(owner.owner.id)
    masked = [(plan.attribute(each.name), each.mechanism) for each in asked.attributes]
    if effort(asked.records_rounded, masked) > MOST_EFFORT:
        return {"problem": f"it would take long with so many values: owner-node explore --dataset {dataset}"}
    prepared = prepare(owner.dataset(dataset), plan, asked, None)
    found = preview(prepared.columns, prepared.tasks, Randomness(SystemBits(), np.random.default_rng()))
    return {**found, "others_attributes": len(plan.attributes) - len(asked.attributes)}


def show_preview(found: dict[str, Any] | None) -> None:
    """Print what was found, for the owner alone."""
    if found is None:
        return
    console.print_line()
    if "problem" in found:
        console.print_line(f"This plan was not tried on the data: {found['problem']}")
        return
    n_others = found["others_attributes"]
    whose = " of this owner" if n_others else ""
    bare = found["risks_without_rank_noise"]
    console.table(
        "Tried on this owner's data, with noise drawn for nothing else: what an intruder who knows all "
        f"attributes{whose} exactly finds; known only here",
        (
            "attack",
            "right about",
            "from",
            "to",
            *(("without rank noise",) if bare else ()),
            "without the release",
        ),
        [_line(risk, plain) for risk, plain in zip(found["risks"], bare or repeat(None), strict=False)],
    )
    if n_others:
        console.print_line(
            f"The other owners have {n_others} more attributes of the same people in this release: who knows "
            "those, too, finds more."
        )
    n_inferred = sum(risk["attack"] == "inference" for risk in found["risks"])
    if 0 < n_inferred < found["attributes"]:
        console.print_line(
            f"Inference was tried for {n_inferred} of {found['attributes']} attributes, chosen at random."
        )
    error = found["mean_sse"]
    if error is not None:
        console.print_line(
            f"mean SSE {error['mean']:.3g} ({error['low']:.3g} to {error['high']:.3g}); with every value "
            f"replaced by its mean it would be {found['mean_sse_of_means']:.3g}."
        )


def _line(risk: dict[str, Any], bare: dict[str, Any] | None) -> tuple[str, ...]:
    """Return an attack as a line; `bare`: the same without rank noise, where the plan has some."""
    without = max(risk["baseline"], risk["control"]["mean"] if risk["control"] else 0.0)
    name = f"{_ATTACKS[risk['attack']]} {risk['attribute'] or ''}".strip()
    rates = [risk["rate"][end] for end in ("mean", "low", "high")]
    return (name, *map(_percent, (*rates, *([bare["rate"]["mean"]] if bare else ()), without)))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
