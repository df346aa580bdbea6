"""The embedding of a run: its samples in the plane, and the classes along each output of the network."""

from __future__ import annotations

import numpy as np

from deeplda.formatting import percent
from deeplda.report import plot_data
from deeplda.report.components import legend, plot_controls, scatter, section
from deeplda.report.markup import Html, element
from deeplda.report.record import Floats, InspectedRun


def embedding(run: InspectedRun) -> Html:
    """Return the interactive plot of the test samples in two discriminant coordinates."""
    total, shown = run.sizes["test"], len(run.labels)
    sample = f"{shown:,} of the {total:,} test samples are shown (stratified by class). " if shown < total else ""
    axes = "The axes are the directions that best separate the classes in the training set."
    if run.card.predictors == ("softmax",):
        axes = (
            "Cross-entropy has no discriminant directions of its own, so the axes come from classic LDA fitted to "
            "the network's outputs for training samples."
        )
    look = "Point at a sample to see it, or focus the plot and use the arrow keys."
    lead = f"Each point is a test sample. {axes} {sample}{look}"
    controls = plot_controls(run.axes[: plot_data.MOST_AXES])
    return section("embedding", "Embedding", lead, controls, legend(run.class_names), scatter(0))


def outputs(run: InspectedRun) -> Html:
    """Return the density of each class along one output, chosen with a slider, and each output's accuracy."""
    outputs = run.embedding.shape[1]
    count = min(outputs, plot_data.MOST_DIMENSIONS)
    lead = (
        "Each curve shows the distribution of a class along one output of the network. If the curves do not overlap, "
        "this output alone separates the classes. Each bar shows the accuracy achieved with one output alone; the "
        "dashed line marks chance level."
    )
    notes = [
        f"Fisher ratio: {ratio:.3g}; accuracy with this output alone: {percent(accuracy)}"
        for ratio, accuracy in zip(run.fisher_ratios[:count], run.single_accuracies[:count], strict=True)
    ]
    label = element("label", "output ", element("output", 1, for_="dimension"), f" of {outputs}", for_="dimension")
    about = "dimension-figures"
    slider = element("input", type="range", id="dimension", min=1, max=count, value=1, aria_describedby=about)
    bars = _accuracy_bars(run.single_accuracies[:count], 1 / len(run.class_names))
    figure = element(
        "figure",
        element("svg", class_="densities", viewBox="0 0 720 300", role="img", aria_label="Class densities"),
        element("div", bars, slider, class_="slider"),
        label,
        element("p", notes[0], id=about, class_="status", aria_live="polite"),
    )
    all_notes = element("ol", [element("li", note) for note in notes], id="dimension-notes", hidden=True)
    return section("dimensions", "One output at a time", lead, legend(run.class_names), figure, all_notes)


def _accuracy_bars(accuracies: Floats, chance: float) -> Html:
    """Return one bar per output, whose height is the accuracy with this output alone."""
    heights = np.nan_to_num(accuracies)
    highest = max(heights.max(), chance)
    bars = [
        element("rect", x=f"{i + 0.15:g}", width=0.7, y=f"{1 - share:.4f}", height=f"{share:.4f}")
        for i, share in enumerate(heights / highest)
    ]
    level = f"{1 - chance / highest:.4f}"
    line = element("line", x1=0, x2=len(bars), y1=level, y2=level, class_="chance")
    box = f"0 0 {len(bars)} 1"
    return element("svg", bars, line, class_="bars", viewBox=box, preserveAspectRatio="none", aria_hidden="true")
