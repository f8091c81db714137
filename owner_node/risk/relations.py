"""What known values say about the others: the part of a linking attack that uses relations of attributes.

An intruder who knows some attributes of everybody also sees the others in every released record. Given a
person's original known values, the released values of the others depend on the known ones through the
original ones alone, since the noise of every attribute is independent. So their probability multiplies that
of the released known values.

*Model.* Values whose order means something are normal scores, taken for jointly normal. Cov(k, k), k the
original known scores, is the intruder's own knowledge. Cov(r, k), r the released other scores, comes from the
release: Cov(r, r_k) over the attenuation Cov(r_k, k)/Var(k) of each known score, which is public. Then r
given k is normal, with mean Bk and a covariance without k. r is rotated to components that are independent
given k, most related to k first. Each of them is cut into parts: one attribute more for an attack by
likelihood.

The intruder learns relations from the attacked release alone, and takes them for monotone. One who knows them
from elsewhere, or models labels and other shapes, may link more persons.

References:
    Hotelling 1936, "Relations between two sets of variates" (components).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from owner_node.masking.arrays import Float64Array, PositionArray
from owner_node.risk.links import middle_ranks

_PARTS = 24
"""Parts of each component, of equally many released records."""
_LEAST_RELATED, _MOST_RELATED = 0.005, 0.98
"""Least share of a component's variance that known values have to explain, and the most that they are taken
to explain."""
_LEAST_KEPT = 0.05
"""Least attenuation of a known score: where less is left of it, its relations are not known."""
_LEAST_PROBABILITY = 1e-4
"""Least probability of a part: scores are not quite normal."""
_RIDGE = 1e-6


@dataclass(frozen=True, slots=True)
class Component:
    """One component of the other attributes, as attacks by likelihood take attributes."""

    groups: Float64Array
    """Ends of its parts, as shares of the released records, `(n_parts + 1,)`."""
    group: PositionArray
    """Part of each released record, `(n_records,)`."""
    expected: Float64Array
    """Its expected value for everybody, from the values that are known, `(n_people,)`."""
    ends: Float64Array
    """Its values between the parts, `(n_parts - 1,)`."""
    deviation: float
    """Its standard deviation around the expected value."""

    @classmethod
    def of(cls, values: Float64Array, expected: Float64Array, share: float) -> "Component":
        """Cut a component into parts.

        Args:
            values: Of the released records, of variance 1, `(n_records,)`.
            expected: Of everybody, `(n_people,)`.
            share: Of its variance that known values explain.
        """
        ends = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS))
        group = np.searchsorted(ends, values, side="right")
        counts = np.bincount(group, minlength=ends.size + 1)
        groups = np.concatenate([[0.0], np.cumsum(counts) / values.size])
        return cls(groups, group, expected, ends, (1 - min(share, _MOST_RELATED)) ** 0.5)

    def likely(self, people: PositionArray) -> Float64Array:
        """Return the probability of each part, `(n_parts, n_people)`."""
        from scipy.special import ndtr

        below = ndtr((self.ends[:, None] - self.expected[people]) / self.deviation)
        probabilities: Float64Array = np.diff(below, axis=0, prepend=0.0, append=1.0)
        return np.maximum(probabilities, _LEAST_PROBABILITY)


def normal_scores(places: Float64Array) -> Float64Array:
    """Return the normal scores of places, equal ones for equal places, `(n,)`."""
    from scipy.special import ndtri

    scores: Float64Array = ndtri(middle_ranks(places))
    return scores


def components(
    known: Sequence[tuple[Float64Array, Float64Array]], others: Sequence[Float64Array]
) -> list[Component]:
    """Return the components of other attributes that known ones say something about.

    Args:
        known: Original places of everybody, `(n_people,)`, people without a record last, and released places,
            `(n_records,)`, of each known attribute.
        others: Released places of each other attribute, `(n_records,)`.
    """
    if not known or not others:
        return []
    seen, rest = _standard([released for _, released in known]), _standard(others)
    n_records = len(seen)
    people = _standard([places for places, _ in known])
    own = people[:n_records]
    kept = (seen * own).sum(axis=0) / np.maximum(np.square(own).sum(axis=0), _RIDGE)
    usable = kept > _LEAST_KEPT
    if not usable.any():
        return []
    of_known = _covariance(own[:, usable])
    across = rest.T @ seen[:, usable] / n_records / kept[usable]
    whitening = _inverse_root(_covariance(rest))
    effect = whitening @ across @ np.linalg.inv(of_known)
    explained, directions = np.linalg.eigh(effect @ of_known @ effect.T)
    return [
        Component.of(rest @ whitening @ direction, people[:, usable] @ effect.T @ direction, float(share))
        for share, direction in zip(explained[::-1], directions.T[::-1], strict=True)
        if share >= _LEAST_RELATED
    ]


def _standard(columns: Sequence[Float64Array]) -> Float64Array:
    """Return normal scores less their means, `(n, n_columns)`."""
    scores = np.column_stack([normal_scores(column) for column in columns])
    scores -= scores.mean(axis=0)
    return scores


def _covariance(columns: Float64Array) -> Float64Array:
    products: Float64Array = columns.T @ columns / len(columns)
    return products + _RIDGE * np.eye(len(products))


def _inverse_root(covariance: Float64Array) -> Float64Array:
    """Return the symmetric inverse root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    root: Float64Array = (vectors / np.sqrt(np.maximum(values, _RIDGE))) @ vectors.T
    return root
