"""Figures for papers and slides, drawn with matplotlib.

Each function returns (figure, axes). None of them uses pyplot, so there is no global state and no window opens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from deeplda.errors import got
from deeplda.formatting import percent
from deeplda.report.analysis import Floats, Integers, class_densities, row_shares, separated_class
from deeplda.report.curves import accuracy_against_alpha, eigenvalue_spectrum, learning_curves
from deeplda.report.figure_style import (
    BLUE,
    GREY,
    WIDTH,
    AxesArray,
    ClassStyle,
    class_legend,
    class_styles,
    figure_legend,
    grid_of,
    in_style,
    new_figure,
    percent_tick,
    save,
    short,
    svg,
)

__all__ = [
    "ClassStyle",
    "accuracy_against_alpha",
    "class_styles",
    "confusion_matrix",
    "densities",
    "dimension_power",
    "eigenvalue_spectrum",
    "embedding_plane",
    "learning_curves",
    "reconstructions",
    "save",
    "subclass_sheet",
    "svg",
    "worst_mistakes",
]

Pixels = NDArray[np.uint8]

# Densities: the maximum number of panels, the number of columns, and the number of points per curve.
_MOST_DIMENSIONS, _DENSITY_COLUMNS, _DENSITY_POINTS = 12, 3, 240
# Embedding: more points than this are stored as pixels, because shapes add a megabyte per 10,000 points to the SVG.
_MOST_SHAPES = 2_000
# Embedding: the maximum number of classes whose names are written, the minimum number of samples per class, most of
# which a name would otherwise cover, the size of a name as a fraction of the plane, and the maximum number of rounds in
# which overlapping names are pushed apart.
_MOST_NAMES, _FEWEST_SAMPLES, _NAME_SIZE, _ROUNDS = 15, 10, (0.14, 0.045), 50
# Confusion matrix: the maximum number of classes with counts in the cells, and with names on the axes.
_MOST_COUNTS, _MOST_TICKS = 12, 45
_MOST_MISTAKES, _MISTAKE_COLUMNS = 24, 6
# Rows of images: the minimum and maximum number of images in a row, and the white gap as a fraction of their width.
_FEWEST_IMAGES, _MOST_IMAGES, _GAP = 5, 10, 1 / 12


@in_style
def densities(
    embedding: Floats, labels: Integers, class_names: Sequence[str], *, title: str = ""
) -> tuple[Figure, AxesArray]:
    """Draw the density of each class along each output, as in the paper's Figs. 1 to 3.

    `embedding` has shape (n, d) and `labels` (n,). Each panel names and emphasises the class that its dimension best
    separates from the others. The curves in a panel are scaled to the same height; otherwise a tightly clustered class
    would dwarf the others. At most twelve dimensions are shown.
    """
    dimensions, labels = embedding.shape[1], np.asarray(labels)
    shown = min(dimensions, _MOST_DIMENSIONS)
    styles = class_styles(len(class_names))
    best = separated_class(embedding, labels) if len(np.unique(labels)) > 1 else np.full(dimensions, -1)
    figure = new_figure(0.2 + 1.25 * -(-shown // _DENSITY_COLUMNS), title)
    panels = grid_of(figure, shown, min(shown, _DENSITY_COLUMNS), sharey=True)
    for j, axes in enumerate(panels.flat[:shown]):
        _draw_densities(axes, np.asarray(embedding[:, j], np.float64), labels, styles, best[j])
        separated = f": {short(class_names[best[j]], 18)}" if best[j] >= 0 else ""
        axes.set_title(f"dimension {j + 1}{separated}", loc="left")
    note = "curves are scaled to the same height; each title names the class that is separated best"
    if shown < dimensions:
        note = f"the first {shown} of {dimensions} dimensions ({dimensions - shown} not shown)\n{note}"
    class_legend(figure, class_names, lines=True, note=note)
    return figure, panels


@in_style
def dimension_power(
    fisher: Floats | Mapping[str, Floats],
    accuracy: Floats | Mapping[str, Floats],
    labels: Sequence[str] | None = None,
    *,
    title: str = "",
) -> tuple[Figure, AxesArray]:
    """Draw the Fisher ratio of each dimension and the accuracy of LDA in this dimension alone.

    Args:
        fisher, accuracy: (d,) for one run; for several runs, a mapping from names to arrays (d,) or (seeds, d). The
            dimensions of different runs do not correspond, so each run's values are sorted in descending order.
        labels: names for the dimensions of one run, such as the classes they separate.
    """
    if isinstance(fisher, Mapping) != isinstance(accuracy, Mapping):
        raise ValueError("only one of fisher and accuracy is a mapping from names: pass both as mappings, or neither")
    if isinstance(fisher, Mapping) and isinstance(accuracy, Mapping):
        figure, panels = _two_panels(2.6, title)
        _draw_ranked(panels[0], fisher)
        _draw_ranked(panels[1], accuracy)
        panels[1].yaxis.set_major_formatter(FuncFormatter(percent_tick))
        styles = class_styles(len(fisher))
        handles = [Line2D([], [], color=s.colour, linestyle=s.line, marker=s.marker, markersize=4) for s in styles]
        figure_legend(figure, handles, list(fisher))
    else:
        figure, panels = _two_panels(0.8 + 0.19 * len(fisher), title)
        _draw_bars(panels[0], np.asarray(fisher), labels, shares=False)
        _draw_bars(panels[1], np.asarray(accuracy), labels, shares=True)
        panels[1].xaxis.set_major_formatter(FuncFormatter(percent_tick))
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
    """Draw samples in their first two discriminant coordinates (n, 2), with each class's name at its centre.

    With many classes or few samples per class, only the legend has the names.
    """
    figure = new_figure(4.2, title)
    axes = figure.subplots()
    many = len(labels) > _MOST_SHAPES
    size = 9 if many else 16
    order = np.random.default_rng(0).permutation(len(labels))
    points, which = np.asarray(coordinates, np.float64)[order], np.asarray(labels)[order]
    for c, style in enumerate(class_styles(len(class_names))):
        x, y = points[which == c].T
        if len(x):
            axes.scatter(
                x, y, s=size, color=style.colour, marker=style.marker, alpha=0.55, linewidths=0, rasterized=many
            )
    axes.set_aspect("equal", adjustable="datalim")
    if len(class_names) <= _MOST_NAMES and len(labels) >= _FEWEST_SAMPLES * len(np.unique(labels)):
        _name_classes(axes, points, which, class_names)
    axes.set_xlabel(axis_names[0])
    axes.set_ylabel(axis_names[1])
    class_legend(figure, class_names, lines=False)
    return figure, axes


@in_style
def confusion_matrix(
    confusion: Integers | Sequence[Sequence[int]], class_names: Sequence[str], *, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw how often each true class (row) was predicted as each class (column).

    Each cell shows the count, and its colour shows the fraction of the row.
    """
    counts, share = np.asarray(confusion), row_shares(confusion)
    classes = len(counts)
    figure = new_figure(min(0.82 * WIDTH, 1.6 + 0.5 * classes), title)
    axes = figure.subplots()
    # The colour scales with the square root of the fraction, so that rare mistakes are visible.
    # Square cells would leave much of the width empty for few classes.
    image = axes.imshow(share, cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="auto")
    if classes <= _MOST_COUNTS:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                colour = "white" if share[i, j] > 0.35 else "black"
                axes.text(j, i, f"{count:,}", ha="center", va="center", color=colour)
    names = [short(name) for name in class_names] if classes <= _MOST_TICKS else []
    upright = max(map(len, names), default=0) > 60 // classes
    axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.spines[:].set_visible(False)
    form = FuncFormatter(percent_tick)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, format=form, label="fraction of the true class")
    bar.outline.set_visible(False)
    return figure, axes


@in_style
def worst_mistakes(
    images: Pixels,
    true_names: Sequence[str],
    decided_names: Sequence[str],
    confidence: Floats | Sequence[float],
    *,
    title: str = "",
) -> tuple[Figure, AxesArray]:
    """Draw images n x C x H x W in the given order, each with its true class, predicted class and probability.

    At most the first 24 images are shown. If there are none, the figure says "no mistakes".
    """
    count = min(len(images), _MOST_MISTAKES)
    if not count:
        figure = new_figure(1.0, title)
        panels = grid_of(figure, 1, 1)
        panels[0, 0].set_axis_off()
        panels[0, 0].text(0.5, 0.5, "no mistakes", ha="center", va="center", fontsize=10)
        return figure, panels
    figure = new_figure(0.3 + 1.6 * -(-count // _MISTAKE_COLUMNS), title)
    panels = grid_of(figure, count, _MISTAKE_COLUMNS)
    cells = zip(panels.flat, _channels_last(images[:count]), true_names, decided_names, confidence, strict=False)
    for axes, image, true, decided, sure in cells:
        _show(axes, image)
        axes.set_title(f"{short(true, 16)}\nas {short(decided, 13)}\n{percent(sure, 1)}")
    if count < len(images):
        figure.supxlabel(f"the first {count} of {len(images)} mistakes", fontsize=8)
    return figure, panels


@in_style
def reconstructions(originals: Pixels, reconstructions: Pixels, *, title: str = "") -> tuple[Figure, AxesArray]:
    """Draw at most the first ten images n x C x H x W above their reconstructions."""
    if originals.shape != reconstructions.shape:
        what = f"originals has shape {originals.shape}, reconstructions has shape {reconstructions.shape}"
        raise ValueError(got(what, need="the same shape", do="pass one reconstruction per image"))
    return _rows({"original": originals, "reconstruction": reconstructions}, title)


@in_style
def subclass_sheet(images_by_subclass: Mapping[str, Pixels], *, title: str = "") -> tuple[Figure, AxesArray]:
    """Draw one row per subclass, with its name and its first ten images n x C x H x W."""
    return _rows(images_by_subclass, title)


def _two_panels(height: float, title: str) -> tuple[Figure, AxesArray]:
    figure = new_figure(height, title)
    panels: AxesArray = figure.subplots(1, 2)
    panels[0].set_title("Fisher ratio of each dimension alone", loc="left")
    panels[1].set_title("accuracy of LDA in each dimension alone", loc="left")
    return figure, panels


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
    ends = low - margin, high + margin
    step = (ends[1] - ends[0]) / _DENSITY_POINTS
    places = ends[0] + step * (np.arange(_DENSITY_POINTS) + 0.5)
    for c, curve in enumerate(class_densities(values, labels, len(styles), ends, _DENSITY_POINTS)):
        if not curve.any():
            continue
        height = curve / curve.max()
        # Hide the tails, which would cover each other along the baseline.
        seen = np.where(height > 0.005, height, np.nan)
        axes.plot(places, seen, color=styles[c].colour, linestyle=styles[c].line, linewidth=2 if c == best else 1)
        if c == best:
            axes.fill_between(places, height, color=styles[c].colour, alpha=0.25, linewidth=0)
    axes.set_xlim(*ends)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _name_classes(axes: Axes, points: NDArray[np.float64], labels: Integers, class_names: Sequence[str]) -> None:
    """Write the name of each class at its centre, or as close to it as possible without covering other names."""
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


def _draw_bars(axes: Axes, values: Floats, labels: Sequence[str] | None, *, shares: bool) -> None:
    """Draw one bar per dimension, labelled with its value; an infinite bar is as long as the longest finite one."""
    finite = np.where(np.isfinite(values), values, np.nan)
    longest = np.nanmax(finite, initial=0.0) or 1.0
    places = np.arange(1, len(values) + 1)
    bars = axes.barh(places, np.where(np.isposinf(values), longest, np.nan_to_num(finite)), color=BLUE, height=0.7)
    axes.bar_label(bars, [percent_tick(round(v, 3)) if shares else f"{v:.3g}" for v in values], padding=2)
    axes.set_ylim(len(values) + 0.6, 0.4)
    axes.set_xlim(0, 1.18 * longest)
    names = [f"{j}: {short(name)}" for j, name in enumerate(labels, 1)] if labels else [str(j) for j in places]
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)


def _draw_ranked(axes: Axes, values: Mapping[str, Floats]) -> None:
    """Draw the values of each run in descending order, with a thin line per seed and a thick line for their mean."""
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


def _channels_last(images: Pixels) -> Pixels:
    """Return images with three channels as N x H x W x 3; for all others, return the first channel, N x H x W."""
    if images.ndim != 4 or images.dtype != np.uint8:
        what = f"images has shape {images.shape} and dtype {images.dtype}"
        raise ValueError(got(what, need="n x C x H x W and uint8", do="pass unscaled images"))
    return images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images[:, 0]


def _show(axes: Axes, image: Pixels) -> None:
    """Show one colour or greyscale image without ticks."""
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _rows(images: Mapping[str, Pixels], title: str) -> tuple[Figure, AxesArray]:
    """Draw one row of images for each name, with the name beside it."""
    columns = max(_FEWEST_IMAGES, min(_MOST_IMAGES, max(map(len, images.values()))))
    strips = [_strip(_channels_last(found[:columns]), columns) for found in images.values()]
    height, width = strips[0].shape[:2]
    figure = new_figure(0.1 + len(strips) * (0.05 + 0.8 * WIDTH * height / width) + 0.25 * bool(title), title)
    panels: AxesArray = figure.subplots(len(strips), squeeze=False)[:, 0]
    for axes, name, strip in zip(panels, images, strips, strict=True):
        _show(axes, strip)
        axes.set_ylabel(short(name), rotation=0, ha="right", va="center")
    return figure, panels


def _strip(images: Pixels, columns: int) -> Pixels:
    """Return images N x H x W [x 3] side by side as one image H x W' [x 3], with room for `columns` images."""
    _, height, width, *colours = images.shape
    pitch = width + max(1, round(_GAP * width))
    strip = np.full((height, columns * pitch, *colours), 255, np.uint8)
    for place, image in enumerate(images):
        strip[:, place * pitch : place * pitch + width] = image
    return strip
