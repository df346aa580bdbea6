"""Results as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from deeplda.errors import one_line
from deeplda.report.wording import score_cells
from deeplda.training.metrics import Scores

# Of more classes than this the confusion matrix is left to --json.
_MOST_CLASSES = 12


def print_scores(scores: Scores, class_names: list[str], *, title: str, mirrored: Scores | None = None) -> None:
    """Accuracy by predictor, beside that with mirror images where there is one, and the confusion matrix."""
    # Names are the data's own: brackets in them are no markup.
    console = Console(highlight=False, markup=False)
    table = Table("predictor", title=f"{title}: {scores['n']:,} samples", title_justify="left")
    for column in ("accuracy", "balanced", "AUC", *(["mirrored", "balanced", "AUC"] if mirrored else [])):
        table.add_column(column, justify="right")
    for name in scores["predictors"]:
        found = [kind["predictors"][name] for kind in (scores, mirrored) if kind]
        table.add_row(name, *(cell for one in found for cell in score_cells(one)))
    console.print(table)
    if len(class_names) <= _MOST_CLASSES:
        by = f"by {next(iter(scores['predictors']))}" + (", without mirror images" if mirrored else "")
        # Narrow, so that ten classes fit a terminal of 80 columns.
        decided = Table(
            title=f"confusion matrix, {by}, a row for each true class", title_justify="left", box=SIMPLE, padding=0
        )
        decided.add_column("", overflow="fold")
        widest = max(len(str(count)) for row in scores["confusion"] for count in row)
        for name in class_names:
            # Names may be broken over lines where the terminal is narrow; numbers may not.
            decided.add_column(one_line(name), justify="right", overflow="fold", min_width=widest)
        for name, row in zip(class_names, scores["confusion"], strict=True):
            decided.add_row(one_line(name), *(str(count) for count in row))
        console.print(decided)


def print_subclasses(subclasses: dict[str, dict[str, Any]], *, mirrored: bool) -> None:
    """How often each subclass was decided for, and how often its class was right; `mirrored` were the scores above."""
    title = "subclasses" + (", without mirror images" if mirrored else "")
    table = Table("subclass", title=title, title_justify="left")
    table.add_column("decided", justify="right")
    table.add_column("class right", justify="right")
    for name, found in subclasses.items():
        right = f"{100 * found['right'] / found['decided']:.2f} %" if found["decided"] else "-"
        table.add_row(one_line(name), str(found["decided"]), right)
    Console(highlight=False, markup=False).print(table)
