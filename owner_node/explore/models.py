"""Models that measure utility: classifiers trained on masked records, and propensity scores.

scikit-learn comes with the extra `explore` and is imported where it is used.

References:
    Soria-Comas et al. 2025, §4.2 (F-measure of a random forest, first 66 % of the records for training).
    Snoke et al. 2018, "General and specific utility measures for synthetic data" (propensity score).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from common.errors import UsageError
from owner_node.masking.arrays import Float64Array, Int64Array

TRAINING = 0.66
"""Share of the records that a model is trained on; the first records are used."""
N_TREES = 100
INSTALLED_WITH = "pip install 'tessera-release[explore]'"


def is_installed() -> bool:
    """Return whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def check_installed() -> None:
    """Check that scikit-learn is installed."""
    if not is_installed():
        raise UsageError(
            "scikit-learn is not installed, which the measures pmse and f-measure need",
            f"{INSTALLED_WITH}, or name other measures (--measures divergence, or none)",
        )


@contextmanager
def in_own_threads() -> Iterator[None]:
    """Compute matrix products in the calling threads while several models are fitted in parallel.

    Threads started by each product would wait for one another for longer than the product takes.
    """
    # The limit applies only to libraries that are already loaded.
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def split(n_records: int) -> int:
    """Return how many records a model is trained on."""
    return max(1, int(TRAINING * n_records))


def f_measures(
    training: tuple[Float64Array, Int64Array],
    test: tuple[Float64Array, Int64Array],
    n_classes: int,
    *,
    seed: int,
) -> Float64Array:
    """Train a random forest and return its F-measure for each class.

    Args:
        training: Attributes `(n_training, n_attributes)` and classes `(n_training,)` from 0.
        test: The same of original records that it was not trained on.

    Returns:
        The harmonic mean of precision and recall, `(n_classes,)`; 0 for a class that is never recognised.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import f1_score

    forest = RandomForestClassifier(N_TREES, random_state=seed, n_jobs=1).fit(*training)
    predicted, labels = forest.predict(test[0]), np.arange(n_classes)
    measures: Float64Array = f1_score(test[1], predicted, labels=labels, average=None, zero_division=0.0)
    return measures


@dataclass(frozen=True, slots=True)
class Propensity:
    """How well masked records can be distinguished from original ones."""

    pmse: float
    """Mean squared difference of the propensity score from 1/2: from 0, indistinguishable, to 1/4."""
    ratio: float
    """`pmse` as a multiple of its expectation if both come from one distribution."""


def propensity(original: Float64Array, masked: Float64Array) -> Propensity:
    """Fit a logistic regression that distinguishes masked records from as many original ones.

    Its features are all attributes, their squares and pairwise products, in units of the originals' spread.

    Args:
        original: `(n_records, n_attributes)`.
        masked: Masked records, `(n_records, n_attributes)`.

    References:
        Snoke et al. 2018, equation 1 and Theorem 1 (the expectation by chance).
    """
    from sklearn.linear_model import LogisticRegression

    n_records = len(original)
    features = _features(np.concatenate([original, masked]), n_records)
    if not features.shape[1]:
        # Nothing varies: all records are equal, masked and original ones.
        return Propensity(0.0, 1.0)
    is_masked = np.repeat([0, 1], n_records)
    # If the records are perfectly separable, the best coefficients exist only with a penalty, however small.
    model = LogisticRegression(C=100.0, solver="newton-cholesky", max_iter=100)
    model.fit(features, is_masked)
    scores = model.predict_proba(features)[:, 1]
    pmse = float(np.square(scores - 0.5).mean())
    # (p - 1)(1 - c)² c / N with N records of both kinds, c = 1/2, and p coefficients, the constant included.
    by_chance = features.shape[1] / 8 / (2 * n_records)
    return Propensity(pmse, pmse / by_chance)


def _features(rows: Float64Array, n_original: int) -> Float64Array:
    """Return attributes, squares and pairwise products, standardised, without those that do not vary."""
    from sklearn.preprocessing import PolynomialFeatures

    centre, spread = rows[:n_original].mean(axis=0), rows[:n_original].std(axis=0)
    units = (rows - centre) / np.where(spread > 0, spread, 1.0)
    # Noise far outside the original values would only make the fit unstable; it is recognised anyway.
    np.clip(units, -10, 10, out=units)
    every = PolynomialFeatures(2, include_bias=False).fit_transform(units)
    every -= every.mean(axis=0)
    deviation = every.std(axis=0)
    varies = deviation > 1e-9
    features: Float64Array = every[:, varies] / deviation[varies]
    return features
