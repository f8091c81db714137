"""Recommends a setting with reasons, or states that no setting is worth releasing.

A setting is *useful* if its mean SSE is at most a quarter of the mean SSE of replacing every value by its
attribute's mean: three quarters of the information, in units of variance, are left. It is *safe enough* if
no attack on persons (linkage by values, likelihood or structure, inference, unchanged records) has a success
rate that exceeds the one without the release by more than a fifth. These are conventions, not proofs: only
the mechanism's promise is guaranteed, and an attack that was not tried may do better.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import inf

from common.model.mechanisms import rules_of
from common.words.numbers import percent_text
from owner_node.explore.results import NOTHING, RECOMMENDED, CellResult, Recommendation
from owner_node.risk.risks import Risk

USEFUL = 0.25
MOST_EXCESS = 0.2
AIMED_AT_PERSONS = ("unchanged-records", "linkage", "likelihood", "structure", "inference")
_GRID = {"epsilon": "ε", "k": "k", "rank_noise": "rank noise"}
_LITTLE = 0.05
"""Shares that differ by less are called similar: confidence intervals are about as wide."""
_IN_WORDS = {
    "unchanged-records": "leave unchanged as whole records",
    "linkage": "are linked to their record by what the intruder knows of them",
    "likelihood": "are linked to their record by how likely it is for what the intruder knows of them",
    "structure": "are linked to their record by which values are equal or larger alone",
    "inference": "have their {attribute} inferred from the record nearest to them",
}


def advise(cells: Sequence[CellResult], of_means: float) -> Recommendation:
    """Choose among settings.

    Args:
        cells: Results of all settings; at least one could be masked.
        of_means: Mean SSE of replacing every value by its mean, above 0.
    """
    useful = _useful(cells, of_means)
    best = most_protective(cells, of_means)
    if not useful:
        return _nothing_useful(cells, of_means)
    worst = cells[best].worst(AIMED_AT_PERSONS)
    if worst is not None and worst.excess > MOST_EXCESS:
        return _nothing_safe(cells, cells[best], worst, of_means)
    return Recommendation(
        RECOMMENDED, best, tuple(_why(cells[best], worst, of_means, len(useful), len(cells)))
    )


def most_protective(cells: Sequence[CellResult], of_means: float) -> int:
    """Return the useful setting that reveals least, or the one among all settings if none is useful."""
    possible = _useful(cells, of_means) or _maskable(cells)
    bounded = [number for number in possible if cells[number].epsilon_joint is not None]
    return min(bounded or possible, key=lambda number: _preference(cells[number]))


def name_of(cell: CellResult) -> str:
    """Name a setting; rank noise is included even if it is 0, since 0 is nowhere the default."""
    k = "" if cell.k is None else f", k = {cell.k}"
    noise = f", rank noise {cell.rank_noise}" if rules_of(cell.mechanism).listed else ""
    return f"{cell.mechanism}, ε = {cell.epsilon}{k}{noise}"


def _maskable(cells: Sequence[CellResult]) -> list[int]:
    return [number for number, cell in enumerate(cells) if cell.mean_sse is not None]


def _useful(cells: Sequence[CellResult], of_means: float) -> list[int]:
    return [number for number in _maskable(cells) if _error(cells[number]) <= USEFUL * of_means]


def _error(cell: CellResult) -> float:
    return inf if cell.mean_sse is None else cell.mean_sse.mean


def _preference(cell: CellResult) -> tuple[float, Decimal, Decimal, float]:
    """Sort key of settings: risk to the nearest 5 %, then cost, then error.

    Without an attack that measures the risk, more rank noise counts as safer.
    """
    worst = cell.worst(AIMED_AT_PERSONS)
    cost = Decimal(cell.epsilon if cell.epsilon_joint is None else cell.epsilon_joint)
    if worst is None:
        noise = Decimal(cell.rank_noise) if rules_of(cell.mechanism).listed else Decimal("Infinity")
        return 0.0, cost, -noise, _error(cell)
    return round(worst.excess * 20) / 20, cost, Decimal(0), _error(cell)


def _nothing_useful(cells: Sequence[CellResult], of_means: float) -> Recommendation:
    cell = min((cells[number] for number in _maskable(cells)), key=_error)
    error = _error(cell)
    compared = (
        "no less than replacing every value by its attribute's mean, which reveals nothing but the means"
        if error >= of_means
        else f"{percent_text(error / of_means)} of that of replacing every value by its attribute's mean"
    )
    return Recommendation(
        NOTHING,
        None,
        (
            "No setting here is worth releasing: too little of the data is left.",
            f"The best of them, {name_of(cell)}, has a mean SSE of {error:.3g}: {compared}.",
            f"A useful setting has at most {percent_text(USEFUL)} of that.",
            *_by_what(cells, cell, "That share", lambda result: _error(result) / of_means),
            "Fewer attributes than these were not tried (--attributes).",
        ),
    )


def _nothing_safe(
    cells: Sequence[CellResult], cell: CellResult, worst: Risk, of_means: float
) -> Recommendation:
    error = _error(cell)
    return Recommendation(
        NOTHING,
        None,
        (
            "No setting here is worth releasing: all useful ones reveal too much about persons.",
            (
                f"The useful setting that reveals least is {name_of(cell)}, with a mean SSE of {error:.3g}, "
                f"{percent_text(error / of_means)} of that of the means. "
                f"There {_attack(worst)}."
            ),
            *_by_what(
                cells,
                cell,
                "The strongest attack, beyond what is right without the release",
                lambda result: result.excess(AIMED_AT_PERSONS),
                USEFUL * of_means,
            ),
            _limits_of_search(cells, cell),
        ),
    )


def _by_what(
    cells: Sequence[CellResult],
    cell: CellResult,
    what: str,
    value_of: Callable[[CellResult], float | None],
    most_error: float = inf,
) -> list[str]:
    """Describe how a figure depends on ε, k and rank noise, from settings that differ in one of them.

    Args:
        value_of: Returns the figure of a setting that could be masked; None where it was not measured.
        most_error: Settings with a larger mean SSE are marked.
    """
    sentences = []
    for field, word in _GRID.items():
        alike = [other for other in _GRID if other != field]
        near = [
            (result, value)
            for result in (cells[number] for number in _maskable(cells))
            if result.mechanism == cell.mechanism
            and all(getattr(result, name) == getattr(cell, name) for name in alike)
            and (value := value_of(result)) is not None
        ]
        if len(near) > 1:
            listed = ", ".join(
                f"{percent_text(value)} at {getattr(result, field)}"
                f"{' (too little is left of the data)' if _error(result) > most_error else ''}"
                for result, value in near
            )
            values = [value for _, value in near]
            little = max(values) - min(values) < _LITTLE
            sentences.append(
                f"{what}, by {word}, all else equal: {listed}{' (little difference)' if little else ''}."
            )
    return sentences


def _limits_of_search(cells: Sequence[CellResult], cell: CellResult) -> str:
    if not rules_of(cell.mechanism).listed:
        return "Fewer attributes than these were not tried (--attributes)."
    most = max(Decimal(result.rank_noise) for result in cells if result.mechanism == cell.mechanism)
    return (
        f"More rank noise than {most:f} and fewer attributes than these were not tried (--rank-noise, "
        "--attributes)."
    )


def _why(cell: CellResult, worst: Risk | None, of_means: float, n_useful: int, n_cells: int) -> list[str]:
    error = _error(cell)
    which = "the only useful setting" if n_useful == 1 else f"one of {n_useful} useful settings"
    reasons = [
        f"{name_of(cell)} is recommended.",
        (
            f"It is {which} among {n_cells}: its mean SSE is {error:.3g}, "
            f"{percent_text(error / of_means)} of that of replacing every value by its attribute's mean."
        ),
    ]
    if worst is None:
        reasons.append("No attack on persons was tried, so nothing is known of what it reveals about them.")
        reasons.append(
            "No useful setting costs less ε. Among those of equal cost it has the most rank noise, "
            "and then the smallest error."
        )
    else:
        reasons.append(f"The strongest attack that was tried: {_attack(worst)}.")
        reasons.append("No useful setting reveals less at a smaller cost in ε.")
    if cell.epsilon_joint is None:
        reasons.append(
            "No bound holds for whole lists of its values: categories are ordered by how often they occur."
        )
    elif Decimal(cell.epsilon_joint) > Decimal(cell.epsilon):
        reasons.append(f"Its bound on whole lists of values, ε joint, is {cell.epsilon_joint}.")
    return reasons


def _attack(risk: Risk) -> str:
    what = _IN_WORDS[risk.attack].format(attribute=risk.attribute)
    return (
        f"{percent_text(risk.rate.mean)} of the persons {what} ({percent_text(risk.rate.low)} to "
        f"{percent_text(risk.rate.high)}), against {percent_text(risk.without_release)} without being in the "
        "release"
    )
