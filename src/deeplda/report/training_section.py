"""The training of a run: loss, validation accuracy and eigenvalues over the epochs."""

from __future__ import annotations

from deeplda.formatting import counted, percent
from deeplda.report.components import chart, number_cell, section, share_cell, sortable_table
from deeplda.report.markup import Html, element
from deeplda.report.record import RunRecord


def training(run: RunRecord) -> Html:
    """Return the loss, validation accuracy and eigenvalues over the epochs, as curves and as a table."""
    if run.summary.epochs == 0:
        what = "The network was not trained: only the predictors were fitted on the training set"
        return section("training", "Training", f"{what}, with the ridge lam {run.config.lam:.3g}.")
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
        element("div", _charts(run), class_="charts"),
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
            cells.append(share_cell(accuracies.get(row.epoch)))
        if spectra:
            cells += [number_cell(value, ".4g") for value in (spectra[i][0], spectra[i][-1])]
            cells.append(number_cell(row.dead_dims, "d"))
        rows.append(cells)
    return sortable_table("Values by epoch", columns, rows)


def _charts(run: RunRecord) -> list[Html]:
    # Importing matplotlib takes half a second, and only charts need it.
    from deeplda.report.curves import Curve, eigenvalue_curves, loss_curves, page_chart

    numbers, kept = [row.epoch for row in run.epochs], run.summary.best_epoch
    first, last = run.epochs[0].loss, run.epochs[-1].loss
    label = f"Loss, from {first:.3g} in the first epoch to {last:.3g} in the last"
    charts = [chart("Loss", page_chart(loss_curves(run.epochs), label=label, kept=kept))]
    if accuracies := run.validation_accuracies:
        (start, first), (end, last) = min(accuracies.items()), max(accuracies.items())
        label = f"Validation accuracy, from {percent(first)} after epoch {start} to {percent(last)} after epoch {end}"
        curves = [Curve("validation accuracy", list(accuracies), list(accuracies.values()))]
        charts.append(chart("Validation accuracy", page_chart(curves, label=label, shares=True, kept=kept)))
    if spectra := run.spectra:
        label = f"Eigenvalues, from {spectra[-1][0]:.3g} to {spectra[-1][-1]:.3g} in the last epoch"
        curves = eigenvalue_curves(numbers, spectra)
        others = (element("span", class_="dash others"), "others") if len(curves) > 1 else ()
        key = element("span", element("span", class_="dash k3"), "smallest", others)
        charts.append(chart(("Eigenvalues ", key), page_chart(curves, label=label, logarithmic=True, kept=kept)))
    return charts
