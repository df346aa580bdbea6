"""The report page for one run: its scores, embedding, training, mistakes and settings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeplda.formatting import counted, duration, percent, wilson_interval
from deeplda.report import plot_data, wording
from deeplda.report.components import (
    Cell,
    class_table,
    confusion_table,
    definitions,
    header,
    key_figure,
    legend,
    number_cell,
    plain_table,
    plot_controls,
    scatter,
    scrolling,
    section,
    share_cell,
    sortable_table,
)
from deeplda.report.markup import Child, Html, document, element
from deeplda.report.record import Floats, InspectedRun, RunRecord
from deeplda.report.reliability import probability_section
from deeplda.training.metrics import PredictorScores, Scores

_MOST_HARDEST = 24


def run_page(run: InspectedRun) -> str:
    """Return the report on one run as HTML. The same run always gives the same page, byte for byte."""
    name, objective = wording.data_name(run.config), wording.objective_name(run.config)
    body = [_header(run, name, objective), _embedding(run), _outputs(run), _training(run), _classes(run)]
    body += [probability_section(run), _hardest(run)]
    data = {
        "classes": list(run.class_names),
        "runs": [plot_data.pack_points(run)],
        "samples": [plot_data.pack_samples(run)],
        "densities": plot_data.pack_densities(run),
    }
    return document(f"{name}: {objective}", data, *body, _repeat(run))


def _training(run: RunRecord) -> Html:
    """Return the loss, validation accuracy and eigenvalues over the epochs, as curves and as a table."""
    if not run.epochs:
        return section("training", "Training", "All epochs are missing from metrics.jsonl.")
    lead = "One value per epoch; the dashed line marks the selected epoch."
    if run.spectra:
        lead += " The eigenvalues, from each epoch's last batch, show how well each direction separates the classes."
    if (lost := run.summary.epochs - len(run.epochs)) > 0:
        lead += f" metrics.jsonl is missing {counted(lost, 'epoch')}."
    return section(
        "training",
        "Training",
        lead,
        element("div", _training_charts(run), class_="charts"),
        element("details", element("summary", "Values by epoch"), epoch_table(run)),
    )


def epoch_table(run: RunRecord) -> Html:
    """Return a table with the values of each epoch."""
    accuracies, spectra = run.validation_accuracies, run.spectra
    columns = ["epoch", "loss", "learning rate"]
    columns += ["validation accuracy"] * bool(accuracies)
    columns += ["smallest eigenvalue", "largest", "dead outputs"] * bool(spectra)
    rows = []
    for i, row in enumerate(run.epochs):
        cells = [number_cell(row.epoch, "d"), number_cell(row.loss, ".4g"), number_cell(row.learning_rate, ".3g")]
        if accuracies:
            cells.append(share_cell(accuracies[i]))
        if spectra:
            cells += [number_cell(value, ".4g") for value in (spectra[i][0], spectra[i][-1])]
            cells.append(number_cell(row.dead_dims, "d"))
        rows.append(cells)
    return sortable_table("Values by epoch", columns, rows)


def chart(title: Child, drawing: Html) -> Html:
    return element("figure", element("figcaption", title), drawing)


def _header(run: InspectedRun, name: str, objective: str) -> Html:
    summary, scores, card = run.summary, run.scores, run.card
    right = int(np.trace(scores.confusion))
    low, high = wilson_interval(right, scores.n)
    interval = f"{right:,} of {scores.n:,} correct; 95 % interval {percent(low, 1)} to {percent(high, 1)}"
    balanced = scores.predictors[card.predictors[0]].balanced_accuracy
    figures = [
        key_figure("test accuracy", percent(scores.accuracy), interval),
        key_figure("balanced accuracy", percent(balanced), "mean recall over the classes"),
        key_figure("selected epoch", f"{summary.best_epoch}", wording.kept_epoch(summary)),
        key_figure("time", duration(summary.seconds), wording.effort(summary, run.environment)),
    ]
    shape = " x ".join(map(str, card.sample_shape))
    sizes = ", ".join(f"{n:,} {part}" for part, n in run.sizes.items())
    what = (
        f"{card.network} with {counted(card.embedding_dim, 'output')}; {len(run.class_names)} classes; "
        f"{'images' if run.images else 'feature vectors'} of size {shape} ({sizes})."
    )
    return header(
        name,
        objective[0].upper() + objective[1:],
        element("dl", figures, class_="figures"),
        element("p", what, class_="lead"),
        _predictors(scores.predictors, summary.augmented_test, scores.n),
    )


def _predictors(plain: dict[str, PredictorScores], augmented: tuple[str, Scores] | None, n: int) -> Html | tuple[()]:
    """Return a table of each predictor's scores, including its scores with test-time augmentation if available.

    The first predictor makes the predictions.
    """
    if len(plain) == 1 and not augmented:
        return ()
    columns = [
        "predictor",
        "accuracy",
        "balanced",
        "AUC",
        "log loss",
        "Brier",
        "ECE",
    ]
    head = [element("th", text, scope="col") for text in columns]
    rows = []
    for i, name in enumerate(plain):
        hint = () if i else element("span", " makes the predictions", class_="hint")
        shown = wording.PREDICTOR_NAMES.get(name, name)
        rows.append((element("th", shown, hint, scope="row"), _score_cells(plain[name], n)))
        if augmented:
            others = _score_cells(augmented[1].predictors[name], n)
            rows.append((element("th", f"{shown}, {augmented[0]}", scope="row"), others))
    return scrolling("Scores by predictor", plain_table(element("tr", head), rows, "predictors"))


def _score_cells(scores: PredictorScores, n: int) -> list[Html]:
    low, high = wilson_interval(round(scores.accuracy * n), n)
    interval = element("span", f" {percent(low, 1)} to {percent(high, 1)}", class_="hint")
    others = (scores.auc, scores.log_loss, scores.brier, scores.ece)
    texts = [percent(scores.balanced_accuracy), *("-" if value is None else f"{value:.4f}" for value in others)]
    return [element("td", percent(scores.accuracy), interval), *(element("td", text) for text in texts)]


def _embedding(run: InspectedRun) -> Html:
    total, shown = run.sizes["test"], len(run.labels)
    sample = f"{shown:,} of the {total:,} test samples are shown (stratified by class). " if shown < total else ""
    axes = "The axes are the directions that best separate the classes in the training set."
    if run.card.predictors == ("softmax",):
        axes = (
            "Cross-entropy has no discriminant directions of its own, so the axes come from classic LDA fitted to "
            "the network's outputs for training samples."
        )
    look = "Point at a sample to see it, or focus the plot and use the arrow keys."
    lead = f"Each point is a test sample. {axes} {sample}{look}"
    controls = plot_controls(run.axes[: plot_data.MOST_AXES])
    return section("embedding", "Embedding", lead, controls, legend(run.class_names), scatter(0))


def _outputs(run: InspectedRun) -> Html:
    outputs = run.embedding.shape[1]
    count = min(outputs, plot_data.MOST_DIMENSIONS)
    lead = (
        "Each curve shows the distribution of a class along one output of the network. If the curves do not overlap, "
        "this output alone separates the classes. Each bar shows the accuracy achieved with one output alone; the "
        "dashed line marks chance level."
    )
    notes = [
        f"Fisher ratio: {ratio:.3g}; accuracy with this output alone: {percent(accuracy)}"
        for ratio, accuracy in zip(run.fisher_ratios[:count], run.single_accuracies[:count], strict=True)
    ]
    label = element("label", "output ", element("output", 1, for_="dimension"), f" of {outputs}", for_="dimension")
    about = "dimension-figures"
    slider = element("input", type="range", id="dimension", min=1, max=count, value=1, aria_describedby=about)
    bars = _accuracy_bars(run.single_accuracies[:count], 1 / len(run.class_names))
    figure = element(
        "figure",
        element("svg", class_="densities", viewBox="0 0 720 300", role="img", aria_label="Class densities"),
        element("div", bars, slider, class_="slider"),
        label,
        element("p", notes[0], id=about, class_="status", aria_live="polite"),
    )
    all_notes = element("ol", [element("li", note) for note in notes], id="dimension-notes", hidden=True)
    return section("dimensions", "One output at a time", lead, legend(run.class_names), figure, all_notes)


def _accuracy_bars(accuracies: Floats, chance: float) -> Html:
    """Return one bar per output, whose height is the accuracy with this output alone."""
    heights = np.nan_to_num(accuracies)
    highest = max(heights.max(), chance)
    bars = [
        element("rect", x=f"{i + 0.15:g}", width=0.7, y=f"{1 - share:.4f}", height=f"{share:.4f}")
        for i, share in enumerate(heights / highest)
    ]
    level = f"{1 - chance / highest:.4f}"
    line = element("line", x1=0, x2=len(bars), y1=level, y2=level, class_="chance")
    box = f"0 0 {len(bars)} 1"
    return element("svg", bars, line, class_="bars", viewBox=box, preserveAspectRatio="none", aria_hidden="true")


def _training_charts(run: RunRecord) -> list[Html]:
    # Importing matplotlib takes half a second, and only charts need it.
    from deeplda.report.curves import Curve, eigenvalue_curves, loss_curves, page_chart

    numbers, kept = [row.epoch for row in run.epochs], run.summary.best_epoch
    first, last = run.epochs[0].loss, run.epochs[-1].loss
    label = f"Loss, from {first:.3g} in the first epoch to {last:.3g} in the last"
    charts = [chart("Loss", page_chart(loss_curves(run.epochs), label=label, kept=kept))]
    if accuracies := run.validation_accuracies:
        first, last = accuracies[0], accuracies[-1]
        label = f"Validation accuracy, from {percent(first)} after the first epoch to {percent(last)} after the last"
        curves = [Curve("validation accuracy", numbers, accuracies)]
        charts.append(chart("Validation accuracy", page_chart(curves, label=label, shares=True, kept=kept)))
    if spectra := run.spectra:
        label = f"Eigenvalues, from {spectra[-1][0]:.3g} to {spectra[-1][-1]:.3g} in the last epoch"
        curves = eigenvalue_curves(numbers, spectra)
        others = (element("span", class_="dash others"), "others") if len(curves) > 1 else ()
        key = element("span", element("span", class_="dash k3"), "smallest", others)
        charts.append(chart(("Eigenvalues ", key), page_chart(curves, label=label, logarithmic=True, kept=kept)))
    return charts


def _classes(run: InspectedRun) -> Html:
    confusion = np.asarray(run.scores.confusion)
    predictor = wording.PREDICTOR_NAMES[run.card.predictors[0]]
    lead = (
        f"Results for all {run.scores.n:,} test samples, classified by {predictor}. Recall is the fraction of a "
        "class's samples that were predicted correctly; precision is the fraction of the samples predicted as a "
        "class that belong to it."
    )
    tables = class_table(confusion, run.class_names), confusion_table(confusion, run.class_names)
    return section("classes", "Classes", lead, tables[0], element("h3", "Confusion matrix"), tables[1])


def _hardest(run: InspectedRun) -> Html:
    """Return the most confident mistakes or, if there are none, the least confident predictions."""
    places, mistakes = run.hardest(_MOST_HARDEST)
    lead = "There are no mistakes among the samples shown. These are the least confident predictions."
    if mistakes:
        lead = f"The most confident mistakes among the samples shown ({len(places)} of {mistakes:,})."
    show = _hardest_images if run.images else _hardest_rows
    return section("hardest", "Hardest samples", lead, show(run, places))


def _hardest_images(run: InspectedRun, places: NDArray[np.intp]) -> Html:
    cards = []
    for i in places:
        true, decided = run.class_names[run.labels[i]], run.class_names[run.decided[i]]
        source = plot_data.image_uri(np.asarray(run.samples[i], np.uint8))
        lines = [
            element("span", "true: ", element("b", true)),
            element("span", "predicted: ", element("strong" if true != decided else "b", decided)),
            element("span", f"{percent(run.probabilities[i])}, {run.names[i]}", class_="hint"),
        ]
        cards.append(element("li", element("img", src=source, alt=f"A sample of class {true}"), element("p", lines)))
    small = max(run.card.sample_shape[1:]) < 64
    return element("ul", cards, class_="hard pixels" if small else "hard")


def _hardest_rows(run: InspectedRun, places: NDArray[np.intp]) -> Html:
    rows = []
    for i in places:
        true, decided = run.class_names[run.labels[i]], run.class_names[run.decided[i]]
        values = ", ".join(f"{value:.4g}" for value in run.samples[i][: plot_data.MOST_VALUES])
        number, probability = number_cell(int(run.places[i]), "d"), share_cell(float(run.probabilities[i]))
        rows.append((number, Cell(true, true), Cell(decided, decided), probability, Cell(values, values)))
    return sortable_table("Hardest samples", ("sample", "true class", "predicted", "probability", "values"), rows)


def _repeat(run: InspectedRun) -> Html:
    chosen = {name.replace("_", " "): str(value) for name, value in wording.chosen_settings(run.config).items()}
    lists = {
        "Settings that differ from the defaults": chosen,
        "Environment": wording.environment_table(run.environment),
    }
    columns = [element("div", element("h3", title), definitions(pairs)) for title, pairs in lists.items()]
    settings = element("summary", "All settings (run.toml)"), element("pre", run.config.to_toml(), tabindex=0)
    return section(
        "again",
        "Repeat this run",
        "With the same data, this command reproduces the run:",
        element("pre", element("code", wording.command(run.config)), class_="command", tabindex=0),
        element("div", columns, class_="columns"),
        element("details", settings),
    )
