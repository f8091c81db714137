"""The grid of settings, and how each of them masks every attribute: as a release of one owner would."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from common.errors import UnusableDataError, UsageError
from common.plan import Plan
from common.privacy import MECHANISMS
from common.schema import Schema
from owner_node.local.mask_plan import MaskRequest, make_mask_plan
from owner_node.masking.mask import AttributeTask
from owner_node.masking.taxonomy import Taxonomy

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Grid:
    """All settings that are looked at."""

    epsilons: tuple[Decimal, ...]
    """Budgets for all attributes together."""
    ks: tuple[int | None, ...]
    """Minimum cluster sizes; None to have one chosen for every attribute."""
    mechanisms: tuple[str, ...]
    """Mechanism ids."""

    def settings(self) -> list["Setting"]:
        """Return every setting once: a mechanism that takes no k has a single column."""
        return [
            Setting(mechanism, epsilon, k)
            for mechanism in self.mechanisms
            for k in (self.ks if MECHANISMS[mechanism].clustered else (None,))
            for epsilon in self.epsilons
        ]


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of the grid."""

    mechanism: str
    """Mechanism id."""
    epsilon: Decimal
    """For all attributes together."""
    k: int | None
    """Minimum cluster size; None to have one chosen for every attribute, or for a mechanism without any."""

    @property
    def k_text(self) -> str | None:
        """The minimum cluster size as the results name it."""
        if not MECHANISMS[self.mechanism].clustered:
            return None
        return AUTO if self.k is None else str(self.k)


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting, and what it does to each attribute."""

    setting: Setting
    """Its place in the grid."""
    tasks: tuple[AttributeTask, ...] = ()
    """How every attribute is masked; empty if there is a problem."""
    epsilon_joint: Decimal | None = None
    """The bound on whole lists; None where there is none."""
    problem: str | None = None
    """Why these data cannot be masked so."""


def plan_cell(setting: Setting, schema: Schema, taxonomies: Mapping[str, Taxonomy]) -> Cell:
    """Plan one cell, from the same public numbers that a release would be planned from.

    Args:
        setting: The setting.
        schema: The attributes that would be released, and the rounded number of records.
        taxonomies: Taxonomies by attribute.
    """
    request = MaskRequest(setting.epsilon, setting.k, setting.mechanism)
    try:
        plan = make_mask_plan(
            request, schema, owner="owner", dataset="data", work_id="explore", made_by="local", created="",
            version="",
        )  # fmt: skip
    except (UsageError, UnusableDataError) as error:
        return Cell(setting, problem=error.message)
    return Cell(setting, tasks_of(plan, taxonomies), plan.epsilon_joint)


def tasks_of(plan: Plan, taxonomies: Mapping[str, Taxonomy]) -> tuple[AttributeTask, ...]:
    """Return how a plan of one owner masks each attribute."""
    (task,) = plan.tasks
    return tuple(
        AttributeTask(
            plan.attribute(each.name),
            each.epsilon,
            each.k,
            each.mechanism,
            plan.max_records_per_person,
            taxonomies.get(each.name),
        )
        for each in task.attributes
    )
