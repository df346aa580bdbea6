"""The page that compares several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from deeplda.errors import InputError
from deeplda.formatting import duration
from deeplda.report import plot_data, wording
from deeplda.report.analysis import class_scores
from deeplda.report.components import (
    Cell,
    header,
    legend,
    marked,
    plot_controls,
    scatter,
    section,
    share_cell,
    sortable_table,
    swatch,
)
from deeplda.report.markup import Html, document, element
from deeplda.report.page import chart
from deeplda.report.record import InspectedRun, RunRecord
from deeplda.training.config import without_effect

# More runs would make curves and plots unreadable, so only the first ones are drawn; the table contains all runs.
MOST_DRAWN = 12
# Further runs are drawn with dashed lines.
_SOLID_LINES = 8


def check_comparable(records: Sequence[RunRecord]) -> None:
    """Raise InputError if the runs do not have the same classes."""
    for record in records[1:]:
        if record.class_names != records[0].class_names:
            what = f"{records[0].path} and {record.path} have different classes"
            raise InputError(f"{what}: compare runs on the same data set")


def comparison_page(title: str, records: Sequence[RunRecord], drawn: Sequence[InspectedRun]) -> str:
    """Return a page with a table of all `records`, and curves, embeddings and recalls for the first few, `drawn`."""
    names, settings = run_names(records), wording.differing_settings(records)
    data = ", ".join(sorted({wording.data_name(record.config) for record in records}))
    return document(
        title,
        _page_data(drawn),
        header(title, f"{len(records)} runs on {data}"),
        _runs(records, settings),
        _curves(drawn, names),
        _embeddings(drawn, names, complete=len(drawn) == len(records)),
        _recalls(drawn),
    )


def run_names(records: Sequence[RunRecord]) -> list[str]:
    """Name each run by the settings in which the runs differ, or by its folder if these names are not unique."""
    settings = wording.differing_settings(records)
    texts = [{name.replace("_", " "): _setting(record, name) for name in settings} for record in records]
    names = [", ".join(f"{name} {text}" for name, text in found.items() if text) for found in texts]
    return names if len(set(names)) == len(names) else [str(record.path) for record in records]


def _setting(record: RunRecord, name: str) -> str:
    """Return the value of a setting as a string, which is empty if the setting has no effect on this run."""
    value = getattr(record.config, name)
    if without_effect(record.config, [name]):
        return ""
    if name == "data":
        return wording.data_name(record.config)
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _runs(records: Sequence[RunRecord], settings: Sequence[str]) -> Html:
    differ = ", ".join(name.replace("_", " ") for name in settings) or "nothing but their folder"
    lead = (
        f"The runs differ in {differ}. Use the validation accuracy to choose a run, and the test accuracy only to "
        "assess the run you have chosen."
    )
    rows = []
    for i, record in enumerate(records):
        summary, deciding = record.summary, next(iter(record.scores.predictors.values()))
        rows.append(
            [
                Cell(_run_name(i, record), record.path.name),
                *(_setting_cell(record, setting) for setting in settings),
                share_cell(summary.validation.score if summary.validation else None),
                share_cell(record.scores.accuracy),
                share_cell(deciding.balanced_accuracy),
                Cell(summary.best_epoch, summary.best_epoch),
                Cell(duration(summary.seconds), summary.seconds),
            ]
        )
    columns = ["run", *(name.replace("_", " ") for name in settings)]
    columns += ["validation", "test", "test, balanced", "selected epoch", "time"]
    return section("runs", "Runs", lead, sortable_table("Runs", columns, rows))


def _run_name(place: int, record: RunRecord) -> Html:
    """Return the name of a run folder, with a marker if the run is drawn."""
    name = record.path.name
    return marked(place, name) if place < MOST_DRAWN else element("span", name, class_="marked")


def _setting_cell(record: RunRecord, name: str) -> Cell:
    value, text = getattr(record.config, name), _setting(record, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text, (value if text else -1) if number else text)


def _curves(drawn: Sequence[InspectedRun], names: Sequence[str]) -> Html:
    from deeplda.report.curves import Curve, page_chart

    accuracies, smallest = [], []
    for i, run in enumerate(drawn):
        numbers, dashed = [row.epoch for row in run.epochs], i >= _SOLID_LINES
        if found := run.validation_accuracies:
            accuracies.append(Curve(names[i], numbers, found, i, dashed))
        if spectra := run.spectra:
            smallest.append(Curve(names[i], numbers, [spectrum[0] for spectrum in spectra], i, dashed))
    charts = []
    if accuracies:
        drawing = page_chart(accuracies, label="Validation accuracy of each run over the epochs", shares=True)
        charts.append(chart("Validation accuracy", drawing))
    if smallest:
        drawing = page_chart(smallest, label="Smallest eigenvalue of each run over the epochs", logarithmic=True)
        charts.append(chart("Smallest eigenvalue", drawing))
    key = [element("li", swatch(i), name, class_="marked") for i, name in enumerate(names[: len(drawn)])]
    lead = "One value per epoch; the colours are the same as in the table."
    drawings = element("div", charts, class_="charts")
    return section("training", "Training", lead, element("ul", key, class_="key"), drawings)


def _embeddings(drawn: Sequence[InspectedRun], names: Sequence[str], *, complete: bool) -> Html:
    some = "" if complete else f"Only the first {len(drawn)} runs are shown. "
    lead = (
        f"Each plot shows one run in its own discriminant coordinates. {some}"
        "Point at a sample to circle it in the plots of all runs that contain it."
    )
    most = max((run.axes for run in drawn), key=len)
    axes = [axis.partition(" (")[0] for axis in most[: plot_data.MOST_AXES]]
    plots = [scatter(i, element("figcaption", swatch(i), " ", names[i])) for i in range(len(drawn))]
    side_by_side = element("div", plots, class_="side-by-side")
    return section("embedding", "Embeddings", lead, plot_controls(axes), legend(drawn[0].class_names), side_by_side)


def _recalls(drawn: Sequence[InspectedRun]) -> Html:
    recalls = [[scores.recall for scores in class_scores(run.scores.confusion)] for run in drawn]
    rows = [
        [Cell(marked(c, name), name), *(share_cell(of_run[c]) for of_run in recalls)]
        for c, name in enumerate(drawn[0].class_names)
    ]
    lead = "Recall is the fraction of a class's samples that a run predicted correctly."
    columns = ["class", *(_run_name(i, run) for i, run in enumerate(drawn))]
    return section("classes", "Classes", lead, sortable_table("Recall", columns, rows))


def _page_data(drawn: Sequence[InspectedRun]) -> dict[str, object]:
    """Return the plot data for all runs. Runs that show the same samples share the thumbnails."""
    keys = [run.environment.data_fingerprint or str(run.path) for run in drawn]
    shared = list(dict.fromkeys(keys))
    return {
        "classes": list(drawn[0].class_names),
        "runs": [plot_data.pack_points(run, shared.index(key)) for run, key in zip(drawn, keys, strict=True)],
        "samples": [plot_data.pack_samples(drawn[keys.index(key)]) for key in shared],
    }
