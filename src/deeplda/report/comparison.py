"""The page that sets several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deeplda.errors import InputError, got
from deeplda.report import payload, words
from deeplda.report.charts import Line, line_chart
from deeplda.report.contents import RunContents, RunRecord
from deeplda.report.document import document
from deeplda.report.elements import Html, element
from deeplda.report.sections import Cell, colour, legend, plot_controls, scatter, section, sortable_table, swatch
from deeplda.report.training_section import chart
from deeplda.training.config import LDA_SETTINGS

# Beyond this many runs, lines and plots say nothing any more: the first are drawn, the table has all.
MOST_DRAWN = 12
# Runs after these have dashed lines.
_FULL_LINES = 8


def check_comparable(records: Sequence[RunRecord]) -> None:
    """Raise InputError where runs are not about the same classes."""
    for record in records[1:]:
        if record.class_names != records[0].class_names:
            raise InputError(
                got(
                    f"{records[0].path} and {record.path} have different classes",
                    need="runs on the same classes",
                    do="compare those of one data set",
                )
            )


def comparison_page(title: str, records: Sequence[RunRecord], drawn: Sequence[RunContents]) -> str:
    """A table of all `records`; curves, embeddings and recalls of those in `drawn`, the first of them."""
    names = run_names(records)
    settings = words.differing_settings(records)
    body = element(
        "main",
        element(
            "header",
            element("p", "deeplda report", class_="overline"),
            element("h1", title),
            element("p", _subtitle(records), class_="subtitle"),
        ),
        section("runs", "Runs", _runs_lead(settings), _run_table(records, settings)),
        _curves(drawn, names),
        _embeddings(drawn, names, complete=len(drawn) == len(records)),
        _recalls(drawn),
    )
    return document(title, body, _data(drawn))


def run_names(records: Sequence[RunRecord]) -> list[str]:
    """What tells each run apart from the others: the settings in which they differ, else the folder."""
    settings = words.differing_settings(records)
    names = [
        ", ".join(f"{name.replace('_', ' ')} {text}" for name in settings if (text := _setting(record, name)))
        for record in records
    ]
    return names if len(set(names)) == len(names) else [str(record.path) for record in records]


def _subtitle(records: Sequence[RunRecord]) -> str:
    data = {words.data_name(record.config) for record in records}
    return f"{len(records)} runs on {', '.join(sorted(data))}"


def _setting(record: RunRecord, name: str) -> str:
    """The value of a setting in words; nothing where it does not apply."""
    value = getattr(record.config, name)
    if record.config.objective == "cce" and name in LDA_SETTINGS:
        return ""
    if name == "data":
        return words.data_name(record.config)
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _runs_lead(settings: Sequence[str]) -> str:
    differ = ", ".join(name.replace("_", " ") for name in settings) or "nothing but their folder"
    return (
        f"The runs differ in {differ}. Choose between them by their validation accuracy; the test accuracy is for the "
        "one chosen."
    )


def _run_table(records: Sequence[RunRecord], settings: Sequence[str]) -> Html:
    rows = []
    for i, record in enumerate(records):
        cells = [Cell(_run(i, record), record.path.name)]
        cells += [_setting_cell(record, setting) for setting in settings]
        summary = record.summary
        cells += [_accuracy(summary["validation"]), _accuracy(summary["test"]), _balanced(summary["test"])]
        cells += [Cell(summary["best_epoch"], summary["best_epoch"])]
        cells += [Cell(words.duration(summary["seconds"]), summary["seconds"])]
        rows.append(cells)
    columns = ["run", *(name.replace("_", " ") for name in settings)]
    columns += ["validation", "test", "test, balanced", "epoch kept", "time"]
    return sortable_table("Runs", columns, rows)


def _run(place: int, record: RunRecord) -> Html:
    """A run's folder, with its marker where it is drawn."""
    return element("span", swatch(place) if place < MOST_DRAWN else "", record.path.name, class_="marked")


def _setting_cell(record: RunRecord, name: str) -> Cell:
    value, text = getattr(record.config, name), _setting(record, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text, (value if text else -1) if number else text)


def _accuracy(scores: dict[str, Any] | None) -> Cell:
    return Cell(words.percent(scores["accuracy"]), scores["accuracy"]) if scores else Cell("none", -1)


def _balanced(scores: dict[str, Any] | None) -> Cell:
    if not scores:
        return Cell("none", -1)
    deciding: float = next(iter(scores["predictors"].values()))["balanced_accuracy"]
    return Cell(words.percent(deciding), deciding)


def _curves(drawn: Sequence[RunContents], names: Sequence[str]) -> Html:
    validated = [i for i, run in enumerate(drawn) if all(row["validation"] for row in run.rows)]
    spectral = [i for i, run in enumerate(drawn) if all("eigenvalues" in row for row in run.rows)]
    accuracies = [
        Line([row["validation"]["accuracy"] for row in drawn[i].rows], _style(i), names[i]) for i in validated
    ]
    smallest = [Line([row["eigenvalues"][0] for row in drawn[i].rows], _style(i), names[i]) for i in spectral]
    charts = []
    if accuracies:
        drawing = line_chart(accuracies, words="Validation accuracy of each run over the epochs", percent=True)
        charts.append(chart("Validation accuracy", drawing))
    if smallest:
        drawing = line_chart(smallest, words="Smallest eigenvalue of each run over the epochs")
        charts.append(chart("Smallest eigenvalue", drawing))
    key = [element("li", swatch(i), name, class_="marked") for i, name in enumerate(names[: len(drawn)])]
    lead = "Epoch by epoch, in the colours of the table."
    return section(
        "training", "Training", lead, element("ul", key, class_="key"), element("div", charts, class_="charts")
    )


def _style(place: int) -> str:
    return f"{colour(place)} more" if place >= _FULL_LINES else colour(place)


def _embeddings(drawn: Sequence[RunContents], names: Sequence[str], *, complete: bool) -> Html:
    lead = (
        f"Each run in its own discriminant coordinates. {'' if complete else f'The first {len(drawn)} runs. '}"
        "A sample pointed at is ringed in the plots of all runs that have it."
    )
    most = max((run.axes for run in drawn), key=len)
    axes = [axis.partition(" (")[0] for axis in most[: payload.MOST_AXES]]
    plots = [scatter(i, element("figcaption", swatch(i), " ", names[i])) for i in range(len(drawn))]
    return section(
        "embedding",
        "Embeddings",
        lead,
        plot_controls(axes),
        legend(drawn[0].class_names),
        element("div", plots, class_="side-by-side"),
    )


def _recalls(drawn: Sequence[RunContents]) -> Html:
    tables = [np.asarray(run.scores["confusion"]) for run in drawn]
    rows = []
    for c, name in enumerate(drawn[0].class_names):
        cells = [Cell(element("span", swatch(c), name, class_="marked"), name)]
        for table in tables:
            n = int(table[c].sum())
            cells.append(Cell(words.percent(table[c, c] / n), table[c, c] / n) if n else Cell("none", -1))
        rows.append(cells)
    lead = "The share of each class that was found, by each run."
    columns = ["class", *(_run(i, run) for i, run in enumerate(drawn))]
    return section("classes", "Classes", lead, sortable_table("Recall", columns, rows))


def _data(drawn: Sequence[RunContents]) -> dict[str, Any]:
    """Points of every run; thumbnails once for all runs that show the same samples."""
    runs: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    for run in drawn:
        key = str(run.environment.get("data_fingerprint", run.path))
        if key not in known:
            known[key] = len(samples)
            samples.append(payload.samples(run))
        runs.append(payload.points(run) | {"samples": known[key]})
    return {"classes": list(drawn[0].class_names), "runs": runs, "samples": samples}
