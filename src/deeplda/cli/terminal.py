"""Print scores, the confusion matrix and subclasses as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE
from rich.table import Table

from deeplda.formatting import percent, wilson_interval
from deeplda.printing import plain_console, say
from deeplda.training.metrics import PredictorScores, Scores

# With more classes than this, the confusion matrix does not fit a terminal; --json prints it.
_MOST_CLASSES = 12


def print_table(table: Table) -> None:
    """Print a table, which may contain names from untrusted data."""
    plain_console().print(table)


def print_scores(
    scores: Scores, class_names: Sequence[str], *, title: str, augmented: tuple[str, Scores] | None = None
) -> None:
    """Print the scores of each predictor, and the confusion matrix.

    `augmented` are the name and scores of test-time augmentation, which are printed below the others.
    """
    # Without edges, the numbers of a perfect model fit into 80 columns.
    title = f"{title}: {scores.n:,} samples"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("predictor", overflow="fold")
    # The interval is Wilson's, with 95 % confidence; measures of the probabilities are missing in early runs.
    for column in ("accuracy (95 % CI)", "balanced", "AUC", "log loss", "Brier", "ECE"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, found in scores.predictors.items():
        table.add_row(name, *_cells(found, scores.n))
        if augmented:
            table.add_row(f"{name} {augmented[0]}", *_cells(augmented[1].predictors[name], scores.n))
    print_table(table)
    if len(class_names) <= _MOST_CLASSES:
        say("")
        which = next(iter(scores.predictors)) + (" without augmentation" if augmented else "")
        _print_confusion(scores.confusion, class_names, title=f"confusion matrix of {which}, one row per true class")


def _cells(scores: PredictorScores, n: int) -> list[str]:
    low, high = wilson_interval(round(scores.accuracy * n), n)
    accuracy = f"{percent(scores.accuracy)} ({100 * low:.1f}-{100 * high:.1f})"
    others = (scores.auc, scores.log_loss, scores.brier, scores.ece)
    return [accuracy, percent(scores.balanced_accuracy), *("-" if x is None else f"{x:.4f}" for x in others)]


def _print_confusion(confusion: Sequence[Sequence[int]], class_names: Sequence[str], *, title: str) -> None:
    # Without borders and padding, ten classes fit into a terminal with 80 columns.
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=0)
    table.add_column("", overflow="fold")
    widest = max(len(str(count)) for row in confusion for count in row)
    for name in class_names:
        # On a narrow terminal, names may wrap over several lines; numbers may not.
        table.add_column(name, justify="right", overflow="fold", min_width=widest)
    for name, row in zip(class_names, confusion, strict=True):
        table.add_row(name, *map(str, row))
    print_table(table)


def print_subclasses(subclasses: Mapping[str, Mapping[str, int]], *, augmented: bool) -> None:
    """Print how often each subclass was predicted, and how often its class was right."""
    # The scores above may use test-time augmentation; these never do.
    title = "subclasses" + (", without augmentation" if augmented else "")
    table = Table("subclass", title=title, title_justify="left")
    table.add_column("predicted", justify="right")
    table.add_column("class right", justify="right")
    for name, found in subclasses.items():
        right = percent(found["right"] / found["decided"]) if found["decided"] else "-"
        table.add_row(name, str(found["decided"]), right)
    print_table(table)
