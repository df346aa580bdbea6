"""The page that compares several runs: configurations over their seeds, then single runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from deeplda.formatting import Spread, counted, duration, percent
from deeplda.report import plot_data, wording
from deeplda.report.analysis import ClassScores, class_scores
from deeplda.report.components import (
    Cell,
    chart,
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
from deeplda.report.configurations import Configuration, configuration_settings, setting_text
from deeplda.report.markup import Html, document, element
from deeplda.report.record import InspectedRun, RunRecord

# More configurations would make curves and plots unreadable, so only the first ones are drawn; the tables contain all.
MOST_DRAWN = 12
# Further configurations are drawn with dashed lines.
_SOLID_LINES = 8
# Width and height of the drawing with one dot per seed.
_STRIP = 120, 16
_CHOOSE = "Choose by validation accuracy; the test accuracy only assesses the choice."


def all_classes(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the classes of all runs, in the order in which they first appear."""
    return tuple(dict.fromkeys(name for record in records for name in record.class_names))


def comparison_page(title: str, groups: Sequence[Configuration], drawn: Sequence[InspectedRun]) -> str:
    """Return a page that compares configurations.

    `drawn` contains the best run of each of the first configurations, whose embeddings are shown, or nothing. The runs
    may have different classes, which are matched by their names.
    """
    records = [run for group in groups for run in group.runs]
    classes = all_classes(records)
    data = ", ".join(sorted({wording.data_name(record.config) for record in records}))
    repeated = len(records) > len(groups)
    return document(
        title,
        _page_data(classes, drawn),
        header(title, f"{counted(len(records), 'run')} on {data}"),
        _configurations(groups, configuration_settings(records)) if repeated else (),
        _runs(groups, wording.differing_settings(records), classes),
        _curves(groups[:MOST_DRAWN]),
        _embeddings(groups, drawn, classes) if drawn else (),
        _recalls(groups[:MOST_DRAWN], classes),
    )


def _configurations(groups: Sequence[Configuration], settings: Sequence[str]) -> Html:
    """Return a table of the mean and spread over seeds of each configuration."""
    validated = all(group.validation for group in groups)
    values = [
        [(run.validation_score or 0.0) if validated else run.scores.accuracy for run in group.runs] for group in groups
    ]
    low, high = (limit(value for seeds in values for value in seeds) for limit in (min, max))
    rows = [
        [
            Cell(_marker(place, setting_text(group.runs[0], settings[0])), _value(group.runs[0], settings[0])),
            *(Cell(setting_text(group.runs[0], name), _value(group.runs[0], name)) for name in settings[1:]),
            Cell(len(group.runs), len(group.runs)),
            _spread_cell(group.validation),
            _spread_cell(group.test),
            Cell(_strip(seeds, low, high), fmean(seeds)),
            Cell(duration(group.seconds), group.seconds),
        ]
        for place, (group, seeds) in enumerate(zip(groups, values, strict=True))
    ]
    columns = [*_headings(settings), "seeds", "validation", "test", "each seed", "mean time"]
    lead = (
        "Mean and standard deviation over the seeds of each configuration; each dot is the "
        f"{'validation' if validated else 'test'} accuracy of one seed, on a common scale from {percent(low)} to "
        f"{percent(high)}. {_CHOOSE}"
    )
    table = sortable_table("Configurations", columns, rows, fold="configurations")
    return section("configurations", "Configurations", lead, table)


def _strip(values: Sequence[float], low: float, high: float) -> Html:
    """Draw one dot per value and a line at their mean, between the ends of a common scale."""
    width, height = _STRIP

    def across(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{height / 2 + share * (width - height):.1f}"

    middle, mean = f"{height / 2:g}", across(fmean(values))
    axis = element("line", x1=0, x2=width, y1=middle, y2=middle, class_="grid")
    dots = [element("circle", cx=across(value), cy=middle, r=3) for value in sorted(values)]
    line = element("line", x1=mean, x2=mean, y1=1, y2=height - 1)
    label = f"Accuracy of each seed: {', '.join(percent(value) for value in sorted(values))}"
    return element(
        "svg", axis, dots, line, class_="strip", viewBox=f"0 0 {width} {height}", role="img", aria_label=label
    )


def _spread_cell(spread: Spread | None) -> Cell:
    return Cell("none", -1) if spread is None else Cell(f"{spread} %", spread.mean)


def _headings(settings: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in settings]


def _runs(groups: Sequence[Configuration], settings: Sequence[str], classes: Sequence[str]) -> Html:
    differ = ", ".join(_headings(settings)) or "nothing but their folder"
    lead = f"The runs differ in {differ}. "
    if any(len(run.class_names) < len(classes) for group in groups for run in group.runs):
        lead += (
            "They have different classes, so do not compare their accuracies: more classes are harder to tell apart. "
            "Compare the recall of each class below."
        )
    else:
        lead += _CHOOSE
    rows = []
    for place, record in ((place, run) for place, group in enumerate(groups) for run in group.runs):
        summary = record.summary
        rows.append(
            [
                Cell(_marker(place, record.path.name), record.path.name),
                *(Cell(setting_text(record, name), _value(record, name)) for name in settings),
                share_cell(record.validation_score),
                share_cell(record.scores.accuracy),
                share_cell(record.scores.deciding.balanced_accuracy),
                Cell(summary.best_epoch, summary.best_epoch),
                Cell(duration(summary.seconds), summary.seconds),
            ]
        )
    columns = ["run", *_headings(settings), "validation", "test", "test, balanced", "selected epoch", "time"]
    return section("runs", "Runs", lead, sortable_table("Runs", columns, rows, fold="runs"))


def _marker(place: int, name: str) -> Html:
    """Return a name, with the marker of its configuration if the configuration is drawn."""
    return marked(place, name) if place < MOST_DRAWN else element("span", name, class_="marked")


def _value(record: RunRecord, name: str) -> str | float:
    """Return the value by which a table sorts a setting."""
    value, text = getattr(record.config, name), setting_text(record, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value if text else -1) if number else text


def _curves(groups: Sequence[Configuration]) -> Html:
    from deeplda.report.curves import Curve, page_chart

    accuracies, smallest = [], []
    for i, run in ((i, run) for i, group in enumerate(groups) for run in group.runs):
        name, numbers, dashed = run.path.name, [row.epoch for row in run.epochs], i >= _SOLID_LINES
        if found := run.validation_accuracies:
            accuracies.append(Curve(name, list(found), list(found.values()), i, dashed))
        if spectra := run.spectra:
            smallest.append(Curve(name, numbers, [spectrum[0] for spectrum in spectra], i, dashed))
    charts = []
    if accuracies:
        drawing = page_chart(accuracies, label="Validation accuracy of each run over the epochs", shares=True)
        charts.append(chart("Validation accuracy", drawing))
    if smallest:
        drawing = page_chart(smallest, label="Smallest eigenvalue of each run over the epochs", logarithmic=True)
        charts.append(chart("Smallest eigenvalue", drawing))
    key = [element("li", marked(i, group.name)) for i, group in enumerate(groups)]
    lead = "One line per run and one value per epoch; runs of the same configuration have the same colour."
    drawings = element("div", charts, class_="charts")
    return section("training", "Training", lead, element("ul", key, class_="key"), drawings)


def _embeddings(groups: Sequence[Configuration], drawn: Sequence[InspectedRun], classes: Sequence[str]) -> Html:
    best = "the best run of each configuration" if any(len(group.runs) > 1 for group in groups) else "one run"
    some = "" if len(drawn) == len(groups) else f"Only the first {len(drawn)} of {len(groups)} are shown. "
    lead = (
        f"Each plot shows {best} in its own discriminant coordinates. {some}"
        "Point at a sample to circle it in the plots of all runs that contain it."
    )
    most = max((run.axes for run in drawn), key=len)
    axes = [axis.partition(" (")[0] for axis in most[: plot_data.MOST_AXES]]
    plots = [scatter(i, element("figcaption", swatch(i), " ", groups[i].name)) for i in range(len(drawn))]
    side_by_side = element("div", plots, class_="side-by-side")
    return section("embedding", "Embeddings", lead, plot_controls(axes), legend(classes), side_by_side)


def _recalls(groups: Sequence[Configuration], classes: Sequence[str]) -> Html:
    """Return the recall of each class, averaged over the seeds of each configuration, the worst class first."""
    recalls = [
        [dict(zip(run.class_names, class_scores(run.scores.confusion), strict=True)) for run in group.runs]
        for group in groups
    ]

    def mean_recall(of_runs: Sequence[Mapping[str, ClassScores]], name: str) -> float | None:
        found = [scores[name].recall for scores in of_runs if name in scores]
        known = [recall for recall in found if recall is not None]
        return fmean(known) if known else None

    table = {name: [mean_recall(of_runs, name) for of_runs in recalls] for name in classes}
    order = sorted(table, key=lambda name: fmean([1.0 if recall is None else recall for recall in table[name]]))
    place = {name: c for c, name in enumerate(classes)}
    rows = [
        [Cell(marked(place[name], name), name), *(share_cell(recall, 1) for recall in table[name])] for name in order
    ]
    lead = (
        "Recall is the fraction of a class's samples that were predicted correctly, here the mean over the runs of "
        "each configuration. The worst classes come first."
    )
    columns = ["class", *(marked(i, group.values) for i, group in enumerate(groups))]
    return section("classes", "Classes", lead, sortable_table("Recall", columns, rows, fold="classes"))


def _page_data(class_names: Sequence[str], drawn: Sequence[InspectedRun]) -> dict[str, object]:
    """Return the plot data for all runs. Runs that show the same samples share the thumbnails."""
    drawn = [_with_classes(run, class_names) for run in drawn]
    keys = [run.environment.data_fingerprint or str(run.path) for run in drawn]
    shared = list(dict.fromkeys(keys))
    return {
        "classes": list(class_names),
        "runs": [plot_data.pack_points(run, shared.index(key)) for run, key in zip(drawn, keys, strict=True)],
        "samples": [plot_data.pack_samples(drawn[keys.index(key)]) for key in shared],
    }


def _with_classes(run: InspectedRun, class_names: Sequence[str]) -> InspectedRun:
    """Return a run whose labels and decisions are indices into these class names."""
    places = np.array([class_names.index(name) for name in run.class_names])
    return replace(run, labels=places[run.labels], decided=places[run.decided])
