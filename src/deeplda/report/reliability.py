"""The part of the report about the probabilities: how often predictions with a given confidence are right."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deeplda.formatting import counted, percent, wilson_interval
from deeplda.predictors.calibration import ReliabilityBin, reliability_bins
from deeplda.report.components import Cell, definitions, number_cell, section, share_cell, sortable_table
from deeplda.report.markup import Html, element
from deeplda.report.record import InspectedRun

# The chart in CSS pixels: its size, and the left, top, right and bottom edges of the axes.
_WIDTH, _HEIGHT = 340, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 46, 12, 318, 262
# The highest bar of the histogram, as a fraction of the height.
_HIGHEST_BAR = 0.3
_TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)


def probability_section(run: InspectedRun) -> Html:
    """Return the reliability diagram of the samples shown, and the scores of the probabilities on the test set."""
    bins = reliability_bins(run.probabilities, run.decided == run.labels)
    lead = (
        "If probabilities can be trusted, 80 % of the predictions with a probability of 80 % are right. Each dot shows "
        "the predictions whose probability falls in one of 15 ranges, with the 95 % interval of their accuracy; "
        "perfect ones lie on the dashed line. Dots below it are predictions that were too confident. The bars "
        f"show how many predictions a range has. {_calibrated(run.calibrated_on)}"
    )
    table = sortable_table("Accuracy by probability", ("predictions", "mean probability", "accuracy"), _rows(bins))
    details = element("details", element("summary", "Values by range"), table)
    return section(
        "probabilities",
        "Probabilities",
        lead,
        element("div", reliability_chart(bins), element("div", definitions(_measures(run))), class_="charts"),
        details,
    )


def reliability_chart(bins: Sequence[ReliabilityBin]) -> Html:
    """Draw accuracy against mean confidence for each bin, with a histogram of the bins' sizes."""
    most = max(found.count for found in bins)
    grid, dots, bars = [], [], []
    for tick in _TICKS:
        path = f"M{_LEFT} {_y(tick):.1f}H{_RIGHT}"
        grid.append(element("path", d=path, class_="grid"))
        grid.append(element("text", percent(tick, 0), x=_LEFT - 6, y=f"{_y(tick) + 4:.1f}", class_="tick end"))
        grid.append(element("text", percent(tick, 0), x=f"{_x(tick):.1f}", y=_BOTTOM + 18, class_="tick middle"))
    for found in bins:
        low, high = wilson_interval(round(found.accuracy * found.count), found.count)
        title = f"{percent(found.confidence, 1)} probability, {percent(found.accuracy, 1)} right"
        x, text = f"{_x(found.confidence):.1f}", element("title", f"{counted(found.count, 'prediction')}: {title}")
        dots.append(element("path", d=f"M{x} {_y(low):.1f}V{_y(high):.1f}"))
        dots.append(element("circle", text, cx=x, cy=f"{_y(found.accuracy):.1f}", r=3.5))
        # The height scales with the square root, so that small bins stay visible.
        height = _HIGHEST_BAR * (_BOTTOM - _TOP) * math.sqrt(found.count / most)
        left, top = f"{_x(found.confidence) - 5:.1f}", f"{_BOTTOM - height:.1f}"
        bars.append(element("rect", x=left, width=10, y=top, height=f"{height:.1f}"))
    ideal = element("path", d=f"M{_LEFT} {_BOTTOM}L{_RIGHT} {_TOP}", class_="kept")
    axis = element("text", "probability of the predicted class", x=_RIGHT, y=_HEIGHT - 4, class_="tick end")
    content = grid, element("g", bars, class_="histogram"), ideal, element("g", dots, class_="line k0"), axis
    label = "Accuracy against the probability of the predicted class"
    drawing = element("svg", content, class_="chart", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)
    return element("figure", element("figcaption", "Accuracy by probability"), drawing)


def _rows(bins: Sequence[ReliabilityBin]) -> list[list[Cell]]:
    return [[number_cell(found.count, ","), share_cell(found.confidence), share_cell(found.accuracy)] for found in bins]


def _measures(run: InspectedRun) -> dict[str, str]:
    """Return the scores of the probabilities with their meaning; runs of early versions have none."""
    found = run.scores.deciding
    chance = math.log(len(run.class_names))
    texts = {
        "log loss": (found.log_loss, f"mean of -log p for the true class; {chance:.3f} for a uniform guess"),
        "Brier score": (found.brier, "mean squared error of the probabilities, summed over the classes, from 0 to 2"),
        "calibration error": (
            found.ece,
            "mean distance of the dots from the dashed line, weighted by their size (ECE)",
        ),
    }
    return {name: f"{value:.4f}: {text}" for name, (value, text) in texts.items() if value is not None}


def _calibrated(samples: int) -> str:
    if samples:
        return f"The probabilities were calibrated on {counted(samples, 'validation sample')}."
    return "The probabilities are not calibrated, so they are far too confident: there was no validation set for it."


def _x(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT)


def _y(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)
