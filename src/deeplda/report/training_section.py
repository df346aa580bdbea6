"""The section of a run's page about its training."""

from __future__ import annotations

from typing import Any

from deeplda.report.charts import Line, line_chart
from deeplda.report.contents import RunContents
from deeplda.report.elements import Child, Html, element
from deeplda.report.sections import Cell, section, sortable_table
from deeplda.report.words import percent

_LEAD = "Epoch by epoch; the dashed line is the epoch that was kept."
_EIGENVALUES = (
    " The eigenvalues are those of the last batch of each epoch: how far the classes stand apart, direction by "
    "direction."
)


def training_section(contents: RunContents) -> Html:
    """Loss, validation accuracy and eigenvalues over the epochs, as curves and as a table."""
    rows = contents.rows
    if not rows:
        return section("training", "Training", "The figures of the epochs are lost: metrics.jsonl does not have them.")
    kept = next((place for place, row in enumerate(rows, 1) if row["epoch"] == contents.summary["best_epoch"]), None)
    lost = contents.summary["epochs"] - len(rows)
    gap = f" The figures of {lost} epochs are lost, and the others counted without them." if lost > 0 else ""
    validated, spectral = all(row["validation"] for row in rows), all("eigenvalues" in row for row in rows)
    charts = [_losses([row["loss"] for row in rows], kept)]
    if validated:
        charts.append(_accuracies([row["validation"]["accuracy"] for row in rows], kept))
    if spectral:
        charts.append(_spectrum([row["eigenvalues"] for row in rows], kept))
    return section(
        "training",
        "Training",
        _LEAD + _EIGENVALUES * spectral + gap,
        element("div", charts, class_="charts"),
        element("details", element("summary", "Figures of each epoch"), _table(rows, validated, spectral)),
    )


def chart(title: Child, drawing: Html) -> Html:
    return element("figure", element("figcaption", title), drawing)


def _losses(values: list[float], kept: int | None) -> Html:
    words = f"Loss, {values[0]:.3g} in the first epoch, {values[-1]:.3g} in the last"
    return chart("Loss", line_chart([Line(values, "k0", "loss")], words=words, marked=kept))


def _accuracies(values: list[float], kept: int | None) -> Html:
    words = f"Validation accuracy, {percent(values[0])} after the first epoch, {percent(values[-1])} after the last"
    drawing = line_chart([Line(values, "k0", "accuracy")], words=words, percent=True, marked=kept)
    return chart("Validation accuracy", drawing)


def _spectrum(spectra: list[list[float]], kept: int | None) -> Html:
    """Each eigenvalue over the epochs; the smallest stands out, as the paper's objective is about it."""
    most = max(map(len, spectra))
    places = [[row[i] if i < len(row) else float("nan") for row in spectra] for i in range(most)]
    lines = [Line(values, "others", f"eigenvalue {i} of {most}") for i, values in enumerate(places[1:], 2)]
    lines.append(Line(places[0], "k3", "smallest eigenvalue"))
    words = f"Eigenvalues, in the last epoch {spectra[-1][0]:.3g} to {spectra[-1][-1]:.3g}"
    others = (element("span", class_="dash others"), "others") if most > 1 else ()
    key = element("span", element("span", class_="dash k3"), "smallest", others)
    return chart(("Eigenvalues ", key), line_chart(lines, words=words, marked=kept))


def _table(rows: list[dict[str, Any]], validated: bool, spectral: bool) -> Html:
    columns = ["epoch", "loss", "learning rate"]
    columns += ["validation accuracy"] * validated + ["smallest eigenvalue", "largest", "dead outputs"] * spectral
    return sortable_table("Figures of each epoch", columns, [_cells(row, validated, spectral) for row in rows])


def _cells(row: dict[str, Any], validated: bool, spectral: bool) -> list[Cell]:
    cells = [_number(row["epoch"], "d"), _number(row["loss"], ".4g"), _number(row["learning_rate"], ".3g")]
    if validated:
        accuracy = row["validation"]["accuracy"]
        cells.append(Cell(percent(accuracy), accuracy))
    if spectral:
        low, high = row["eigenvalues"][0], row["eigenvalues"][-1]
        cells += [_number(low, ".4g"), _number(high, ".4g"), _number(row.get("dead_dims", 0), "d")]
    return cells


def _number(value: float, how: str) -> Cell:
    return Cell(format(value, how), value)
