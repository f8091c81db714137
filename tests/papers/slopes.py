"""Corrected estimates against those of the original data: the tables in docs/analysis.md.

    python -m tests.papers.slopes --data FOLDER [--runs 8]

Wine Quality: one owner, ε = 2 for the whole release, k chosen; the slopes between attributes with a
correlation above 0.3. Adult: 16,000 records of two owners, ε = 1, mechanisms chosen; booleans, factors and
logistic regressions.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.release import estimates
from common.release.estimates import Term
from common.release.reading import Release
from tests.fakes.masked_releases import draws, plan_of
from tests.papers.data_sets import DataSet, wine

SETTINGS = (
    *(("idp-quantiles", w) for w in ("0.03", "0.1", "0.2", "0.3")),
    *(("idp-joint", w) for w in ("0.03", "0.1")),
)
LEAST_CORRELATION = 0.3


def slopes(data: DataSet, release: Release) -> Iterator[tuple[float, float, bool]]:
    """Yield the relative errors of each slope, released and corrected, and whether the interval holds it."""
    attributes = data.attributes
    original = np.stack([data.columns[each.name] * 10.0**-each.decimals for each in attributes])
    covariances, correlations = np.cov(original), np.corrcoef(original)
    for i, response in enumerate(attributes):
        for j, regressor in enumerate(attributes):
            if i == j or abs(correlations[i, j]) <= LEAST_CORRELATION:
                continue
            true = covariances[i, j] / covariances[j, j]
            line = release.regress(response.name, regressor.name).loc[regressor.name]
            held = bool(line["low"] <= true <= line["high"])
            yield abs(line["released"] / true - 1), abs(line["corrected"] / true - 1), held


MARITAL = (
    *("Never-married", "Married-civ-spouse", "Married-AF-spouse", "Married-spouse-absent"),
    *("Separated", "Divorced", "Widowed"),
)
RACE = ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")
PEOPLE = (
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("education_num", AttributeType.INTEGER, 0, 20),
    Attribute("hours_per_week", AttributeType.INTEGER, 0, 100),
    Attribute("marital_status", AttributeType.CATEGORY, 0, 6, categories=MARITAL),
    Attribute("race", AttributeType.CATEGORY, 0, 4, categories=RACE),
    Attribute("sex", AttributeType.CATEGORY, 0, 1, categories=("Female", "Male")),
    Attribute("income", AttributeType.BOOLEAN, 0, 1),
)
N_PEOPLE = 16_000
COMMON_LABEL = 0.05
"""Share of the records from which on a category counts as frequent."""
Models = Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]
LINEAR: Models = {
    "slopes with booleans": (("income", ("age",)), ("income", ("age", "sex", "education_num"))),
    "factors": (
        *(("age", ("marital_status",)), ("hours_per_week", ("marital_status",)), ("age", ("race",))),
        ("hours_per_week", ("age", "sex", "marital_status")),
    ),
}
LOGISTIC: Models = {
    "logistic": tuple(
        (response, (on,))
        for response, on in (
            *(("income", "age"), ("income", "education_num"), ("income", "sex")),
            *(("sex", "hours_per_week"), ("sex", "education_num")),
        )
    ),
}


def people(data: Path) -> DataSet:
    """Return Adult with income, as it is analysed most often."""
    table = pd.read_csv(data / "adult.csv").sample(N_PEOPLE, random_state=1)
    columns: dict[str, Int64Array] = {}
    for each in PEOPLE:
        values = table[each.name]
        if each.is_categorical:
            values = values.replace(
                dict(zip(each.categories or ("<=50K", ">50K"), range(each.n_values), strict=True))
            )
        columns[each.name] = values.to_numpy().astype(np.int64)
    return DataSet("adult", PEOPLE, columns)


def of_originals(data: DataSet, name: str) -> Term:
    """Return the column of a model, named as in a result, of the original data."""
    of, _, labels = name.partition(": ")
    (attribute,) = (each for each in data.attributes if each.name == of)
    values = data.columns[of] * 10.0**-attribute.decimals
    if labels:
        values = np.isin(values, [attribute.categories.index(each) for each in labels.split(", ")]) * 1.0
    centred = values - values.mean()
    return Term(name, of, float(values.mean()), centred, centred, 0.0)


Line = tuple[bool, float, float, bool]
"""If it is of a rare category; the relative errors, released and corrected; if the interval holds."""


def judged(found: pd.DataFrame, originals: Sequence[float], rare: Sequence[bool]) -> Iterator[Line]:
    """Yield a line per estimate."""
    columns = found[["released", "corrected", "low", "high"]].to_numpy(dtype=float)
    for (released, corrected, low, high), true, seldom in zip(columns, originals, rare, strict=True):
        yield seldom, abs(released / true - 1), abs(corrected / true - 1), bool(low <= true <= high)


def modelled(
    data: DataSet,
    fit: Callable[..., pd.DataFrame],
    original: Callable[..., pd.DataFrame],
    response: str,
    on: tuple[str, ...],
) -> Iterator[Line]:
    """Return the lines of a model, compared with the same model of the original data."""
    found = fit(response, list(on))
    regressors = [of_originals(data, str(name)) for name in found.index]
    true = original(of_originals(data, response), regressors, 0.95)["released"].to_numpy(dtype=float)
    rare = [each.name != each.attribute and each.mean < COMMON_LABEL for each in regressors]
    return judged(found, true.tolist(), rare)


def correlated(data: DataSet, release: Release) -> Iterator[Line]:
    """Return the lines of all correlations."""
    found = release.correlations()
    true = [float(np.corrcoef(data.columns[a], data.columns[b])[0, 1]) for a, b in found.index]
    return judged(found, true, [False] * len(true))


def show(name: str, found: Float64Array) -> None:
    """Print a line of a table: the medians of the relative errors, and how often intervals hold."""
    released, corrected = np.median(found[:, :2], axis=0)
    held = found[:, 2].mean()
    print(f"| {name} | {released:.0%} | {corrected:.0%} | {held:.0%} |".replace("%", " %"), flush=True)


def compare_people(data: DataSet, rank_noise: str, runs: int) -> None:
    """Print a line per kind of estimate."""
    plan = plan_of(data.attributes, data.n_records, "1", owners="ab", rank_noise=[rank_noise])
    with tempfile.TemporaryDirectory() as folder:
        releases = draws(Path(folder), plan, data.columns, runs)
    lines: dict[str, list[list[float]]] = {}
    refused = 0
    for release in releases:
        lines.setdefault("correlations", []).extend(list(line[1:]) for line in correlated(data, release))
        for models, fit, original in (
            (LINEAR, release.regress, estimates.linear),
            (LOGISTIC, release.logistic, estimates.logistic),
        ):
            for kind, those in models.items():
                for response, on in those:
                    try:
                        for rare, *line in modelled(data, fit, original, response, on):
                            name = kind + (" (rare categories)" if rare else "")
                            lines.setdefault(name, []).append(line)
                    except UsageError:
                        refused += 1
    for kind, found in lines.items():
        show(f"{rank_noise} {kind}, {len(found)}", np.array(found, float))
    print(f"refused: {refused}")


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.slopes")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=8)
    options = parser.parse_args()
    data = wine(options.data)
    for mechanism, rank_noise in SETTINGS:
        plan = plan_of(data.attributes, data.n_records, "2", mechanism=mechanism, rank_noise=[rank_noise])
        with tempfile.TemporaryDirectory() as folder:
            releases = draws(Path(folder), plan, data.columns, options.runs)
        found = np.array([line for each in releases for line in slopes(data, each)])
        show(f"{rank_noise} `{mechanism}`", found)
    adult = people(options.data)
    for rank_noise in ("0.03", "0.05", "0.1"):
        compare_people(adult, rank_noise, options.runs)


if __name__ == "__main__":
    main()
