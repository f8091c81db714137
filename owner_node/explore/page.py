"""What exploring found, as one HTML file: heat maps over ε and k, utility against risk, before and after.

It is made from the document of `owner_node.explore.results` alone, and runs nothing: what a reader can choose
is folded in the page. The page depends on original data, as the document does, and says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import charts
from common.pages import render
from owner_node.explore.heat_maps import measures, number, percent, setting, worst

Document = Mapping[str, Any]
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
