"""Survival and hazards from the noisy counts of a time and an event that were counted together.

Their one-way counts say how many leave in every part of the time, with an event or without. A table with
another attribute says who these are, in wider bins. Within a part, and for who it is within a bin, records
leave evenly. So risk sets are known at every time but for the noise: no record's own time is needed, which
was drawn by chance.

*Survival.* Of Y records at risk, d with an event and c without one leave within a cell of the time. Survival
falls by the factor ((Y - d - c)/Y)^(d/(d + c)), which is that of Kaplan and Meier for many small steps.

*Hazard ratios.* Weighted partial likelihood, ties by Breslow. With x̄ the sum over those with an event, only
what a bin has in all counts of it; the risk set of a cell has of every bin the share that has not left yet.

References:
    Kaplan and Meier 1958, Nonparametric estimation from incomplete observations.
    Cox 1972, Regression models and life-tables. Breslow 1974, Covariance analysis of censored survival data.
    Mantel 1966, Evaluation of survival data (the log-rank test).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.arrays import BoolArray, Float64Array, Int64Array
from common.model.together import Joint
from common.synthesis.binning import Binning
from common.synthesis.histogram import GRAIN, Histogram

_MOST_STEPS, _CLOSE = 60, 1e-4
"""Newton's steps, and how much a log hazard changes in the last: what is left is about the square of it."""
_LONGEST = 2.0
"""How much a log hazard changes in one step."""
MOST_LOG_HAZARD = 15.0
"""Beyond it a regressor tells apart all records with an event."""
_LEAST_AT_RISK = 0.5
"""Records: where fewer are left, noise alone would decide."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """When the records of each bin of a time and its event leave."""

    edges: Int64Array
    """The first code of every cell of the time, and their end, `(n_cells + 1,)`."""
    shares: Float64Array
    """Shares of a bin's records that leave in each cell, `(n_bins, n_cells)`; they sum to 1."""
    with_event: BoolArray
    """True for bins that have the event, `(n_bins,)`."""

    @classmethod
    def of(cls, joint: Joint, binning: Binning, block: int) -> "Leaving":
        """Return it from the counts of time and event; `block` is the number of the event's value."""
        histogram, size = binning.histogram, joint.first.n_values
        edges = np.union1d(histogram.edges[:-1] % size, [size])
        cells = cell_counts(histogram, joint, edges)
        n_blocks, n_cells = cells.shape
        labels = binning.bins((np.arange(n_blocks)[:, None] * size + edges[:-1]).ravel())
        shares = np.zeros((binning.n_bins, n_cells))
        np.add.at(shares, (labels, np.tile(np.arange(n_cells), n_blocks)), cells.ravel())
        # Where a bin has no records, they would leave evenly.
        widths = np.zeros_like(shares)
        np.add.at(widths, (labels, np.tile(np.arange(n_cells), n_blocks)), np.tile(np.diff(edges), n_blocks))
        held = shares.sum(axis=1, keepdims=True)
        shares = np.where(held > 0, shares, widths)
        blocks = np.zeros(binning.n_bins, dtype=np.int64)
        blocks[labels] = np.repeat(np.arange(n_blocks), n_cells)
        return cls(edges, shares / shares.sum(axis=1, keepdims=True), blocks == block)

    @property
    def at_risk(self) -> Float64Array:
        """Shares of a bin's records that are left in the middle of each cell, `(n_bins, n_cells)`."""
        return 1 - np.cumsum(self.shares, axis=1) + self.shares / 2


def cell_counts(histogram: Histogram, joint: Joint, edges: Int64Array) -> Float64Array:
    """Return counts of a time's cells by block, `(n_blocks, n_cells)`: parts are spread evenly.

    Args:
        edges: Of the cells; every one of the histogram is among them.
    """
    size, n_blocks = joint.first.n_values, joint.second.n_values
    starts = np.arange(n_blocks)[:, None] * size + edges
    running = np.append(0, np.cumsum(histogram.counts / GRAIN))
    return np.diff(np.interp(starts, histogram.edges, running), axis=1)


def log_survival(events: Float64Array, others: Float64Array) -> Float64Array:
    """Return the logarithm of survival at the edges of cells, `(..., n_cells + 1)`.

    Args:
        events: Records that leave with an event, `(..., n_cells)`.
        others: Those that leave without one.
    """
    leaving = np.maximum(events + others, 1e-12)
    left = leaving[..., ::-1].cumsum(axis=-1)[..., ::-1]
    after = np.maximum(left - leaving, np.minimum(_LEAST_AT_RISK, left))
    steps = events / leaving * np.log(after / left)
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, axis=-1)], axis=-1)


def kaplan_meier(values: Float64Array, happened: BoolArray, at: Float64Array) -> Float64Array:
    """Return the survival of records at some times, `(n_times,)`.

    Args:
        values: When each record leaves, `(n_records,)`.
        happened: Whether with an event.
    """
    times, which = np.unique(values, return_inverse=True)
    events, leaving = (np.bincount(which, each, times.size) for each in (happened, np.ones(values.size)))
    at_risk = leaving[::-1].cumsum()[::-1]
    running = np.append(1.0, np.cumprod(1 - events / at_risk))
    return np.asarray(running[np.searchsorted(times, at, side="right")], dtype=np.float64)


def log_rank(events: Float64Array, others: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return observed less expected events of each group but the last one, and their covariance by chance.

    Args:
        events: `(n_groups, n_cells)`.
        others: Likewise.
    """
    leaving = events + others
    at_risk = np.maximum(leaving[:, ::-1].cumsum(axis=1)[:, ::-1] - leaving / 2, 0)
    whole = np.maximum(at_risk.sum(axis=0), 1e-9)
    shares, happened = at_risk / whole, events.sum(axis=0)
    excess = (events - shares * happened).sum(axis=1)
    covariance = np.diag(shares @ happened) - (shares * happened) @ shares.T
    return excess[:-1], covariance[:-1, :-1]


# --- hazard ratios --------------------------------------------------------------------------------------

_Likelihood = Callable[[Float64Array], tuple[Float64Array, Float64Array]]
"""Returns the score and the information of coefficients, `(n_columns,)` and `(n_columns, n_columns)`."""


def cox_fit(
    columns: Float64Array,
    bins: Int64Array,
    weights: Float64Array,
    leaving: Leaving,
    start: Float64Array | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Return log hazard ratios, infinite where nothing bounds them, and their information.

    Args:
        columns: Regressors, `(n_records, n_columns)`.
        bins: The bin of each record's time and event, `(n_records,)`.
        weights: `(n_records,)`, not negative.
        start: Log hazard ratios near those that are looked for.

    Returns:
        `(n_columns,)` and `(n_columns, n_columns)`.
    """
    order = np.argsort(bins, kind="stable")
    columns, bins, weights = columns[order], bins[order], weights[order]
    present, starts = np.unique(bins, return_index=True)
    at_risk = leaving.at_risk[present].T
    with_event = weights * leaving.with_event[bins]
    events = np.add.reduceat(with_event, starts) @ leaving.shares[present]
    happened = columns.T @ with_event
    powers = _powers(columns)

    def likelihood(at: Float64Array) -> tuple[Float64Array, Float64Array]:
        hazards = weights * np.exp(np.clip(columns @ at, -MOST_LOG_HAZARD, MOST_LOG_HAZARD))
        return _of_risk_sets(happened, events, at_risk @ np.add.reduceat(powers * hazards, starts, axis=1).T)

    return _newton(likelihood, columns, start)


def plain_cox_fit(columns: Float64Array, times: Float64Array, happened: BoolArray) -> Float64Array:
    """Return log hazard ratios of records, ties by Breslow, `(n_columns,)`; arguments as in `cox_fit`."""
    order = np.argsort(-times, kind="stable")
    columns, times, happened = columns[order], times[order], happened[order]
    # The last record of each tie, whose running sum has the whole risk set.
    last = np.searchsorted(-times, -times[happened], side="right") - 1
    powers = _powers(columns)

    def likelihood(at: Float64Array) -> tuple[Float64Array, Float64Array]:
        hazards = np.exp(np.clip(columns @ at, -MOST_LOG_HAZARD, MOST_LOG_HAZARD))
        sums = np.stack([np.cumsum(hazards * each)[last] for each in powers], axis=1)
        return _of_risk_sets(columns[happened].sum(axis=0), np.ones(last.size), sums)

    return _newton(likelihood, columns)[0]


def _powers(columns: Float64Array) -> Float64Array:
    """Return 1, the columns, and the product of each with itself and later ones, `(n_powers, n_records)`."""
    first, second = np.triu_indices(columns.shape[1])
    rows = np.ascontiguousarray(columns.T)
    return np.concatenate([np.ones((1, len(columns))), rows, rows[first] * rows[second]])


def _of_risk_sets(
    happened: Float64Array, events: Float64Array, sums: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return score and information from sums of `_powers` over the risk set of each event or cell."""
    size = happened.size
    powers = sums[:, 1:] / np.maximum(sums[:, :1], 1e-12)
    means, squares = powers[:, :size], events @ powers[:, size:]
    information = np.zeros((size, size))
    information[np.triu_indices(size)] = squares
    information += np.triu(information, 1).T
    return happened - events @ means, information - (means * events[:, None]).T @ means


def _newton(
    likelihood: _Likelihood, columns: Float64Array, start: Float64Array | None = None
) -> tuple[Float64Array, Float64Array]:
    at: Float64Array = np.zeros(columns.shape[1]) if start is None else np.where(np.isfinite(start), start, 0)
    score, information = likelihood(at)
    reach = np.abs(columns).max(axis=0)
    for _ in range(_MOST_STEPS):
        step = np.asarray(np.linalg.lstsq(information, score)[0], dtype=np.float64)
        moved = float((np.abs(step) * reach).max())
        at = at + step * min(1.0, _LONGEST / moved) if moved else at
        if (np.abs(at) * reach).max() > 2 * MOST_LOG_HAZARD:
            # No finite coefficients: what still grows tells apart the records with an event.
            return np.where(np.abs(step) * reach > 0.1, np.copysign(np.inf, at), at), information
        if moved < _CLOSE:
            break
        score, information = likelihood(at)
    return at, information
