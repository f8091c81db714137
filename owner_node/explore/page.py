"""Heat maps over ε and k of everything that exploring measured, as in the papers, for every mechanism."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Any

from common.model.privacy import is_listed
from common.words import charts
from common.words.pages import render
from owner_node.explore.advice import AIMED_AT_PERSONS

Document = Mapping[str, Any]
_UTILITY = (
    ("relative_error", "Relative error", "Mean error of a value relative to its size."),
    ("variance_change", "Change of variance", "Relative change of the attributes' variances."),
    ("divergence", "Jensen–Shannon divergence", "Distance of histograms: 0 equal, 1 nothing in common."),
    ("correlation_error", "Error of correlations", "Mean change of the correlation of two attributes."),
    (
        "pmse_ratio",
        "Propensity score",
        "How well a model tells masked from original records, as a multiple of what chance gives.",
    ),
)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One setting in a heat map."""

    text: str
    """Its number."""
    colour: str
    """Its colour; empty where there is no number."""
    note: str
    """Everything about it in words."""
    worse: bool
    """Whether it is beyond the line above which the measure is as bad as no release."""
    chosen: bool
    """Whether it is the setting that is recommended."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One measure of one mechanism, over ε and k."""

    title: str
    """Mechanism and rank noise."""
    ks: tuple[str, ...]
    """Heads of its columns."""
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    """By ε, the cell of every k."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure with a heat map for every mechanism; all share one scale of colours."""

    title: str
    """Its name."""
    meaning: str
    """What it says."""
    maps: tuple[HeatMap, ...]
    """By mechanism and rank noise."""


def measures(document: Document) -> tuple[Measure, ...]:
    """Return the heat maps of everything that was measured, mean SSE first, risks last.

    Args:
        document: What exploring found (`owner_node.explore.results`).

    References:
        Del Vasto-Terrientes et al. 2025, Figures 2 and 3.
    """
    line = float(document["mean_sse_of_means"])
    told = (
        "Mean squared distance between a record and its masked form, in units of the attributes' variances. "
        f"{number(line)} is that of a table with every value replaced by its attribute's mean: settings "
        f"marked with × are worth less than that.{_of_clusters_alone(document)}"
    )
    found = [_measure(document, "Mean SSE", told, _mean_of("mean_sse"), line)]
    found += [_measure(document, title, meaning, _mean_of(key)) for key, title, meaning in _UTILITY]
    attacks = dict.fromkeys(risk["attack"] for cell in document["cells"] for risk in cell["risks"])
    found += [
        _measure(document, f"Risk: {attack}", _meaning(document, attack), _excess_of(attack), text_of=percent)
        for attack in attacks
    ]
    return tuple(each for each in found if each.maps)


def beyond(risk: Document) -> float:
    """Return by how much an attack is right more often than without the release, on average."""
    control = risk["control"]["mean"] if risk["control"] else 0.0
    return max(0.0, float(risk["rate"]["mean"]) - max(float(risk["baseline"]), float(control)))


def worst(cell: Document) -> float | None:
    """Return by how much the most successful attack on persons is right; None if there was none."""
    return max((beyond(risk) for risk in cell["risks"] if risk["attack"] in AIMED_AT_PERSONS), default=None)


def setting(cell: Document) -> str:
    """Return what a cell stands for, in one line."""
    k = "" if cell["k"] is None else f", k = {cell['k']}"
    return f"{_title(cell)}, ε = {cell['epsilon']}{k}"


def without_noise(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the mean SSE of plain individual ranking, the same clusters without noise, by k.

    Returns:
        k and the number, or the least and the largest where the k that is chosen differs.
    """
    found: dict[str, list[float]] = {}
    for cell in document["cells"]:
        if cell["k"] is not None and cell["mean_sse_without_noise"] is not None:
            found.setdefault(str(cell["k"]), []).append(cell["mean_sse_without_noise"])
    ends = ((k, number(min(each)), number(max(each))) for k, each in found.items())
    return tuple((k, low if low == high else f"{low} to {high}") for k, low, high in ends)


def _of_clusters_alone(document: Document) -> str:
    found = ", ".join(f"{text} with k = {k}" for k, text in without_noise(document))
    return f" Without noise the same clusters (plain individual ranking) have {found}." if found else ""


def number(value: float | None) -> str:
    """Return a number with the digits that its noise leaves."""
    if value is None or not isfinite(value):
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Return a share in per cent."""
    if share is None:
        return "–"
    return f"{100 * share:.2g} %" if 0 < share < 0.01 else f"{100 * share:.1f} %"


def _measure(
    document: Document,
    title: str,
    meaning: str,
    value_of: Callable[[Document], float | None],
    limit: float | None = None,
    text_of: Callable[[float | None], str] = number,
) -> Measure:
    """Lay out one measure; with a limit, which values reach is marked and colours follow their logarithms."""
    cells = document["cells"]
    values = [value_of(cell) for cell in cells]
    shares = _shares(values, logarithmic=limit is not None)
    maps: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        maps.setdefault(_title(cell), []).append(i)

    def heat_cell(i: int) -> HeatCell:
        value, share, cell = values[i], shares[i], cells[i]
        chosen = i == document["recommendation"]["cell"]
        if value is None or share is None:
            note = f"{setting(cell)}: {cell['problem'] or 'not measured'}"
            return HeatCell("–", "", note, worse=False, chosen=chosen)
        worse = limit is not None and value >= limit
        return HeatCell(
            text_of(value),
            charts.heat(share),
            f"{setting(cell)}: {text_of(value)}",
            worse=worse,
            chosen=chosen,
        )

    if not any(share is not None for share in shares):
        return Measure(title, meaning, ())
    return Measure(title, meaning, tuple(_heat_map(name, cells, at, heat_cell) for name, at in maps.items()))


def _shares(values: Sequence[float | None], *, logarithmic: bool) -> list[float | None]:
    """Return where values lie between the smallest and the largest of them; None where there is none."""
    known = [value for value in values if value is not None and isfinite(value)]
    # Zero has no logarithm; it takes the place of the smallest value that has one.
    least = min((value for value in known if value > 0), default=1.0)

    def scaled(value: float) -> float:
        return log10(max(value, least)) if logarithmic else value

    low, high = (end(map(scaled, known), default=0.0) for end in (min, max))
    room = (high - low) or 1.0
    return [
        None if value is None or not isfinite(value) else (scaled(value) - low) / room for value in values
    ]


def _heat_map(
    title: str, cells: Sequence[Document], places: Sequence[int], heat_cell: Callable[[int], HeatCell]
) -> HeatMap:
    ks = tuple(dict.fromkeys(cells[i]["k"] for i in places))
    epsilons = dict.fromkeys(cells[i]["epsilon"] for i in places)
    at = {(cells[i]["epsilon"], cells[i]["k"]): i for i in places}
    nothing = HeatCell("–", "", "not asked for", worse=False, chosen=False)
    rows = tuple(
        (epsilon, tuple(heat_cell(at[epsilon, k]) if (epsilon, k) in at else nothing for k in ks))
        for epsilon in epsilons
    )
    return HeatMap(title, tuple("no clusters" if k is None else f"k = {k}" for k in ks), rows)


def _mean_of(key: str) -> Callable[[Document], float | None]:
    return lambda cell: None if cell[key] is None else float(cell[key]["mean"])


def _excess_of(attack: str) -> Callable[[Document], float | None]:
    """Return what an attack adds; of several, on different attributes, the one that adds most.

    It is what the terminal's table shows: rates of different attributes do not compare with each other.
    """

    def excess(cell: Document) -> float | None:
        return max((beyond(risk) for risk in cell["risks"] if risk["attack"] == attack), default=None)

    return excess


def _meaning(document: Document, attack: str) -> str:
    found = [risk for cell in document["cells"] for risk in cell["risks"] if risk["attack"] == attack]
    known = [float(risk["baseline"]) for risk in found]
    without = " to ".join(dict.fromkeys((percent(min(known)), percent(max(known)))))
    of_which = ", of the attribute where that is most" if any(risk["attribute"] for risk in found) else ""
    return (
        "Share of targets about whom it is right, less what is right without the release (by guessing "
        f"{without}, or about people who are not in it, if that is more){of_which}. "
        f"Always right would mean: {found[0]['meaning'].rstrip('.')}."
    )


def _title(cell: Document) -> str:
    noise = f" with rank noise {cell['rank_noise']}" if is_listed(cell["mechanism"]) else ""
    return f"{cell['mechanism']}{noise}"


MOST_LABELS = 20
"""Categories of an attribute that are drawn, before and after."""
_MOST_LYING = 12
"""Bins of numbers that are drawn as lying bars, whose labels have more room."""
_SERIES = 4
"""Colours of marks; further mechanisms begin anew."""
_LONGEST_MARK = 14


@dataclass(frozen=True, slots=True)
class Compared:
    """One attribute before and after."""

    name: str
    """Its name."""
    chart: charts.Columns | charts.Rows
    """Both distributions."""
    upright: bool
    """Whether bars stand."""
    left_out: int
    """Categories that are not drawn."""
    numbers: tuple[tuple[str, int, int], ...]
    """Bin, records before, records after."""


def render_page(document: Document) -> str:
    """Return the page of an exploration.

    Args:
        document: From `Results.to_document`, or read from its JSON.

    Returns:
        Self-contained HTML; every text of the document is escaped.
    """
    cells, shown, chosen = document["cells"], document["shown"], document["recommendation"]["cell"]
    kinds = {each["name"]: each["type"] for each in document["attributes"]}
    return render(
        "owner_node",
        "explore.html",
        {
            "document": document,
            "chosen": "" if chosen is None else setting(cells[chosen]),
            "measures": measures(document),
            "plane": _plane(cells),
            "mechanisms": _mechanisms(cells),
            "shown": cells[shown["cell"]],
            "compared": [compared(each, kinds[each["name"]]) for each in shown["attributes"]],
            "unchanged": _unchanged(cells[shown["cell"]]),
            "setting": setting,
            "estimate": estimate,
            "number": number,
            "percent": percent,
            "worst": worst,
        },
    )


def estimate(value: Document | None) -> str:
    """Return an estimate with its confidence interval."""
    if value is None:
        return "–"
    return f"{number(value['mean'])} ({number(value['low'])} to {number(value['high'])})"


def compared(attribute: Document, kind: str) -> Compared:
    """Return one attribute before and after.

    Args:
        attribute: An entry of `shown.attributes`.
        kind: Its type. Categories lie, the largest ones if there are many; many bins of numbers stand.
    """
    bins, original, masked = attribute["bins"], attribute["original"], attribute["masked"]
    numbers = tuple(zip(bins, original, masked, strict=True))
    if kind not in ("category", "boolean") and len(bins) > _MOST_LYING:
        texts = [
            [f"{label}: {records:,} {when}" for label, records in zip(bins, values, strict=True)]
            for values, when in ((original, "before"), (masked, "after"))
        ]
        marks = [charts.shortened(each, _LONGEST_MARK) for each in bins]
        standing = charts.columns((original, masked), marks, texts)
        return Compared(attribute["name"], standing, upright=True, left_out=0, numbers=numbers)
    largest = sorted(range(len(bins)), key=lambda i: -max(original[i], masked[i]))[:MOST_LABELS]
    drawn = [numbers[i] for i in sorted(largest)]
    lying = charts.rows(
        [[before for _, before, _ in drawn], [after for _, _, after in drawn]],
        [label for label, _, _ in drawn],
        [[f"{before:,} before" for _, before, _ in drawn], [f"{after:,} after" for _, _, after in drawn]],
    )
    return Compared(attribute["name"], lying, upright=False, left_out=len(bins) - len(drawn), numbers=numbers)


def _plane(cells: Sequence[Document]) -> charts.Points | None:
    """Return utility against risk: every setting that was attacked."""
    colours = _mechanisms(cells)
    found = [
        (cell, float(cell["mean_sse"]["mean"]), risk)
        for cell in cells
        if (risk := worst(cell)) is not None and cell["mean_sse"] and cell["mean_sse"]["mean"] > 0
    ]
    if not found:
        return None
    texts = [f"{setting(cell)}: mean SSE {number(sse)}, risk {percent(risk)}" for cell, sse, risk in found]
    series = [colours[cell["mechanism"]] for cell, _, _ in found]
    return charts.points([(sse, risk) for _, sse, risk in found], series, texts, logarithmic=True)


def _mechanisms(cells: Sequence[Document]) -> dict[str, int]:
    """Return the colour of every mechanism."""
    names = dict.fromkeys(cell["mechanism"] for cell in cells)
    return {name: i % _SERIES for i, name in enumerate(names)}


def _unchanged(cell: Document) -> charts.Rows | None:
    known = [each for each in cell["attributes"] if each["unchanged"] is not None]
    if not known:
        return None
    shares = [float(each["unchanged"]) for each in known]
    return charts.rows([shares], [each["name"] for each in known], [[percent(each) for each in shares]])
