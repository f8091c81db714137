"""Trials: a whole release on simulated records, in a state of their own.

A trial takes the same steps through the same code as a release. Two things differ: its data sets are
simulated (`owner_node.loading.simulated`), and its sessions, ledger, attempts and fragments are in another
folder. So nothing of a trial reaches the owner's ledger.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from common.model.plan import Plan
from owner_node.config import DatasetConfig, OwnerConfig

_BUDGET = Decimal(999_999)
"""Budget of a simulated data set, for all trials."""
_UNLIMITED = 10**9
"""Linkings of simulated records: they disclose nothing."""


def trial_folder(state_dir: Path) -> Path:
    """Return the folder of the state of trials."""
    return state_dir / "trial"


def trial_config(config: OwnerConfig) -> OwnerConfig:
    """Return the configuration of trials: simulated data sets, and a policy without people and real data.

    Limits on mechanisms, k, epsilon, layouts, purposes and parties stay: a trial shows what they refuse.
    """
    lifted = dict.fromkeys(("manual_above_epsilon", "total_rank_loss", *config.policy.limits_on_data))
    policy = replace(
        config.policy, approval="auto", known=(), max_attempts=_UNLIMITED, total_delta=Decimal(1), **lifted  # type: ignore[arg-type]
    )  # fmt: skip
    datasets = tuple(
        replace(
            dataset, source=f"simulated-{dataset.name}", query=None, budget=dataset.name,
            total_epsilon=_BUDGET, simulated=0,
        )
        for dataset in config.datasets
    )  # fmt: skip
    return replace(config, policy=policy, datasets=datasets)


def placed(dataset: DatasetConfig, plan: Plan, owner: str) -> DatasetConfig:
    """Return a data set whose simulated people are those of the owner's place in its group.

    Owners of one group have different people, and owners at the same place of other groups the same.

    Args:
        dataset: Settings of a data set; those of a real one are returned as they are.
    """
    if dataset.simulated is None:
        return dataset
    group = next(group for group in plan.groups if owner in group)
    return replace(dataset, simulated=group.index(owner))
