"""The figures of a run, for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from deeplda.report.analysis import separated_class
from deeplda.report.contents import RunContents
from deeplda.report.figures.course import eigenvalue_spectrum, learning_curves
from deeplda.report.figures.decisions import confusion_matrix, worst_mistakes
from deeplda.report.figures.embedding import densities, dimension_power, embedding_plane
from deeplda.report.figures.saving import save
from deeplda.report.hardest_section import hardest


def write_figures(contents: RunContents, folder: Path) -> list[Path]:
    """Draw all that a run has to show into `folder`, as PNG and SVG; return the PNGs."""
    return [save(figure, folder, name)[0] for name, figure in _figures(contents)]


def _figures(run: RunContents) -> Iterator[tuple[str, Figure]]:
    names = run.class_names
    yield "learning-curves", learning_curves([*run.rows, run.summary])[0]
    if run.rows and all("eigenvalues" in row for row in run.rows):
        spectra = [row["eigenvalues"] for row in run.rows]
        yield "eigenvalues", eigenvalue_spectrum([row["epoch"] for row in run.rows], spectra)[0]
    yield "confusion", confusion_matrix(run.scores["confusion"], names)[0]
    yield "embedding", embedding_plane(run.coordinates[:, :2], run.labels, names, axis_names=run.axes)[0]
    yield "densities", densities(run.embedding, run.labels, names)[0]
    if len(np.unique(run.labels)) > 1:
        best = [names[c] if c >= 0 else "none" for c in separated_class(run.embedding, run.labels)]
        yield "dimension-power", dimension_power(run.fisher_ratios, run.single_accuracies, best)[0]
    if run.images:
        yield "mistakes", _mistakes(run)


def _mistakes(run: RunContents) -> Figure:
    """Of the samples shown, those that were decided wrongly, the surest first."""
    places, mistakes = hardest(run)
    wrong = places if mistakes else places[:0]
    true, decided = ([run.class_names[c] for c in which[wrong]] for which in (run.labels, run.decided))
    return worst_mistakes(run.samples[wrong].astype(np.uint8), true, decided, run.probabilities[wrong])[0]
