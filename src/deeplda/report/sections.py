"""Pieces that pages are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.report.elements import Child, Html, element, together
from deeplda.report.words import percent

# The style sheet has so many colours, the same as the figures have; from the ninth class on shapes differ as well.
_COLOURS = 10
_CLASSES_A_SHAPE = 8
# Drawn around 0 with a radius of 6: disc, triangle, square, diamond, cross. The page's script draws points with them.
_SHAPES = (
    "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0Z",
    "M0 -6.5L6.5 5H-6.5Z",
    "M-5.2 -5.2H5.2V5.2H-5.2Z",
    "M0 -7.2L6 0L0 7.2L-6 0Z",
    "M-2 -6.5H2V-2H6.5V2H2V6.5H-2V2H-6.5V-2H-2Z",
)
# With more classes than this the confusion matrix is drawn without numbers.
_MOST_WRITTEN = 20
_LEVELS = 10


@dataclass(frozen=True)
class Cell:
    """A cell of a sortable table: what is shown and what is sorted by."""

    shown: Child
    value: str | float


def section(identifier: str, title: str, lead: Child, *content: Child) -> Html:
    """A part of the page with a heading and a sentence or two about what it shows."""
    heading = element("h2", title, id=f"{identifier}-heading")
    text = element("p", lead, class_="lead")
    return element("section", heading, text, content, id=identifier, aria_labelledby=f"{identifier}-heading")


def key_figure(name: str, value: str, note: str = "") -> Html:
    return element("div", element("dt", name), element("dd", element("strong", value), element("span", note)))


def definitions(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names and values below each other; without any, a word."""
    pairs = list(pairs) or [("none", "")]
    return element("dl", [(element("dt", name), element("dd", value)) for name, value in pairs], class_="settings")


def scrolling(words: str, content: Child) -> Html:
    """What may be wider than the page, scrolled by itself, by keyboard as well."""
    return element("div", content, class_="scrolling", tabindex=0, role="region", aria_label=words)


def swatch(place: int) -> Html:
    """The marker of a class or run."""
    shape = element("path", d=_SHAPES[place // _CLASSES_A_SHAPE % len(_SHAPES)])
    return element("svg", shape, class_=f"swatch {colour(place)}", viewBox="-8 -8 16 16", aria_hidden="true")


def colour(place: int) -> str:
    """The style class with the colour of a class or run."""
    return f"k{place % _COLOURS}"


def legend(class_names: Sequence[str]) -> Html:
    """A button for each class, which hides and shows it in every plot of the page."""
    buttons = [
        element("button", swatch(c), element("span", name), type="button", data_class=c, aria_pressed="true")
        for c, name in enumerate(class_names)
    ]
    both = [element("button", word, type="button", data_classes=word, class_="plain") for word in ("all", "none")]
    rest = element("span", both, element("span", "click to hide or show", class_="hint"), class_="rest")
    return element("div", buttons, rest, class_="legend", role="group", aria_label="Classes shown")


def plot_controls(axes: Sequence[str]) -> Html:
    """Which coordinates the embedding is drawn in, and whether mistakes alone."""

    def choice(name: str, chosen: int) -> Html:
        options = [element("option", axis, value=i, selected=i == chosen) for i, axis in enumerate(axes)]
        return element("label", name, element("select", options, id=f"axis-{name}", autocomplete="off"))

    mistakes = element("label", element("input", type="checkbox", id="mistakes", autocomplete="off"), "mistakes only")
    return element("div", choice("x", 0), choice("y", 1), mistakes, class_="controls")


def scatter(place: int, caption: Child = ()) -> Html:
    """The interactive embedding of the run at `place` of the page's data."""
    canvas = element(
        "canvas",
        class_="marks",
        tabindex=0,
        role="application",
        aria_label="Embedding. Arrow keys go from sample to sample, Escape leaves it.",
    )
    stage = element("div", element("canvas", class_="points", aria_hidden="true"), canvas, _card(), class_="stage")
    status = element("p", class_="status", role="status")
    spoken = element("p", class_="spoken", aria_live="polite")
    missing = element("noscript", element("p", "This plot needs JavaScript, which is switched off here."))
    return element("figure", caption, stage, status, spoken, missing, class_="scatter", data_run=place)


def _card() -> Html:
    picture = element("canvas", class_="picture", width=96, height=96)
    lines = [element("p", class_=name) for name in ("verdict", "truth", "values", "name")]
    return element("div", picture, element("div", lines), class_="card", hidden=True)


def sortable_table(words: str, columns: Sequence[Child], rows: Iterable[Sequence[Cell]]) -> Html:
    """A table whose headings are buttons that sort; columns of numbers are to the right."""
    written = [list(row) for row in rows]
    numeric = [not any(isinstance(row[place].value, str) for row in written) for place in range(len(columns))]
    head = [
        element("th", element("button", name, type="button"), scope="col", class_="number" if number else None)
        for name, number in zip(columns, numeric, strict=True)
    ]
    body = [
        element(
            "tr",
            [
                element("td", cell.shown, data_value=cell.value, class_="number" if number else None)
                for cell, number in zip(row, numeric, strict=True)
            ],
        )
        for row in written
    ]
    table = element("table", element("thead", element("tr", head)), element("tbody", body), class_="sortable")
    return scrolling(words, table)


def confusion_matrix(confusion: NDArray[np.int64], class_names: Sequence[str]) -> Html:
    """Counts of true classes (rows) by decided ones (columns); mistakes are in another colour."""
    if len(class_names) > _MOST_WRITTEN:
        return _drawn_confusion(confusion, class_names)
    corner = element("td", element("span", "true \\ decided"))
    head = element("tr", corner, [element("th", element("span", name), scope="col") for name in class_names])
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            [
                element("td", int(n) if n else element("span", "0", class_="zero"), class_=_heat(row, i, j))
                for j, n in enumerate(row)
            ],
        )
        for i, (name, row) in enumerate(zip(class_names, confusion, strict=True))
    ]
    table = element("table", element("thead", head), element("tbody", rows), class_="confusion")
    return scrolling("Confusion matrix", table)


def _drawn_confusion(confusion: NDArray[np.int64], class_names: Sequence[str]) -> Html:
    cells = [
        element(
            "rect",
            element("title", f"{class_names[i]} taken for {class_names[j]}: {confusion[i, j]}"),
            class_=_heat(confusion[i], i, j),
            x=int(j),
            y=int(i),
            width=1,
            height=1,
        )
        for i, j in np.argwhere(confusion)
    ]
    size = len(class_names)
    words = f"Confusion matrix of {size} classes: rows are true, columns decided; the table lists what is confused."
    drawing = element("svg", cells, class_="heatmap", viewBox=f"0 0 {size} {size}", role="img", aria_label=words)
    order = f"Rows are true classes, columns decided ones, from {class_names[0]} to {class_names[-1]}."
    return together(drawing, element("p", order, class_="hint"))


def _heat(row: NDArray[np.int64], i: int, j: int) -> str:
    """Style class for the share of the row; roots, so that rare mistakes are seen."""
    share = row[j] / max(row.sum(), 1)
    return f"{'right' if i == j else 'wrong'} heat{math.ceil(_LEVELS * math.sqrt(share))}"


def class_table(confusion: NDArray[np.int64], class_names: Sequence[str]) -> Html:
    """For each class how many there are, recall, precision, and what it is taken for most often."""
    rows = []
    for c, name in enumerate(class_names):
        row = confusion[c].copy()
        row[c] = 0
        n, taken, most = int(confusion[c].sum()), int(confusion[:, c].sum()), int(row.argmax())
        other = f"{class_names[most]} ({row[most]})" if row[most] else "none"
        marked = element("span", swatch(c), name, class_="marked")
        recall, precision = _share(confusion[c, c], n), _share(confusion[c, c], taken)
        rows.append((Cell(marked, name), Cell(f"{n:,}", n), recall, precision, Cell(other, other)))
    columns = ("class", "n", "recall", "precision", "most confused with")
    return sortable_table("Scores of each class", columns, rows)


def _share(part: Any, whole: int) -> Cell:
    return Cell(percent(part / whole), part / whole) if whole else Cell("none", -1)
