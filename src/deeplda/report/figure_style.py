"""The style of all figures (sizes, fonts, class colours, lines and markers), and functions that save figures."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from deeplda.output_folder import OutputFolder

AxesArray = NDArray[Any]

# Width of a text column in inches.
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
    # A dollar sign in a class name must not start a formula.
    "text.parse_math": False,
    # Write text as text, not as outlines, and always write the same bytes for the same data.
    "svg.fonttype": "none",
    "svg.hashsalt": "deeplda",
    "savefig.dpi": 150,
}
# Okabe and Ito's eight colours, pale yellow last, and two more that colour-blind readers can distinguish from them.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442", "#882255", "#5B3FD6",
)  # fmt: skip
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = "osD^vPX<>*"
# The approximate number of letters of the smallest font that fit on one line.
_LETTERS = 100
# Omit metadata that depends on the time or on versions, so that the same data gives the same bytes.
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class ClassStyle:
    """The style of one class: a colour ("#rrggbb"), and a matplotlib line style and marker."""

    colour: str
    line: Any
    marker: str


def class_styles(classes: int) -> list[ClassStyle]:
    """Return one style per class.

    There are ten colours. The line style changes every eight classes, so that up to 32 classes can be distinguished.
    Any ten consecutive classes also have different markers.
    """
    shades, markers = len(_COLOURS), len(_MARKERS)
    return [
        ClassStyle(_COLOURS[i % shades], _LINES[i // 8 % len(_LINES)], _MARKERS[(i + i // shades) % markers])
        for i in range(classes)
    ]


# A decorator that makes a function draw with our settings without changing matplotlib's own.
in_style = rc_context(_SETTINGS)


@in_style
def new_figure(height: float, title: str) -> Figure:
    """Return an empty figure as wide as a text column; `height` is in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def grid_of(figure: Figure, count: int, columns: int, **keywords: Any) -> AxesArray:
    """Return `count` axes in rows of `columns`, with None in unused places."""
    rows = -(-count // columns)
    array: AxesArray = figure.subplots(rows, columns, squeeze=False, **keywords)
    for place in range(count, rows * columns):
        figure.delaxes(array.flat[place])
        array.flat[place] = None
    return array


def short(name: str, longest: int = 28) -> str:
    """Shorten a name to at most `longest` letters by cutting out its middle, the least informative part."""
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def class_legend(figure: Figure, class_names: Sequence[str], *, lines: bool, note: str = "") -> None:
    """Add a legend for the classes below the figure, with lines or markers and a note above them."""
    handles = []
    for style in class_styles(len(class_names)):
        line: Any = style.line if lines else "none"
        marker = "none" if lines else style.marker
        handles.append(Line2D([], [], color=style.colour, linestyle=line, linewidth=2, marker=marker, markersize=5))
    figure_legend(figure, handles, [short(name) for name in class_names], note)


def figure_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], note: str = "") -> None:
    """Add a legend below the figure, in as many columns as fit; the figure grows by the height of the legend."""
    if not labels:
        return
    columns = max(1, min(len(labels), _LETTERS // (max(map(len, labels)) + 6)))
    lines = -(-len(labels) // columns) + len(note.splitlines())
    figure.set_figheight(figure.get_figheight() + 0.17 * lines + 0.08)
    legend = figure.legend(
        handles, [""] * len(labels), loc="outside lower center", ncols=columns, title=note or None, title_fontsize=8
    )
    # Set the labels afterwards, because matplotlib omits labels that start with an underscore.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)


def percent_tick(value: float, _place: int | None = None) -> str:
    """Format a fraction on an axis as a percentage without trailing zeros, such as "50 %" or "92.5 %"."""
    return f"{100 * value:g} %"


def save(figure: Figure, folder: Path | OutputFolder, name: str) -> tuple[Path, Path]:
    """Write NAME.png (150 dpi) and NAME.svg into `folder`, both atomically, and return the two paths."""
    with nullcontext(folder) if isinstance(folder, OutputFolder) else OutputFolder.open(folder) as output:
        for kind in ("png", "svg"):
            output.write(f"{name}.{kind}", _rendered(figure, kind))
        return output.path / f"{name}.png", output.path / f"{name}.svg"


def svg(figure: Figure) -> str:
    """Return the figure as an <svg> element. Text stays text, and the same data gives the same string."""
    text = _rendered(figure, "svg").decode()
    return text[text.index("<svg") :]


@in_style
def _rendered(figure: Figure, kind: str) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A letter missing from our font becomes a box in the PNG; in the SVG, the reader's own fonts display it.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Fix the layout after the first drawing, because each further one would shift things a little.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(stream, format=kind, metadata=_NO_METADATA if kind == "svg" else {"Software": None})
    return stream.getvalue()
