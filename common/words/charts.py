"""Charts as places in per cent; `templates/charts.html` draws them as boxes of the page.

No plotting library, so that a daemon can make them: a few hundred bytes each, with colours that follow the
page's style, texts that keep their size on narrow screens, and a text for every mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

_MOST_LABELS = 7
_GAP = 0.07
"""Free space on either side of a bin's bars, as a share of the bin."""
Labels = tuple[tuple[float, str], ...]
"""Where labels of an axis stand, in per cent, and the labels."""
Rows = tuple[tuple[str, tuple[tuple[float, str], ...]], ...]
"""Lying bars: a label, and of each series the length as a share of the longest bar and its text."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A standing bar, or a point; all places are in per cent of the plot, from its lower left corner."""

    x: float
    """The left side of a bar, the middle of a point."""
    y: float
    """The top of a bar, the middle of a point."""
    width: float
    """0 for a point."""
    series: int
    """Which colour it has, from 0."""
    text: str
    """What it stands for, in words."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Marks over two axes."""

    marks: tuple[Mark, ...]
    across: Labels
    up: Labels


def columns(series: Sequence[Sequence[float]], labels: Sequence[str], texts: Sequence[Sequence[str]]) -> Plot:
    """Lay out standing bars.

    Args:
        series: The heights of each series, one per bin: 0, or above a millionth; bars of one bin stand side
            by side.
        labels: Of the edges of bins, one more than there are bins; or of the bins themselves.
        texts: What every bar stands for, in the shape of `series`.
    """
    n_bins = len(series[0])
    ticks = linear_ticks(0, max(map(max, series)) or 1, 4)
    narrow = (1 - 2 * _GAP) / len(series)
    marks = tuple(
        Mark(_percent(i + _GAP + s * narrow, n_bins), _percent(value, ticks[-1]), width, s, texts[s][i])
        for width in (_percent(narrow, n_bins),)
        for s, values in enumerate(series)
        for i, value in enumerate(values)
        if value > 0
    )
    offset = 0.0 if len(labels) > n_bins else 0.5
    shown = range(0, len(labels), max(1, ceil(n_bins / (_MOST_LABELS - 1))))
    return Plot(marks, tuple((_percent(i + offset, n_bins), labels[i]) for i in shown), _labels(ticks))


def rows(series: Sequence[Sequence[float]], labels: Sequence[str], texts: Sequence[Sequence[str]]) -> Rows:
    """Lay out lying bars.

    Args:
        series: Their lengths, none below 0, one per label; bars of one label lie below each other.
        texts: Their lengths as text, in the shape of `series`.
    """
    longest = max((max(values, default=0) for values in series), default=0) or 1
    return tuple(
        (
            label,
            tuple((round(values[i] / longest, 4), of[i]) for values, of in zip(series, texts, strict=True)),
        )
        for i, label in enumerate(labels)
    )


def points(places: Sequence[tuple[float, float]], series: Sequence[int], texts: Sequence[str]) -> Plot:
    """Lay out points; the lower axis is logarithmic.

    Args:
        places: Where they are: across, above 0; up, at least 0. There is at least one.
        series: Which series each belongs to.
    """
    powers = [log10(x) for x, _ in places]
    first = floor(min(powers))
    last = max(ceil(max(powers)), first + 1)
    ticks = linear_ticks(0, max(y for _, y in places) or 1, 5)
    marks = tuple(
        Mark(_percent(power - first, last - first), _percent(y, ticks[-1]), 0, s, text)
        for power, (_, y), s, text in zip(powers, places, series, texts, strict=True)
    )
    across = tuple((_percent(i - first, last - first), number(10.0**i)) for i in range(first, last + 1))
    return Plot(marks, across, _labels(ticks))


def heat(share: float) -> str:
    """Return a colour from cream to red, dark text being readable on all of them."""
    cream, red = (255, 249, 232), (238, 108, 92)
    mixed = (round(a + (b - a) * min(max(share, 0.0), 1.0)) for a, b in zip(cream, red, strict=True))
    return f"rgb({', '.join(map(str, mixed))})"


def _labels(ticks: Sequence[float]) -> Labels:
    return tuple((_percent(tick, ticks[-1]), number(tick)) for tick in ticks)


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def linear_ticks(lowest: float, highest: float, most: int) -> list[float]:
    """Return round numbers at equal distances that enclose an interval."""
    step = round_step((highest - lowest) / most)
    first, last = floor(lowest / step), ceil(highest / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not smaller than a positive number."""
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def number(value: float) -> str:
    """Return a number as short as an axis needs it."""
    if value == 0:
        return "0"
    if abs(value) >= 1:
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:.3g}"
