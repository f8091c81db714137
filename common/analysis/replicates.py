"""Any analysis of a release: tables that are made again, and what they say about its noise.

Tables have the relations that are estimated for the original records, not the weaker ones of the release
(`common.analysis.calibration`). The first is as estimated; the others are from numbers that got noise once
more. So an analysis of the first is an estimate, and those of the others scatter around it as it does around
what the original records have. Relations of three attributes are those of the release.

Everything is computed from what was released: no ε is spent.

References:
    Efron 1979, Bootstrap methods: another look at the jackknife (parametric bootstrap).
"""

from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.answers import answer, check_confidence
from common.analysis.calibration import WIDER
from common.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

N_REPLICATES = 20
FEWEST, MOST = 4, 50
COMBINING = f"""released.csv is the release. estimated.csv is a table of the same size with the relations that
are estimated for the original records. noisy-1.csv, noisy-2.csv and so on are like it, with noise once more.

Run the same analysis on all tables. For each number, with f the results:

    estimate       = f(estimated)
    standard error = {WIDER} * standard deviation of f(noisy-1), f(noisy-2), ...
    interval       = estimate +/- 1.96 * (1 + 1/(number of noisy tables - 2)) * standard error

This is about the records. For whom they are a sample of, add the squared standard error that the analysis
itself gives for estimated.csv, and take the root of the sum. These are not multiple imputations: Rubin's
rules do not hold.
"""
"""How results of replicates are combined."""


def check_number(n_replicates: object) -> None:
    """Raises UsageError if there are too few replicates for an interval, or too many."""
    if not isinstance(n_replicates, int) or not FEWEST <= n_replicates <= MOST:
        raise UsageError(
            f"{n_replicates} replicates are too few or too many",
            f"ask for a number from {FEWEST} to {MOST}, as {N_REPLICATES}",
        )


def analysed(
    function: Callable[["pd.DataFrame"], Mapping[str, float]],
    released: "pd.DataFrame",
    tables: Iterable["pd.DataFrame"],
    n_replicates: int,
    confidence: float,
    progress: Callable[[int, int], None],
) -> "pd.DataFrame":
    """Run an analysis on a release and on its replicates.

    Args:
        function: Returns numbers by name, of a frame like `Release.frame`.
        released: The frame of the release.
        tables: The one with estimated relations, then `n_replicates` with noise once more.
        n_replicates: How many these are.
        confidence: Of the intervals.
        progress: Called with the number of tables that are done, and of all.

    Raises:
        UsageError: If there are too few replicates, or the function returns no or other names, or no numbers.
    """
    import pandas as pd

    check_confidence(confidence)
    check_number(n_replicates)

    def run(frame: "pd.DataFrame") -> dict[str, float]:
        # The function may change its frame, which is not to change the release.
        found = function(frame.copy())
        try:
            named = {str(name): value for name, value in dict(found).items()}
            return {name: float(value) for name, value in named.items()}
        except (TypeError, ValueError):
            raise UsageError(
                f"the analysis returns {found!r:.60}, not numbers by name",
                'for example {"mean": table["age"].mean()}; NaN for what has no value, dates as days',
            ) from None

    plain, rows = run(released), []
    if not plain:
        raise UsageError("the analysis returns no numbers", "return a mapping of names to numbers")
    progress(0, n_replicates + 1)
    for done, table in enumerate(tables, start=1):
        rows.append(run(table))
        if rows[-1].keys() != plain.keys():
            raise UsageError(
                "the analysis returns other names for another table", "return the same names always"
            )
        progress(done, n_replicates + 1)
    found = np.array([[row[name] for name in plain] for row in rows])
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * (1 + 1 / (n_replicates - 2))
    with np.errstate(invalid="ignore"):
        errors = WIDER * found[1:].std(axis=0, ddof=1)
    table = answer(pd.Index(list(plain)), np.array(list(plain.values())), found[0], errors, reach)
    undefined = ~np.isfinite(found).all(axis=0)
    table.loc[undefined, ["standard_error", "low", "high"]] = [np.inf, -np.inf, np.inf]
    table.loc[undefined, "note"] = "it has no finite value in some tables: nothing bounds it"
    return table
