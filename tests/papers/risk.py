"""What rank noise and the carriers of values do for and against persons, at ε = 1: the page docs/risk.md.

Every draw masks all records once, to measure what they are worth, and all but some people once more, to
attack them. Owners that hold different persons are attacked one by one: from which owner a record came is not
hidden. Runs draw noise from the operating system.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np

from common.arrays import Int64Array
from common.words.numbers import count_text
from owner_node.explore.assessment import GridSetting
from owner_node.explore.models import f_measures, split
from owner_node.masking.arrays import Float64Array, SystemBits
from owner_node.risk.attacks import (
    ATTACKS,
    EXTREMES,
    INFERENCE,
    MEMBERSHIP,
    SCALES,
    Ascending,
    AttackResult,
    MaskedRecords,
    places_of,
)
from owner_node.risk.measures import attribute_sse, correlation_error, correlations, mean_sse, scale_of
from owner_node.risk.scales import LISTS, distinguished_by_scales
from owner_node.risk.total_variation import Distributions
from owner_node.risk.trials import AttackPlan, Randomness, attacks_on, knowledge_of, masked
from owner_node.risk.utility import Estimate, estimate, share
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.risk_data import ADULT_OWNERS, OwnerPart, parts_of, shuffled
from tests.papers.tables import number

CARRIERS = ("idp-joint", "auto")
RANK_NOISES = tuple(map(Decimal, ("0", "0.03", "0.1", "0.3")))
EPSILON = Decimal(1)
ORIGINAL = "original"
"""Nothing is masked: how telling the original values themselves are."""
MEAN_SSE, ONE_WAY, TWO_WAY, CORRELATIONS, F_MEASURE = (
    "mean SSE", "one-way TV", "two-way TV", "correlation error", "F-measure",
)  # fmt: skip
INTRUDERS = ("any 3", "any 5", "all, approximately", "all")
"""What an intruder knows who links persons to records."""
LEFT_OUT = "left out"
WORTH = (MEAN_SSE, ONE_WAY, TWO_WAY, CORRELATIONS, F_MEASURE)
ATTACKED = (*INTRUDERS, INFERENCE, LEFT_OUT, MEMBERSHIP, EXTREMES, SCALES)
MOST_MODELLED = 4_000
"""Records that a forest is trained on, and tried on."""
REPEATED = {"census": 4, "wine": 2, "adult": 1, "adult of four owners": 1}
"""How much more often smaller data are masked."""


@dataclass(frozen=True, slots=True)
class RiskLine:
    """One number of one setting."""

    data: str
    """Data set."""
    mechanism: str
    """Mechanism id, or `ORIGINAL`."""
    rank_noise: str
    """As a share of the ranks."""
    measure: str
    """What was measured or attacked."""
    runs: int
    """How many runs are behind it."""
    mean: float
    """Mean over the runs."""
    low: float
    """Lower end of its 95 % confidence interval."""
    high: float
    """Upper end of it."""
    baseline: float | None
    """What is right without the release, for attacks."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run found of one number."""

    value: float
    """A measure, or the share of targets about whom an attack was right."""
    baseline: float | None = None
    """What is right without the release, for attacks."""
    targets: int = 0
    """Number of targets, for attacks."""


def every_setting() -> list[GridSetting | None]:
    """Return the original values, as None, and all settings."""
    return [None, *(GridSetting(each, EPSILON, None, noise) for each in CARRIERS for noise in RANK_NOISES)]


def measured(data: DataSet, sizes: Sequence[int], runs: int, random: np.random.Generator) -> list[RiskLine]:
    """Return every number of every setting.

    Args:
        data: All records, with classes.
        sizes: Number of records of each owner.
        runs: How many runs each gets.
        random: Deals records to owners, and chooses targets.
    """
    data = shuffled(data, random)
    parts = parts_of(data, sizes, random)
    distributions = Distributions.of(data.attributes, data.columns)
    lines = []
    for setting in every_setting():
        seen: dict[str, list[Seen]] = defaultdict(list)
        for _ in range(runs):
            released = _masked(parts, setting)
            for name, value in _worth(data, distributions, released, random):
                seen[name].append(Seen(value))
            for name, found in _attacked(parts, setting, random).items():
                seen[name].append(found)
        lines += [_line(data.name, setting, name, found) for name, found in seen.items()]
    return lines


def _masked(parts: Sequence[OwnerPart], setting: GridSetting | None) -> list[Int64Array]:
    """Return all owners' masked records by attribute, `(n_records,)`."""
    every = [
        [each.original for each in part.whole.attributes]
        if setting is None
        else part.whole.masked(part.tasks(setting), SystemBits())
        for part in parts
    ]
    return [np.concatenate(columns) for columns in zip(*every, strict=True)]


# --- what records are worth ----------------------------------------------------------------------------


def _worth(
    data: DataSet, distributions: Distributions, masked: Sequence[Int64Array], random: np.random.Generator
) -> Iterator[tuple[str, float]]:
    original = [data.columns[each.name] for each in data.attributes]
    scales = [scale_of(each, column) for each, column in zip(data.attributes, original, strict=True)]
    triples = zip(scales, original, masked, strict=True)
    yield MEAN_SSE, mean_sse([attribute_sse(*each) for each in triples])
    yield from zip((ONE_WAY, TWO_WAY), distributions.total_variation(masked), strict=True)
    before, after = (places_of(scales, each) for each in (original, masked))
    error = correlation_error(correlations(before), correlations(after))
    assert error is not None
    yield CORRELATIONS, error
    yield F_MEASURE, _f_measure(data, before, after, random)


def _f_measure(
    data: DataSet, original: Float64Array, masked: Float64Array, random: np.random.Generator
) -> float:
    """Train on two thirds of the masked records, ask about the other original ones; mean of both classes."""
    assert data.above is not None
    order, cut = random.permutation(data.n_records), split(data.n_records)
    training, test = order[:cut][:MOST_MODELLED], order[cut:][:MOST_MODELLED]
    found = f_measures(
        (masked[training], data.above[training]),
        (original[test], data.above[test]),
        2,
        seed=int(random.integers(2**31)),
    )
    return float(found.mean())


# --- what they reveal ----------------------------------------------------------------------------------


def _attacked(
    parts: Sequence[OwnerPart], setting: GridSetting | None, random: np.random.Generator
) -> dict[str, Seen]:
    """Attack every owner's records, and put what is found together by numbers of targets."""
    found: dict[str, list[Seen]] = defaultdict(list)
    for part in parts:
        for name, seen in _attacked_part(part, setting, random):
            found[name].append(seen)
    return {name: _together(seen) for name, seen in found.items()}


def _attacked_part(
    part: OwnerPart, setting: GridSetting | None, random: np.random.Generator
) -> Iterator[tuple[str, Seen]]:
    people, randomness = part.people, Randomness(SystemBits(), random)
    names = part.schema.names
    aims = AttackPlan(ATTACKS, knowledge_of(names, ()), np.arange(len(names)))
    if setting is None:
        columns = people.crowd.columns
        release = MaskedRecords(
            columns,
            people.members.places_of(columns),
            (None,) * len(names),
            (Ascending(Decimal(0)),) * len(names),
        )
    else:
        release = masked(part.tasks(setting), people.members, randomness.bits)
    found: dict[str, list[AttackResult]] = defaultdict(list)
    for knows, result in attacks_on(release, people, aims, randomness):
        found[knows or result.attack].append(result)
    for name in (each for each in INTRUDERS if each in found):
        best = max(found[name], key=lambda each: each.rate)
        yield name, Seen(best.rate, best.baseline, best.targets)
    # Extremes are somebody's only where one person alone has them.
    for each in (*found[MEMBERSHIP], *found[EXTREMES]):
        yield each.attack, Seen(each.rate, each.baseline, each.targets)
    inferred = found[INFERENCE]
    guess = float(np.mean([each.baseline for each in inferred]))
    yield INFERENCE, Seen(float(np.mean([each.rate for each in inferred])), guess, inferred[0].targets)
    outside = float(np.mean([each.control for each in inferred if each.control is not None]))
    yield LEFT_OUT, Seen(outside, guess, inferred[0].outside)
    # No person is left out of these lists: what they tell depends on where clusters end.
    told = (
        [] if setting is None else distinguished_by_scales(part.whole, part.tasks(setting), randomness.bits)
    )
    yield SCALES, Seen(float(np.mean(told)) if told else 0.5, 0.5, LISTS)


def _together(seen: Sequence[Seen]) -> Seen:
    weights = np.array([each.targets for each in seen], dtype=np.float64)
    weights /= weights.sum()
    rate = float(weights @ np.array([each.value for each in seen]))
    baseline = float(weights @ np.array([each.baseline for each in seen], dtype=np.float64))
    return Seen(rate, baseline, sum(each.targets for each in seen))


# --- what is written -----------------------------------------------------------------------------------


def _line(data: str, setting: GridSetting | None, measure: str, seen: Sequence[Seen]) -> RiskLine:
    values = [each.value for each in seen]
    found: Estimate | None
    baseline = None
    if measure in ATTACKED:
        # Targets are others in every run, but for the people who were left out.
        independent = 1 if measure == LEFT_OUT else len(seen)
        found = share(values, seen[0].targets * independent)
        baseline = float(np.mean([each.baseline for each in seen if each.baseline is not None]))
    else:
        found = estimate(values)
    assert found is not None
    mechanism = ORIGINAL if setting is None else setting.mechanism
    noise = "" if setting is None else f"{setting.rank_noise:f}"
    return RiskLine(data, mechanism, noise, measure, len(seen), found.mean, found.low, found.high, baseline)


def write_lines(path: Path, lines: Sequence[RiskLine]) -> None:
    """Write the numbers of a data set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([field.name for field in fields(RiskLine)])
        for each in lines:
            writer.writerow([f"{n:.6g}" if isinstance(n, float) else n for n in astuple(each)])


def table(lines: Sequence[RiskLine], measures: Sequence[str]) -> str:
    """Return a table of means with their intervals: settings down, measures across.

    Args:
        lines: The numbers of one data set.
        measures: Those that are shown; attacks with what is right without the release in the first row.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    if all(each in ATTACKED for each in measures):
        rows["*no release*", ""] = {
            each.measure: number(each.baseline) for each in lines if each.baseline is not None
        }
    for each in lines:
        cell = f"{number(each.mean)} ({number(each.low)} to {number(each.high)})"
        rows.setdefault((each.mechanism, each.rank_noise), {})[each.measure] = cell
    return "\n".join(
        [
            "| " + " | ".join(["carrier", "w", *measures]) + " |",
            "|---|---|" + "---:|" * len(measures),
            *(
                "| " + " | ".join([*key, *(row.get(each, "–") for each in measures)]) + " |"
                for key, row in rows.items()
            ),
        ]
    )


READERS: Mapping[str, Callable[[Path], DataSet]] = MappingProxyType(
    {
        "adult": risk_data.adult,
        "adult of four owners": risk_data.adult,
        "wine": risk_data.wine,
        "census": risk_data.census,
    }
)
"""The data sets by the names of their tables."""


def run(data: Path, out: Path, runs: int, *, name: str, seed: int) -> dict[str, str]:
    """Make the CSV file of one of `READERS`; returns its tables of docs/risk.md by name."""
    records = READERS[name](data)
    sizes = ADULT_OWNERS if "owners" in name else (records.n_records,)
    lines = measured(records, sizes, runs * REPEATED[name], np.random.default_rng(seed))
    write_lines(out / f"{name.replace(' ', '_')}.csv", lines)
    return page_tables(name, lines)


def page_tables(name: str, lines: Sequence[RiskLine]) -> dict[str, str]:
    """Return both tables of a data set by name."""
    about = f"The data set {name}: {count_text(lines[0].runs, 'draw')} of every setting."
    return {
        f"{name} worth": f"{about}\n\n{table(lines, WORTH)}",
        f"{name} persons": f"{about}\n\n{table(lines, ATTACKED)}",
    }
