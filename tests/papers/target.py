"""Whether the rank noise that `explore --max-reidentified` finds holds in releases that are drawn afresh.

Every search is followed by attacks on fresh draws, with other people left out, by the same intruder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np

from common.model.schema import Schema, round_to_leading_digit
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.explore.sweep import ExploredTable
from owner_node.explore.target import find_rank_noise
from owner_node.masking.arrays import SystemBits
from owner_node.masking.engine import MemoryEngine
from owner_node.risk.trials import DRAWS, Randomness, attacked_share, people_of
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.tables import Numbers

MOST = Decimal("0.05")
HEADS = (
    "data", "smallest w", "largest w", "by default", "in the search", "afresh", "afresh, largest",
    "mean SSE by default", "mean SSE", "of means",
)  # fmt: skip
_AUTO = GridSetting("auto", Decimal(1), None)


@dataclass(frozen=True, slots=True)
class Search:
    """A rank noise that was found, and what attacks re-identify with it."""

    rank_noise: Decimal
    """Smallest one that was enough."""
    default: float
    """Share of persons that is re-identified with the default rank noise."""
    searched: float
    """The same with the rank noise that was found, on the draws of the search."""
    afresh: float
    """The same on fresh draws."""
    worth: tuple[float, float, float]
    """Mean SSE by default, with the rank noise that was found, and with every value replaced by its mean."""


def search(data: DataSet, most: Decimal, randomness: Randomness) -> Search | None:
    """Search the rank noise for an intruder who knows everything, and attack fresh draws.

    Args:
        data: The records.
        most: Share of persons that is accepted.
        randomness: Source of noise and choices.

    Returns:
        None if no rank noise is enough.
    """
    schema = Schema(data.attributes, records_rounded=round_to_leading_digit(data.n_records))
    table = ExploredTable(data.name, schema, MemoryEngine(data.columns), {})
    target = find_rank_noise(table, _AUTO, most, (), randomness, lambda _done, _all: None)
    if target.rank_noise is None:
        return None
    chosen = next(each for each in target.trials if each.rank_noise == target.rank_noise)
    default = target.trials[0]
    tasks = plan_cell(GridSetting("auto", Decimal(1), None, target.rank_noise), schema, {}).tasks
    people = people_of(data.columns, tasks, randomness, max(task.k or 1 for task in tasks))
    afresh = attacked_share(tasks, people, (), randomness)
    assert default.mean_sse is not None
    assert chosen.mean_sse is not None
    return Search(
        target.rank_noise,
        default.reidentified.mean,
        chosen.reidentified.mean,
        afresh.mean,
        (default.mean_sse.mean, chosen.mean_sse.mean, target.mean_sse_of_means),
    )


def _row(found: Sequence[Search]) -> tuple[float, ...]:
    noises = [float(each.rank_noise) for each in found]
    shares = np.array([(each.default, each.searched, each.afresh) for each in found])
    worth = np.mean([each.worth for each in found], axis=0).tolist()
    return (min(noises), max(noises), *shares.mean(axis=0).tolist(), float(shares[:, 2].max()), *worth)


READERS: Mapping[str, Callable[[Path, Path], DataSet]] = MappingProxyType(
    {
        "adult": lambda data, _: risk_data.adult(data),
        "wine": lambda data, _: risk_data.wine(data),
        "census": lambda data, _: risk_data.census(data),
        "demo": lambda _, out: risk_data.demo(out),
    }
)
"""The data sets, from the folder of the published files and one to write into."""


def run(data: Path, out: Path, runs: int, *, name: str, seed: int) -> dict[str, str]:
    """Make the CSV file of one of `READERS`; returns its table of docs/risk.md by name."""
    records = READERS[name](data, out)
    randomness = Randomness(SystemBits(), np.random.default_rng(seed))
    found = [search(records, MOST, randomness) for _ in range(runs)]
    enough = [each for each in found if each is not None]
    table = Numbers(
        HEADS, ((f"{name}, {runs} search{'es' if runs > 1 else ''}", _row(enough)),) if enough else ()
    )
    table.write(out / f"{name}.csv")
    about = f"The data set {name}: {2 * DRAWS} draws of every rank noise that a search tries."
    words = [f"No rank noise up to 1 was enough in {runs - len(enough)} of {runs} searches."]
    return {f"{name} target": "\n\n".join([about, table.markdown(), *words[len(enough) == runs :]])}
