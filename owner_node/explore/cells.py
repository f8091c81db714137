"""The grid of settings, and how each of them masks every attribute: as a release of one owner would."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from common.errors import UnusableDataError, UsageError
from common.privacy import AUTO, MECHANISMS, NO_RANK_NOISE
from common.rank_noise import RankNoise
from common.schema import Schema
from owner_node.local.mask_plan import MaskRequest, make_mask_plan
from owner_node.mask_tasks import mask_tasks
from owner_node.masking.tasks import AttributeTask
from owner_node.masking.taxonomy import Taxonomy

CHOSEN = "auto"
"""Stands for a k that is chosen for every attribute."""


def takes_k(mechanism: str) -> bool:
    """Whether a mechanism makes clusters, or may choose one that does."""
    return mechanism == AUTO or MECHANISMS[mechanism].clustered


def takes_rank_noise(mechanism: str) -> bool:
    """Whether a mechanism releases a list in rank order, or chooses one that does."""
    return mechanism == AUTO or MECHANISMS[mechanism].listed


@dataclass(frozen=True, slots=True)
class Grid:
    """All settings that are looked at."""

    epsilons: tuple[Decimal, ...]
    """Budgets for all attributes together."""
    ks: tuple[int | None, ...]
    """Minimum cluster sizes; None to have one chosen for every attribute."""
    mechanisms: tuple[str, ...]
    """Mechanism ids."""
    rank_noises: tuple[Decimal, ...] = (NO_RANK_NOISE,)
    """Noise on ranks, as shares of them."""
    own_rank_noises: tuple[tuple[str, Decimal], ...] = ()
    """Attributes that have another one, the same in every setting."""

    def settings(self) -> list["Setting"]:
        """Return every setting once: what a mechanism does not take makes no difference to it."""
        return [
            Setting(mechanism, epsilon, k, noise, self.own_rank_noises if takes_rank_noise(mechanism) else ())
            for mechanism in self.mechanisms
            for noise in (self.rank_noises if takes_rank_noise(mechanism) else (NO_RANK_NOISE,))
            for k in (self.ks if takes_k(mechanism) else (None,))
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
    rank_noise: Decimal = NO_RANK_NOISE
    """Noise on ranks, as a share of them."""
    own_rank_noises: tuple[tuple[str, Decimal], ...] = ()
    """Attributes that have another one."""

    @property
    def k_text(self) -> str | None:
        """The minimum cluster size as the results name it."""
        if not takes_k(self.mechanism):
            return None
        return CHOSEN if self.k is None else str(self.k)


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting, and what it does to each attribute."""

    setting: Setting
    """Its place in the grid."""
    tasks: tuple[AttributeTask, ...] = ()
    """How every attribute is masked; empty if there is a problem."""
    epsilon_joint: Decimal | None = None
    """The bound on whole lists; None where there is none."""
    epsilon_table: Decimal | None = None
    """The bound on which record has which value, too; None where there is none."""
    problem: str | None = None
    """Why these data cannot be masked so."""


def plan_cell(setting: Setting, schema: Schema, taxonomies: Mapping[str, Taxonomy]) -> Cell:
    """Plan one cell, from the same public numbers that a release would be planned from.

    Args:
        setting: The setting.
        schema: The attributes that would be released, and the rounded number of records.
        taxonomies: Taxonomies by attribute.
    """
    rank_noise = RankNoise(setting.rank_noise, setting.own_rank_noises)
    request = MaskRequest(setting.epsilon, setting.k, setting.mechanism, rank_noise=rank_noise)
    try:
        plan = make_mask_plan(
            request, schema, owner="owner", dataset="data", work_id="explore", made_by="local", created="",
            version="",
        )  # fmt: skip
    except (UsageError, UnusableDataError) as error:
        return Cell(setting, problem=error.message)
    (task,) = plan.tasks
    return Cell(
        setting, mask_tasks(plan, task.attributes, taxonomies), plan.epsilon_joint, plan.epsilon_table
    )
