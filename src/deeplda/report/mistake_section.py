"""The most confident mistakes of a run: images with their classes, or rows of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeplda.formatting import counted, percent
from deeplda.report import plot_data
from deeplda.report.components import Cell, folded_list, section, share_cell, sortable_table
from deeplda.report.markup import Html, element
from deeplda.report.record import InspectedRun

# The maximum number of images, how many of them are shown before the reader asks for more, and the maximum number of
# rows of numbers, which say less at a glance.
_MOST_IMAGES, _FIRST_IMAGES, _MOST_ROWS = 24, 12, 12


def mistakes(run: InspectedRun) -> Html:
    """Return the most confident mistakes or, if there are none, the least confident predictions."""
    places, wrong = run.hardest(_MOST_IMAGES if run.images else _MOST_ROWS)
    some = "" if len(run.labels) == run.sizes["test"] else f" among the {len(run.labels):,} samples shown below"
    title = "Most confident mistakes" if wrong else "Least certain predictions"
    lead = f"There are no mistakes{some}. The model was least certain of these predictions."
    if wrong:
        count = "all" if len(places) == wrong else f"{len(places)} of"
        lead = (
            f"The wrong predictions of which the model was most certain: {count} {counted(wrong, 'mistake')}{some}. "
            "Check the labels of these samples first, because a wrong label looks like a confident mistake."
        )
    show = _images if run.images else _rows
    return section("hardest", title, lead, show(run, places))


def _images(run: InspectedRun, places: NDArray[np.intp]) -> Html:
    cards = [_card(run, place) for place in places.tolist()]
    small = max(run.card.sample_shape[1:]) < 64
    return folded_list(cards, _FIRST_IMAGES, "hard pixels" if small else "hard")


def _card(run: InspectedRun, place: int) -> Html:
    true, decided = run.class_names[run.labels[place]], run.class_names[run.decided[place]]
    source = plot_data.image_uri(np.asarray(run.samples[place], np.uint8))
    lines = [
        element("span", "predicted ", element("strong" if true != decided else "b", decided)),
        element("span", "true class ", element("b", true)),
        element("span", f"probability {percent(run.probabilities[place])}", class_="hint"),
        element("span", run.names[place], class_="hint"),
    ]
    picture = element("img", src=source, alt=f"A sample of class {true}, predicted as {decided}")
    return element("li", picture, element("p", lines))


def _rows(run: InspectedRun, places: NDArray[np.intp]) -> Html:
    rows = []
    for i in places:
        true, decided = run.class_names[run.labels[i]], run.class_names[run.decided[i]]
        values, probability = plot_data.values_text(run.card, run.samples[i]), share_cell(float(run.probabilities[i]))
        name = Cell(run.names[i], int(run.places[i]))
        rows.append((name, Cell(decided, decided), probability, Cell(true, true), Cell(values, values)))
    return sortable_table("Hardest samples", ("sample", "predicted", "probability", "true class", "values"), rows)
