"""The section of a run's page about the samples it fails on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeplda.report.contents import RunContents
from deeplda.report.elements import Html, element
from deeplda.report.sections import Cell, section, sortable_table
from deeplda.report.thumbnails import picture
from deeplda.report.words import percent

_MOST = 24
_MOST_VALUES = 12


def hardest_section(contents: RunContents) -> Html:
    """The mistakes of the highest probability, or, without mistakes, the least sure decisions."""
    places, mistakes = hardest(contents)
    lead = "There is no mistake among the samples shown; these are the decisions the model is least sure of."
    if mistakes:
        lead = f"The mistakes the model is surest of: {len(places)} of {mistakes:,} among the samples shown."
    show = _images if contents.images else _rows
    return section("hardest", "Hardest samples", lead, show(contents, places))


def hardest(contents: RunContents) -> tuple[NDArray[np.intp], int]:
    """Which of the shown samples, the hardest first, and how many mistakes there are."""
    sure = contents.probabilities
    wrong = np.flatnonzero(contents.decided != contents.labels)
    if len(wrong):
        return wrong[np.argsort(-sure[wrong], kind="stable")][:_MOST], len(wrong)
    return np.argsort(sure, kind="stable")[:_MOST], 0


def _images(contents: RunContents, places: NDArray[np.intp]) -> Html:
    cards = []
    for i in places:
        true, decided = _names(contents, i)
        image = element("img", src=picture(np.asarray(contents.samples[i], np.uint8)), alt=f"A sample of class {true}")
        lines = [
            element("span", "is ", element("b", true)),
            element("span", "taken for ", element("strong" if true != decided else "b", decided)),
            element("span", f"{percent(contents.probabilities[i])}, {contents.names[i]}", class_="hint"),
        ]
        cards.append(element("li", image, element("p", lines)))
    small = max(contents.card.sample_shape[1:]) < 64
    return element("ul", cards, class_="hard pixels" if small else "hard")


def _rows(contents: RunContents, places: NDArray[np.intp]) -> Html:
    rows = []
    for i in places:
        true, decided = _names(contents, i)
        probability, number = float(contents.probabilities[i]), int(contents.places[i])
        values = ", ".join(f"{value:.4g}" for value in contents.samples[i][:_MOST_VALUES])
        sure = Cell(percent(probability), probability)
        rows.append((Cell(number, number), Cell(true, true), Cell(decided, decided), sure, Cell(values, values)))
    return sortable_table("Hardest samples", ("sample", "class", "taken for", "probability", "values"), rows)


def _names(contents: RunContents, i: np.intp) -> tuple[str, str]:
    return contents.class_names[contents.labels[i]], contents.class_names[contents.decided[i]]
