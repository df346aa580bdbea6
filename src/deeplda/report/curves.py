"""Line charts: curves over the epochs, for both figures and the page, and accuracy against alpha."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from deeplda.errors import got
from deeplda.formatting import percent
from deeplda.report.components import colour_class
from deeplda.report.figure_style import (
    BLUE,
    GREY,
    VERMILLION,
    AxesArray,
    class_styles,
    figure_legend,
    in_style,
    new_figure,
    percent_tick,
    svg,
)
from deeplda.report.markup import Html, element
from deeplda.report.wording import PREDICTOR_NAMES
from deeplda.training.metrics import EpochRow, Row, Scores, SummaryRow

# A logarithmic axis has no 0, so eigenvalues below this fraction of the largest one are raised to it.
_LEAST_SHARE = 1e-6
# Larger values are drawn as gaps, because an axis cannot span them.
_LARGEST = 1e100
# Dimensions of a chart on the page, in CSS pixels: size, axes (left, bottom, width, height) and the page's font size.
_CHART_SIZE, _CHART_AXES, _CHART_FONT = (340, 220), (46, 30, 284, 178), 11
# Curves with more points than this are drawn without dots on the page.
_MOST_DOTS = 40
# The index of vermillion, used for the smallest eigenvalue, among the class colours.
_SMALLEST_COLOUR = 3


@dataclass(frozen=True)
class Curve:
    """One line in a chart, with a value for each epoch; values that are not finite are gaps.

    Attributes:
        colour: index of a colour in `class_styles`; None for a thin line in the background.
        dashed: draw a dashed line, so that a colour can be reused.
    """

    name: str
    epochs: Sequence[int]
    values: Sequence[float]
    colour: int | None = 0
    dashed: bool = False


def loss_curves(epochs: Sequence[EpochRow]) -> list[Curve]:
    """Return the training loss as a curve."""
    return [Curve("loss", [row.epoch for row in epochs], [row.loss for row in epochs])]


def eigenvalue_curves(epochs: Sequence[int], spectra: Sequence[Sequence[float]]) -> list[Curve]:
    """Return one curve per eigenvalue; the smallest, which the paper's objective targets, is highlighted."""
    count = max(map(len, spectra), default=0)
    table = [[spectrum[i] if i < len(spectrum) else np.nan for spectrum in spectra] for i in range(count)]
    others = [Curve(f"eigenvalue {i} of {count}", epochs, values, None) for i, values in enumerate(table[1:], 2)]
    return [Curve("smallest eigenvalue", epochs, values, _SMALLEST_COLOUR) for values in table[:1]] + others


@in_style
def page_chart(
    curves: Sequence[Curve], *, label: str, shares: bool = False, logarithmic: bool = False, kept: int | None = None
) -> Html:
    """Draw curves over the epochs as an inline SVG for the page, whose style sheet sets the colours and fonts.

    Args:
        label: a description of the chart for screen readers.
        shares: format the values as percentages.
        kept: the epoch to mark with a vertical line.
    """
    width, height = _CHART_SIZE
    figure = Figure(figsize=(width / 72, height / 72))
    left, bottom, across, up = _CHART_AXES
    axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
    _draw_curves(axes, curves, shares=shares, logarithmic=logarithmic, kept=kept)
    axes.tick_params(labelsize=_CHART_FONT)
    axes.xaxis.set_label_coords(1, -0.157)
    axes.xaxis.label.set(horizontalalignment="right", verticalalignment="baseline", fontsize=_CHART_FONT)
    shapes = _page_shapes(ET.fromstring(svg(figure)), curves, shares)
    return element("svg", list(shapes), class_="chart", viewBox=f"0 0 {width} {height}", role="img", aria_label=label)


@in_style
def learning_curves(rows: Sequence[Row], *, title: str = "") -> tuple[Figure, AxesArray]:
    """Draw the loss and the validation accuracy over the epochs, from the rows of a run's metrics.jsonl.

    For a finished run, the selected epoch and its test accuracy are marked. A loss that is not finite leaves a gap.
    """
    epochs = [row for row in rows if isinstance(row, EpochRow)]
    summary = next((row for row in rows if isinstance(row, SummaryRow)), None)
    kept = summary.best_epoch if summary else None
    figure = new_figure(2.5, title)
    panels = figure.subplots(1, 2, sharex=True)
    _draw_curves(panels[0], loss_curves(epochs), kept=kept)
    _draw_curves(panels[1], _validation_curves(epochs), shares=True, kept=kept)
    panels[0].set_title("training loss", loc="left")
    panels[1].set_title("validation accuracy", loc="left")
    if summary and isinstance(summary.test, Scores):
        panels[1].plot(
            summary.best_epoch, summary.test.accuracy, color="black", linestyle="none", marker="*", markersize=9,
            zorder=4, label=f"test: {percent(summary.test.accuracy)}",
        )  # fmt: skip
    figure_legend(figure, *panels[1].get_legend_handles_labels())
    return figure, panels


@in_style
def eigenvalue_spectrum(
    epochs: Sequence[int], eigenvalues: Sequence[Sequence[float]], *, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw the valid eigenvalues of each epoch's last batch on a logarithmic axis, with the smallest highlighted.

    The eigenvalues of each epoch are in ascending order. Values that are 0 or nearly 0 are drawn at the bottom of the
    axis, which is then marked.
    """
    figure = new_figure(3.0, title)
    axes = figure.subplots()
    _draw_curves(axes, eigenvalue_curves(epochs, eigenvalues), logarithmic=True)
    axes.set_ylabel("eigenvalue")
    # One entry in the legend represents all the others.
    handles, labels = axes.get_legend_handles_labels()
    figure_legend(figure, handles[:2], [*labels[:1], "the others"][: len(handles)])
    return figure, axes


@in_style
def accuracy_against_alpha(
    alphas: Sequence[float],
    accuracies: Sequence[Sequence[float]],
    baselines: Mapping[str, Sequence[float]],
    published: Mapping[float, float] | None = None,
    *,
    title: str = "",
) -> tuple[Figure, AxesArray]:
    """Draw accuracy (0 to 1) against alpha: the mean over seeds, a band of one standard deviation, and a dot per seed.

    Args:
        accuracies: for each alpha, the accuracies of all seeds; an alpha without any leaves a gap.
        baselines: the accuracies of all seeds for each method without alpha, such as cross-entropy. Each method is
            drawn as a horizontal line.
        published: the published accuracy for each alpha, drawn in a separate panel at the same scale. Different
            settings shift the level, but the shapes can be compared.
    """
    seeds_of_all = *accuracies, *baselines.values(), list((published or {}).values())
    if wrong := [value for seeds in seeds_of_all for value in seeds if not 0 <= value <= 1]:
        raise ValueError(got(f"an accuracy is {wrong[0]}", need="0 to 1", do="divide percentages by 100"))
    figure = new_figure(4.6 if published else 3.0, title)
    panels = figure.subplots(2 if published else 1, 1, squeeze=False, sharex=True)[:, 0]
    _draw_alphas(panels[-1], alphas, accuracies)
    _draw_baselines(panels[-1], baselines)
    panels[-1].set_xlabel("alpha")
    if published:
        places = sorted(published)
        panels[0].plot(places, [published[alpha] for alpha in places], color=VERMILLION, marker="D", markersize=4)
        panels[0].set_title("published", loc="left")
        panels[1].set_title("ours", loc="left")
        _same_span(*panels)
    for axes in panels:
        axes.grid(axis="y")
        axes.set_ylabel("accuracy")
        axes.yaxis.set_major_formatter(FuncFormatter(percent_tick))
    figure_legend(figure, *panels[-1].get_legend_handles_labels())
    return figure, panels


def _validation_curves(epochs: Sequence[EpochRow]) -> list[Curve]:
    """Return the validation accuracy of each predictor as a curve; empty if there is no validation set."""
    scored = [(row.epoch, row.validation) for row in epochs if isinstance(row.validation, Scores)]
    names = list(scored[0][1].predictors) if scored else []
    numbers = [epoch for epoch, _ in scored]
    return [
        Curve(PREDICTOR_NAMES.get(name, name), numbers, [scores.predictors[name].accuracy for _, scores in scored], i)
        for i, name in enumerate(names)
    ]


def _draw_curves(
    axes: Axes, curves: Sequence[Curve], *, shares: bool = False, logarithmic: bool = False, kept: int | None = None
) -> None:
    """Draw curves, with the first one on top. Their ids contain their indices, so that `_page_shapes` can find them."""
    values = [_finite(curve.values) for curve in curves]
    if logarithmic:
        values = _draw_foot(axes, values)
    for i, (curve, shown) in enumerate(zip(curves, values, strict=True)):
        prominent = curve.colour is not None
        style = class_styles((curve.colour or 0) + 1)[-1]
        axes.plot(
            curve.epochs, shown, color=style.colour, alpha=None if prominent else 0.35,
            linestyle="--" if curve.dashed else "-", linewidth=1.8 if prominent and not i else 0.9,
            marker=style.marker if prominent else "o", markersize=3.5 if prominent else 2, zorder=3 - 0.1 * bool(i),
            label=curve.name, gid=f"curve-{i}",
        )  # fmt: skip
    if kept is not None:
        axes.axvline(kept, color=GREY, linewidth=0.8, linestyle="--", label="selected epoch", gid="kept")
    axes.grid(axis="y")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(percent_tick if shares else _number_tick))
    if not logarithmic:
        axes.yaxis.set_major_locator(MaxNLocator(5))


def _draw_foot(axes: Axes, values: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Make the axis logarithmic and return the values to draw: small ones are raised to its foot, which is marked."""
    axes.set_yscale("log")
    largest = max((float(np.nanmax(row, initial=0.0)) for row in values), default=0.0)
    foot = _LEAST_SHARE * (largest if largest > 1 / _LARGEST else 1.0)
    shown = [np.maximum(row, foot) for row in values]
    least = min((float(np.nanmin(row, initial=np.inf)) for row in shown), default=foot)
    least, largest = min(least, max(largest, foot)), max(largest, 10 * foot)
    axes.set_ylim(least / 1.5, largest * 1.5)
    if any((row < foot).any() for row in values):
        axes.axhline(foot, color=GREY, linewidth=0.6, linestyle=":")
        shares = axes.get_yaxis_transform()
        axes.annotate("0 or nearly 0", (0.01, foot), (0, 5), xycoords=shares, textcoords="offset points")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if largest < 100 * least else (1,), numticks=6))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return shown


def _page_shapes(node: ET.Element, curves: Sequence[Curve], shares: bool, kind: str = "tick") -> Iterator[Html]:
    """Yield the grid, texts and curves in matplotlib's SVG as plain shapes with CSS classes, not inline styles."""
    identifier = node.get("id", "")
    if identifier.startswith("curve-"):
        yield _page_curve(node, curves[int(identifier.removeprefix("curve-"))], shares)
        return
    kinds = {"xtick": "tick middle", "ytick": "tick end", "kept": "kept", "matplotlib.axis": "tick end"}
    kind = next((found for prefix, found in kinds.items() if identifier.startswith(prefix)), kind)
    for child in node:
        tag = child.tag.rpartition("}")[2]
        if tag == "g":
            yield from _page_shapes(child, curves, shares, kind)
        elif tag == "text":
            yield element("text", "".join(child.itertext()), class_=kind, x=_tenths(child, "x"), y=_tenths(child, "y"))
        elif tag == "path" and kind in ("tick end", "kept"):
            title = element("title", "the selected epoch") if kind == "kept" else ()
            yield element("path", title, d=_rounded(child.get("d", "")), class_="kept" if kind == "kept" else "grid")


def _page_curve(node: ET.Element, curve: Curve, shares: bool) -> Html:
    """Return a curve as one path, with a dot and a tooltip for each value."""
    path = next((_rounded(found.get("d", "")) for found in node if found.tag.endswith("}path")), "")
    points = [found for found in node.iter() if found.tag.endswith("}use")]
    shown = [(e, v) for e, v in zip(curve.epochs, _finite(curve.values), strict=True) if np.isfinite(v)]
    dots = []
    for point, (epoch, value) in zip(points, shown, strict=False) if len(shown) <= _MOST_DOTS else ():
        title = f"{curve.name}, epoch {epoch}: {percent(value) if shares else f'{value:.4g}'}"
        dots.append(element("circle", element("title", title), cx=_tenths(point, "x"), cy=_tenths(point, "y"), r=2.5))
    colour = "others" if curve.colour is None else colour_class(curve.colour)
    return element("g", element("path", d=path), dots, class_=f"line {colour}{' more' * curve.dashed}")


def _tenths(node: ET.Element, attribute: str) -> str:
    return f"{float(node.get(attribute, 0)):.1f}"


def _rounded(path: str) -> str:
    """Return the data of an SVG path, rounded to tenths of a pixel."""
    return re.sub(r"-?\d+\.?\d*", lambda found: f"{float(found[0]):.1f}", " ".join(path.split()))


def _number_tick(value: float, _place: int | None = None) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    found = np.asarray(values, np.float64)
    return np.where(np.abs(found) < _LARGEST, found, np.nan)


def _draw_alphas(axes: Axes, alphas: Sequence[float], accuracies: Sequence[Sequence[float]]) -> None:
    found = [np.asarray(seeds, np.float64) for seeds in accuracies]
    mean = np.array([seeds.mean() if len(seeds) else np.nan for seeds in found])
    spread = np.array([seeds.std(ddof=1) if len(seeds) > 1 else 0.0 for seeds in found])
    axes.fill_between(alphas, mean - spread, mean + spread, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(alphas, mean, color=BLUE, marker="o", markersize=5, label="mean ± std over seeds")
    single = np.array([(alpha, value) for alpha, seeds in zip(alphas, found, strict=True) for value in seeds])
    if any(len(seeds) > 1 for seeds in found):
        axes.plot(*single.T, color="black", linestyle="none", marker=".", markersize=4, label="single seed")


def _draw_baselines(axes: Axes, baselines: Mapping[str, Sequence[float]]) -> None:
    for (name, seeds), style in zip(baselines.items(), class_styles(len(baselines) + 1)[1:], strict=True):
        if len(seeds):
            mean, spread = float(np.mean(seeds)), float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0
            axes.axhspan(mean - spread, mean + spread, color=style.colour, alpha=0.12, linewidth=0)
            axes.axhline(mean, color=style.colour, linestyle="--", label=name)


def _same_span(*panels: Axes) -> None:
    """Give all y axes the same span, each centred on its own values but not extending far beyond 100 %."""
    limits = [axes.get_ylim() for axes in panels]
    span = max(high - low for low, high in limits)
    for axes, (low, high) in zip(panels, limits, strict=True):
        top = min((low + high + span) / 2, max(high, 1.01))
        axes.set_ylim(top - span, top)
