"""The scores of a run on its test set: by predictor, and by class with the confusion matrix."""

from __future__ import annotations

import numpy as np

from deeplda.formatting import percent, wilson_interval
from deeplda.report import wording
from deeplda.report.components import class_table, confusion_table, plain_table, scrolling, section
from deeplda.report.markup import Html, element
from deeplda.report.record import InspectedRun
from deeplda.training.metrics import PredictorScores, Scores


def scores(run: InspectedRun) -> Html:
    """Return the scores of each predictor on the whole test set."""
    lead = (
        f"Results for all {run.scores.n:,} test samples. Balanced accuracy is the mean recall over the classes; AUC is "
        "the area under the ROC curve of one class against the others, averaged over the classes. The range beside an "
        "accuracy is its 95 % interval."
    )
    return section(
        "scores", "Scores", lead, _predictors(run.scores.predictors, run.summary.augmented_test, run.scores.n)
    )


def classes(run: InspectedRun) -> Html:
    """Return the scores of each class, the worst first, and the confusion matrix."""
    confusion = np.asarray(run.scores.confusion)
    predictor = wording.PREDICTOR_NAMES[run.card.deciding]
    flawless = int(np.sum((confusion.sum(1) == np.diag(confusion)) & (confusion.sum(1) > 0)))
    lead = (
        f"The worst classes come first; {flawless} of {len(confusion)} have no mistakes. Recall is the fraction of a "
        "class's samples that were predicted correctly; precision is the fraction of the samples predicted as a class "
        f"that belong to it. The predictions are those of {predictor}."
    )
    tables = class_table(confusion, run.class_names), confusion_table(confusion, run.class_names)
    return section("classes", "Classes", lead, tables[0], element("h3", "Confusion matrix"), tables[1])


def _predictors(plain: dict[str, PredictorScores], augmented: tuple[str, Scores] | None, n: int) -> Html:
    """Return a table of each predictor's scores, including its scores with test-time augmentation if available.

    The first predictor makes the predictions.
    """
    columns = ["predictor", "accuracy", "balanced", "AUC", "log loss", "Brier", "ECE"]
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
