"""How often intervals of `tessera.read_release` hold the estimates of the original data: docs/analysis.md.

    python -m tests.papers.coverage --data FOLDER [--runs 200] [--only wine-1]

Releases of Wine Quality, Census and Adult at defaults: k and mechanisms chosen, each masked by the real code
some times. Every line is a kind of estimate: all pairs of attributes, all ordered pairs, and so on. An
estimate counts where it has been given an interval in twenty releases at least; others count as refused.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from common.analysis import masked_models
from common.analysis.masked import MaskedEstimates
from common.analysis.masked_models import Term
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from tests.fakes.masked_releases import draws, plan_of
from tests.papers.data_sets import DataSet, census, wine

FEWEST_INTERVALS = 20
AT = (0.1, 0.25, 0.5, 0.75, 0.9)
MARITAL = (
    *("Never-married", "Married-civ-spouse", "Married-AF-spouse", "Married-spouse-absent"),
    *("Separated", "Divorced", "Widowed"),
)
RACE = ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")
PEOPLE = (
    Attribute("age", AttributeType.INTEGER, 17, 90),
    Attribute("education_num", AttributeType.INTEGER, 1, 16),
    Attribute("hours_per_week", AttributeType.INTEGER, 1, 99),
    Attribute("capital_gain", AttributeType.INTEGER, 0, 99_999),
    Attribute("marital_status", AttributeType.CATEGORY, 0, 6, categories=MARITAL),
    Attribute("race", AttributeType.CATEGORY, 0, 4, categories=RACE),
    Attribute("sex", AttributeType.CATEGORY, 0, 1, categories=("Female", "Male")),
    Attribute("income", AttributeType.BOOLEAN, 0, 1),
)
FACTORS = (
    ("age", ("marital_status",)),
    ("hours_per_week", ("marital_status",)),
    ("age", ("race",)),
    ("income", ("race",)),
    ("hours_per_week", ("age", "sex", "marital_status")),
)


def people(data: Path) -> DataSet:
    """Return Adult with income, as it is analysed most often."""
    table = pd.read_csv(data / "adult.csv")
    columns: dict[str, Int64Array] = {}
    for each in PEOPLE:
        values = table[each.name]
        if each.is_categorical:
            values = values.replace(
                dict(zip(each.categories or ("<=50K", ">50K"), range(each.n_values), strict=True))
            )
        columns[each.name] = values.to_numpy().astype(np.int64)
    return DataSet("adult", PEOPLE, columns)


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of making releases."""

    name: str
    read: Callable[[Path], DataSet]
    epsilon: str
    rank_noise: str
    owners: str = "a"


SETTINGS = (
    Setting("wine-1", wine, "1", "0.03"),
    Setting("wine-4", wine, "4", "0.1"),
    Setting("census-1", lambda data: census(data, "1.5"), "1", "0.03"),
    Setting("census-4", lambda data: census(data, "1.5"), "4", "0.1"),
    Setting("adult-1", people, "1", "0.03"),
    Setting("adult-4", people, "4", "0.1", "ab"),
)


@dataclass(slots=True)
class Found:
    """What releases gave for one estimate."""

    held: list[bool] = field(default_factory=list)
    errors: list[tuple[float, float]] = field(default_factory=list)
    """Relative errors of the released and of the corrected estimate."""


Question = tuple[str, Callable[[Any], pd.DataFrame], Callable[[pd.DataFrame], Sequence[float]]]
"""A kind; how a release is asked; the estimates of the original data for the lines of the answer."""


class Originals:
    """The estimates of the original data."""

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self._attributes = {each.name: each for each in data.attributes}

    def values(self, name: str) -> Float64Array:
        """Return the column of a model, named as in a result."""
        of, _, labels = name.partition(": ")
        labels = labels.partition(" (against ")[0]
        attribute = self._attributes[of]
        values = self.data.columns[of] * 10.0**-attribute.decimals
        if labels:
            values = np.isin(values, [attribute.categories.index(each) for each in labels.split(", ")]) * 1.0
        return np.asarray(values, dtype=np.float64)

    def model(self, fit: Callable[..., pd.DataFrame], response: str, found: pd.DataFrame) -> list[float]:
        """Return the estimates of a model with the regressors of an answer."""
        terms = [self._term(str(name)) for name in found.index]
        estimated: list[float] = fit(self._term(response), terms, 0.95)["released"].tolist()
        return estimated

    def _term(self, name: str) -> Term:
        return Term.as_released(name, name.partition(": ")[0], self.values(name))


def questions(data: DataSet) -> Iterator[Question]:
    """Yield all that is asked of a release."""
    originals = Originals(data)
    numeric = [each.name for each in data.attributes if not each.is_categorical or each.n_values == 2]
    yield from lists(data, numeric, originals)
    for ranks in (False, True):
        columns = [rankdata(originals.values(name)) if ranks else originals.values(name) for name in numeric]
        matrix = np.atleast_2d(np.corrcoef(columns))
        for first, second in combinations(range(len(numeric)), 2):
            ask = partial(MaskedEstimates.correlations, names=[numeric[first], numeric[second]], ranks=ranks)
            yield "correlations of ranks" if ranks else "correlations", ask, always([matrix[first, second]])
    for response, regressor in permutations(numeric, 2):
        yield modelled("slopes", originals, response, [regressor])
    matrix = np.atleast_2d(np.corrcoef([originals.values(name) for name in numeric]))
    for place, response in enumerate(numeric):
        first, second = np.argsort(-np.abs(matrix[place]))[1:3]
        yield modelled("two regressors", originals, response, [numeric[first], numeric[second]])
    if data.name == "adult":
        for response, on in FACTORS:
            yield modelled("factors", originals, response, on)
        for response, regressor in permutations(numeric, 2):
            if response in {"sex", "income"}:
                yield modelled("logistic", originals, response, [regressor])


def lists(data: DataSet, numeric: Sequence[str], originals: Originals) -> Iterator[Question]:
    """Yield what is asked of single attributes."""
    for name in numeric:
        yield "means", partial(MaskedEstimates.means, names=name), always([originals.values(name).mean()])
    for each in data.attributes:
        if each.categories:
            units = data.columns[each.name]
            shares = np.bincount(units, minlength=each.n_values) / units.size
            yield "shares", partial(MaskedEstimates.shares, name=each.name), always(shares.tolist())
        elif not each.is_categorical:
            found = np.quantile(originals.values(each.name), AT, method="inverted_cdf")
            yield (
                "quantiles",
                partial(MaskedEstimates.quantiles, name=each.name, at=AT),
                always(found.tolist()),
            )


def always(values: Sequence[float]) -> Callable[[pd.DataFrame], Sequence[float]]:
    """Return the same estimates for every answer."""
    return lambda _: values


def modelled(kind: str, originals: Originals, response: str, on: Sequence[str]) -> Question:
    """Return the question for a model."""
    own, fit = (
        (masked_models.logistic, MaskedEstimates.logistic)
        if kind == "logistic"
        else (masked_models.linear, MaskedEstimates.regress)
    )
    return (
        kind,
        lambda release: fit(release, response, list(on)),
        lambda found: originals.model(own, response, found),
    )


def measure(setting: Setting, data: DataSet, runs: int) -> Iterator[str]:
    """Yield a line of the table per kind."""
    plan = plan_of(
        data.attributes,
        data.n_records,
        setting.epsilon,
        owners=setting.owners,
        rank_noise=[setting.rank_noise],
    )
    with tempfile.TemporaryDirectory() as folder:
        releases = draws(Path(folder), plan, data.columns, runs)
    asked = list(questions(data))
    found: dict[str, dict[tuple[int, str], Found]] = {}
    while releases:
        release = releases.pop()
        for number, (kind, ask, original) in enumerate(asked):
            of_kind = found.setdefault(kind, {})
            try:
                table = ask(release.estimates)
            except UsageError:
                of_kind.setdefault((number, ""), Found())
                continue
            for (name, line), true in zip(table.iterrows(), original(table), strict=True):
                own = of_kind.setdefault((number, str(name)), Found())
                own.held.append(bool(line["low"] <= true <= line["high"]))
                scale = abs(true) or 1.0
                own.errors.append(
                    (abs(line["released"] - true) / scale, abs(line["estimate"] - true) / scale)
                )
    for kind, of_kind in found.items():
        yield line_of(setting, kind, of_kind)


def line_of(setting: Setting, kind: str, of_kind: Mapping[tuple[int, str], Found]) -> str:
    """Return a line of the table."""
    given = [each for each in of_kind.values() if len(each.held) >= FEWEST_INTERVALS]
    answered = {number for number, name in of_kind if name}
    n_asked = sum(bool(name) or number not in answered for number, name in of_kind)
    head = f"| {setting.name} | {kind} | {len(given)} of {n_asked} |"
    if not given:
        return f"{head} | | | |"
    covered = np.array([np.mean(each.held) for each in given])
    released, corrected = np.median(np.concatenate([each.errors for each in given]), axis=0)
    shares = " | ".join(f"{each:.0%}" for each in (covered.min(), covered.mean(), released, corrected))
    return f"{head} {shares} |".replace("%", " %")


def main() -> None:
    """Print a line per setting and kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.coverage")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", choices=[each.name for each in SETTINGS])
    options = parser.parse_args()
    for setting in SETTINGS:
        if options.only in {None, setting.name}:
            for line in measure(setting, setting.read(options.data), options.runs):
                print(line, flush=True)


if __name__ == "__main__":
    main()
