"""What an intruder who knows some attributes gains from their relations with the others, and from a second
release.

Each draw has other known attributes, chosen at random.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.model.schema import Schema, round_to_leading_digit
from common.words.numbers import count_text
from owner_node.explore.assessment import GridSetting, plan_cell
from owner_node.masking.arrays import SystemBits
from owner_node.masking.tasks import AttributeTask
from owner_node.risk.attacks import Intruder, known_attributes, related_attributes
from owner_node.risk.likelihood import linked_by_likelihood
from owner_node.risk.trials import (
    MOST_PERSONS,
    Knowledge,
    Population,
    Randomness,
    masked,
    people_of,
    risk_across,
)
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.tables import Numbers

RANK_NOISES = ("0.03", "0.1")
N_KNOWN = (2, 3, 5)
HEADS = ("data, attributes known", "known attributes alone", "with relations", "two releases, with relations")


def found_by(
    tasks: list[AttributeTask], people: Population, n_known: int, randomness: Randomness
) -> tuple[float, float, float]:
    """Return the shares of persons that are linked: by known attributes, with relations, in two releases."""
    known = np.sort(randomness.choices.choice(len(tasks), n_known, replace=False))
    others = randomness.choices.permutation(people.members.n_records)
    targets, nothing = others[:MOST_PERSONS], np.empty(0, dtype=np.int64)
    release = masked(tasks, people.members, randomness.bits)
    intruder = Intruder(known, None, nothing, targets, targets, others)
    carried = list(known_attributes(people.crowd, release, intruder))
    related = related_attributes(people.crowd, dict(enumerate(release.places.T)), set(known.tolist()))
    alone, both = (
        float(linked_by_likelihood(carried, targets, others, each).right.mean()) for each in ([], related)
    )
    twice = risk_across((tasks, tasks), people, Knowledge("some", known), randomness, 1)
    assert twice is not None
    return alone, both, twice.rate.mean


def _rows(data: DataSet, runs: int, randomness: Randomness) -> Iterator[tuple[str, tuple[float, ...]]]:
    schema = Schema(data.attributes, records_rounded=round_to_leading_digit(data.n_records))
    for noise in RANK_NOISES:
        tasks = list(plan_cell(GridSetting("auto", Decimal(1), None, Decimal(noise)), schema, {}).tasks)
        people = people_of(data.columns, tasks, randomness, max(task.k or 1 for task in tasks))
        for n_known in N_KNOWN:
            found = [found_by(tasks, people, n_known, randomness) for _ in range(runs)]
            yield f"{data.name}, w = {noise}, {n_known}", tuple(np.mean(found, axis=0).tolist())


def run(data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the CSV file; returns its table of docs/risk.md by name."""
    randomness = Randomness(SystemBits(), np.random.default_rng(seed))
    sets = (risk_data.census(data), risk_data.wine(data))
    table = Numbers(HEADS, tuple(row for each in sets for row in _rows(each, runs, randomness)))
    table.write(out / "related.csv")
    about = (
        f"Census and Wine Quality: {count_text(runs, 'draw')} of every setting, {MOST_PERSONS} persons each."
    )
    return {"related": f"{about}\n\n{table.markdown()}"}
