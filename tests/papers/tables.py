"""What the experiments write: CSV files, and tables inside pages between marks."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from math import isnan
from pathlib import Path

from owner_node.risk.utility import Estimate
from tests.papers.in_process import Setting


@dataclass(frozen=True, slots=True)
class Line:
    """One number of an experiment."""

    experiment: str
    """Figure or table of the paper."""
    data: str
    """Data set, with α where that varies."""
    layout: str
    """ "central", "horizontal" or "vertical"."""
    mechanism: str
    """Mechanism id."""
    epsilon: str
    """Budget."""
    k: str
    """Minimum cluster size."""
    measure: str
    """What was measured."""
    runs: int
    """How many runs are behind it."""
    mean: float
    """Mean over the runs."""
    low: float
    """Lower end of its 95 % confidence interval."""
    high: float
    """Upper end of it."""


def line(
    experiment: str, data: str, layout: str, setting: Setting, measure: str, runs: int, found: Estimate
) -> Line:
    """Return the line of one setting."""
    return Line(
        experiment,
        data,
        layout,
        setting.mechanism,
        f"{setting.epsilon:f}",
        setting.k_text,
        measure,
        runs,
        found.mean,
        found.low,
        found.high,
    )


def write_csv(path: Path, lines: Sequence[Line]) -> None:
    """Write the numbers of an experiment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([field.name for field in fields(Line)])
        writer.writerows([*astuple(each)[:-3], *(f"{n:.6g}" for n in astuple(each)[-3:])] for each in lines)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A table of plain numbers, without settings and intervals."""

    heads: tuple[str, ...]
    """Headings; the first is that of the names."""
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """Name and numbers of every row."""

    def markdown(self) -> str:
        """Return it for a page."""
        lines = [" | ".join(self.heads), *(" | ".join([name, *map(number, own)]) for name, own in self.rows)]
        first, *others = [f"| {each} |" for each in lines]
        return "\n".join([first, "|---|" + "---:|" * (len(self.heads) - 1), *others])

    def write(self, path: Path) -> None:
        """Write it as CSV."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(self.heads)
            writer.writerows([name, *(f"{each:.6g}" for each in own)] for name, own in self.rows)


def markdown(lines: Sequence[Line], across: str, down: Sequence[str]) -> str:
    """Return a table of means.

    Args:
        lines: The numbers.
        across: Field of `Line` whose values are the columns.
        down: Fields whose values together are the rows.
    """
    heads = list(dict.fromkeys(str(getattr(each, across)) for each in lines))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for each in lines:
        key = tuple(str(getattr(each, name)) for name in down)
        rows.setdefault(key, {})[str(getattr(each, across))] = number(each.mean)
    names = {"epsilon": "ε", "k": "k"}
    named = [f"{names.get(across, across)} = {head}" if across in names else head for head in heads]
    top = [names.get(name, name) for name in down]
    table = [
        "| " + " | ".join([*top, *named]) + " |",
        "|" + "---|" * len(top) + "---:|" * len(heads),
        *(
            "| " + " | ".join([*key, *(row.get(head, "") for head in heads)]) + " |"
            for key, row in rows.items()
        ),
    ]
    return "\n".join(table)


def number(value: float) -> str:
    """Return a number with three digits; a dash for none."""
    if isnan(value):
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def put(pages: Sequence[Path], tables: Mapping[str, str]) -> None:
    """Replace the tables of pages, each between `<!-- NAME -->` and `<!-- end NAME -->` of one of them.

    Raises:
        ValueError: If no page has a place for one of them.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        places = {page: found for page, text in texts.items() if (found := place.search(text))}
        if not places:
            raise ValueError(f"{', '.join(map(str, pages))} has no place for {name}")
        for page, found in places.items():
            text = texts[page]
            texts[page] = f"{text[: found.end(1)]}\n{table.strip()}\n\n{text[found.start(2) :]}"
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
