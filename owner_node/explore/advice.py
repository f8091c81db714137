"""Which setting to choose, in words that say why, or that none of them is worth releasing.

A setting is *useful* if its mean SSE is at most a quarter of what replacing every value by its attribute's
mean comes to: three quarters of what the values say, in units of variance, are left. It is *safe enough* if
no attack that is aimed at persons (linkage by values or by structure alone, inference, unchanged records) is
right about a fifth of them more than it would be without the release. These are conventions, not proofs:
what is promised is what the mechanism promises, and an attack that was not tried may do better.
"""

from collections.abc import Sequence
from decimal import Decimal

from owner_node.explore.results import NOTHING, RECOMMENDED, CellResult, Recommendation, Risk

USEFUL = 0.25
MOST_EXCESS = 0.2
AIMED_AT_PERSONS = ("unchanged-records", "linkage", "structure", "inference")
_IN_WORDS = {
    "unchanged-records": "leave unchanged as whole records",
    "linkage": "are linked to their record by what the intruder knows of them",
    "structure": "are linked to their record by which values are equal or larger alone",
    "inference": "have their {attribute} told by the record nearest to them",
}


def advise(cells: Sequence[CellResult], n_attributes: int) -> Recommendation:
    """Choose among settings.

    Args:
        cells: What was found of each.
        n_attributes: l; replacing every value by its mean has mean SSE 1/l.
    """
    of_means = 1 / n_attributes
    measured = [number for number, cell in enumerate(cells) if cell.mean_sse is not None]
    if not measured:
        problems = sorted({cell.problem for cell in cells if cell.problem})
        return Recommendation(
            NOTHING, None, ("No setting here can be made of these data.", *(f"{each}." for each in problems))
        )
    useful = [number for number in measured if _error(cells[number]) <= USEFUL * of_means]
    if not useful:
        return _nothing_useful(cells, measured, of_means)
    bounded = [number for number in useful if cells[number].epsilon_joint is not None]
    best = min(bounded or useful, key=lambda number: _preference(cells[number]))
    worst = _worst(cells[best])
    if worst is not None and worst.excess > MOST_EXCESS:
        return _nothing_safe(cells[best], worst, of_means)
    return Recommendation(
        RECOMMENDED, best, tuple(_why(cells[best], worst, of_means, len(useful), len(cells)))
    )


def name_of(cell: CellResult) -> str:
    """Name a setting."""
    k = "" if cell.k is None else f", k = {cell.k}"
    noise = "" if Decimal(cell.rank_noise) == 0 else f", rank noise {cell.rank_noise}"
    return f"{cell.mechanism}, ε = {cell.epsilon}{k}{noise}"


def _error(cell: CellResult) -> float:
    return float("inf") if cell.mean_sse is None else cell.mean_sse.mean


def _worst(cell: CellResult) -> Risk | None:
    """Return the attack on persons that tells most beyond what is known without the release."""
    aimed = [risk for risk in cell.risks if risk.attack in AIMED_AT_PERSONS]
    return max(aimed, key=lambda risk: risk.excess, default=None)


def _preference(cell: CellResult) -> tuple[float, Decimal, float]:
    """Order settings: what they reveal, to the nearest 5 %, then what they cost, then their error."""
    worst = _worst(cell)
    revealed = 0.0 if worst is None else round(worst.excess * 20) / 20
    cost = Decimal(cell.epsilon if cell.epsilon_joint is None else cell.epsilon_joint)
    return revealed, cost, _error(cell)


def _nothing_useful(cells: Sequence[CellResult], measured: Sequence[int], of_means: float) -> Recommendation:
    best = min(measured, key=lambda number: _error(cells[number]))
    error = _error(cells[best])
    compared = (
        "no less than replacing every value by its attribute's mean, which reveals nothing about anybody"
        if error >= of_means
        else f"{_percent(error / of_means)} of what replacing every value by its attribute's mean comes to"
    )
    return Recommendation(
        NOTHING,
        None,
        (
            "No setting here is worth releasing: too little of the data is left.",
            f"The best of them, {name_of(cells[best])}, has a mean SSE of {error:.3g}: {compared}.",
            (
                f"Useful would be at most {_percent(USEFUL)} of it. A larger ε, fewer attributes or more "
                "records lower the error."
            ),
        ),
    )


def _nothing_safe(cell: CellResult, worst: Risk, of_means: float) -> Recommendation:
    error = _error(cell)
    return Recommendation(
        NOTHING,
        None,
        (
            "No setting here is worth releasing: all that are useful reveal too much about persons.",
            (
                f"Of those the least revealing is {name_of(cell)}, with a mean SSE of {error:.3g}, "
                f"{_percent(error / of_means)} of that of the means. "
                f"There {_attack(worst)}."
            ),
            (
                "A larger k or a smaller ε changes little about that: records that share a cluster have "
                "equal values. More rank noise does, and so do fewer attributes."
            ),
        ),
    )


def _why(cell: CellResult, worst: Risk | None, of_means: float, n_useful: int, n_cells: int) -> list[str]:
    error = _error(cell)
    reasons = [
        f"{name_of(cell)} is recommended.",
        (
            f"It is one of {n_useful} useful settings among {n_cells}: its mean SSE is {error:.3g}, "
            f"{_percent(error / of_means)} of what replacing every value by its attribute's mean comes to."
        ),
    ]
    if worst is None:
        reasons.append("What it reveals about persons was not looked at: no attack on them was tried.")
        reasons.append(
            "Of the useful settings it costs the least ε, and has the smallest error at that cost."
        )
    else:
        reasons.append(f"Of the attacks that were tried the most telling one: {_attack(worst)}.")
        reasons.append("Of the useful settings none reveals less at a smaller cost in ε.")
    if cell.epsilon_joint is None:
        reasons.append(
            "No bound holds for whole lists of its values: categories are ordered by how often they occur."
        )
    elif Decimal(cell.epsilon_joint) > Decimal(cell.epsilon):
        reasons.append(f"Its bound on whole lists of values, ε joint, is {cell.epsilon_joint}.")
    return reasons


def _attack(risk: Risk) -> str:
    what = _IN_WORDS[risk.attack].format(attribute=risk.attribute)
    without = max(risk.baseline, risk.control.mean if risk.control is not None else 0.0)
    return (
        f"{_percent(risk.rate.mean)} of the persons {what} ({_percent(risk.rate.low)} to "
        f"{_percent(risk.rate.high)}), against {_percent(without)} without being in the release"
    )


def _percent(rate: float) -> str:
    return f"{rate * 100:.3g} %"
