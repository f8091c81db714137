"""Geometry of small charts in the units of an SVG drawing; `templates/charts.html` draws them.

Charts are made without a plotting library, so that a daemon can make them: a few hundred bytes each, with
colours that follow the page's style, and every mark with a text for those who do not see it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

WIDTH = 640.0
"""Width of every drawing; pages scale it."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 44.0, 10.0, 26.0
_COLUMNS_HEIGHT = 200.0
_POINTS_HEIGHT = 360.0
_POINTS_BOTTOM = 44.0
_ROW_HEIGHT = 22.0
_LABEL_WIDTH, _VALUE_WIDTH = 190.0, 90.0
_MOST_MARKS = 7
LONGEST_LABEL = 26
"""Characters of a label beside a bar; the rest is in the table of numbers."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis."""

    at: float
    """Where it is."""
    label: str
    """What is written there."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A filled rectangle."""

    x: float
    """Its left side."""
    y: float
    """Its top."""
    width: float
    """How wide it is."""
    height: float
    """How high it is."""
    series: int
    """Which series it belongs to, from 0."""
    text: str
    """What it stands for, in words."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Upright bars over bins of one axis."""

    height: float
    """Height of the drawing."""
    base: float
    """Where the bars stand."""
    left: float
    """Where the first bin begins."""
    right: float
    """Where the last bin ends."""
    bars: tuple[Bar, ...]
    """The bars."""
    across: tuple[Tick, ...]
    """Labels of some edges of bins."""
    up: tuple[Tick, ...]
    """Labels of heights."""


@dataclass(frozen=True, slots=True)
class Row:
    """A lying bar with its label and its value."""

    bar: Bar
    """The bar."""
    label: str
    """What it is for, shortened."""
    value: str
    """Its value as text."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Lying bars below each other."""

    height: float
    """Height of the drawing."""
    left: float
    """Where the bars begin; their labels end before it."""
    rows: tuple[Row, ...]
    """The bars."""


@dataclass(frozen=True, slots=True)
class Point:
    """A mark in a plane."""

    x: float
    """Where it is, across."""
    y: float
    """Where it is, from the top."""
    series: int
    """Which series it belongs to, from 0."""
    text: str
    """What it stands for, in words."""


@dataclass(frozen=True, slots=True)
class Points:
    """Marks over two axes."""

    height: float
    """Height of the drawing."""
    base: float
    """Where the lower axis is."""
    left: float
    """Where the left axis is."""
    right: float
    """Where the lower axis ends."""
    points: tuple[Point, ...]
    """The marks."""
    across: tuple[Tick, ...]
    """Labels of the lower axis."""
    up: tuple[Tick, ...]
    """Labels of the left axis."""


def columns(
    series: Sequence[Sequence[float]], marks: Sequence[str], texts: Sequence[Sequence[str]]
) -> Columns:
    """Lay out upright bars.

    Args:
        series: The heights of each series, one per bin: 0, or above a millionth; bars of one bin stand side
            by side.
        marks: Labels of the edges of bins, one more than there are bins; or of the bins themselves.
        texts: What every bar stands for, in the shape of `series`.
    """
    n_bins, base = len(series[0]), _COLUMNS_HEIGHT - _BOTTOM
    ticks = linear_ticks(0, max((max(values) for values in series), default=0) or 1, 4)
    top, wide = ticks[-1], (WIDTH - _LEFT - _RIGHT) / n_bins
    gap = min(wide * 0.08, 1.5)
    narrow = (wide - 2 * gap) / len(series)
    bars = [
        Bar(
            round(_LEFT + i * wide + gap + s * narrow, 2),
            round(base - (base - _TOP) * value / top, 2),
            round(narrow, 2),
            round((base - _TOP) * value / top, 2),
            s,
            texts[s][i],
        )
        for s, values in enumerate(series)
        for i, value in enumerate(values)
        if value > 0
    ]
    step = max(1, ceil(n_bins / (_MOST_MARKS - 1)))
    offset = 0.0 if len(marks) > n_bins else 0.5
    across = tuple(Tick(round(_LEFT + (i + offset) * wide, 2), marks[i]) for i in range(0, len(marks), step))
    up = tuple(Tick(round(base - (base - _TOP) * each / top, 2), number(each)) for each in ticks)
    return Columns(_COLUMNS_HEIGHT, base, _LEFT, WIDTH - _RIGHT, tuple(bars), across, up)


def rows(series: Sequence[Sequence[float]], labels: Sequence[str], texts: Sequence[Sequence[str]]) -> Rows:
    """Lay out lying bars.

    Args:
        series: Their lengths, none below 0, one per label; bars of one label lie below each other.
        labels: What each is for.
        texts: Their lengths as text, in the shape of `series`.
    """
    longest = max((max(values, default=0) for values in series), default=0) or 1
    wide, thick = WIDTH - _LABEL_WIDTH - _VALUE_WIDTH, (_ROW_HEIGHT - 6) / len(series) ** 0.5
    step = thick * len(series) + 6
    laid = [
        Row(
            Bar(
                _LABEL_WIDTH,
                round(i * step + 3 + s * thick, 2),
                round(max(wide * values[i] / longest, 0.5 if values[i] else 0), 2),
                round(thick, 2),
                s,
                f"{label}: {texts[s][i]}",
            ),
            "" if s else shortened(label, LONGEST_LABEL),
            texts[s][i],
        )
        for i, label in enumerate(labels)
        for s, values in enumerate(series)
    ]
    return Rows(round(len(labels) * step, 2), _LABEL_WIDTH, tuple(laid))


def heat(share: float) -> str:
    """Return a colour from cream to red, dark text being readable on all of them.

    Args:
        share: From 0 (cream) to 1 (red).
    """
    cream, red = (255, 249, 232), (238, 108, 92)
    mixed = (round(a + (b - a) * min(max(share, 0.0), 1.0)) for a, b in zip(cream, red, strict=True))
    return f"rgb({', '.join(map(str, mixed))})"


def points(
    places: Sequence[tuple[float, float]],
    series: Sequence[int],
    texts: Sequence[str],
    *,
    logarithmic: bool = False,
) -> Points:
    """Lay out marks in a plane.

    Args:
        places: Where they are: across, up.
        series: Which series each belongs to.
        texts: What each stands for.
        logarithmic: Whether the lower axis counts powers of ten; then nothing lies at or below 0 there.
    """
    base, room = _POINTS_HEIGHT - _POINTS_BOTTOM, WIDTH - _LEFT - _RIGHT
    scale: Callable[[float], float] = log10 if logarithmic else float
    across = [each for each, _ in places] or [1.0]
    if logarithmic:
        marks = [10.0**power for power in range(floor(log10(min(across))), ceil(log10(max(across))) + 1)]
        marks = marks if len(marks) > 1 else [marks[0], 10 * marks[0]]
    else:
        marks = linear_ticks(min(*across, 0), max(across) or 1, 6)
    first, last = scale(marks[0]), scale(marks[-1])
    heights = linear_ticks(0, max((each for _, each in places), default=0) or 1, 5)

    def x(value: float) -> float:
        return round(_LEFT + room * (scale(value) - first) / (last - first), 2)

    def y(value: float) -> float:
        return round(base - (base - _TOP) * value / heights[-1], 2)

    marked = [Point(x(a), y(b), s, text) for (a, b), s, text in zip(places, series, texts, strict=True)]
    return Points(
        _POINTS_HEIGHT,
        base,
        _LEFT,
        WIDTH - _RIGHT,
        tuple(marked),
        tuple(Tick(x(each), number(each)) for each in marks),
        tuple(Tick(y(each), number(each)) for each in heights),
    )


def linear_ticks(lowest: float, highest: float, most: int) -> list[float]:
    """Return round numbers at equal distances that enclose an interval.

    Args:
        lowest: Lower end.
        highest: Upper end, above the lower one.
        most: About how many steps there may be.
    """
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


def shortened(text: str, longest: int) -> str:
    """Return a text on one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
