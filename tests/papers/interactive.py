"""Answers about the median and the maximum: noise for the smooth, the global and the local sensitivity.

Differential privacy by smooth sensitivity is here for comparison only: its noise has a density proportional
to 1/(1 + |x|^γ), times 4γ/ε times the smooth sensitivity. What is individually differentially private is
drawn by the very code that answers `owner-node query`.

References:
    Soria-Comas et al. 2017, Section VI, Figures 1 and 2, Table I.
    Nissim, Raskhodnikova, Smith 2007 (smooth sensitivity).
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from math import exp, inf, log
from pathlib import Path

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq

from common.model.schema import Attribute, AttributeType
from owner_node.masking.arrays import Float64Array, Int64Array, SystemBits
from owner_node.masking.queries import draw_answer, exact_answer
from owner_node.masking.questions import Question, QuestionKind
from owner_node.risk.utility import estimate
from tests.papers.figures import median_errors, noise_densities
from tests.papers.tables import Line, Numbers, markdown, write_csv

UNIT = 10**6
"""Resolution of the data sets, fine enough to look continuous."""
GAMMA = 3
"""The noise parameter that the paper found best."""
GAMMAS = (2.5, 3, 3.5, 4, 5)
"""Those that it is compared with here; with 2 the noise has no mean size."""
EPSILONS = tuple(map(Decimal, ("0.5", "0.6", "0.7", "0.8", "0.9", "1")))
SIZES = (10, 100, 1000)
MAXIMA = (10, 100, 1000)
"""Upper ends of domains."""
Draw = Callable[[np.random.Generator, int], Float64Array]
DISTRIBUTIONS: dict[str, tuple[Draw, tuple[float, float] | None]] = {
    "U[0, 1]": (lambda random, n: random.uniform(0, 1, n), (0.0, 1.0)),
    "N(0, 1)": (lambda random, n: random.normal(0, 1, n), None),
    "Exp(1)": (lambda random, n: random.exponential(1, n), None),
}
"""How values are drawn, and their domain; None: from the smallest to the largest of them, as in the paper."""


def density(x: float, gamma: float) -> float:
    """Return the unscaled density of the noise for the smooth sensitivity at x."""
    whole, _ = quad(lambda y: 1 / (1 + y**gamma), 0, inf)
    return 1 / (1 + abs(x) ** gamma) / (2 * whole)


def half_width(gamma: float, epsilon: float = 1.0, share: float = 0.95) -> float:
    """Return how far the noise for a smooth sensitivity of 1 reaches to each side with this probability."""

    def missing(q: float) -> float:
        return 2 * float(quad(density, 0, q, args=(gamma,), limit=200)[0]) - share

    return 4 * gamma / epsilon * float(brentq(missing, 0, 1000))


def mean_size(gamma: float, epsilon: float) -> float:
    """Return the mean absolute noise for a smooth sensitivity of 1."""
    return 4 * gamma / epsilon * 2 * float(quad(lambda x: x * density(x, gamma), 0, inf)[0])


def smooth_median(ordered: Float64Array, lowest: float, highest: float, beta: float) -> float:
    """Return the smooth sensitivity of the median.

    Args:
        ordered: Values in order, `(n_records,)`; of an even number the upper of the two in the middle counts.
        lowest: Lower end of the domain.
        highest: Upper end of the domain.
        beta: The factor of its exponent; ε/γ for noise with a density proportional to 1/(1 + |x|^γ).

    References:
        Soria-Comas et al. 2017, Section VI.A.2.
    """
    n, m, found = ordered.size, ordered.size // 2, 0.0
    for k in range(n + 1):
        # Beyond the values lie the ends of the domain.
        above = np.arange(k + 2) + m
        high = np.where(above < n, ordered[np.minimum(above, n - 1)], highest)
        below = above - k - 1
        low = np.where(below >= 0, ordered[np.maximum(below, 0)], lowest)
        found = max(found, exp(-k * beta) * float((high - low).max()))
        if exp(-(k + 1) * beta) * (highest - lowest) <= found:
            break
    return found


def smooth_maximum(ordered: Float64Array, lowest: float, highest: float, beta: float) -> float:
    """Return the smooth sensitivity of the maximum; arguments as in `smooth_median`.

    References:
        Soria-Comas et al. 2017, Section VI.B.2.
    """
    n = ordered.size
    # The k + 1 largest values first; below all values lies the end of the domain.
    falling = np.concatenate([ordered[::-1], [lowest, lowest]])
    k = np.arange(n + 1)
    local = np.maximum(highest - falling[k], falling[0] - falling[k + 1])
    return float((np.exp(-k * beta) * local).max())


def median_error(values: Float64Array, domain: tuple[float, float], epsilon: Decimal) -> tuple[float, float]:
    """Return the absolute error of a median by `owner-node query`, and the mean of the smooth one."""
    lower, upper = (round(each * UNIT) for each in domain)
    units = np.clip(np.rint(values * UNIT).astype(np.int64), lower, upper)
    question = Question(
        QuestionKind.MEDIAN, Attribute("x", AttributeType.NUMBER, lower, upper, decimals=6), epsilon
    )
    exact = exact_answer(question, units)
    truth = exact.sums[0] / exact.parts + exact.offset
    individual = abs(draw_answer(question, units, SystemBits())[0] - truth) / UNIT
    smooth = smooth_median(np.sort(values), *domain, float(epsilon) / GAMMA)
    return float(individual), smooth * mean_size(GAMMA, float(epsilon))


def medians(runs: int, random: np.random.Generator) -> list[Line]:
    """Return Figure 2: mean absolute errors over data sets drawn anew."""
    lines = []
    for name, (draw, domain) in DISTRIBUTIONS.items():
        for n in SIZES:
            sets = [draw(random, n) for _ in range(runs)]
            for epsilon in EPSILONS:
                errors = [
                    median_error(values, domain or (values.min(), values.max()), epsilon) for values in sets
                ]
                for mechanism, found in zip(
                    ("iDP, local", "DP, smooth"), zip(*errors, strict=True), strict=True
                ):
                    about = estimate(found)
                    assert about is not None
                    lines.append(
                        Line(
                            "004 Fig. 2", f"{name}, n = {n}", "central", mechanism, f"{epsilon:f}", "",
                            "absolute error", runs, about.mean, about.low, about.high,
                        )
                    )  # fmt: skip
    return lines


def maxima(runs: int, random: np.random.Generator) -> Numbers:
    """Return the sensitivities of maximum and second maximum for wider and wider domains."""
    rows = []
    for upper in MAXIMA:
        found = np.zeros(2)
        for values, attribute in _exponential(upper, runs, random):
            for i, kind in enumerate((QuestionKind.MAXIMUM, QuestionKind.SECOND_MAXIMUM)):
                found[i] += (
                    exact_answer(Question(kind, attribute, Decimal(1)), values).sensitivity / UNIT / runs
                )
        rows.append((f"[0, {upper}]", (float(upper), *map(float, found))))
    return Numbers(("domain", "global, maximum", "local, maximum", "local, second maximum"), tuple(rows))


def maxima_errors(runs: int, random: np.random.Generator) -> Numbers:
    """Return how far noisy answers are from the maximum: asked for it, or for the second."""
    rows = []
    for upper in MAXIMA:
        found = np.zeros(4)
        for values, attribute in _exponential(upper, runs, random):
            ordered = np.sort(values) / UNIT
            smooth = smooth_maximum(ordered, 0, attribute.upper / UNIT, 1 / GAMMA)
            answers = [
                draw_answer(Question(kind, attribute, Decimal(1)), values, SystemBits())[0] / UNIT
                for kind in (QuestionKind.MAXIMUM, QuestionKind.SECOND_MAXIMUM)
            ]
            errors = [abs(float(each) - ordered[-1]) for each in answers]
            found += np.array([smooth, smooth * mean_size(GAMMA, 1), *errors]) / runs
        rows.append((f"[0, {upper}]", tuple(map(float, found))))
    heads = ("domain", "smooth sensitivity", "DP, smooth", "iDP, maximum", "iDP, second maximum")
    return Numbers(heads, tuple(rows))


def _exponential(
    upper: int, runs: int, random: np.random.Generator
) -> Iterator[tuple[Int64Array, Attribute]]:
    """Draw 1,000 values from Exp(1), each time with a domain that is at least as wide as is said."""
    for _ in range(runs):
        values = np.rint(random.exponential(1, 1000) * UNIT).astype(np.int64)
        highest = max(upper * UNIT, int(values.max()))
        yield values, Attribute("x", AttributeType.NUMBER, 0, highest, decimals=6)


def gammas(runs: int, random: np.random.Generator) -> Numbers:
    """Return the mean absolute error of medians with noise for the smooth sensitivity, by γ."""
    rows, sizes = [], [mean_size(each, 1) for each in GAMMAS]
    for name, (draw, domain) in DISTRIBUTIONS.items():
        for n in SIZES:
            found = np.zeros(len(GAMMAS))
            for _ in range(runs):
                ordered = np.sort(draw(random, n))
                lowest, highest = domain or (ordered[0], ordered[-1])
                found += [smooth_median(ordered, lowest, highest, 1 / each) / runs for each in GAMMAS]
            rows.append((f"{name}, n = {n}", tuple(map(float, found * sizes))))
    return Numbers(("data", *(f"γ = {each:g}" for each in GAMMAS)), tuple(rows))


def run(_data: Path, out: Path, runs: int, seed: int) -> dict[str, str]:
    """Make the figures and CSV files; returns the tables of the page by name."""
    random = np.random.default_rng(seed)
    widths = {"ε-iDP": log(20), "ε-DP, γ = 2": half_width(2), "ε-DP, γ = 3": half_width(3)}
    lines = medians(runs, random)
    write_csv(out / "median.csv", lines)
    median_errors(out / "median.png", lines)
    places = np.linspace(-10, 10, 201)
    noise_densities(
        out / "noise.png",
        places,
        {
            "iDP, Laplace": np.exp(-np.abs(places)) / 2,
            **{f"DP, γ = {g}": np.array([density(x / (4 * g), g) / (4 * g) for x in places]) for g in (2, 3)},
        },
    )
    intervals = "\n".join([
        "| | " + " | ".join(widths) + " |",
        "|---|" + "---:|" * len(widths),
        "| paper | ±3 | ±101.7 | ±34.2 |",
        "| here | " + " | ".join(f"±{width:.1f}" for width in widths.values()) + " |",
    ])  # fmt: skip
    tables = {
        "median intervals": intervals,
        "median errors": markdown(lines, "epsilon", ["data", "mechanism"]),
    }
    for name, make in (("maxima", maxima), ("maxima errors", maxima_errors), ("median gammas", gammas)):
        found = make(runs, random)
        found.write(out / f"{name.replace(' ', '_')}.csv")
        tables[name] = found.markdown()
    return tables
