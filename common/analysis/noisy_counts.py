"""Estimates from the noisy counts of a synthetic release, with intervals that contain their noise.

They say something about the records that were counted, and nothing comes from the synthetic records. The
noise of every count is known but for its value, and so is the number of records n.

*One attribute.* Every round counted all of the domain, each in finer parts than the one before. The counts x
of the finest parts are estimated by weighted least squares from all rounds, under Σ x = n. That is the best
linear unbiased estimate, and its covariance matrix C is known (Gauss, Markov). So a linear statistic w·x has
the variance w·C·w.

*An attribute that follows another one* was not counted: its counts are sums of those of the other one, with
their covariance.

*Attributes that were counted together* are one attribute here. Counts of one of both are sums of its counts,
with their covariance; a table of pairs is that of both with another one.

*Two attributes.* The counts of a table get equal shares of what they lack to n: the same with one round.

*Means.* Values are in the middle of their part, on a logarithmic scale in the geometric middle. Far from the
median, where no count stands out of the noise, counts are fitted (`common.analysis.noisy_means`).

*Correlations.* With bin means a and b, taken from the one-way counts, and the table T of bins: the covariance
of a and b in T, divided by the standard deviations of the one-way counts. Bins hide what happens within them.
With s and t, the shares of the variances that lie between bins, a correlation ρ becomes about

    s·t·ρ + (√(s·t) - s·t)·ρ³

for normally distributed values (the first and third of Price's terms; exact at 0 and for equal bins at 1).
It is solved for ρ; nothing changes where every value has a bin. Noise is followed by its first-order effect
on the estimate.

*Intervals.* An estimate's noise is a weighted sum of independent numbers, discrete Gaussian or Laplace ones.
A weighted sum of Laplace numbers lies between one of them and a normal number of the same variance; so its
interval has the larger one of both quantiles.

References:
    Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private histograms through
    consistency" (counts of several levels). Price 1958, "A useful theorem for nonlinear devices having
    Gaussian inputs".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.noisy_means import Shells, mean_by_shells
from common.analysis.originals import random_of
from common.arrays import Float64Array, Int64Array
from common.errors import UsageError
from common.model.schema import Attribute
from common.model.together import Joint, joint_name, modelled_names, parts_of
from common.release.counts import bin_texts, counts_table, range_texts
from common.synthesis.accounting import Kind
from common.synthesis.binning import Binning
from common.synthesis.schedule import OneWay, RoundSums, Table, split

if TYPE_CHECKING:
    import pandas as pd


_MOST_HIDDEN = 0.1
"""Largest part of a variance that can be within the parts of one-way counts, which nothing shows."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An attribute as its one-way counts show it."""

    first: Int64Array
    """The first code of every part, `(n_parts,)`."""
    last: Int64Array
    """The last one, `(n_parts,)`."""
    counts: Float64Array
    """Estimated counts, `(n_parts,)`; they can be negative."""
    covariance: Float64Array
    """Covariance of their noise, `(n_parts, n_parts)`."""

    def variance(self, weights: Float64Array) -> float:
        """Return the variance of the noise of a weighted sum of the counts."""
        return float(weights @ self.covariance @ weights)


def part_middles(attribute: Attribute, first: Int64Array, last: Int64Array) -> Float64Array:
    """Return the middle of each part in codes, on a logarithmic scale the geometric one, `(n_parts,)`.

    Args:
        first: The first code of every part.
        last: The last one.
    """
    if not attribute.is_logarithmic:
        return (first + last) / 2
    # Values get rarer within a part: the mean of arithmetic middles is too large.
    lower = float(attribute.lower)
    return np.sqrt((first + lower) * (last + lower)) - lower


def estimated_parts(levels: Sequence[tuple[Int64Array, Int64Array, float]], n_records: int) -> Parts:
    """Estimate the counts of the finest parts of an attribute.

    Args:
        levels: Of each round: edges, of which each has those before it; noisy counts; the variance of each.
        n_records: n.
    """
    (edges, noisy, variance), *coarser = reversed(levels)
    inverse, weighted = np.diag(np.full(noisy.size, float(variance))), noisy / variance
    # The inverse of the precision by Sherman and Morrison: every part of a coarser level adds one vector, and
    # so far nothing relates one of these parts to another.
    for level_edges, noisy, variance in coarser:
        part = np.searchsorted(level_edges, edges[:-1], side="right") - 1
        weighted += noisy[part] / variance
        sums = inverse.sum(axis=1)
        scaled = sums / (variance + np.bincount(part, sums))[part]
        inverse -= np.where(part[:, None] == part, np.outer(scaled, sums), 0.0)
    free = inverse @ weighted
    toward = inverse.sum(axis=1)
    counts = free + toward * ((n_records - free.sum()) / toward.sum())
    covariance = inverse - np.outer(toward, toward) / toward.sum()
    return Parts(edges[:-1], edges[1:] - 1, counts, covariance)


def derived_parts(attribute: Attribute, base: Attribute, parts: Parts) -> Parts:
    """Derive the counts of an attribute from those of the one that determines it.

    Args:
        parts: Of the latter.

    Returns:
        A part for each value that follows from some value, in ascending order.

    Raises:
        UsageError: If a part has several values, from which different ones follow.
    """
    derived = np.array(attribute.derived_units(base), dtype=np.int64) - attribute.lower
    lowest, highest = (each.reduceat(derived, parts.first) for each in (np.minimum, np.maximum))
    if (lowest != highest).any():
        raise UsageError(
            f"{attribute.name!r} follows {base.name!r}, which was counted in wider parts",
            f"ask for {base.name!r}",
        )
    values, place = np.unique(lowest, return_inverse=True)
    sums = np.equal.outer(np.arange(values.size), place).astype(np.float64)
    return Parts(values, values, sums @ parts.counts, sums @ parts.covariance @ sums.T)


class NoisyCounts:
    """The noisy counts of a synthetic release, and what follows from them without its records."""

    def __init__(self, measured: RoundSums, following: Sequence[Attribute] = ()) -> None:
        self._design, self.measured = measured.design, measured
        self._following = {each.name: each for each in following}
        self._estimated: dict[int, Parts] = {}
        self._binned: dict[str, _Binned | None] = {}
        attributes = self._design.attributes
        self.attributes = tuple(part for each in attributes for part in parts_of(each))
        """All that are released and not derived."""
        places = {attribute.name: place for place, attribute in enumerate(attributes)}
        # Of attributes that were counted together, the place of the joint one, which has a name of its own.
        self._places = {name: places[of] for name, of in modelled_names(attributes).items()}
        self._joint = {name: place for name, place in places.items() if name not in self._places}
        self._own = {attribute.name: attribute for attribute in self.attributes}

    def __repr__(self) -> str:
        n_counts = sum(sums.size for sums in self.measured.sums)
        return f"<{n_counts:,} noisy counts of {self._design.n_records:,} records>"

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """All noisy counts as they are published, a line each (`common.release.counts`)."""
        table: pd.DataFrame = counts_table(self.measured).to_pandas()
        return table

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names of the pairs of attributes whose tables were counted."""
        names = [attribute.name for attribute in self._design.attributes]
        return tuple((names[i], names[j]) for i, j in self._design.pairs)

    def table(self, first: str, second: str | None = None, confidence: float = 0.95) -> "pd.DataFrame":
        """Return the counts of one attribute's values, or of two attributes' bins.

        Args:
            first: The attribute; without a second one also one that follows another.
            second: Another one; the pair is in `pairs`.
            confidence: Of the intervals.

        Returns:
            A line per cell: `count`, which can be negative, `standard_error`, `low`, `high`.

        Raises:
            UsageError: If there is no such attribute, or the pair was not counted.
        """
        import pandas as pd

        reach = self.reach(confidence)
        if second is None:
            attribute, parts = self._one_way(first)
            index = pd.Index(range_texts(attribute, parts.first, parts.last), name=first)
            return _lines(index, "count", parts.counts, np.sqrt(parts.covariance.diagonal()), reach)
        (i, j), counts, variance = self.counted(*map(self.place_in_table, (first, second)))
        texts = {
            place: bin_texts(self._design.attributes[place], self.measured.binnings[place])
            for place in (i, j)
        }
        names = [self._design.attributes[i].name, self._design.attributes[j].name]
        pairs = pd.MultiIndex.from_product([texts[i], texts[j]], names=names)
        errors = np.full(counts.size, sqrt(variance * (1 - 1 / counts.size)))
        lines = _lines(pairs, "count", counts.ravel(), errors, reach)
        first = self._design.attributes[self.place_in_table(first)].name
        turned = np.arange(counts.size).reshape(counts.shape).T.ravel()
        return lines if names[0] == first else lines.swaplevel().iloc[turned]

    def proportions(self, first: str, second: str | None = None, confidence: float = 0.95) -> "pd.DataFrame":
        """Return the counts of `table` as shares of all records, in the columns `proportion` and so on."""
        shares = self.table(first, second, confidence) / self._design.n_records
        return shares.rename(columns={"count": "proportion"})

    def means(self, names: str | Sequence[str] = (), confidence: float = 0.95) -> "pd.DataFrame":
        """Return the means of attributes.

        Args:
            names: Numbers, integers, dates (days since 1970-01-01), booleans, or categories with two labels,
                of which the second counts as 1; empty for all of these that were counted. Missing values are
                left out.
            confidence: Of the intervals.

        Returns:
            A line per attribute: `mean`, `standard_error`, `low`, `high` (`common.analysis.noisy_means`).

        Raises:
            UsageError: If one has no mean.
        """
        import pandas as pd

        reach, lines = self.reach(confidence), {}
        for attribute, parts in map(self._one_way, self._numeric(names)):
            present = parts.first <= attribute.upper - attribute.lower
            n_present = float(parts.counts[present].sum())
            if n_present <= 0:
                raise UsageError(
                    f"noise hides how many values of {attribute.name} are present", "leave it out"
                )
            place = np.flatnonzero(present)
            mean, error = mean_by_shells(
                parts.counts[place],
                parts.covariance[np.ix_(place, place)],
                part_middles(attribute, parts.first, parts.last)[place],
                (parts.last - parts.first)[place] / 2,
                random_of(attribute.name),
            )
            unit, ends = float(attribute.unit), (attribute.lower, attribute.upper)
            sides = (mean + sign * reach * error for sign in (0, -1, 1))
            value, low, high = (np.clip(attribute.lower + side, *ends) * unit for side in sides)
            lines[attribute.name] = [value, error * unit, low, high]
        columns = ["mean", "standard_error", "low", "high"]
        return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("attribute")

    def correlations(self, names: str | Sequence[str] = (), confidence: float = 0.95) -> "pd.DataFrame":
        """Return the correlations of the counted pairs of attributes.

        Args:
            names: As for `means`, two or more; empty for all that noise leaves a variance. None may keep
                missing values.
            confidence: Of the intervals.

        Returns:
            A line per counted pair: `grouped`, the correlation of the values' bin means; `correlation`, what
            it is without bins if values are about normal; `standard_error`, `low`, `high` of the latter.

        Raises:
            UsageError: If one has no correlation, or no pair of them was counted.
        """
        import pandas as pd

        reach, asked = self.reach(confidence), self._numeric(names)
        kept = [name for name in asked if not self.attribute(name).unplaced]
        if names and kept != asked:
            raise UsageError(
                "an attribute has missing values, which no correlation allows for", "leave it out"
            )
        lines = {}
        for one, other in combinations(sorted(kept, key=lambda name: self._places[name]), 2):
            hidden = not names and (self._bins_of(one) is None or self._bins_of(other) is None)
            if (self._places[one], self._places[other]) in self._design.pairs and not hidden:
                lines[one, other] = self._correlation(one, other)
        if not lines:
            for pair in combinations(kept, 2):
                self.check_apart(*pair)
            raise UsageError(
                "no pair of these attributes was counted, or noise hides how much their values differ",
                f"counted pairs: {', '.join(f'{one} and {other}' for one, other in self.pairs) or 'none'}",
            )
        index = pd.MultiIndex.from_tuples(list(lines), names=["first", "second"])
        grouped, found, errors = np.array(list(lines.values())).T
        table = _lines(index, "correlation", found, errors, reach)
        table.insert(0, "grouped", grouped)
        return table.assign(
            **{column: table[column].clip(-1, 1) for column in ("correlation", "low", "high")}
        )

    def _correlation(self, first: str, second: str) -> tuple[float, float, float]:
        """Return the correlation of bin means, of values, and the standard error of the latter."""
        n_records = self._design.n_records
        one, other = self._varying(first), self._varying(second)
        _, counts, variance = self.counted(self._places[first], self._places[second])
        shares = counts / n_records
        away = [one.means - one.mean, other.means - other.mean]
        grouped = float(away[0] @ shares @ away[1]) / (one.deviation * other.deviation)
        # By how much a record in each cell moves the estimate.
        products = np.outer(*away) / (one.deviation * other.deviation * n_records)
        noise = variance * float(((products - products.mean()) ** 2).sum())
        for own, conditional in ((one, shares @ away[1]), (other, away[0] @ shares)):
            scale = one.deviation * other.deviation * n_records
            moved = conditional[own.labels] * (own.middles - own.means[own.labels]) / own.shares[own.labels]
            noise += own.parts.variance(moved / scale) + (grouped / 2 * own.relative_error) ** 2
        kept = one.between * other.between
        found, slope = ungrouped(grouped, kept)
        error = sqrt(noise / slope**2 + (found - grouped) ** 2 / 12)
        if any(self._own[name].is_logarithmic for name in (first, second)):
            # Relations with heavy tails need not go on within wide bins.
            return grouped, (found + grouped) / 2, sqrt(error**2 + (found - grouped) ** 2 / 12)
        return grouped, found, error

    def check_varies(self, name: str) -> None:
        """Raises UsageError if an attribute's counts do not show how much its values differ."""
        self._varying(name)

    def _varying(self, name: str) -> "_Binned":
        binned = self._bins_of(name)
        if binned is None:
            raise UsageError(
                f"noise hides how much the values of {name!r} differ, or too few parts have them",
                "leave it out, or ask owners for a narrower domain",
            )
        return binned

    def _bins_of(self, name: str) -> "_Binned | None":
        if name not in self._binned:
            self._binned[name] = self._new_bins(name)
        return self._binned[name]

    def _new_bins(self, name: str) -> "_Binned | None":
        place = self._places[name]
        parts, binning = self._parts(place), self.measured.binnings[place]
        first, last = (self.own_codes(name, codes) for codes in (parts.first, parts.last))
        middles, halves = part_middles(self._own[name], first, last), (last - first) / 2
        shells = Shells.of(parts.counts, parts.covariance, middles, halves)
        counts, kept = shells.spread(parts.counts, halves)
        shown = Parts(parts.first, parts.last, counts, parts.covariance * np.outer(kept, kept))
        binned = _Binned.of(shown, middles, binning, self._design.n_records)
        if binned is None:
            return None
        # The variance of values that are anywhere in their part.
        inside = np.maximum(counts, 0) @ ((2 * halves + 1) ** 2 - 1) / 12 / self._design.n_records
        hidden = float(inside) / binned.deviation**2
        error = float(np.hypot(shells.relative_error(random_of(name)), hidden))
        return replace(binned, relative_error=error) if hidden < _MOST_HIDDEN else None

    def own_codes(self, name: str, codes: Int64Array) -> Int64Array:
        """Return the codes of an attribute in codes of the one that it was counted as."""
        counted = self._design.attributes[self._places[name]]
        if not isinstance(counted, Joint):
            return codes
        size = counted.first.n_values
        return codes % size if name == counted.first.name else codes // size

    def _one_way(self, name: str) -> tuple[Attribute, Parts]:
        """Return an attribute and its counts, also of one that follows another."""
        if (following := self._following.get(name)) is not None:
            return following, derived_parts(following, *self._one_way(following.base))
        if (joint := self._joint.get(name)) is not None:
            return self._design.attributes[joint], self._parts(joint)
        place = self.place(name)
        counted, parts = self._design.attributes[place], self._parts(place)
        if not isinstance(counted, Joint):
            return counted, parts
        return self._own[name], _marginal(parts, self.own_codes(name, parts.first), counted, name)

    def _parts(self, place: int) -> Parts:
        if place not in self._estimated:
            self._estimated[place] = estimated_parts(self.levels[place], self._design.n_records)
        return self._estimated[place]

    @cached_property
    def levels(self) -> list[list[tuple[Int64Array, Int64Array, float]]]:
        """Edges, noisy counts and the variance of their noise, by attribute and round of one-way counts."""
        levels: list[list[tuple[Int64Array, Int64Array, float]]] = [[] for _ in self._design.attributes]
        for asked, sums in zip(self.measured.rounds, self.measured.sums, strict=True):
            for question, counts in zip(asked, split(asked, sums), strict=True):
                if isinstance(question, OneWay):
                    variance = self._design.variance(question.noise, (question.attribute,))
                    levels[question.attribute].append((question.edges, counts, variance))
        return levels

    @cached_property
    def _tables(self) -> dict[tuple[int, ...], tuple[Table, Int64Array]]:
        return {table.pair: (table, noisy) for table, noisy in self.measured.tables}

    def counted(self, i: int, j: int) -> tuple[tuple[int, int], Float64Array, float]:
        """Return the attributes of a counted table in their order, its counts, and the variance of each."""
        pair = (min(i, j), max(i, j))
        if pair in self._tables:
            table, noisy = self._tables[pair]
            counts = noisy + (self._design.n_records - noisy.sum()) / noisy.size
            shape = [binning.n_bins for binning in table.binnings]
            return pair, counts.reshape(shape), self._design.variance(table.noise, pair)
        names = " and ".join(self._design.attributes[place].name for place in (i, j))
        raise UsageError(
            f"the table of {names} was not counted",
            "`pairs` has those that were; for others there are only the records",
        )

    def attribute(self, name: str) -> Attribute:
        """Return an attribute that was counted; raises UsageError as `place`."""
        self.place(name)
        return self._own[name]

    def together(self, first: str, second: str) -> tuple[int, Joint] | None:
        """Return the attribute that two were counted as, in this order, and its number; None for none."""
        place = self._joint.get(joint_name((first, second)))
        counted = None if place is None else self._design.attributes[place]
        return None if place is None or not isinstance(counted, Joint) else (place, counted)

    def check_apart(self, first: str, second: str) -> None:
        """Raises UsageError if two attributes were counted as one, so that no table has both."""
        if (place := self._places.get(first)) is not None and place == self._places.get(second):
            raise UsageError(
                f"{first!r} and {second!r} were counted as one",
                f"`release.counts.table({self._design.attributes[place].name!r})` has their counts",
            )

    def place_in_table(self, name: object) -> int:
        """Return the number of an attribute that tables of pairs have.

        Raises:
            UsageError: If they have it with another one, or not at all.
        """
        if isinstance(name, str) and name in self._joint:
            return self._joint[name]
        counted = self._design.attributes[self.place(name)]
        if counted.name != name:
            raise UsageError(
                f"{name!r} was counted together with another attribute",
                f"ask for both, as {counted.name!r}; or for a release that counts {name!r} by itself",
            )
        return self._places[name]

    def place(self, name: object) -> int:
        """Return the number of what an attribute was counted as.

        Raises:
            UsageError: If it was not counted.
        """
        if not isinstance(name, str):
            raise UsageError(f"{name!r} is not the name of an attribute", "name one attribute")
        if name in self._following:
            base = self._following[name].base
            raise UsageError(
                f"{name!r} follows {base!r}, and was not counted with others", f"ask for {base!r}"
            )
        if name not in self._places:
            known = ", ".join([*self._places, *self._following])
            raise UsageError(f"no attribute {name!r}", f"attributes: {known}")
        return self._places[name]

    def _numeric(self, names: str | Sequence[str]) -> list[str]:
        if not names:
            return [attribute.name for attribute in self.attributes if _is_numeric(attribute)]
        asked = [names] if isinstance(names, str) else list(names)
        for name in asked:
            attribute = self._following.get(name) or self.attribute(name)
            if not _is_numeric(attribute):
                raise UsageError(f"attribute {name!r} is a category", "leave it out")
        return asked

    def reach(self, confidence: float) -> float:
        """Return how many standard deviations an interval reaches to either side."""
        if not 0 < confidence < 1:
            raise UsageError(f"confidence = {confidence} is not between 0 and 1", "for example 0.95")
        normal = NormalDist().inv_cdf((1 + confidence) / 2)
        laplace = -log(1 - confidence) / sqrt(2)
        exact = self._design.budgets[0].kind is Kind.GAUSSIAN
        return normal if exact else max(normal, laplace)


def _marginal(parts: Parts, own: Int64Array, joint: Joint, name: str) -> Parts:
    """Return the counts of one of two attributes that were counted together.

    Args:
        parts: Of the joint attribute.
        own: The first code of the attribute in each part.
    """
    first = name == joint.first.name
    n_values, n_blocks = joint.first.n_values, joint.second.n_values
    blocks = parts.first // n_values
    # Where parts begin in every block.
    starts = np.arange(n_blocks)
    if first:
        starts, held = np.unique(own, return_counts=True)
        starts = starts[held == n_blocks]
    where = np.searchsorted(starts, own if first else blocks, side="right") - 1
    sums = np.equal.outer(np.arange(starts.size), where).astype(np.float64)
    last = np.append(starts[1:], n_values if first else n_blocks) - 1
    return Parts(starts, last, sums @ parts.counts, sums @ parts.covariance @ sums.T)


@dataclass(frozen=True, slots=True)
class _Binned:
    """An attribute as its one-way counts and its bins show it; values are in codes."""

    parts: Parts
    labels: Int64Array
    """The bin of each part, `(n_parts,)`."""
    middles: Float64Array
    """The middle of each part, `(n_parts,)`."""
    means: Float64Array
    """The mean of each bin, `(n_bins,)`."""
    shares: Float64Array
    """The share of the records in each bin, `(n_bins,)`."""
    mean: float
    deviation: float
    between: float
    """The share of the variance that lies between bins, from 0 to 1."""
    relative_error: float = 0.0
    """Standard error of the variance, as a part of it."""

    @classmethod
    def of(cls, parts: Parts, values: Float64Array, binning: Binning, n_records: int) -> "_Binned | None":
        """Return it; None if noise leaves no variance."""
        labels = binning.bins(parts.first)
        mean = float(parts.counts @ values) / n_records
        variance = float(parts.counts @ (values - mean) ** 2) / n_records
        in_bin = np.bincount(labels, parts.counts, binning.n_bins)
        held = np.maximum(in_bin, 1)
        first = np.full(binning.n_bins, np.inf)
        last = np.full(binning.n_bins, -np.inf)
        np.minimum.at(first, labels, values)
        np.maximum.at(last, labels, values)
        # Noise can put a mean outside of its bin.
        means = np.clip(np.bincount(labels, parts.counts * values, binning.n_bins) / held, first, last)
        between = float(in_bin @ (means - mean) ** 2) / n_records
        if variance <= 0 or between <= 0:
            return None
        shares = held / n_records
        return cls(parts, labels, values, means, shares, mean, sqrt(variance), min(between / variance, 1.0))


def ungrouped(grouped: float, kept: float) -> tuple[float, float]:
    """Return the correlation of values whose bin means are correlated so, and the slope of the latter by it.

    Args:
        grouped: The covariance of bin means over the values' standard deviations.
        kept: s·t, the product of the shares of the variances that lie between bins.
    """
    cubic = sqrt(kept) - kept
    # kept·ρ + cubic·ρ³ ascends, so there is one root; Newton's steps from outside of it do not pass it.
    found = grouped / kept
    for _ in range(50):
        found -= (kept * found + cubic * found**3 - grouped) / (kept + 3 * cubic * found**2)
    return found, kept + 3 * cubic * found**2


def _is_numeric(attribute: Attribute) -> bool:
    return not attribute.is_categorical or attribute.n_values == 2


def _lines(
    index: "pd.Index", name: str, values: Float64Array, errors: Float64Array, reach: float
) -> "pd.DataFrame":
    import pandas as pd

    columns = {
        name: values,
        "standard_error": errors,
        "low": values - reach * errors,
        "high": values + reach * errors,
    }
    return pd.DataFrame(columns, index=index)
