"""The page of an exploration: heat maps over ε and k, utility against risk, attributes before and after.

It is one HTML file, made from the results alone; the reader's choices are folded into the page. Like the
results, it depends on original data, and says so.

References:
    Del Vasto-Terrientes et al. 2025, Figures 2 and 3 (heat maps).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Any

from common.model.mechanisms import rules_of
from common.words import charts
from common.words.numbers import number_text, percent_text
from common.words.pages import render
from owner_node.explore.advice import AIMED_AT_PERSONS, name_of
from owner_node.explore.results import CellResult, Results
from owner_node.risk.attacks import LINKING, WORDS
from owner_node.risk.distortion import warnings
from owner_node.risk.utility import Estimate

_UTILITY = (
    ("relative_error", "Relative error", "Mean error of a value relative to its size."),
    ("variance_change", "Change of variance", "Relative change of the attributes' variances."),
    ("divergence", "Jensen–Shannon divergence", "Distance of histograms: 0 equal, 1 nothing in common."),
    ("correlation_error", "Error of correlations", "Mean change of the correlation of two attributes."),
    (
        "pmse_ratio",
        "Propensity score",
        "How well a model distinguishes masked from original records, as a multiple of what chance gives.",
    ),
)
_REIDENTIFIED = (
    "Share of persons who are linked to their record by the best attack, of an intruder who knows these "
    "attributes of everybody."
)
MOST_LABELS = 20
"""Most categories of an attribute in a chart."""
_MOST_LYING = 12
"""Most bins of numbers that are drawn as horizontal bars, whose labels have more room."""
_SERIES = 4
"""Number of colours of marks; further mechanisms reuse them from the first."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One setting in a heat map: its number, its colour if there is a number, and its text."""

    text: str = "–"
    colour: str = ""
    note: str = "not asked for"
    worse: bool = False
    """Whether the measure is as bad as replacing values by means, or worse."""
    chosen: bool = False
    """Whether it is the recommended setting."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One measure of one mechanism and rank noise, over ε and k."""

    title: str
    ks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    """By ε, the cells of all k."""


@dataclass(frozen=True, slots=True)
class MeasureMaps:
    """A measure, with a heat map for every mechanism and rank noise; all share one scale of colours."""

    title: str
    meaning: str
    maps: tuple[HeatMap, ...]


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """The distributions of one attribute before and after."""

    name: str
    chart: charts.Plot | charts.Rows
    upright: bool
    """Whether bars are vertical."""
    left_out: int
    """Categories that are not drawn."""
    numbers: tuple[tuple[str, int, int], ...]
    """Bin, records before, records after."""


def render_page(results: Results, *, compare: bool = True) -> str:
    """Return the page of an exploration: self-contained HTML, in which every text is escaped.

    Args:
        compare: Whether distributions before and after are drawn, and distortions named. Scales end at the
            smallest and the largest original value, and a distortion names the most frequent one.
    """
    chosen = results.recommendation.cell
    kinds = {attribute["name"]: attribute["type"] for attribute in results.about["attributes"]}
    shown = results.cells[results.shown.cell]
    names = dict.fromkeys(cell.mechanism for cell in results.cells)
    colours = {name: i % _SERIES for i, name in enumerate(names)}
    return render(
        "owner_node",
        "explore.html",
        {
            "about": results.about,
            "cells": results.cells,
            "reasons": results.recommendation.reasons,
            "chosen": None if chosen is None else results.cells[chosen],
            "measures": measures(results),
            "plane": _plane(results.cells, colours),
            "mechanisms": colours,
            "shown": shown,
            "attacks": WORDS,
            "compared": [
                before_and_after(attribute, kinds[attribute["name"]])
                for attribute in results.shown.attributes
                if compare
            ],
            "unchanged": _unchanged_rows(shown),
            "distorted": warnings(results.shown.distortions) if compare else [],
            "name_of": name_of,
            "estimate": _estimate,
            "number": number_text,
            "percent": percent_text,
            "risk": lambda cell: cell.excess(AIMED_AT_PERSONS),
        },
    )


def _estimate(value: Estimate | None) -> str:
    if value is None:
        return "–"
    return f"{number_text(value.mean)} ({number_text(value.low)} to {number_text(value.high)})"


def without_noise(cells: Sequence[CellResult]) -> str:
    """List the mean SSE of plain individual ranking, the same clusters without noise, by k; empty if unknown.

    With the least and the largest value if the chosen k differs.
    """
    known: dict[str, list[float]] = {}
    for cell in cells:
        if cell.k is not None and cell.mean_sse_without_noise is not None:
            known.setdefault(cell.k, []).append(cell.mean_sse_without_noise)
    return ", ".join(
        f"{' to '.join(dict.fromkeys((number_text(min(values)), number_text(max(values)))))} with k = {k}"
        for k, values in known.items()
    )


# --- heat maps -----------------------------------------------------------------------------------------


def measures(results: Results) -> tuple[MeasureMaps, ...]:
    """Return the heat maps of all measures, mean SSE first, risks last."""
    line, alone = float(results.about["mean_sse_of_means"]), without_noise(results.cells)
    meaning = (
        "Mean squared distance between a record and its masked form, in units of the attributes' variances. "
        f"{number_text(line)} is that of a table with every value replaced by its attribute's mean: settings "
        "marked with × are worth less than that."
        f"{f' Without noise the same clusters (plain individual ranking) have {alone}.' if alone else ''}"
    )

    def means(field: str) -> list[float | None]:
        estimates = (getattr(cell, field) for cell in results.cells)
        return [None if value is None else value.mean for value in estimates]

    maps = [_measure_maps(results, "Mean SSE", meaning, means("mean_sse"), limit=line)]
    maps += [_measure_maps(results, title, text, means(field)) for field, title, text in _UTILITY]
    for knows in results.about["intruders"]:
        risks = [cell.reidentified(knows) for cell in results.cells]
        rates = [None if risk is None else risk.rate.mean for risk in risks]
        maps.append(
            _measure_maps(results, f"Re-identified: {knows} known", _REIDENTIFIED, rates, percent_text)
        )
    for attack in dict.fromkeys(risk.attack for cell in results.cells for risk in cell.risks):
        if attack not in LINKING:
            values = [cell.excess((attack,)) for cell in results.cells]
            maps.append(
                _measure_maps(
                    results,
                    f"Risk: {WORDS[attack].name.removesuffix(':')}",
                    _meaning(results, attack),
                    values,
                    percent_text,
                )
            )
    return tuple(measure_maps for measure_maps in maps if measure_maps.maps)


def _measure_maps(
    results: Results,
    title: str,
    meaning: str,
    values: Sequence[float | None],
    text_of: Callable[[float], str] = number_text,
    *,
    limit: float | None = None,
) -> MeasureMaps:
    """Lay out one measure, `values` by cell.

    With a limit, values that reach it are marked, and colours follow the logarithms of values.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return MeasureMaps(title, meaning, ())
    # Zero has no logarithm; it takes the place of the smallest value that has one.
    least = min((value for value in known if value > 0), default=1.0)

    def scale(value: float) -> float:
        return value if limit is None else log10(max(value, least))

    low, high = scale(min(known)), scale(max(known))

    def heat_cell(cell: CellResult, value: float | None, *, chosen: bool) -> HeatCell:
        if value is None or not isfinite(value):
            return HeatCell(note=f"{name_of(cell)}: {cell.problem or 'not measured'}", chosen=chosen)
        colour = charts.heat((scale(value) - low) / (high - low or 1.0))
        worse = limit is not None and value >= limit
        return HeatCell(text_of(value), colour, f"{name_of(cell)}: {text_of(value)}", worse, chosen)

    maps: dict[str, dict[tuple[str, str | None], HeatCell]] = {}
    for i, (cell, value) in enumerate(zip(results.cells, values, strict=True)):
        noise = f" with rank noise {cell.rank_noise}" if rules_of(cell.mechanism).listed else ""
        of_title = maps.setdefault(f"{cell.mechanism}{noise}", {})
        of_title[cell.epsilon, cell.k] = heat_cell(cell, value, chosen=i == results.recommendation.cell)
    return MeasureMaps(title, meaning, tuple(_heat_map(name, cells) for name, cells in maps.items()))


def _heat_map(title: str, cells: Mapping[tuple[str, str | None], HeatCell]) -> HeatMap:
    epsilons, ks = (dict.fromkeys(axis) for axis in zip(*cells, strict=True))
    rows = tuple((str(e), tuple(cells.get((e, k), HeatCell()) for k in ks)) for e in epsilons)
    return HeatMap(title, tuple("no clusters" if k is None else f"k = {k}" for k in ks), rows)


def _meaning(results: Results, attack: str) -> str:
    risks = [risk for cell in results.cells for risk in cell.risks if risk.attack == attack]
    guesses = [risk.baseline for risk in risks]
    without = " to ".join(dict.fromkeys((percent_text(min(guesses)), percent_text(max(guesses)))))
    of_which = ", of the attribute where that is most" if any(risk.attribute for risk in risks) else ""
    return (
        "Share of targets about whom it is right, less what is right without the release (by guessing "
        f"{without}, or about people who are not in it, if that is more){of_which}. "
        f"Always right would mean: {risks[0].meaning.rstrip('.')}."
    )


# --- charts --------------------------------------------------------------------------------------------


def before_and_after(attribute: Mapping[str, Any], kind: str) -> BeforeAfter:
    """Return one attribute before and after.

    Args:
        attribute: An entry of `shown.attributes`.
        kind: Its type. Categories become horizontal bars, the largest ones if there are many; many bins of
            numbers become vertical bars.
    """
    name, bins = attribute["name"], attribute["bins"]
    numbers = tuple(zip(bins, attribute["original"], attribute["masked"], strict=True))
    upright = kind not in ("category", "boolean") and len(bins) > _MOST_LYING
    drawn = list(numbers)
    if not upright:
        largest = sorted(numbers, key=lambda bar: -max(bar[1:]))[:MOST_LABELS]
        drawn = [bar for bar in numbers if bar in largest]
    labels, *series = zip(*drawn, strict=True)
    texts = [
        [
            f"{label}: {n:,} {when}" if upright else f"{n:,} {when}"
            for label, n in zip(labels, counts, strict=True)
        ]
        for counts, when in zip(series, ("before", "after"), strict=True)
    ]
    chart = (charts.columns if upright else charts.rows)(series, labels, texts)
    return BeforeAfter(name, chart, upright, len(bins) - len(drawn), numbers)


def _plane(cells: Sequence[CellResult], colours: Mapping[str, int]) -> charts.Plot | None:
    """Return utility against risk: every setting that was attacked."""
    attacked = [
        (cell, cell.mean_sse.mean, risk)
        for cell in cells
        if (risk := cell.excess(AIMED_AT_PERSONS)) is not None and cell.mean_sse and cell.mean_sse.mean > 0
    ]
    if not attacked:
        return None
    return charts.points(
        [(error, risk) for _, error, risk in attacked],
        [colours[cell.mechanism] for cell, _, _ in attacked],
        [
            f"{name_of(cell)}: mean SSE {number_text(error)}, risk {percent_text(risk)}"
            for cell, error, risk in attacked
        ],
    )


def _unchanged_rows(cell: CellResult) -> charts.Rows | None:
    known = [
        (attribute.name, attribute.unchanged)
        for attribute in cell.attributes
        if attribute.unchanged is not None
    ]
    if not known:
        return None
    names, shares = zip(*known, strict=True)
    return charts.rows([shares], names, [[percent_text(share) for share in shares]])
