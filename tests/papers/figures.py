"""Figures of the papers' experiments, by matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from owner_node.masking.arrays import Float64Array
from tests.papers.tables import Line

CREAM_TO_RED = LinearSegmentedColormap.from_list("cream to red", ["#fff9e8", "#f4b183", "#e0523f"])


def heat_maps(path: Path, panels: Sequence[tuple[str, Sequence[Line]]], *, logarithmic: bool = True) -> None:
    """Draw one heat map per panel, ε down and k across, one scale of colours for all.

    Args:
        path: PNG file.
        panels: Titles and numbers.
        logarithmic: Whether colours follow the logarithm of the numbers; else what is below 0 counts as 0.
    """
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    means = [each.mean for _, lines in panels for each in lines]
    positive = [mean for mean in means if mean > 0] or [1.0]
    scale = LogNorm(min(positive), max(positive)) if logarithmic else Normalize(0, max(positive))
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        ks = list(dict.fromkeys(each.k for each in lines))
        epsilons = list(dict.fromkeys(each.epsilon for each in lines))
        grid = np.full((len(epsilons), len(ks)), np.nan)
        for each in lines:
            grid[epsilons.index(each.epsilon), ks.index(each.k)] = each.mean
        axes.imshow(np.maximum(grid, min(positive) if logarithmic else 0), norm=scale, cmap=CREAM_TO_RED)
        axes.set_xticks(range(len(ks)), ks)
        axes.set_yticks(range(len(epsilons)), epsilons)
        axes.set(title=title, xlabel="k", ylabel="ε")
        for (i, j), value in np.ndenumerate(grid):
            axes.text(j, i, f"{value:.2g}", ha="center", va="center", fontsize=7)
    _save(figure, path)


def curves(
    path: Path,
    panels: Sequence[tuple[str, Sequence[Line]]],
    *,
    logarithmic: bool,
    label: str,
    level: Sequence[float] = (),
) -> None:
    """Draw a curve over k for every mechanism, one panel beside the other.

    Args:
        path: PNG file.
        panels: Titles and numbers; a mechanism that takes no k, or has it chosen, is a horizontal line.
        logarithmic: Whether the upright axis is.
        label: What it shows.
        level: A dashed line for each panel, if any.
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, axes in enumerate(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]):
        title, lines = panels[panel]
        for mechanism in dict.fromkeys(each.mechanism for each in lines):
            own = [each for each in lines if each.mechanism == mechanism]
            if len({each.k for each in own}) == 1:
                axes.axhline(own[0].mean, label=f"{mechanism} (k {own[0].k})", color="grey", linestyle=":")
                continue
            fixed = [each for each in own if each.k.isdigit()]
            ks = [int(each.k) for each in fixed]
            (drawn,) = axes.plot(ks, [each.mean for each in fixed], label=mechanism, marker=".")
            lows, highs = [each.low for each in fixed], [each.high for each in fixed]
            axes.fill_between(ks, lows, highs, color=drawn.get_color(), alpha=0.2)
            for chosen in (each for each in own if not each.k.isdigit()):
                label_chosen = f"{mechanism} (k {chosen.k})"
                axes.axhline(chosen.mean, label=label_chosen, color=drawn.get_color(), linestyle="--")
        if level:
            axes.axhline(level[panel], color="black", linestyle="--", linewidth=0.8, label="original data")
        axes.set(title=title, xlabel="k", ylabel=label)
        if logarithmic:
            axes.set_yscale("log")
    axes.legend(fontsize=7)
    _save(figure, path)


def noise_densities(path: Path, places: Float64Array, densities: Mapping[str, Float64Array]) -> None:
    """Draw densities of noise.

    Args:
        path: PNG file.
        places: Where, `(n_places,)`.
        densities: By name, `(n_places,)` each.
    """
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, values in densities.items():
        axes.plot(places, values, label=name)
    axes.set(xlabel="noise, in units of the sensitivity", ylabel="density")
    axes.legend()
    _save(figure, path)


def median_errors(path: Path, lines: Sequence[Line]) -> None:
    """Draw errors over ε, one panel per data set, three in a row."""
    names = list(dict.fromkeys(each.data for each in lines))
    figure = Figure(figsize=(11, 3 * len(names) / 3), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names) // 3, 3, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=True):
        for mechanism in dict.fromkeys(each.mechanism for each in lines):
            own = [each for each in lines if (each.data, each.mechanism) == (name, mechanism)]
            epsilons = [float(each.epsilon) for each in own]
            axes.plot(epsilons, [each.mean for each in own], label=mechanism, marker=".")
        axes.set(title=name, yscale="log")
    panels[0].legend(fontsize=7)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
