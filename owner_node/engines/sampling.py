"""Samples of tables that are too large for a forecast, a trial or an exploration.

A mechanism on n records with clusters of k and budget ε is forecast on a share s of the records with clusters
of s k records and budget ε/s. That keeps what decides: the number of clusters and the ranges that they span,
the noise of a centroid, which is proportional to 1/(k ε), and that of a share in a histogram, 1/(n ε). Rank
noise is a share of the ranks anyway. Mechanisms with noise for each record keep k and ε.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from math import ceil

from common.model.privacy import SMALLEST_K
from owner_node.engines.pinned import AnyEngine
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.tasks import AttributeTask

SAMPLE = 2**20
"""Records of a sample, if clusters do not need more."""
LARGEST_SAMPLE = 2**22
"""Records of a sample of the smallest clusters: these span more ranks in it than among all records."""
_FEWEST_IN_CLUSTER = 2 * SMALLEST_K
_DIGITS = Decimal("1e-9")


def in_memory(records: AnyEngine, most: int = SAMPLE) -> MemoryEngine:
    """Return records in memory: all of them if they are there already, else `most` at random."""
    return records.sample(records.n_records if records.in_memory else most)


def sampled(
    records: AnyEngine, tasks: Sequence[AttributeTask], most: int | None = None
) -> tuple[MemoryEngine, tuple[AttributeTask, ...]]:
    """Return records in memory, and tasks that have the same effect on them as `tasks` on all records.

    Args:
        most: Most records of the sample; None for all records that are in memory, and else for `SAMPLE`, or
            more, up to `LARGEST_SAMPLE`, where its clusters would be smaller than six records.
    """
    sample = in_memory(records, _enough(records.n_records, tasks)) if most is None else records.sample(most)
    share = Decimal(sample.n_records) / records.n_records
    return sample, tuple(_at_share(task, share) for task in tasks)


def sample_text(n_sampled: int, n_records: int) -> str:
    """Return what people read beside numbers of a sample; empty if it has all records."""
    if n_sampled == n_records:
        return ""
    return (
        f"{n_sampled:,} of {n_records:,} records were tried, chosen at random; k and epsilon were scaled to "
        "keep the effect. Among fewer people an intruder re-identifies more, so the shares of persons are "
        "upper estimates"
    )


def _enough(n_records: int, tasks: Sequence[AttributeTask]) -> int:
    """Return the size of a sample whose clusters have six records at least, as far as it is possible."""
    smallest = min((task.k for task in tasks if task.k is not None), default=None)
    wanted = 0 if smallest is None else ceil(n_records * _FEWEST_IN_CLUSTER / smallest)
    return min(max(SAMPLE, wanted), LARGEST_SAMPLE)


def _at_share(task: AttributeTask, share: Decimal) -> AttributeTask:
    """Return the task that has the same effect on a share of the records."""
    if share == 1 or not task.rules.listed:
        return task
    # With fewer, trimming would leave nothing of a cluster.
    least = task.rules.smallest_k(task.max_records_per_person)
    k = None if task.k is None or least is None else max(least, round(task.k * share))
    exact = share if k is None or task.k is None else Decimal(k) / task.k
    epsilon, spikes = (
        (epsilon / exact).quantize(_DIGITS, ROUND_HALF_EVEN)
        for epsilon in (task.epsilon, task.epsilon_spikes)
    )
    return replace(task, k=k, epsilon=epsilon, epsilon_spikes=spikes)
