"""Corrected slopes between the attributes of Wine Quality: the table in docs/analysis.md.

    python -m tests.papers.slopes --data FOLDER [--runs 8]

One owner, ε = 2 for the whole release, k chosen; the slopes between attributes with a correlation above 0.3.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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
        released, corrected = np.median(found[:, :2], axis=0)
        held = found[:, 2].mean()
        print(
            f"| {rank_noise} `{mechanism}` | {released:.0%} | {corrected:.0%} | {held:.0%} |".replace(
                "%", " %"
            )
        )


if __name__ == "__main__":
    main()
