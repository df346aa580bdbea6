"""What was decided: the confusion matrix, and the mistakes themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from deeplda.report.analysis import Floats, Integers
from deeplda.report.figures.pictures import Pixels, channels_last, show
from deeplda.report.figures.style import WIDTH, AxesArray, grid_of, in_style, new_figure, short, whole_percent

# Of more classes than this the counts do not fit into the cells, and of more than this their names not beside them.
_MOST_COUNTS, _MOST_NAMES = 12, 45
_MOST_MISTAKES, _COLUMNS = 24, 6


@in_style
def confusion_matrix(
    confusion: Integers | Sequence[Sequence[int]], class_names: Sequence[str], *, title: str = ""
) -> tuple[Figure, Axes]:
    """How often each class (row) was taken for each (column): the count in the cell, the share of its row as colour."""
    counts = np.asarray(confusion)
    classes = len(counts)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure = new_figure(min(0.82 * WIDTH, 1.6 + 0.5 * classes), title)
    axes = figure.subplots()
    # The root of the share, as mistakes are few and are what one looks for.
    image = axes.imshow(share, cmap="Blues", norm=PowerNorm(0.5, 0, 1))
    if classes <= _MOST_COUNTS:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                colour = "white" if share[i, j] > 0.35 else "black"
                axes.text(j, i, f"{count:,}", ha="center", va="center", color=colour)
    names = [short(name) for name in class_names] if classes <= _MOST_NAMES else []
    upright = max(map(len, names), default=0) > 60 // classes
    axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.set_xlabel("decided")
    axes.set_ylabel("true")
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=axes, shrink=0.6, format=FuncFormatter(whole_percent), label="share of the true class"
    )
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
    """Images n x C x H x W with their true class, what they were taken for and how sure of it, in the order given.

    At most the first 24 are shown; without any the figure says so.
    """
    count = min(len(images), _MOST_MISTAKES)
    if not count:
        figure = new_figure(1.0, title)
        array, (axes,) = grid_of(figure, 1, 1)
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no mistakes", ha="center", va="center", fontsize=10)
        return figure, array
    figure = new_figure(0.3 + 1.6 * -(-count // _COLUMNS), title)
    array, panels = grid_of(figure, count, _COLUMNS)
    for axes, image, true, decided, sure in zip(
        panels, channels_last(images[:count]), true_names, decided_names, confidence, strict=False
    ):
        show(axes, image)
        axes.set_title(f"{short(true, 16)}\nas {short(decided, 13)}\n{_percent(sure)}")
    if count < len(images):
        figure.supxlabel(f"the first {count} of {len(images)} mistakes", fontsize=8)
    return figure, array


def _percent(share: float) -> str:
    return "> 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"
