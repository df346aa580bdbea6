"""How all figures look: sizes, fonts, and a colour, a line and a marker for each class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

_Function = TypeVar("_Function", bound=Callable[..., Any])
AxesArray = NDArray[np.object_]

# The width of a page, in inches.
WIDTH = 16 / 2.54
GREY = "#6b6b6b"
BLUE, VERMILLION = "#0072B2", "#D55E00"
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.titlesize": 10,
    "figure.facecolor": "white",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "image.interpolation": "nearest",
    # A dollar in the name of a class is a dollar.
    "text.parse_math": False,
    # The same data gives the same bytes, and text stays text.
    "svg.fonttype": "none",
    "svg.hashsalt": "deeplda",
    "savefig.dpi": 150,
}
# Okabe and Ito's eight, yellow last as it is pale, and two more that are as far from these for every kind of sight.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442", "#882255", "#5B3FD6",
)  # fmt: skip
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = "osD^vPX<>*"
# About so many letters of the smallest font stand side by side on a page.
_LETTERS = 100


@dataclass(frozen=True)
class ClassStyle:
    """How one class is drawn: a colour "#rrggbb", a line style and a marker of matplotlib's."""

    colour: str
    line: Any
    marker: str


def class_styles(classes: int) -> list[ClassStyle]:
    """One style a class: ten colours, and from the ninth class on other lines, so that thirty-two classes all differ.

    Markers differ among any ten neighbours as well.
    """
    return [
        ClassStyle(
            _COLOURS[i % len(_COLOURS)],
            _LINES[i // 8 % len(_LINES)],
            _MARKERS[(i + i // len(_COLOURS)) % len(_MARKERS)],
        )
        for i in range(classes)
    ]


def in_style(function: _Function) -> _Function:
    """Draw with our settings, and leave matplotlib's as they were."""
    return rc_context(_SETTINGS)(function)


@in_style
def new_figure(height: float, title: str) -> Figure:
    """An empty figure of page width; `height` in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def grid_of(figure: Figure, count: int, columns: int, **keywords: Any) -> tuple[AxesArray, list[Axes]]:
    """`count` axes in rows of `columns`: the array with None in the places left over, and the axes in order."""
    rows = -(-count // columns)
    array = figure.subplots(rows, columns, squeeze=False, **keywords)
    for place in range(count, rows * columns):
        figure.delaxes(array.flat[place])
        array.flat[place] = None
    return array, list(array.flat[:count])


def short(name: str, longest: int = 28) -> str:
    """A name of at most so many letters: longer ones lose their middle, which tells names apart least."""
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def class_legend(figure: Figure, class_names: Sequence[str], *, lines: bool, note: str = "") -> None:
    """The classes below the figure, as lines or as markers, under a note."""
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.line, linewidth=2)
        if lines
        else Line2D([], [], color=style.colour, linestyle="none", marker=style.marker, markersize=5)
        for style in class_styles(len(class_names))
    ]
    figure_legend(figure, handles, [short(name) for name in class_names], note)


def figure_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], note: str = "") -> None:
    """A legend below the figure in as many columns as fit; the figure grows by its height."""
    columns = max(1, min(len(labels), _LETTERS // (max(map(len, labels)) + 6)))
    lines = -(-len(labels) // columns) + len(note.splitlines())
    figure.set_figheight(figure.get_figheight() + 0.17 * lines + 0.08)
    legend = figure.legend(
        handles, [""] * len(labels), loc="outside lower center", ncols=columns, title=note or None, title_fontsize=8
    )
    # Set afterwards: a legend leaves out labels that start with an underscore.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)


def whole_percent(value: float, _place: int | None = None) -> str:
    """0.5 as "50 %", for the ticks of an axis."""
    return f"{100 * value:g} %"
