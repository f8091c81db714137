"""Synthetic releases of Adult, Wine Quality and Census: how near they are, with and without δ.

Two thirds of the records are released, by one owner, by four or ten of the same attributes, by two, four or
ten of the same records, or by two groups of two owners; how well a random forest that was trained on released
records classifies is measured on the others. Domains are public knowledge about the data sets. Noise, rounds,
model and records are the product's. Owners of the same records count without encryption here: the numbers are
the same. Beside them stand masked releases of the same records, and the records with every attribute shuffled
by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import nan
from pathlib import Path
from statistics import mean
from types import MappingProxyType

import numpy as np

from common.arrays import Int64Array
from common.model.schema import Attribute, AttributeType
from common.planning.synthetic_noise import ExpectedErrors, expected_errors
from owner_node.explore.models import f_measures
from owner_node.masking.arrays import SystemBits
from owner_node.risk.total_variation import Distributions
from tests.fakes.masked_releases import masked, plan_of
from tests.fakes.synthetic_owners import across_design, release_across, synthetic_release
from tests.papers import risk_data
from tests.papers.data_sets import DataSet
from tests.papers.tables import Numbers

EPSILON, DELTA = "1", "0.000001"
SHARE = 0.66
"""Of the records that are released."""
MOST_TRAINING = 6000
"""Records that a forest is trained on."""


@dataclass(frozen=True, slots=True)
class Form:
    """How records are divided among owners."""

    owners: tuple[int, ...] = (1,)
    """How many in each group. Groups have different attributes, in the order of the table; owners of one
    group have different records."""
    epsilon: str = EPSILON


FORMS = {
    "one owner": Form(),
    **{f"one owner, ε = {epsilon}": Form(epsilon=epsilon) for epsilon in ("2", "4", "8")},
    "four owners": Form((4,)),
    "ten owners": Form((10,)),
    "two vertical owners": Form((1,) * 2),
    "four vertical owners": Form((1,) * 4),
    "ten vertical owners": Form((1,) * 10),
    "two groups of two owners": Form((2, 2)),
}
MASKED = {
    f"masked, w = {rank_noise}, {name}": (rank_noise, owners)
    for name, owners in (("one owner", "a"), ("four owners", "abcd"))
    for rank_noise in ("0.03", "0.1")
}
"""Rank noise and owners of masked releases."""
ACCOUNTINGS = {"δ = 0": "0", "δ = 10^-6": DELTA}
HEADS = ("release", "one-way TV", "expected", "two-way TV", "expected", "three-way TV", "F")
FEW_BINS = 8
"""Most bins of an attribute in tables of three."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records in random order."""

    attributes: tuple[Attribute, ...]
    """Their attributes; the last one is their class, 0 or 1."""
    columns: tuple[Int64Array, ...]
    """Values, `(n_records,)` by attribute."""
    share: float = SHARE
    """Of them that is released."""

    @property
    def n_released(self) -> int:
        """How many of them are released, the first ones."""
        return int(self.share * self.columns[0].size)

    @property
    def released(self) -> tuple[Int64Array, ...]:
        """Original values of the records that are released, `(n_released,)` by attribute."""
        return tuple(each[: self.n_released] for each in self.columns)


def adult(data: Path) -> Records:
    """Return Adult, with ages and hours in the domains of its documentation."""
    found, narrow = risk_data.adult(data), {"age": (17, 90), "hours_per_week": (1, 99)}
    attributes = [
        Attribute(each.name, each.type, *narrow[each.name]) if each.name in narrow else each
        for each in found.attributes
    ]
    return with_classes(replace(found, attributes=tuple(attributes)))


def with_classes(found: DataSet) -> Records:
    """Return records in random order, with the class as one more attribute."""
    assert found.above is not None
    columns = [*(found.columns[each.name] for each in found.attributes), found.above]
    order = np.random.default_rng(12345).permutation(found.n_records)
    attributes = (*found.attributes, Attribute("class", AttributeType.BOOLEAN, 0, 1))
    return Records(attributes, tuple(each[order] for each in columns))


READERS: Mapping[str, Callable[[Path], Records]] = MappingProxyType(
    {
        "adult": adult,
        "wine": lambda data: with_classes(risk_data.wine(data)),
        "census": lambda data: with_classes(risk_data.census(data)),
    }
)


def measured(records: Records, form: Form, delta: str, seed: int) -> tuple[float, float, float, float]:
    """Make a release.

    Args:
        records: The records.
        form: How they are divided.
        delta: δ.
        seed: Of the forest.

    Returns:
        As `nearness`.
    """
    lower = [each.lower for each in records.attributes]
    codes = [each - low for each, low in zip(records.released, lower, strict=True)]
    if len(form.owners) > 1:
        made = release_across(records.attributes, codes, form.owners, form.epsilon, delta)
    else:
        (n_owners,) = form.owners
        parts = [[each[place::n_owners] for each in codes] for place in range(n_owners)]
        sources = [SystemBits() for _ in parts]
        made = synthetic_release(records.attributes, parts, form.epsilon, delta, sources)
    released = [codes + low for codes, low in zip(made.codes, lower, strict=True)]
    return nearness(records, released, seed)


def nearness(
    records: Records, released: Sequence[Int64Array], seed: int
) -> tuple[float, float, float, float]:
    """Return total variations of one, two and three attributes, and F-measure of the second class."""
    named = {each.name: column for each, column in zip(records.attributes, records.released, strict=True)}
    one, two = Distributions.of(records.attributes, named).total_variation(released)
    return one, two, three_way(records, released), f_measure(records, released, seed)


def three_way(records: Records, released: Sequence[Int64Array]) -> float:
    """Return the mean total variation of three attributes, in at most 8 bins of equally many originals."""
    binned = []
    for attribute, original, column in zip(records.attributes, records.released, released, strict=True):
        shares = np.arange(1, FEW_BINS) * original.size // FEW_BINS
        starts = np.unique(np.sort(original)[shares])
        if attribute.n_values <= FEW_BINS:
            starts = np.arange(attribute.lower + 1, attribute.highest + 1)
        binned.append([np.searchsorted(starts, each, side="right") for each in (original, column)])
    found = []
    for triple in combinations(binned, 3):
        counts = [
            np.bincount((one * FEW_BINS + two) * FEW_BINS + three, minlength=FEW_BINS**3)
            for one, two, three in zip(*triple, strict=True)
        ]
        found.append(np.abs(counts[0] - counts[1]).sum() / (2 * records.n_released))
    return float(np.mean(found)) if found else 0.0


def masked_nearness(
    records: Records, rank_noise: str, owners: str, seed: int
) -> tuple[float, float, float, float]:
    """Return the nearness of a masked release with the mechanisms that are chosen."""
    named = {each.name: column for each, column in zip(records.attributes, records.released, strict=True)}
    plan = plan_of(records.attributes, records.n_released, EPSILON, owners=owners, rank_noise=[rank_noise])
    made = masked(plan, named, seed)
    return nearness(records, [made[each.name] for each in records.attributes], seed)


def sampled_nearness(records: Records, seed: int) -> tuple[float, float, float, float]:
    """Return the nearness of original records that are drawn with replacement: what sampling alone does."""
    drawn = np.random.default_rng(seed).integers(0, records.n_released, records.n_released)
    return nearness(records, [each[drawn] for each in records.released], seed)


def shuffled_nearness(records: Records, seed: int) -> tuple[float, float, float, float]:
    """Return the nearness of the original values of every attribute without any relation."""
    draw = np.random.default_rng(seed)
    return nearness(records, [draw.permutation(each) for each in records.released], seed)


def expected(records: Records, form: Form, delta: str) -> ExpectedErrors:
    """Return the errors that public numbers let expect of a release."""
    design = across_design(records.attributes, records.n_released, form.owners, form.epsilon, delta)
    return expected_errors(design)


def f_measure(records: Records, released: Sequence[Int64Array], seed: int) -> float:
    """Return the F-measure of the second class on the records that were not released."""
    chosen = np.random.default_rng(seed).permutation(released[0].size)[:MOST_TRAINING]
    training, test = (
        (np.column_stack(columns[:-1]).astype(np.float64), columns[-1])
        for columns in (
            [each[chosen] for each in released],
            [each[records.n_released :] for each in records.columns],
        )
    )
    return float(f_measures(training, test, 2, seed=seed)[1])


def run(data: Path, out: Path, runs: int, *, name: str, seed: int) -> dict[str, str]:
    """Make the CSV file of one of `READERS`; returns its table of docs/synthetic.md by name."""
    table = compared(READERS[name](data), FORMS, runs, seed)
    table.write(out / f"{name}.csv")
    return {f"{name} synthetic": table.markdown()}


def compared(records: Records, forms: Mapping[str, Form], runs: int, seed: int) -> Numbers:
    """Return the means of some releases in each form, with each accounting, and of those beside them."""
    reached = mean(f_measure(records, records.released, seed + number) for number in range(runs))
    rows = [("original", (0.0, nan, 0.0, nan, 0.0, reached))]
    for label, form in forms.items():
        for accounting, delta in ACCOUNTINGS.items():
            foreseen = expected(records, form, delta)
            found = [measured(records, form, delta, seed + number) for number in range(runs)]
            one, two, three, f = map(mean, zip(*found, strict=True))
            numbers = (one, foreseen.one_way, two, foreseen.two_way, three, f)
            rows.append((f"{label}, {accounting}", numbers))
    others = {
        **{key: partial(masked_nearness, records, *each) for key, each in MASKED.items()},
        "originals drawn with replacement": partial(sampled_nearness, records),
        "every attribute by itself, no noise": partial(shuffled_nearness, records),
    }
    for key, made in others.items():
        found_others = [made(seed + number) for number in range(runs)]
        one, two, three, f = map(mean, zip(*found_others, strict=True))
        rows.append((key, (one, nan, two, nan, three, f)))
    return Numbers(HEADS, tuple(rows))
