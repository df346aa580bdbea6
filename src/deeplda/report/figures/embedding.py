"""What the network's output looks like: densities, single dimensions, the plane of the first two discriminants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from deeplda.errors import got
from deeplda.report.analysis import Floats, Integers, separated_class, silverman_width
from deeplda.report.figures.style import (
    BLUE,
    GREY,
    AxesArray,
    ClassStyle,
    class_legend,
    class_styles,
    figure_legend,
    grid_of,
    in_style,
    new_figure,
    short,
    whole_percent,
)

_MOST_DIMENSIONS = 12
_COLUMNS = 3
_PLACES = 240
# A class narrower than this share of the axis is drawn this wide: its place is what matters.
_NARROWEST = 1 / 150
# More points than this are stored as pixels, else the SVG grows by a megabyte for every ten thousand.
_MOST_SHAPES = 2_000
# More names than this do not fit into the plane.
_MOST_NAMES = 15
# Width and height that a class's name needs, as shares of the plane, and how often names are pushed apart at most.
_NAME_SIZE, _ROUNDS = (0.14, 0.045), 50


@in_style
def densities(
    embedding: Floats, labels: Integers, class_names: Sequence[str], *, title: str = ""
) -> tuple[Figure, AxesArray]:
    """The density of each output dimension by class, the paper's Figs. 1 to 3: embedding (n, d), labels (n,).

    Each panel names the class that its dimension separates best from the others and draws it stronger. The curves of
    a panel are scaled to the same height, as a class that a network has gathered in one place would hide the others.
    At most twelve dimensions are shown.
    """
    dimensions, labels = embedding.shape[1], np.asarray(labels)
    shown = min(dimensions, _MOST_DIMENSIONS)
    styles = class_styles(len(class_names))
    best = separated_class(embedding, labels) if len(np.unique(labels)) > 1 else np.full(dimensions, -1)
    figure = new_figure(0.2 + 1.25 * -(-shown // _COLUMNS), title)
    array, panels = grid_of(figure, shown, min(shown, _COLUMNS), sharey=True)
    for j, axes in enumerate(panels):
        _draw_densities(axes, np.asarray(embedding[:, j], np.float64), labels, styles, best[j])
        told = f": {short(class_names[best[j]], 18)}" if best[j] >= 0 else ""
        axes.set_title(f"dimension {j + 1}{told}", loc="left")
    note = "each curve scaled to the same height; the class named stands apart most"
    if shown < dimensions:
        note = f"the first {shown} of {dimensions} dimensions, {dimensions - shown} left out\n{note}"
    class_legend(figure, class_names, lines=True, note=note)
    return figure, array


@in_style
def dimension_power(
    fisher: Floats | Mapping[str, Floats],
    accuracy: Floats | Mapping[str, Floats],
    labels: Sequence[str] | None = None,
    *,
    title: str = "",
) -> tuple[Figure, AxesArray]:
    """What each dimension can do alone: its Fisher ratio and the accuracy of LDA in it, two panels.

    Args:
        fisher, accuracy: (d,) of one run; or by name of several, each (d,) or (seeds, d). The dimensions of different
            runs have nothing to do with each other, so those of several are compared in order of their strength.
        labels: names of the dimensions of one run, such as the classes they separate.
    """
    if isinstance(fisher, Mapping) != isinstance(accuracy, Mapping):
        raise ValueError(got("only one of fisher and accuracy by name", need="both", do="name the runs in both"))
    if isinstance(fisher, Mapping) and isinstance(accuracy, Mapping):
        figure, panels = _two_panels(2.6, title)
        _draw_ranked(panels[0], fisher)
        _draw_ranked(panels[1], accuracy)
        panels[1].yaxis.set_major_formatter(FuncFormatter(whole_percent))
        styles = class_styles(len(fisher))
        handles = [Line2D([], [], color=s.colour, linestyle=s.line, marker=s.marker, markersize=4) for s in styles]
        figure_legend(figure, handles, list(fisher))
    else:
        figure, panels = _two_panels(0.8 + 0.19 * len(fisher), title)
        _draw_bars(panels[0], np.asarray(fisher), labels, percent=False)
        _draw_bars(panels[1], np.asarray(accuracy), labels, percent=True)
        panels[1].xaxis.set_major_formatter(FuncFormatter(whole_percent))
    return figure, panels


@in_style
def embedding_plane(
    coordinates: Floats,
    labels: Integers,
    class_names: Sequence[str],
    *,
    axis_names: Sequence[str] = ("first discriminant coordinate", "second discriminant coordinate"),
    title: str = "",
) -> tuple[Figure, Axes]:
    """Samples in their first two discriminant coordinates (n, 2), each class named at its middle."""
    figure = new_figure(4.2, title)
    axes = figure.subplots()
    order = np.random.default_rng(0).permutation(len(labels))
    points, which = np.asarray(coordinates, np.float64)[order], np.asarray(labels)[order]
    for c, style in enumerate(class_styles(len(class_names))):
        mine = points[which == c]
        if not len(mine):
            continue
        many = len(labels) > _MOST_SHAPES
        axes.scatter(
            mine[:, 0], mine[:, 1], s=9 if many else 16, color=style.colour, marker=style.marker, alpha=0.55,
            linewidths=0, rasterized=many,
        )  # fmt: skip
    axes.set_aspect("equal", adjustable="datalim")
    if len(class_names) <= _MOST_NAMES:
        _name_classes(axes, points, which, class_names)
    axes.set_xlabel(axis_names[0])
    axes.set_ylabel(axis_names[1])
    class_legend(figure, class_names, lines=False)
    return figure, axes


def _two_panels(height: float, title: str) -> tuple[Figure, AxesArray]:
    figure = new_figure(height, title)
    panels: AxesArray = figure.subplots(1, 2)
    panels[0].set_title("Fisher ratio of each dimension alone", loc="left")
    panels[1].set_title("accuracy of LDA in each dimension alone", loc="left")
    return figure, panels


def density(values: NDArray[np.float64], places: NDArray[np.float64], narrowest: float) -> NDArray[np.float64]:
    """Gaussian kernel density of `values` at evenly spaced `places`, Silverman's width but at least `narrowest`."""
    step = places[1] - places[0]
    width = max(silverman_width(values), narrowest)
    counts, _ = np.histogram(values, len(places), (places[0] - step / 2, places[-1] + step / 2))
    reach = np.arange(-len(places) + 1, len(places)) * step
    kernel = np.exp(-0.5 * (reach / width) ** 2) / (width * np.sqrt(2 * np.pi))
    smooth: NDArray[np.float64] = np.convolve(counts, kernel, mode="valid") / len(values)
    return smooth


def _draw_densities(
    axes: Axes, values: NDArray[np.float64], labels: Integers, styles: Sequence[ClassStyle], best: int
) -> None:
    low, high = float(values.min()), float(values.max())
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(0, 1.08)
    if high == low:
        axes.set_xlim(low - 1, low + 1)
        axes.set_xticks([low], [f"{low:.3g}"])
        axes.text(0.5, 0.5, "the same for every sample", transform=axes.transAxes, ha="center", color=GREY)
        return
    margin = 0.06 * (high - low)
    places = np.linspace(low - margin, high + margin, _PLACES)
    for c, style in enumerate(styles):
        mine = values[labels == c]
        if not len(mine):
            continue
        curve = density(mine, places, (high - low) * _NARROWEST)
        curve /= curve.max()
        # Without its feet a curve leaves the ground to the others.
        seen = np.where(curve > 0.005, curve, np.nan)
        axes.plot(places, seen, color=style.colour, linestyle=style.line, linewidth=2 if c == best else 1)
        if c == best:
            axes.fill_between(places, curve, color=style.colour, alpha=0.25, linewidth=0)
    axes.set_xlim(places[0], places[-1])
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _name_classes(axes: Axes, points: NDArray[np.float64], labels: Integers, class_names: Sequence[str]) -> None:
    """Each class by its name at its middle, or as near to it as leaves the other names readable."""
    present = np.unique(labels)
    middles = np.array([np.median(points[labels == c], 0) for c in present])
    size = np.maximum(np.ptp(points, axis=0), 1e-9)
    at = middles / size
    for _ in range(_ROUNDS):
        for i, j in combinations(range(len(at)), 2):
            across, up = at[i] - at[j]
            if abs(across) < _NAME_SIZE[0] and abs(up) < _NAME_SIZE[1]:
                push = (_NAME_SIZE[1] - abs(up)) / 2 * (1 if up >= 0 else -1)
                at[i, 1] += push
                at[j, 1] -= push
    for c, place in zip(present, at * size, strict=True):
        axes.text(
            place[0], place[1], short(class_names[c], 18), ha="center", va="center", fontsize=9, fontweight="bold",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _draw_bars(axes: Axes, values: Floats, labels: Sequence[str] | None, percent: bool) -> None:
    """One bar a dimension with its value; an infinite one is as long as the longest."""
    finite = np.where(np.isfinite(values), values, np.nan)
    longest = np.nanmax(finite, initial=0.0) or 1.0
    places = np.arange(1, len(values) + 1)
    bars = axes.barh(places, np.where(np.isposinf(values), longest, np.nan_to_num(finite)), color=BLUE, height=0.7)
    axes.bar_label(bars, [whole_percent(round(v, 3)) if percent else f"{v:.3g}" for v in values], padding=2)
    axes.set_ylim(len(values) + 0.6, 0.4)
    axes.set_xlim(0, 1.18 * longest)
    names = [f"{j}: {short(name)}" for j, name in enumerate(labels, 1)] if labels else [str(j) for j in places]
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)


def _draw_ranked(axes: Axes, values: Mapping[str, Floats]) -> None:
    """For each run its dimensions from the strongest to the weakest: each seed a thin line, their mean a thick one."""
    for style, found in zip(class_styles(len(values)), values.values(), strict=True):
        seeds = np.atleast_2d(np.asarray(found, np.float64))
        ranked = -np.sort(-np.where(np.isfinite(seeds), seeds, np.nan), axis=1)
        rank = np.arange(1, ranked.shape[1] + 1)
        if len(ranked) > 1:
            axes.plot(rank, ranked.T, color=style.colour, alpha=0.35, linewidth=0.7)
        axes.plot(rank, ranked.mean(0), color=style.colour, linestyle=style.line, marker=style.marker, markersize=4)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.set_xlabel("dimensions, strongest first")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
