"""Why alpha below 1 rewards outputs that are copies of each other, in one picture.

    python benchmarks/copies.py docs/copies.png

All points are eigenvalues that the library computes for samples whose class means and within-class scatter are exact;
the lines are the formulas. It takes a second, and there is nothing random in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deeplda.core import discriminant_eigenvalues
from deeplda.report.figure_style import BLUE, GREY, VERMILLION, WIDTH, in_style

Array = NDArray[np.float64]

ALPHAS = np.linspace(0, 1, 11)
# The Fisher ratios of two outputs: between-class variance over within-class variance.
RATIOS = (0.5, 0.1)


def outputs(*ratios: float) -> tuple[Array, NDArray[np.int64]]:
    """Return four classes in which outputs are uncorrelated, with variance 1 within classes and these ratios."""
    noise = np.array([(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)])[:, : len(ratios)]
    centres = noise * np.sqrt(ratios)
    return (centres[:, None] + noise[None]).reshape(16, len(ratios)), np.repeat(np.arange(4), 4)


def eigenvalues(rows: Array, labels: NDArray[np.int64], alpha: float) -> Array:
    found = discriminant_eigenvalues(torch.from_numpy(rows), torch.from_numpy(labels), alpha=float(alpha), lam=0.0)
    return found.numpy()[::-1]


def draw_reward(axes: Axes) -> None:
    """Draw the factor by which k copies of one output multiply its eigenvalue."""
    rows, labels = outputs(RATIOS[0])
    for k, colour in ((2, BLUE), (5, VERMILLION), (10, "#009E73")):
        line = np.linspace(0, 1, 101)
        axes.plot(line, k / (1 + (k - 1) * line), color=colour, label=f"{k} copies")
        copies = np.repeat(rows, k, axis=1)
        measured = [eigenvalues(copies, labels, alpha)[0] / RATIOS[0] for alpha in ALPHAS]
        axes.plot(ALPHAS, measured, "o", color=colour, markersize=3)
    axes.axhline(1, color=GREY, linestyle="--", linewidth=0.9, label="whitened outputs")
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    axes.minorticks_off()
    axes.set_ylabel("largest eigenvalue, relative to one output")
    axes.set_title("k copies multiply the eigenvalue by k / (1 + (k - 1) alpha)", loc="left")


def draw_choice(axes: Axes) -> None:
    """Draw the paper's statistic of two different outputs, and of the better one twice."""
    (rows, labels), line = outputs(*RATIOS), np.linspace(0, 1, 101)
    choices = {
        "two different outputs": (rows, BLUE, np.full_like(line, np.mean(RATIOS))),
        "the better output twice": (rows[:, [0, 0]], VERMILLION, RATIOS[0] / (1 + line)),
    }
    for name, (own, colour, formula) in choices.items():
        # All eigenvalues are within epsilon = 1 of the smallest, so the statistic is their mean.
        axes.plot(ALPHAS, [eigenvalues(own, labels, alpha).mean() for alpha in ALPHAS], "o", color=colour, markersize=3)
        axes.plot(line, formula, color=colour, label=name)
    tie = RATIOS[0] / np.mean(RATIOS) - 1
    axes.axvline(tie, color=GREY, linestyle="--", linewidth=0.9)
    axes.text(tie - 0.02, 0.49, "copies win", ha="right", color=VERMILLION)
    axes.text(tie + 0.02, 0.49, "both kept", ha="left", color=BLUE)
    axes.set_ylabel("mean eigenvalue, which is maximised")
    axes.set_title(f"outputs with the ratios {RATIOS[0]} and {RATIOS[1]}", loc="left")


def main() -> None:
    with in_style:
        figure = Figure(figsize=(WIDTH * 1.25, 3.0), layout="constrained")
        for axes, draw in zip(figure.subplots(1, 2), (draw_reward, draw_choice), strict=True):
            draw(axes)
            axes.grid(axis="y")
            axes.set_xlabel("alpha")
            axes.legend(loc="upper right" if draw is draw_reward else "lower left")
        figure.savefig(Path(sys.argv[1]), metadata={"Software": None})


if __name__ == "__main__":
    main()
