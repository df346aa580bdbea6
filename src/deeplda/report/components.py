"""Building blocks for pages: sections, tables, legends, the interactive plot and the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from deeplda.formatting import percent
from deeplda.report.analysis import Integers, class_scores, row_shares
from deeplda.report.markup import Child, Html, element, together

# The style sheet has the same ten colours as the figures. Shapes change every eight classes.
_COLOURS = 10
_CLASSES_PER_SHAPE = 8
# Disc, triangle, square, diamond and cross, centred on 0 with a radius of about 6. The page's script uses them
# to draw points.
_SHAPES = (
    "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0Z",
    "M0 -6.5L6.5 5H-6.5Z",
    "M-5.2 -5.2H5.2V5.2H-5.2Z",
    "M0 -7.2L6 0L0 7.2L-6 0Z",
    "M-2 -6.5H2V-2H6.5V2H2V6.5H-2V2H-6.5V-2H-2Z",
)
# With more classes than this, the confusion matrix is drawn without numbers.
_MOST_NUMBERED = 20
_HEAT_LEVELS = 10
# A long table shows this many rows until the reader asks for all of them; the style sheet has the same number.
MOST_ROWS = 20


@dataclass(frozen=True)
class Cell:
    """A cell in a sortable table: its visible content and the value used for sorting."""

    shown: Child
    value: str | float


def share_cell(share: float | None, digits: int = 2) -> Cell:
    """Return a cell with a percentage, or with "none" for None."""
    return Cell("none", -1) if share is None else Cell(percent(share, digits), share)


def number_cell(value: float, form: str) -> Cell:
    """Return a cell with a number in the given format."""
    return Cell(format(value, form), value)


def section(identifier: str, title: str, lead: Child, *content: Child) -> Html:
    """Return a section of the page, with a heading and an introduction of one or two sentences."""
    heading = element("h2", title, id=f"{identifier}-heading")
    text = element("p", lead, class_="lead")
    return element("section", heading, text, content, id=identifier, aria_labelledby=f"{identifier}-heading")


def file_name(name: object) -> Html:
    """Return the name of a file, in which a line may break after each folder."""
    folders = str(name).split("/")
    return together(*(child for folder in folders[:-1] for child in (f"{folder}/", element("wbr"))), folders[-1])


def header(title: str, subtitle: str, *content: Child, kind: str = "report") -> Html:
    """Return the header of a page."""
    overline = element("p", f"deeplda {kind}", class_="overline")
    return element("header", overline, element("h1", title), element("p", subtitle, class_="subtitle"), content)


def key_figure(name: str, value: str, note: str) -> Html:
    return element("div", element("dt", name), element("dd", element("strong", value), element("span", note)))


def chart(title: Child, drawing: Html) -> Html:
    """Return a drawing below its title."""
    return element("figure", element("figcaption", title), drawing)


def folded_list(items: Sequence[Html], shown: int, kind: str) -> Html:
    """Return a list with the CSS class `kind`, in which the items after the first ones are folded away."""
    first, rest = (element("ul", part, class_=kind) for part in (items[:shown], items[shown:]))
    if len(items) <= shown:
        return first
    return together(first, element("details", element("summary", f"{len(items) - shown:,} more"), rest))


def definitions(pairs: Mapping[str, Child]) -> Html:
    """Return a list of names and values, or "none" if there are no pairs."""
    found = [(element("dt", name), element("dd", value)) for name, value in (pairs or {"none": ""}).items()]
    return element("dl", found, class_="settings")


def scrolling(label: str, content: Child) -> Html:
    """Wrap content that may be wider than the page in a region that scrolls on its own, also by keyboard."""
    return element("div", content, class_="scrolling", tabindex=0, role="region", aria_label=label)


def swatch(place: int) -> Html:
    """Return the marker for a class or run."""
    shape = element("path", d=_SHAPES[place // _CLASSES_PER_SHAPE % len(_SHAPES)])
    return element("svg", shape, class_=f"swatch {colour_class(place)}", viewBox="-8 -8 16 16", aria_hidden="true")


def marked(place: int, name: str) -> Html:
    """Return the name of a class or run, preceded by its marker."""
    return element("span", swatch(place), name, class_="marked")


def colour_class(place: int) -> str:
    """Return the CSS class that sets the colour of a class or run."""
    return f"k{place % _COLOURS}"


def legend(class_names: Sequence[str]) -> Html:
    """Return one button per class that hides or shows the class in every plot on the page."""
    buttons = [
        element("button", swatch(c), element("span", name), type="button", data_class=c, aria_pressed="true")
        for c, name in enumerate(class_names)
    ]
    both = [element("button", word, type="button", data_classes=word, class_="plain") for word in ("all", "none")]
    rest = element("span", both, element("span", "click to hide or show", class_="hint"), class_="rest")
    return element("div", buttons, rest, class_="legend", role="group", aria_label="Classes shown")


def plot_controls(axes: Sequence[str]) -> Html:
    """Return the controls for choosing the two axes of the embedding and for showing only mistakes."""

    def choice(name: str, chosen: int) -> Html:
        options = [element("option", axis, value=i, selected=i == chosen) for i, axis in enumerate(axes)]
        return element("label", name, element("select", options, id=f"axis-{name}", autocomplete="off"))

    mistakes = element("label", element("input", type="checkbox", id="mistakes", autocomplete="off"), "mistakes only")
    return element("div", choice("x", 0), choice("y", 1), mistakes, class_="controls")


def scatter(place: int, caption: Child = ()) -> Html:
    """Return the interactive plot of the embedding of the run at `place` in the page's data."""
    label = "Embedding. Use the arrow keys to move from sample to sample, and Escape to leave."
    points = element("canvas", class_="points", aria_hidden="true")
    names = element("div", class_="names", aria_hidden="true")
    marks = element("canvas", class_="marks", tabindex=0, role="application", aria_label=label)
    picture = element("canvas", class_="picture", width=96, height=96)
    lines = [element("p", class_=name) for name in ("verdict", "truth", "values", "name")]
    card = element("div", picture, element("div", lines), class_="card", hidden=True)
    stage = element("div", points, names, marks, card, class_="stage")
    status = element("p", class_="status", role="status")
    spoken = element("p", class_="spoken", aria_live="polite")
    missing = element("noscript", element("p", "This plot needs JavaScript, which is turned off."))
    return element("figure", caption, stage, status, spoken, missing, class_="scatter", data_run=place)


def sortable_table(
    label: str,
    columns: Sequence[Child],
    rows: Sequence[Sequence[Cell]],
    *,
    order: tuple[int, Literal["ascending", "descending"]] | None = None,
    fold: str | None = None,
) -> Html:
    """Return a table with headings that sort it when clicked; columns of numbers are right-aligned.

    Args:
        order: the column by which the rows are already sorted, and the direction.
        fold: what the rows are, such as "classes"; rows beyond the first `MOST_ROWS` are then hidden until the
            reader asks for all of them, which needs no script.
    """
    texts = {place for row in rows for place, cell in enumerate(row) if isinstance(cell.value, str)}
    kinds = [None if place in texts else "number" for place in range(len(columns))]
    orders = [order[1] if order and order[0] == place else None for place in range(len(columns))]
    head = [
        element("th", element("button", name, type="button"), scope="col", class_=kind, aria_sort=direction)
        for name, kind, direction in zip(columns, kinds, orders, strict=True)
    ]
    body = []
    for row in rows:
        tags = [("th", "row"), *[("td", None)] * (len(row) - 1)]
        body.append(
            [
                element(tag, cell.shown, scope=scope, data_value=cell.value, class_=kind)
                for cell, kind, (tag, scope) in zip(row, kinds, tags, strict=True)
            ]
        )
    table = scrolling(label, plain_table(element("tr", head), body, "sortable"))
    return table if fold is None or len(rows) <= MOST_ROWS else _folded(table, f"show all {len(rows):,} {fold}")


def _folded(table: Html, text: str) -> Html:
    """Return a table of which only the first rows are shown until its checkbox is ticked."""
    box = element("input", type="checkbox", class_="unfold", autocomplete="off")
    return element("div", table, element("label", box, text), class_="folded")


def plain_table(head: Html, rows: Iterable[Child], kind: str) -> Html:
    """Return a table with the CSS class `kind`, a header row, and one further row for each group of cells."""
    body = element("tbody", [element("tr", cells) for cells in rows])
    return element("table", element("thead", head), body, class_=kind)


def confusion_table(confusion: Integers, class_names: Sequence[str]) -> Html:
    """Return the counts of true classes (rows) by predicted classes (columns); mistakes have a different colour."""
    heat = [[_heat_class(share, i == j) for j, share in enumerate(row)] for i, row in enumerate(row_shares(confusion))]
    if len(class_names) > _MOST_NUMBERED:
        return _confusion_drawing(confusion, heat, class_names)
    corner = element("td", element("span", "true \\ predicted"))
    head = element("tr", corner, [element("th", element("span", name), scope="col") for name in class_names])
    zero, rows = element("span", "0", class_="zero"), []
    for name, counts, colours in zip(class_names, confusion, heat, strict=True):
        cells = [element("td", int(n) if n else zero, class_=colour) for n, colour in zip(counts, colours, strict=True)]
        rows.append((element("th", name, scope="row"), cells))
    return scrolling("Confusion matrix", plain_table(head, rows, "confusion"))


def _confusion_drawing(confusion: Integers, heat: Sequence[Sequence[str]], class_names: Sequence[str]) -> Html:
    cells = []
    for i, j in np.argwhere(confusion).tolist():
        title = element("title", f"{class_names[i]} predicted as {class_names[j]}: {confusion[i, j]}")
        cells.append(element("rect", title, class_=heat[i][j], x=j, y=i, width=1, height=1))
    size = len(class_names)
    order = f"Rows are true classes and columns are predicted classes, from {class_names[0]} to {class_names[-1]}."
    label = f"Confusion matrix for {size} classes. The table above lists the most frequent mistakes."
    drawing = element("svg", cells, class_="heatmap", viewBox=f"0 0 {size} {size}", role="img", aria_label=label)
    return together(drawing, element("p", order, class_="hint"))


def _heat_class(share: float, right: bool) -> str:
    """Return the CSS classes of a cell that holds this fraction of its row.

    The colour scales with the square root, so that rare mistakes stay visible.
    """
    return f"{'right' if right else 'wrong'} heat{math.ceil(_HEAT_LEVELS * math.sqrt(share))}"


def class_table(confusion: Integers, class_names: Sequence[str]) -> Html:
    """Return a table with the size, recall, precision and most frequent mistake of each class.

    The class with the lowest recall comes first, then that with the lowest precision; classes without samples are last.
    """
    found = class_scores(confusion)

    def badness(place: int) -> tuple[bool, float, float]:
        recall, precision = found[place].recall, found[place].precision
        return recall is None, recall or 0.0, precision or 0.0

    rows = []
    for c in sorted(range(len(found)), key=badness):
        scores = found[c]
        other = "none" if scores.confused_with is None else f"{class_names[scores.confused_with]} ({scores.mistakes})"
        numbers = number_cell(scores.n, ","), share_cell(scores.recall), share_cell(scores.precision)
        rows.append((Cell(marked(c, class_names[c]), class_names[c]), *numbers, Cell(other, other)))
    columns = ("class", "n", "recall", "precision", "most often mistaken for")
    return sortable_table("Scores by class", columns, rows, order=(2, "ascending"), fold="classes")
