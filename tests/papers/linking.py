"""Which attack links how many persons who are known entirely: one by one, with everybody, in a matching.

The released records are all people's. Probabilities of every record for every person are kept in one table,
so that attacks differ in the use of it alone.

References:
    Fellegi and Sunter 1969, "A theory for record linkage".
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from common.words.numbers import count_text
from owner_node.explore.assessment import GridSetting
from owner_node.masking.arrays import Float64Array, SystemBits
from owner_node.risk.attacks import LINKAGE, STRUCTURE, Intruder, attack, known_attributes
from owner_node.risk.likelihood import Carried, Known, Likelihoods, likeliest, propagate
from owner_node.risk.trials import crowd_of, masked
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.risk import CARRIERS, READERS
from tests.papers.tables import Numbers

RANK_NOISES = ("0.03", "0.1")
NEAREST, EQUALITY, RANKS, ALONE, EVERYBODY, ASSIGNMENT, PROPAGATION = ATTACKS = (
    "nearest record", "equality and order", "values as ranks", "one by one", "with everybody",
    "linear assignment", "belief propagation",
)  # fmt: skip


def linked(data: DataSet, setting: GridSetting, random: np.random.Generator) -> dict[str, float]:
    """Mask all records once; returns the share of persons that each attack links to their records.

    Args:
        data: The records.
        setting: How they are masked.
        random: Puts records into random order.
    """
    data = risk_data.shuffled(data, random)
    (part,) = risk_data.parts_of(data, (data.n_records,), random)
    release = masked(part.tasks(setting), part.whole, SystemBits())
    crowd = crowd_of(part.whole, [column[:0] for column in data.columns.values()])
    everybody, nothing = np.arange(data.n_records), np.empty(0, dtype=np.int64)
    known = np.arange(len(data.attributes))
    intruder = Intruder(known, None, nothing, everybody, everybody, everybody)
    found = {each.attack: each.rate for each in attack((LINKAGE, STRUCTURE), crowd, release, intruder)}
    attributes = list(known_attributes(crowd, release, intruder))
    likely = probabilities(attributes)
    # Entries of a cluster are handed out in random order: this intruder does not know it.
    as_ranks = probabilities([replace(each, shuffled=None) for each in attributes])
    return {
        NEAREST: found[LINKAGE],
        EQUALITY: found[STRUCTURE],
        RANKS: _rate(as_ranks / as_ranks.sum(axis=1, keepdims=True)),
        ALONE: _rate(likely),
        EVERYBODY: _rate(likely / likely.sum(axis=1, keepdims=True)),
        ASSIGNMENT: assigned(likely, random),
        PROPAGATION: _rate(propagate(likely)),
    }


def probabilities(attributes: Sequence[Known]) -> Float64Array:
    """Return the probability of every record for every person, `(n_records, n_people)`."""
    return Likelihoods.of([Carried.of(each) for each in attributes]).of_all_pairs()


def _rate(table: Float64Array) -> float:
    return float(likeliest(table).mean())


def assigned(table: Float64Array, random: np.random.Generator) -> float:
    """Return the share of persons who get their own record in the likeliest matching, by lot among equals."""
    order = random.permutation(table.shape[1])
    records, places = linear_sum_assignment(np.log(table[:, order]), maximize=True)
    return float((records == order[places]).mean())


def _rows(data: DataSet, runs: int, random: np.random.Generator) -> Iterator[tuple[str, tuple[float, ...]]]:
    for noise in RANK_NOISES:
        for carrier in CARRIERS:
            setting = GridSetting(carrier, Decimal(1), None, Decimal(noise))
            found = [linked(data, setting, random) for _ in range(runs)]
            means = tuple(float(np.mean([each[name] for each in found])) for name in ATTACKS)
            yield f"{data.name}, `{carrier}`, w = {noise}", means


SOME = ("census", "wine")
"""Of `risk.READERS`: those whose table of all persons and records fits into memory."""


def run(data: Path, out: Path, runs: int, *, name: str, seed: int) -> dict[str, str]:
    """Make the CSV file of one of `SOME`; returns its table of docs/risk.md by name."""
    rows = tuple(_rows(READERS[name](data), runs, np.random.default_rng(seed)))
    table = Numbers(("data, carrier", *ATTACKS), rows)
    table.write(out / f"{name}.csv")
    about = f"The data set {name}: {count_text(runs, 'draw')} of every setting, all persons."
    return {f"{name} linking": f"{about}\n\n{table.markdown()}"}
