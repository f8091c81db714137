"""Mean SSE of many settings in one process: attributes are sorted once, and every run draws anew.

The same mechanisms as in a release, without daemons, fragments and a ledger. Runs draw from the operating
system, as releases do: figures vary with them and carry their intervals.

References:
    Del Vasto-Terrientes et al. 2025, equation 5, read as dist² = (1/l²) Σ d²/σ².
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from common.arrays import Int64Array
from common.model.mechanisms import MECHANISMS, PublicNumbers
from common.model.privacy import share
from common.model.schema import Attribute, round_to_leading_digit
from owner_node.masking.arrays import Float64Array, SystemBits
from owner_node.masking.tasks import AttributeTask, own_order
from owner_node.risk.draws import SortedAttribute
from owner_node.risk.measures import Scale, scale_of
from owner_node.risk.utility import Estimate, estimate
from tests.papers.data_sets import DataSet

NOISELESS = "ir"
"""Plain individual ranking, for evaluation only."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of a table."""

    mechanism: str
    """Mechanism id, or `NOISELESS`."""
    epsilon: Decimal
    """For the whole data set."""
    k: int | None
    """Minimum cluster size; None to have one chosen, or for mechanisms without clusters."""

    @property
    def k_text(self) -> str:
        """The minimum cluster size as tables name it."""
        if self.mechanism in MECHANISMS and not MECHANISMS[self.mechanism].clustered:
            return "1"
        return "auto" if self.k is None else str(self.k)


def central(data: DataSet, settings: Sequence[Setting], runs: int) -> list[Estimate]:
    """Return the mean SSE of a data set that one owner masks, over some runs, for every setting."""
    return vertical(data, [[each.name for each in data.attributes]], settings, runs)


def vertical(
    data: DataSet, groups: Sequence[Sequence[str]], settings: Sequence[Setting], runs: int
) -> list[Estimate]:
    """Return the same where every owner holds some attributes of all records, and gets ε/m.

    Args:
        data: All records.
        groups: Names of each owner's attributes.
        settings: The settings.
        runs: How many runs each gets.
    """
    attributes = {each.name: each for each in data.attributes}
    ready = {
        name: SortedAttribute.of(data.columns[name], _any_task(each), SystemBits())
        for name, each in attributes.items()
    }
    per_run = np.zeros((len(settings), runs))
    for group in groups:
        for name in group:
            epsilons = [share(share(each.epsilon, len(groups)), len(group)) for each in settings]
            per_run += _relative(ready[name], attributes[name], settings, epsilons, runs)
    return [_estimated((values / len(attributes) ** 2).tolist()) for values in per_run]


def horizontal(
    data: DataSet,
    sizes: Sequence[int],
    settings: Sequence[Setting],
    runs: int,
    random: np.random.Generator,
) -> list[Estimate]:
    """Return the same where every owner holds some of the records, dealt anew in every run.

    Args:
        data: All records.
        sizes: Number of records of each owner.
        settings: The settings.
        runs: How many runs each gets.
        random: Deals the records.
    """
    per_setting: list[list[float]] = [[] for _ in settings]
    scales = {each.name: _whole_scale(data.columns[each.name], each) for each in data.attributes}
    for _ in range(runs):
        order = random.permutation(data.n_records)
        parts = np.split(order, np.cumsum(sizes)[:-1])
        squares = np.zeros(len(settings))
        for attribute in data.attributes:
            scale = scales[attribute.name]
            for part in parts:
                own = SortedAttribute.of(
                    data.columns[attribute.name][part], _any_task(attribute), SystemBits()
                )
                epsilons = [share(each.epsilon, len(data.attributes)) for each in settings]
                errors = _squares(own, scale, attribute, settings, epsilons)
                squares += errors / (data.n_records * scale.spread)
        for i, values in enumerate(per_setting):
            values.append(float(squares[i]) / len(data.attributes) ** 2)
    return [_estimated(values) for values in per_setting]


def task_of(attribute: Attribute, setting: Setting, epsilon: Decimal, n_records: int) -> AttributeTask:
    """Return how an attribute is masked under a setting, k chosen where that is asked for."""
    if not MECHANISMS[setting.mechanism].clustered:
        return AttributeTask(attribute, epsilon, None, setting.mechanism)
    k = setting.k
    if k is None:
        k = MECHANISMS[setting.mechanism].choose_k(
            PublicNumbers(round_to_leading_digit(n_records), attribute.n_values, epsilon), 3
        )
    return AttributeTask(attribute, epsilon, k, setting.mechanism)


def _any_task(attribute: Attribute) -> AttributeTask:
    """Return some way of masking an attribute: its order is the same in all."""
    return AttributeTask(attribute, Decimal(1), 3, "idp-joint")


def _whole_scale(values: Int64Array, attribute: Attribute) -> Scale:
    return scale_of(attribute, values, own_order(values, _any_task(attribute)))


def _relative(
    own: SortedAttribute,
    attribute: Attribute,
    settings: Sequence[Setting],
    epsilons: Sequence[Decimal],
    runs: int,
) -> Float64Array:
    """Return Σ d²/(n σ²) of some draws of every setting, `(n_settings, runs)`."""
    found = np.empty((len(settings), runs))
    noisy = [i for i, setting in enumerate(settings) if setting.mechanism != NOISELESS]
    tasks = [task_of(attribute, settings[i], epsilons[i], own.original.size) for i in noisy]
    for i, errors in zip(noisy, own.errors(tasks, SystemBits(), runs), strict=True):
        found[i] = errors
    for i, setting in enumerate(settings):
        if setting.mechanism == NOISELESS:
            found[i] = own.without_noise(setting.k or 3)
    assert np.isfinite(found).all()
    return found


def _squares(
    own: SortedAttribute,
    whole: Scale,
    attribute: Attribute,
    settings: Sequence[Setting],
    epsilons: Sequence[Decimal],
) -> Float64Array:
    """Return Σ d² of one draw of one owner's part, by the places that its values have among all records.

    Returns:
        By setting, `(n_settings,)`.
    """
    if not attribute.by_frequency:
        errors = _relative(own, attribute, settings, epsilons, 1)[:, 0]
        return errors * own.original.size * own.scale.spread
    found = np.empty(len(settings))
    for i, setting in enumerate(settings):
        if setting.mechanism == NOISELESS:
            error = own.without_noise(setting.k or 3)
            assert error is not None
            found[i] = error * own.original.size * own.scale.spread
        else:
            task = task_of(attribute, setting, epsilons[i], own.original.size)
            masked = own.by_record(own.draw(task, SystemBits()))
            found[i] = float(whole.squared_differences(own.original, masked).sum())
    return found


def _estimated(values: Sequence[float]) -> Estimate:
    found = estimate(values)
    assert found is not None
    return found
