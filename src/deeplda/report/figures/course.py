"""What happened over the epochs, and over alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from deeplda.errors import got
from deeplda.report.figures.style import (
    BLUE,
    GREY,
    VERMILLION,
    AxesArray,
    class_styles,
    figure_legend,
    in_style,
    new_figure,
    whole_percent,
)

# Eigenvalues below this share of the largest are drawn at it: on a logarithmic axis 0 has no place.
_LEAST_SHARE = 1e-6


@in_style
def accuracy_against_alpha(
    alphas: Sequence[float],
    accuracies: Sequence[Sequence[float]],
    baselines: Mapping[str, Sequence[float]],
    published: Mapping[float, float] | None = None,
    *,
    title: str = "",
) -> tuple[Figure, AxesArray]:
    """Accuracy (0 to 1) over alpha: the mean over the seeds, one standard deviation around it, each seed a dot.

    Args:
        accuracies: for each alpha those of its seeds; an alpha without any is a gap.
        baselines: by name the accuracies of the seeds of what has no alpha, such as cross-entropy: level lines.
        published: accuracy by alpha of somebody else's runs, in a panel of its own above, with as many points a
            centimetre: other settings move the level, and the shape is what can be compared.
    """
    _check_shares([value for seeds in (*accuracies, *baselines.values()) for value in seeds])
    _check_shares(list(published.values()) if published else [])
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
        axes.yaxis.set_major_formatter(FuncFormatter(whole_percent))
    figure_legend(figure, *panels[-1].get_legend_handles_labels())
    return figure, panels


@in_style
def eigenvalue_spectrum(
    epochs: Sequence[int], eigenvalues: Sequence[Sequence[float]], *, title: str = ""
) -> tuple[Figure, Axes]:
    """The valid eigenvalues of each epoch's last batch, ascending, on a logarithmic axis; the smallest stands out.

    Values that are 0 or nearly so lie at the foot of the axis, which is marked then.
    """
    figure = new_figure(3.0, title)
    axes = figure.subplots()
    axes.set_yscale("log")
    values = _table(eigenvalues)
    foot = _LEAST_SHARE * (np.nanmax(values, initial=0.0) or 1.0)
    shown = np.maximum(values, foot)
    count = shown.shape[1]
    for i in reversed(range(1, count)):
        axes.plot(
            epochs, shown[:, i], color=BLUE, alpha=0.3 + 0.6 * i / count, linewidth=1, marker="o", markersize=2.5,
            label="the others" if i == count // 2 else None,
        )  # fmt: skip
    axes.plot(epochs, shown[:, 0], color=VERMILLION, linewidth=2, marker="o", markersize=4, label="smallest")
    if (values < foot).any():
        axes.axhline(foot, color=GREY, linewidth=0.6, linestyle=":")
        axes.annotate(
            "0, or nearly", (0.01, foot), (0, 5), xycoords=axes.get_yaxis_transform(), textcoords="offset points"
        )
    axes.set_ylim(np.nanmin(shown, initial=1e3 * foot) / 1.5, np.nanmax(shown, initial=10 * foot) * 1.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("eigenvalue")
    _epoch_axis(axes)
    figure_legend(figure, *axes.get_legend_handles_labels())
    return figure, axes


@in_style
def learning_curves(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> tuple[Figure, AxesArray]:
    """Loss and validation accuracy over the epochs, from the rows of a run's metrics.jsonl.

    Of a finished run the kept epoch and its accuracy on the test part are marked. A loss that is not finite is a gap.
    """
    figure = new_figure(2.5, title)
    panels = figure.subplots(1, 2, sharex=True)
    epochs = [row for row in rows if row["kind"] == "epoch"]
    numbers = [row["epoch"] for row in epochs]
    panels[0].plot(numbers, _table([[row["loss"]] for row in epochs]), color=BLUE, marker="o", markersize=2.5)
    panels[0].set_title("loss on the training part", loc="left")
    panels[1].set_title("accuracy on the validation part", loc="left")
    panels[1].yaxis.set_major_formatter(FuncFormatter(whole_percent))
    _draw_validation(panels[1], epochs)
    for row in rows:
        if row["kind"] == "summary":
            _mark_kept(panels, row)
    for axes in panels:
        _epoch_axis(axes)
    if panels[1].get_legend_handles_labels()[0]:
        figure_legend(figure, *panels[1].get_legend_handles_labels())
    return figure, panels


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
    """Give the panels y axes of the same length, each around its own middle, but not far beyond 100 %."""
    limits = [axes.get_ylim() for axes in panels]
    span = max(high - low for low, high in limits)
    for axes, (low, high) in zip(panels, limits, strict=True):
        top = min((low + high + span) / 2, max(high, 1.01))
        axes.set_ylim(top - span, top)


def _draw_validation(axes: Axes, epochs: Sequence[Mapping[str, Any]]) -> None:
    """One line a predictor, where there is a validation part."""
    scored = [row for row in epochs if row["validation"]]
    names = list(scored[0]["validation"]["predictors"]) if scored else []
    for place, (name, style) in enumerate(zip(names, class_styles(len(names)), strict=True)):
        accuracy = [row["validation"]["predictors"][name]["accuracy"] for row in scored]
        axes.plot(
            [row["epoch"] for row in scored], accuracy, color=style.colour, marker=style.marker, markersize=3,
            linewidth=0.8 if place else 1.8, zorder=3 - 0.1 * place, label=name.replace("_", " ").replace("lda", "LDA"),
        )  # fmt: skip


def _mark_kept(panels: AxesArray, summary: Mapping[str, Any]) -> None:
    for axes in panels:
        axes.axvline(summary["best_epoch"], color=GREY, linewidth=0.8, linestyle="--", label="epoch that was kept")
    if summary["test"]:
        accuracy = summary["test"]["accuracy"]
        panels[1].plot(
            summary["best_epoch"], accuracy, color="black", linestyle="none", marker="*", markersize=9, zorder=4,
            label=f"test part: {100 * accuracy:.2f} %",
        )  # fmt: skip


def _epoch_axis(axes: Axes) -> None:
    axes.grid(axis="y")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _table(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Rows of different length as one array, with NaN for what is missing or not finite."""
    table = np.full((len(rows), max(map(len, rows), default=1)), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return np.where(np.isfinite(table), table, np.nan)


def _check_shares(accuracies: Sequence[float]) -> None:
    wrong = [value for value in accuracies if not 0 <= value <= 1]
    if wrong:
        raise ValueError(got(f"accuracy {wrong[0]}", need="0 to 1", do="divide percent by 100"))
