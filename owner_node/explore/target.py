"""The smallest rank noise at which no attack re-identifies more than a stated share of persons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from common.canonical import Document
from common.errors import UnusableDataError
from common.planning.arguments import DEFAULT
from common.words.numbers import percent_text
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.explore.sweep import ExploredTable
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.measures import mean_sse_of_means
from owner_node.risk.trials import (
    DRAWS,
    Randomness,
    attacked_share,
    knowledge_of,
    people_of,
    risk_across,
    sorted_records,
)
from owner_node.risk.utility import CORRELATION, Estimate, measure

RANK_NOISES = (
    *(DEFAULT + n * Decimal("0.01") for n in range(3)),
    *map(
        Decimal,
        ("0.06", "0.08", "0.1", "0.12", "0.15", "0.2", "0.25", "0.3", "0.4", "0.5", "0.6", "0.8", "1"),
    ),
)
"""The shares that are tried: from the default on, in steps of about a quarter."""
_REPETITIONS = 3


@dataclass(frozen=True, slots=True)
class Trial(Document):
    """What attacks find with one rank noise, and what is left of the data."""

    rank_noise: Decimal
    reidentified: Estimate
    """Share of persons whose record the best attack finds."""
    mean_sse: Estimate | None
    correlation_error: Estimate | None
    with_earlier: Estimate | None = None
    """The same share together with the earlier releases; None without them."""

    @property
    def most(self) -> Estimate:
        """The larger of both shares."""
        shares = [self.reidentified, *([self.with_earlier] if self.with_earlier else [])]
        return max(shares, key=lambda share: share.mean)


@dataclass(frozen=True, slots=True)
class Target(Document):
    """The result of a search."""

    max_reidentified: Decimal
    """The share that is accepted."""
    known: tuple[str, ...]
    """What the intruder knows of everybody."""
    rank_noise: Decimal | None
    """The smallest rank noise that was found; None if none up to 1 is enough."""
    trials: tuple[Trial, ...]
    """By rank noise; the first one is the default."""
    mean_sse_of_means: float
    """Mean SSE of replacing every value by its attribute's mean."""
    n_earlier: int = 0
    """Number of earlier releases that were tried together with each rank noise."""
    with_one_more: Estimate | None = None
    """Share of persons with the chosen rank noise after one more release of this kind; None if none was found
    or no released value ascends with ranks."""


def find_rank_noise(
    table: ExploredTable,
    setting: GridSetting,
    most: Decimal,
    known: Sequence[str],
    randomness: Randomness,
    progress: Callable[[int, int], None],
    earlier: Sequence[Sequence[AttributeTask]] = (),
) -> Target:
    """Search by bisection, with fresh draws for every rank noise.

    A rank noise is enough if no attack on the release alone, and none on it together with the earlier
    releases, re-identifies a larger share.

    Args:
        known: Attributes that an intruder knows exactly of everybody; empty for all.
        progress: Called often with the number of finished trials and of all; what it raises ends the search.
        earlier: How earlier releases masked attributes of the table; one whose k is too large is left out.

    Raises:
        UnusableDataError: If the data cannot be masked so.
        UsageError: If there is only one record.
    """
    trials: dict[int, Trial] = {}
    n_trials = 1 + len(RANK_NOISES).bit_length()
    planned = plan_cell(replace(setting, rank_noise=DEFAULT), table.schema, table.taxonomies)
    if planned.problem:
        raise UnusableDataError(planned.problem, "--mechanism, --k or --epsilon with other values")
    table.records.check(planned.tasks)
    whole = sorted_records(table.records.columns, planned.tasks, randomness.bits)
    fewest = max(task.k or 1 for task in planned.tasks)
    people = people_of(table.records.columns, planned.tasks, randomness, fewest)
    n_members = people.members.n_records
    before = [release for release in earlier if max(task.k or 1 for task in release) <= n_members]
    intruder = knowledge_of(table.schema.names, known)[0]

    def check() -> None:
        progress(len(trials), max(n_trials, len(trials)))

    def tasks_with(number: int) -> Sequence[AttributeTask]:
        rank_noise = RANK_NOISES[number]
        return plan_cell(replace(setting, rank_noise=rank_noise), table.schema, table.taxonomies).tasks

    def together(*releases: Sequence[AttributeTask]) -> Estimate | None:
        risk = risk_across(releases, people, intruder, randomness, 2 * DRAWS, check)
        return None if risk is None else risk.rate

    def is_enough(number: int) -> bool:
        tasks = tasks_with(number)
        share = attacked_share(tasks, people, known, randomness, check)
        with_earlier = together(tasks, *before) if before else None
        utility = measure(whole, tasks, _REPETITIONS, (CORRELATION,), randomness.bits)
        trials[number] = Trial(
            RANK_NOISES[number], share, utility.mean_sse(), utility.overall(CORRELATION), with_earlier
        )
        check()
        return trials[number].most.mean <= most

    low, high = 0, len(RANK_NOISES) - 1
    chosen = low if is_enough(low) else high if is_enough(high) else None
    if chosen == high:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        chosen = high
    more = None
    if chosen is not None:
        tasks = tasks_with(chosen)
        more = together(tasks, *before, tasks)
    return Target(
        most,
        tuple(known) or table.schema.names,
        None if chosen is None else RANK_NOISES[chosen],
        tuple(trials[number] for number in sorted(trials)),
        mean_sse_of_means([attribute.scale for attribute in whole.attributes]),
        len(before),
        more,
    )


def sentences(target: Target) -> list[str]:
    """Return the result in plain words."""
    by_noise = {trial.rank_noise: trial for trial in target.trials}
    default, last = by_noise[DEFAULT], target.trials[-1]
    most = percent_text(float(target.max_reidentified))
    who = f"an intruder who knows {', '.join(target.known)} of everybody"
    earlier = f"{target.n_earlier} earlier release{'s' * (target.n_earlier > 1)}"
    if target.rank_noise is None:
        together = "" if last.most is last.reidentified else f", together with {earlier} of these data"
        return [
            f"No rank noise up to {last.rank_noise:f} is enough.",
            f"With it {who} re-identifies {_interval(last.most)} of the persons{together}.",
            f"Accepted: {most}.",
            "Release fewer attributes (--attributes), or do not release these data.",
        ]
    trial = by_noise[target.rank_noise]
    share = _interval(trial.reidentified)
    lines = [
        f"Rank noise {trial.rank_noise:f}: {who} re-identifies {share} of the persons; {most} are accepted."
    ]
    if trial.with_earlier:
        lines.append(
            f"Together, this and {earlier} of these data are counted: {_interval(trial.with_earlier)}."
        )
    if target.with_one_more:
        lines.append(
            f"This and one more release like it: {_interval(target.with_one_more)}. Each further release of "
            "the same data raises the share."
        )
    if trial is default:
        return [*lines, "It is the default: less was not tried."]
    lines.append(f"With the default of {DEFAULT:f} the share is {_interval(default.reidentified)}.")
    if trial.mean_sse and default.mean_sse:
        lines.append(
            f"The cost: mean SSE {trial.mean_sse.mean:.3g} instead of {default.mean_sse.mean:.3g} "
            f"({target.mean_sse_of_means:.3g} if every value is replaced by its attribute's mean)."
        )
    if trial.correlation_error and default.correlation_error:
        lines.append(
            f"Correlations are off by {trial.correlation_error.mean:.2g} on average instead of "
            f"{default.correlation_error.mean:.2g}."
        )
    return lines


def _interval(share: Estimate) -> str:
    return f"{percent_text(share.mean)} ({percent_text(share.low)} to {percent_text(share.high)})"
