"""How often the intervals of `release.estimates` hold the original estimates: the tables of docs/analysis.md.

Every answer is about the records. Its width is compared with that of the interval that the original records
have for whom they are a sample of, which no release can be narrower than for a population.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sksurv.nonparametric import kaplan_meier_estimator

from common.analysis.calibration import linear_fit, logistic_fit, sampling_variances
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.synthetic import SyntheticEstimates
from common.arrays import Float64Array
from common.errors import UsageError
from owner_node.masking.arrays import SystemBits
from tests.fakes.masked_releases import draws, plan_of
from tests.fakes.synthetic_owners import synthetic_release
from tests.papers.coverage import Originals
from tests.papers.data_sets import DataSet
from tests.papers.synthetic import DELTA, adult
from tests.papers.synthetic_cohort import cohort
from tests.papers.tables import Numbers

REACH = 1.96
AT = (0.25, 0.5, 0.75)
TIMES = (365, 1825, 3650)
KINDS = ("means", "quartiles", "shares", "correlations", "linear", "logistic", "survival")
SYNTHETIC = (("1", 1), ("2", 1), ("4", 1), ("1", 4))
"""ε and owners, with δ = 10^-6."""
MASKED = (("1", "0.03"), ("1", "0.1"), ("4", "0.03"), ("4", "0.1"))
"""ε and rank noise, one owner."""
Truth: TypeAlias = list[tuple[float, float]]
"""The original estimate of each line, and the standard error of its sampling."""


@dataclass(frozen=True, slots=True)
class Study:
    """Original records, and what is asked of their releases."""

    data: DataSet
    quartiles: tuple[str, ...]
    shares: tuple[str, ...]
    linear: tuple[str, list[str]]
    logistic: tuple[str, list[str]]
    survival: tuple[str, str] | None = None
    originals: Originals = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "originals", Originals(self.data))

    def questions(self) -> Iterator[tuple[str, Callable[[Any], pd.DataFrame], Callable[[Any], Truth]]]:
        """Yield a kind, how a release is asked, and the truth of an answer's index."""
        yield "means", lambda estimates: estimates.means(), self.means
        for name in self.quartiles:
            yield "quartiles", partial(_call, "quantiles", name), partial(self.quantiles, name)
        for name in self.shares:
            yield "shares", partial(_call, "shares", name), partial(self.of_labels, name)
        yield "correlations", lambda estimates: estimates.correlations(), self.correlations
        yield "linear", partial(_call, "regress", *self.linear), partial(self.model, linear_fit, self.linear)
        logistic = partial(self.model, logistic_fit, self.logistic)
        yield "logistic", partial(_call, "logistic", *self.logistic), logistic
        if self.survival:
            yield "survival", partial(_call, "survival", *self.survival, TIMES), self.surviving

    def _present(self, *names: str) -> list[Float64Array]:
        own = {each.name: each for each in self.data.attributes}
        kept = np.all([self.data.columns[name] <= own[name].upper for name in names], axis=0)
        return [self.originals.values(name)[kept] for name in names]

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
        columns, response = [self.originals.values(name) for name in index], self.originals.values(asked[0])
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
        time, event = (self.originals.values(name) for name in self.survival)
        times, shares, ends = kaplan_meier_estimator(event == 1, time, conf_type="log-log")
        last = [np.flatnonzero(times <= at)[-1] for at in TIMES]
        return [(shares[place], (ends[1] - ends[0])[place] / (2 * REACH)) for place in last]


def _call(name: str, *asked: Any) -> pd.DataFrame:
    *arguments, estimates = asked
    table: pd.DataFrame = getattr(estimates, name)(*arguments)
    return table


def read_study(name: str, data: Path) -> Study:
    """Return Adult or flchain."""
    if name == "adult":
        records = adult(data)
        named = {each.name: own for each, own in zip(records.attributes, records.columns, strict=True)}
        linear = "hours_per_week", ["age", "education", "sex"]
        logistic = "class", ["age", "hours_per_week", "sex"]
        shares = tuple(each.name for each in records.attributes if each.categories)
        people = DataSet(name, records.attributes, named)
        return Study(people, ("age", "hours_per_week"), shares, linear, logistic)
    attributes, columns = cohort()
    named = {each.name: own for each, own in zip(attributes, columns, strict=True)}
    regressors = ["age", "male", "decile"]
    persons = DataSet(name, attributes, named)
    survival = "days", "death"
    return Study(persons, ("age", "days"), ("cause",), ("days", regressors), ("death", regressors), survival)


def synthetic_of(data: DataSet, epsilon: str, owners: int) -> SyntheticEstimates:
    """Make a release, and return its estimates."""
    codes = [data.columns[each.name] - each.lower for each in data.attributes]
    parts = [[own[place::owners] for own in codes] for place in range(owners)]
    made = synthetic_release(data.attributes, parts, epsilon, DELTA, [SystemBits() for _ in parts])
    return SyntheticEstimates(NoisyCounts(made.measured), made.codes)


def measure(study: Study, releases: Iterator[Any]) -> Mapping[str, tuple[float, float, int]]:
    """Return by kind how many intervals hold the truth, their median relative width, and their number."""
    held: dict[str, list[bool]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    for estimates in releases:
        for kind, ask, truth in study.questions():
            try:
                table = ask(estimates)
            except UsageError:
                continue
            table = table[table["note"] == ""] if "note" in table else table
            ends = table[["low", "high"]].to_numpy(dtype=np.float64)
            for (true, error), (low, high) in zip(truth(table.index), ends, strict=True):
                held[kind].append(bool(low - 1e-9 <= true <= high + 1e-9))
                widths[kind].append(float((high - low) / (2 * REACH * max(error, 1e-12))))
    return {
        kind: (float(np.mean(own)), float(np.median(widths[kind])), len(own)) for kind, own in held.items()
    }


def run(data: Path, out: Path, runs: int, name: str) -> dict[str, str]:
    """Make the CSV file; returns the table of docs/analysis.md."""
    study = read_study(name, data)
    found = {}
    for epsilon, owners in SYNTHETIC:
        made: Iterator[Any] = (synthetic_of(study.data, epsilon, owners) for _ in range(runs))
        several = f", {owners} owners" if owners > 1 else ""
        found[f"synthetic, ε = {epsilon}{several}"] = measure(study, made)
    for epsilon, rank_noise in MASKED:
        plan = plan_of(study.data.attributes, study.data.n_records, epsilon, rank_noise=[rank_noise])
        with tempfile.TemporaryDirectory() as folder:
            releases = draws(Path(folder), plan, study.data.columns, runs)
        masked = (each.estimates for each in releases)
        found[f"masked, ε = {epsilon}, w = {rank_noise}"] = measure(study, masked)
    kinds = [kind for kind in KINDS if any(kind in own for own in found.values())]
    rows = [(f"{way}: {kind}", own) for way, of_kind in found.items() for kind, own in of_kind.items()]
    Numbers(("release", "held", "width", "intervals"), tuple(rows)).write(out / "conclusions.csv")
    lines = [["release", *kinds], ["---"] * (len(kinds) + 1)]
    for way, of_kind in found.items():
        given = {kind: f"{held:.2f} · {width:.1f}" for kind, (held, width, _) in of_kind.items()}
        lines.append([way, *(given.get(kind, "refused") for kind in kinds)])
    return {f"conclusions {name}": "\n".join(f"| {' | '.join(each)} |" for each in lines)}
