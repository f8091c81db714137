"""The forecast of a plan, with the intruder that the policy expects."""

from collections.abc import Sequence
from dataclasses import replace

from owner_node.config import PolicyConfig
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.forecast import forecast
from owner_node.masking.foreseen import Forecast, Reidentification, as_share
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.trials import Randomness, best_linking, people_of


def foresee(
    records: MemoryEngine, tasks: Sequence[AttributeTask], policy: PolicyConfig, *, for_person: bool = False
) -> Forecast:
    """Forecast the effect of masking on an owner's data. It depends on the data, and is for their owner only.

    Args:
        for_person: Whether a person decides by it. The intruder then attacks without a limit, too.
    """
    effect = forecast(records.columns, tasks)
    if policy.max_reidentified is None and not (for_person and records.n_records > 1):
        return effect
    randomness = Randomness.of_system()
    people = people_of(records.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    risk = best_linking(tasks, people, policy.known, randomness)
    if risk is None:
        return effect
    names = [task.attribute.name for task in tasks]
    shares = map(as_share, (risk.rate.mean, risk.rate.low, risk.rate.high, risk.without_release))
    known = tuple(name for name in names if name in (policy.known or names))
    intruder = Reidentification(known, risk.attack, *shares)
    return replace(effect, reidentified=intruder.share, intruder=intruder)
