"""Tessera beside other ways of protecting records, on Adult and Wine: the tables of docs/comparison.md.

Two thirds of Wine's records are released, and half of 20,000 of Adult; the class is one of their attributes.
As many others let Anonymeter compare without a correction, which finds that somebody is singled out of
records of strangers, too.

Intruders have one rule for all methods, since they differ in kind: they take the released record that is
nearest, with numbers in standard deviations and different labels one apart.

*Linked*: how often the nearest released record of a person who is known in all attributes is that person's
own; of several that are equally near one is taken at random. Synthetic records are nobody's.

*Membership*: the nearer the nearest released record, the more likely a person was among the originals. The
AUC of that guess, over persons who were and others; one half is chance.

AIM and MST, Anonymeter's risks and SDMetrics' quality are there after `make peers`, from libraries that have
a process of their own (`tests.papers.peers_process`). Risks and quality are those of the first draw.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from sklearn.metrics import roc_auc_score

from common.arrays import Float64Array, Int64Array
from common.words.numbers import count_text
from owner_node.masking.arrays import SystemBits
from owner_node.risk.attacks import places_of
from owner_node.risk.measures import correlation_error, correlations, scale_of
from tests.fakes.masked_releases import masked, plan_of
from tests.fakes.synthetic_owners import synthetic_release
from tests.needs import PEERS, missing_peers
from tests.papers import synthetic
from tests.papers.peers import microaggregated, rank_swapped
from tests.papers.synthetic import ACCOUNTINGS, EPSILON, Records, nearness
from tests.papers.tables import Numbers

K = 5
SWAPPED = 0.05
"""Farthest distance of swapped ranks, as a share of all."""
N_PERSONS = 2000
"""Of each kind, among the originals and not."""
PERSONS_AT_ONCE = 100
RISKS = ("singling out", "linkability", "inference")
QUALITY = "quality"
WORTH = ("method", "one-way TV", "two-way TV", "three-way TV", "correlation error", "F")
PERSONS = ("method", "linked", "membership AUC")
PROCESS = Path(__file__).with_name("peers_process.py")
AIM_AND_MST = {"bins": 32, "megabytes": 2, "iterations": 200, "rounds": 22}
"""Bins of a number at most. Size of the model, iterations of a fit, and rounds of AIM are smaller than by
default (80, 1000 or 5000, 16 for each attribute), with which AIM takes hours."""
BUDGETS: Mapping[str, tuple[float, float]] = MappingProxyType({"1": (1.0, 1e-6), "0.66": (0.66, 1e-6)})
"""ε and δ of AIM and MST, whose neighbours have one record more or less. The second is (1, 10⁻⁶) where a
record is replaced, as Tessera counts: there the sensitivity of counts is √2 times as large, and that of the
scores of choices twice, so the nine tenths of ρ that AIM spends on counts and the tenth on choices become
2.2 ρ."""
READERS: Mapping[str, Callable[[Path], Records]] = MappingProxyType(
    {
        "adult": lambda data: first_records(synthetic.READERS["adult"](data), 20_000, 0.5),
        "wine": synthetic.READERS["wine"],
    }
)
"""10,000 records of Adult are released, and 4,288 of Wine."""
Release: TypeAlias = list[Int64Array]
"""Released values, `(n_released,)` by attribute."""


def first_records(records: Records, most: int, share: float) -> Records:
    """Return some records, which are in random order, and of which a share is released."""
    return Records(records.attributes, tuple(each[:most] for each in records.columns), share)


def _masked(records: Records, seed: int, rank_noise: str) -> Release:
    plan = plan_of(records.attributes, records.n_released, EPSILON, rank_noise=[rank_noise])
    named = {each.name: column for each, column in zip(records.attributes, records.released, strict=True)}
    made = masked(plan, named, seed)
    return [made[each.name] for each in records.attributes]


def _synthetic(records: Records, _seed: int, delta: str) -> Release:
    lower = [each.lower for each in records.attributes]
    codes = [each - low for each, low in zip(records.released, lower, strict=True)]
    made = synthetic_release(records.attributes, [codes], EPSILON, delta, [SystemBits()])
    return [each + low for each, low in zip(made.codes, lower, strict=True)]


def drawn_by(records: Records, seed: int, method: str, epsilon: float, delta: float) -> Release:
    """Return records that AIM or MST draws, as many as were released."""
    budget = {"epsilon": epsilon, "delta": delta}
    with TemporaryDirectory() as folder:
        _ask(Path(folder), "make", records, {}, seed=seed, method=method, **budget, **AIM_AND_MST)
        codes = np.load(Path(folder) / "released.npy")
    return [column + each.lower for column, each in zip(codes.T, records.attributes, strict=True)]


def metrics(records: Records, released: Sequence[Int64Array], seed: int) -> dict[str, float]:
    """Return quality and risks of released records."""
    with TemporaryDirectory() as name:
        _ask(Path(name), "judge", records, {"released": released}, seed=seed)
        found: dict[str, float] = json.loads((Path(name) / "metrics.json").read_text(encoding="utf-8"))
    return found


def _ask(
    folder: Path, what: str, records: Records, tables: Mapping[str, Sequence[Int64Array]], **task: Any
) -> None:
    others = [each[records.n_released :] for each in records.columns]
    lower = [each.lower for each in records.attributes]
    for name, columns in {"original": records.released, "others": others, **tables}.items():
        np.save(folder / f"{name}.npy", np.column_stack(columns) - lower)
    task["labels"] = [each.is_categorical for each in records.attributes]
    task["sizes"] = [each.n_values for each in records.attributes]
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    # One thread each: experiments run beside each other, and small arrays gain nothing from more.
    environment = {
        **os.environ,
        "PYTHONPATH": str(PEERS),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    subprocess.run([sys.executable, PROCESS, what, folder], env=environment, check=True)


def _swapped(records: Records, seed: int) -> Release:
    draw = np.random.default_rng(seed)
    return [rank_swapped(each, SWAPPED, draw) for each in records.released]


def drawn_again(records: Records, seed: int) -> Release:
    """Return originals drawn with replacement: what sampling alone does."""
    drawn = np.random.default_rng(seed).integers(0, records.n_released, records.n_released)
    return [each[drawn] for each in records.released]


MASKING: Mapping[str, Callable[[Records, int], Release]] = MappingProxyType(
    {
        "original": lambda records, _: list(records.released),
        f"MDAV, k = {K}": lambda records, _: microaggregated(records.attributes, records.released, K),
        f"rank swapping, {SWAPPED:.0%}": _swapped,
        **{f"Tessera, masked, w = {each}": partial(_masked, rank_noise=each) for each in ("0.03", "0.1")},
    }
)
"""Methods whose records are somebody's each: the released ones are in the order of the originals."""
DRAWING: Mapping[str, Callable[[Records, int], Release]] = MappingProxyType(
    {f"Tessera, synthetic, {label}": partial(_synthetic, delta=delta) for label, delta in ACCOUNTINGS.items()}
)
"""Methods whose records are nobody's."""
OF_PEERS: Mapping[str, Callable[[Records, int], Release]] = MappingProxyType(
    {
        f"{method}, ε = {label}": partial(drawn_by, method=method, epsilon=epsilon, delta=delta)
        for method in ("AIM", "MST")
        for label, (epsilon, delta) in BUDGETS.items()
    }
)
"""The same, from build/peers."""


def worth(records: Records, released: Sequence[Int64Array], seed: int) -> tuple[float, ...]:
    """Return total variations of one to three attributes, error of correlations, F of the second class."""
    one, two, three, f = nearness(records, released, seed)
    scales = [scale_of(*each) for each in zip(records.attributes, records.released, strict=True)]
    error = correlation_error(
        correlations(places_of(scales, records.released)), correlations(places_of(scales, released))
    )
    assert error is not None
    return one, two, three, error, f


def found_persons(
    records: Records, released: Sequence[Int64Array], seed: int, *, in_order: bool
) -> tuple[float, float]:
    """Return the share of persons who are linked to their records, and the AUC of membership.

    Args:
        records: Originals, of which the first `n_released` were released.
        released: Values, `(n_released,)` by attribute.
        seed: Of the choice of persons.
        in_order: Whether the released records are those of the originals, in their order.
    """
    draw = np.random.default_rng(seed)
    n_released, n_all = records.n_released, records.columns[0].size
    members = draw.choice(n_released, N_PERSONS, replace=False)
    others = n_released + draw.choice(n_all - n_released, N_PERSONS, replace=False)
    persons, nearest, linked = np.concatenate([members, others]), [], []
    for chosen in np.array_split(persons, max(1, persons.size // PERSONS_AT_ONCE)):
        apart = distances(records, released, [each[chosen] for each in records.columns])
        nearest.append(apart.min(axis=1))
        ties = apart == nearest[-1][:, None]
        inside = np.flatnonzero(chosen < n_released)
        linked.append(ties[inside, chosen[inside]] / ties[inside].sum(axis=1))
    auc = float(roc_auc_score(persons < n_released, -np.concatenate(nearest)))
    return (float(np.concatenate(linked).mean()) if in_order else nan), auc


def distances(
    records: Records, released: Sequence[Int64Array], persons: Sequence[Int64Array]
) -> Float64Array:
    """Return how far released records are from persons, `(n_persons, n_released)`."""
    apart = np.zeros((persons[0].size, released[0].size))
    for attribute, original, column, own in zip(
        records.attributes, records.released, released, persons, strict=True
    ):
        if attribute.is_categorical:
            apart += own[:, None] != column
        else:
            apart += np.abs(own[:, None] - column) / (original.std() or 1)
    return apart


def measured(
    records: Records, label: str, method: Callable[[Records, int], Release], runs: int, seed: int
) -> tuple[list[float], list[float]]:
    """Return the row of a method in the first table and in the second one."""
    has_peers = missing_peers() is None
    values, persons = [], []
    quality, risks = list[float](), list[float]()
    for number in range(seed, seed + runs):
        released = method(records, number)
        values.append(worth(records, released, number))
        persons.append(found_persons(records, released, number, in_order=label in MASKING))
        if has_peers and number == seed:
            judged = metrics(records, released, number)
            quality, risks = [judged[QUALITY]], [judged[each] for each in RISKS]
    return [*np.mean(values, axis=0), *quality], [*np.mean(persons, axis=0), *risks]


def run(data: Path, out: Path, runs: int, *, name: str, seed: int) -> dict[str, str]:
    """Make the CSV files of one of `READERS`; returns its tables of docs/comparison.md by name."""
    records = READERS[name](data)
    sampled = {"originals drawn with replacement": drawn_again}
    methods = {**MASKING, **sampled, **DRAWING, **({} if missing_peers() else OF_PEERS)}
    rows = {label: measured(records, label, method, runs, seed) for label, method in methods.items()}
    of_worth, of_persons = ((), ()) if missing_peers() else ((QUALITY,), RISKS)
    tables = {
        f"{name} {title}": Numbers(
            (*heads, *more), tuple((label, tuple(row[place])) for label, row in rows.items())
        )
        for place, (title, heads, more) in enumerate(
            (("worth", WORTH, of_worth), ("persons", PERSONS, of_persons))
        )
    }
    for title, table in tables.items():
        table.write(out / f"{title.replace(' ', '_')}.csv")
    about = f"{count_text(runs, 'draw')} of every method, {records.n_released:,} released records."
    return {f"compared {title}": f"{about}\n\n{table.markdown()}" for title, table in tables.items()}
