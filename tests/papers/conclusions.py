"""How often the intervals of `release.estimates` hold the original estimates: the tables of docs/analysis.md.

Every answer is about the records. Its width is compared with that of the interval that the original records
have for whom they are a sample of, which no release can be narrower than for a population. *Enough* is the
part of its width with which 95 % of the intervals would have held: below 0.2, they are five times as wide as
they need to be. Owners of the same attributes have random records: where values differ, masked releases are
corrected too much.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sksurv.nonparametric import kaplan_meier_estimator

from common.analysis.calibration import linear_fit, logistic_fit, sampling_variances
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.synthetic import SyntheticEstimates
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute
from owner_node.masking.arrays import SystemBits
from tests.fakes.masked_releases import draws, plan_of
from tests.fakes.synthetic_owners import release_across, synthetic_release
from tests.papers import synthetic
from tests.papers.data_sets import DataSet, health_insurance
from tests.papers.risk_data import shuffled
from tests.papers.synthetic import DELTA
from tests.papers.synthetic_cohort import cohort
from tests.papers.tables import Numbers

REACH = 1.96
AT = (0.25, 0.5, 0.75)
TIMES = (365, 1825, 3650)
KINDS = ("means", "quartiles", "shares", "groups", "correlations", "linear", "logistic", "survival")
SYNTHETIC = {"": (1,), ", 4 owners": (4,), ", 2 vertical owners": (1, 1)}
"""Owners by group of attributes; ε is 1, 2 and 4, with δ = 10^-6."""
MASKED = {"": "a", ", 2 owners": "ab", ", 4 owners": "abcd"}
"""Owners; ε is 1 and 4."""
RANK_NOISES = ("0.03", "0.1")
Truth: TypeAlias = list[tuple[float, float]]
"""The original estimate of each line, and the standard error of its sampling."""


@dataclass(frozen=True, slots=True)
class Study:
    """Original records, and what is asked of their releases."""

    data: DataSet
    quartiles: tuple[str, ...]
    shares: tuple[str, ...]
    groups: tuple[str, list[str]]
    linear: tuple[str, list[str]]
    logistic: tuple[str, list[str]]
    survival: tuple[str, str] | None = None

    def questions(self) -> Iterator[tuple[str, Callable[[Any], pd.DataFrame], Callable[[Any], Truth]]]:
        """Yield a kind, how a release is asked, and the truth of an answer's index."""
        yield "means", lambda estimates: estimates.means(), self.means
        for name in self.quartiles:
            yield "quartiles", partial(_call, "quantiles", name), partial(self.quantiles, name)
        for name in self.shares:
            yield "shares", partial(_call, "shares", name), partial(self.of_labels, name)
        yield "correlations", lambda estimates: estimates.correlations(), self.correlations
        for kind, asked in (("groups", self.groups), ("linear", self.linear)):
            yield kind, partial(_call, "regress", *asked), partial(self.model, linear_fit, asked)
        logistic = partial(self.model, logistic_fit, self.logistic)
        yield "logistic", partial(_call, "logistic", *self.logistic), logistic
        if self.survival:
            yield "survival", partial(_call, "survival", *self.survival, TIMES), self.surviving

    def values(self, name: str) -> Float64Array:
        """Return the column of a model, named as in an answer."""
        of, _, labels = name.partition(": ")
        labels = labels.partition(" (against ")[0]
        attribute = next(each for each in self.data.attributes if each.name == of)
        values = self.data.columns[of] * 10.0**-attribute.decimals
        if labels:
            values = np.isin(values, [attribute.categories.index(each) for each in labels.split(", ")]) * 1.0
        return np.asarray(values, dtype=np.float64)

    def _present(self, *names: str) -> list[Float64Array]:
        own = {each.name: each for each in self.data.attributes}
        kept = np.all([self.data.columns[name] <= own[name].upper for name in names], axis=0)
        return [self.values(name)[kept] for name in names]

    def means(self, index: Any) -> Truth:
        """Return means of values that are present."""
        values = [self._present(name)[0] for name in index]
        return [(float(own.mean()), float(own.std() / own.size**0.5)) for own in values]

    def quantiles(self, name: str, _index: Any) -> Truth:
        """Return quantiles; sampling moves a share by its standard error."""
        (values,) = self._present(name)
        unit = next(float(each.unit) for each in self.data.attributes if each.name == name)
        moved = [REACH * (share * (1 - share) / values.size) ** 0.5 for share in AT]
        low, middle, high = (
            np.quantile(values, np.add(AT, sign * np.array(moved)), method="inverted_cdf")
            for sign in (-1, 0, 1)
        )
        return list(zip(middle, (high - low + unit) / (2 * REACH), strict=True))

    def of_labels(self, name: str, index: Any) -> Truth:
        """Return shares of labels, in the order of their codes."""
        columns = self.data.columns[name]
        shares = np.bincount(columns, minlength=len(index)) / columns.size
        return list(zip(shares, np.sqrt(shares * (1 - shares) / columns.size), strict=True))

    def correlations(self, index: Any) -> Truth:
        """Return correlations of records that have both values."""
        pairs = [self._present(*pair) for pair in index]
        return [
            (float(own), float((1 - own**2) / one.size**0.5))
            for one, own in ((one, np.corrcoef(one, other)[0, 1]) for one, other in pairs)
        ]

    def model(self, fit: Callable[..., Float64Array], asked: tuple[str, list[str]], index: Any) -> Truth:
        """Return coefficients for the regressors of an answer."""
        columns, response = [self.values(name) for name in index], self.values(asked[0])
        ones = np.ones(len(response))
        design = np.column_stack([ones, *(own - own.mean() for own in columns)])
        slopes = fit(design, response, ones)
        linear = design @ slopes
        expected = linear if fit is linear_fit else 1 / (1 + np.exp(-linear))
        derivative = ones if fit is linear_fit else expected * (1 - expected)
        variances = sampling_variances(design, response - expected, derivative, ones)
        return list(zip(slopes[1:], np.sqrt(variances[1:]), strict=True))

    def surviving(self, _index: Any) -> Truth:
        """Return Kaplan and Meier's shares, with Greenwood's errors."""
        assert self.survival
        time, event = (self.values(name) for name in self.survival)
        times, shares, ends = kaplan_meier_estimator(event == 1, time, conf_type="log-log")
        last = [np.flatnonzero(times <= at)[-1] for at in TIMES]
        return [(shares[place], (ends[1] - ends[0])[place] / (2 * REACH)) for place in last]


def _call(name: str, *asked: Any) -> pd.DataFrame:
    *arguments, estimates = asked
    table: pd.DataFrame = getattr(estimates, name)(*arguments)
    return table


def read_study(name: str, data: Path) -> Study:
    """Return what is asked of Adult, flchain, Wine Quality or the RAND Health Insurance Experiment."""
    records = READERS[name](data)
    of_labels = tuple(each.name for each in records.attributes if each.categories)
    quartiles, groups, linear, logistic = MODELS[name]
    survival = ("days", "death") if name == "flchain" else None
    return Study(records, quartiles, of_labels, groups, linear, logistic, survival)


def _shuffled(name: str, attributes: Sequence[Attribute], columns: Sequence[Int64Array]) -> DataSet:
    named = {each.name: column for each, column in zip(attributes, columns, strict=True)}
    return shuffled(DataSet(name, tuple(attributes), named), np.random.default_rng(1))


def _classified(name: str, data: Path) -> DataSet:
    records = synthetic.READERS[name](data)
    return _shuffled(name, records.attributes, records.columns)


READERS: Mapping[str, Callable[[Path], DataSet]] = {
    "adult": partial(_classified, "adult"),
    "flchain": lambda _data: _shuffled("flchain", *cohort()),
    "wine": partial(_classified, "wine"),
    "randhie": lambda _data: _shuffled("randhie", *health_insurance()),
}
Asked: TypeAlias = tuple[str, list[str]]
"""Response and regressors."""
MODELS: Mapping[str, tuple[tuple[str, ...], Asked, Asked, Asked]] = {
    "adult": (
        ("age", "hours_per_week"),
        ("hours_per_week", ["sex"]),
        ("hours_per_week", ["age", "education", "sex"]),
        ("class", ["age", "hours_per_week", "sex"]),
    ),
    "flchain": (
        ("age", "days"),
        ("days", ["male"]),
        ("days", ["age", "male", "decile"]),
        ("death", ["age", "male", "decile"]),
    ),
    "wine": (
        ("alcohol", "total_sulfur_dioxide"),
        ("alcohol", ["class"]),
        ("ph", ["fixed_acidity", "alcohol", "sulphates"]),
        ("class", ["alcohol", "volatile_acidity", "sulphates"]),
    ),
    "randhie": (
        ("visits", "diseases"),
        ("visits", ["deductible"]),
        ("visits", ["deductible", "diseases", "good"]),
        ("good", ["visits", "diseases", "deductible"]),
    ),
}
"""Attributes whose quartiles are asked for; models of differences, linear and logistic ones."""


def synthetic_of(data: DataSet, epsilon: str, owners: tuple[int, ...]) -> SyntheticEstimates:
    """Make a release, and return its estimates."""
    codes = [data.columns[each.name] - each.lower for each in data.attributes]
    if len(owners) > 1:
        made = release_across(data.attributes, codes, owners, epsilon, DELTA)
    else:
        parts = [[own[place :: owners[0]] for own in codes] for place in range(owners[0])]
        made = synthetic_release(data.attributes, parts, epsilon, DELTA, [SystemBits() for _ in parts])
    return SyntheticEstimates(NoisyCounts(made.measured), made.codes)


def masked_of(data: DataSet, epsilon: str, rank_noise: str, owners: str, runs: int) -> Iterator[Any]:
    """Yield the estimates of masked releases."""
    plan = plan_of(data.attributes, data.n_records, epsilon, owners=owners, rank_noise=[rank_noise])
    with tempfile.TemporaryDirectory() as folder:
        yield from (each.estimates for each in draws(Path(folder), plan, data.columns, runs))


Settings: TypeAlias = Iterator[tuple[str, Iterator[Any]]]
"""The name of every setting, and estimates from its releases."""


def synthetic_settings(data: DataSet, runs: int) -> Settings:
    """Yield the settings of synthetic releases."""
    for (owners, groups), epsilon in product(SYNTHETIC.items(), ("1", "2", "4")):
        made: Iterator[Any] = (synthetic_of(data, epsilon, groups) for _ in range(runs))
        yield f"ε = {epsilon}{owners}", made


def masked_settings(data: DataSet, runs: int) -> Settings:
    """Yield the settings of masked releases."""
    for (owners, ids), epsilon, rank_noise in product(MASKED.items(), ("1", "4"), RANK_NOISES):
        yield f"ε = {epsilon}, w = {rank_noise}{owners}", masked_of(data, epsilon, rank_noise, ids, runs)


PRODUCTS: Mapping[str, Callable[[DataSet, int], Settings]] = {
    "synthetic": synthetic_settings,
    "masked": masked_settings,
}


Held: TypeAlias = tuple[bool, float, float]
"""Whether an interval held the truth, its relative width, and which part of it the truth is away."""
Measured: TypeAlias = dict[tuple[str, str], list[Held]]
"""By kind and line of the answer."""
LEAST_HELD, LEAST_ENOUGH = 0.9, 0.2
"""Cells that hold less, and cells of which a smaller part of the width is enough, are counted."""


def measure(study: Study, releases: Iterator[Any]) -> Measured:
    """Ask some releases all questions."""
    found: Measured = defaultdict(list)
    for estimates in releases:
        for kind, ask, truth in study.questions():
            try:
                table = ask(estimates)
            except UsageError:
                continue
            given = np.isfinite(table[["low", "high"]].to_numpy(dtype=np.float64)).all(axis=1)
            table = table[given]
            lines = table[["estimate", "low", "high"]].to_numpy(dtype=np.float64)
            for line, (true, error), own in zip(table.index, truth(table.index), lines, strict=True):
                estimate, low, high = own
                held = bool(low - 1e-9 <= true <= high + 1e-9)
                width = float((high - low) / (2 * REACH * max(error, 1e-12)))
                away, side = abs(true - estimate), high - estimate if true > estimate else estimate - low
                part = float(away / max(side, 1e-12)) if away > 1e-9 else 0.0
                found[kind, f"{table.index.name} {line}"].append((held, width, part))
    return found


def _summary(found: Sequence[Held]) -> tuple[float, float, float, float]:
    """Return the share that held, the median width, which part of it is enough, and the number."""
    held, widths, parts = zip(*found, strict=True)
    return float(np.mean(held)), float(np.median(widths)), float(np.quantile(parts, 0.95)), len(held)


def run(data: Path, out: Path, runs: int, name: str, made: str) -> dict[str, str]:
    """Make the CSV file, which has all lines of all answers; returns a table of docs/analysis-methods.md."""
    study, rows, cells = read_study(name, data), [], {}
    for setting, releases in PRODUCTS[made](study.data, runs):
        measured = measure(study, releases)
        rows += [(f"{setting}: {kind}: {line}", _summary(found)) for (kind, line), found in measured.items()]
        Numbers(("release", "held", "width", "enough", "intervals"), tuple(rows)).write(
            out / "conclusions.csv"
        )
        for kind in KINDS:
            if together := [each for (of, _), found in measured.items() if of == kind for each in found]:
                cells[setting, kind] = _summary(together)[:3]
    kinds = [kind for kind in KINDS if any(kind == of for _, of in cells)]
    lines = [[made, *kinds], ["---"] * (len(kinds) + 1)]
    lines += [
        [
            setting,
            *(
                "{:.2f} · {:.1f} · {:.2f}".format(*cells[setting, kind])
                if (setting, kind) in cells
                else "refused"
                for kind in kinds
            ),
        ]
        for setting in dict.fromkeys(setting for setting, _ in cells)
    ]
    fewer = sum(held < LEAST_HELD for held, _, _ in cells.values())
    # An interval that is narrower than that of sampling is not too wide.
    wide = sum(held == 1 < width and enough < LEAST_ENOUGH for held, width, enough in cells.values())
    counted = f"Of {len(cells)} cells, {fewer} held less than {LEAST_HELD}; {wide} are five times too wide."
    return {
        f"conclusions {name} {made}": "\n".join(f"| {' | '.join(each)} |" for each in lines)
        + f"\n\n{counted}"
    }
