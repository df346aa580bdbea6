"""Settings for `DeepLDAClassifier` on real tables that are not in tabular.py: what its defaults were chosen by.

    python benchmarks/table_defaults.py FOLDER [--output results/table_defaults.csv] [--settings "dropout 0.2"]

FOLDER, the splits and the CSV file are as in tabular.py: a row is a fit, and rows that are there already are not
measured again. Tables with up to 1,000 training rows have three splits, larger ones one, with at most 10,000 training
rows. The summary has the mean difference to dropout 0.5 over the tables of each size, in points of accuracy, with its
standard error over the tables.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from real_tables import STUDY
from result_rows import append_rows, matching, read_rows
from sklearn.model_selection import StratifiedShuffleSplit
from tabular import COLUMNS, TEST_SHARE, fit_and_score

from deeplda import DeepLDAClassifier

FEW_ROWS, MOST_ROWS, SPLITS = 1_000, 10_000, 3
# The defaults when the study was made, before they depended on the number of samples.
REFERENCE = "dropout 0.5"
BEFORE: dict[str, Any] = {"dropout": 0.5, "weight_decay": 0.01, "hidden_layer_sizes": (128, 128)}
SETTINGS: dict[str, dict[str, Any]] = {
    REFERENCE: {},
    "dropout 0.3": {"dropout": 0.3},
    "dropout 0.2": {"dropout": 0.2},
    "dropout 0.1": {"dropout": 0.1},
    "dropout 0.2, 300 epochs": {"dropout": 0.2, "max_epochs": 300},
    "dropout 0.2, decay 0.003": {"dropout": 0.2, "weight_decay": 0.003},
    "dropout 0.2, 256 units": {"dropout": 0.2, "hidden_layer_sizes": (256, 256)},
    "dropout 0.2, decay 0.001": {"dropout": 0.2, "weight_decay": 0.001},
    "dropout 0.1, decay 0.001": {"dropout": 0.1, "weight_decay": 0.001},
    "dropout 0.2, decay 0.001, 256 units": {"dropout": 0.2, "weight_decay": 0.001, "hidden_layer_sizes": (256, 256)},
    "dropout 0.1, decay 0.001, 256 units": {"dropout": 0.1, "weight_decay": 0.001, "hidden_layer_sizes": (256, 256)},
    "no hidden layers": {"hidden_layer_sizes": ()},
    "rate 0.03": {"learning_rate": 0.03},
    "decay 0.001": {"weight_decay": 0.001},
    "decay 0.1": {"weight_decay": 0.1},
    "lam 0.1": {"lam": 0.1},
    "pillai": {"statistic": "pillai"},
    "joint": {"objective": "joint"},
    "cce": {"objective": "cce"},
    "classic_lda": {"predictor": "classic_lda"},
}


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.only:
        measure(name, options)
    print(summary(pd.read_csv(options.output)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the downloaded packages of tables")
    parser.add_argument("--output", type=Path, default=Path("table_defaults.csv"), help="the CSV file, a row per fit")
    parser.add_argument("--only", nargs="*", choices=STUDY, default=list(STUDY), help="measure these tables")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS), help="measure these")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace) -> None:
    """Fit and score every setting on the splits of a table, except for the rows that the file already has."""
    done = {(row["classifier"], int(row["split"])) for row in matching(read_rows(options.output), table=name)}
    inputs, labels = STUDY[name].read(options.folder)
    few = len(labels) * (1 - TEST_SHARE) <= FEW_ROWS
    splits = StratifiedShuffleSplit(SPLITS if few else 1, test_size=TEST_SHARE, random_state=0).split(inputs, labels)
    for split, (train, test) in enumerate(splits):
        for setting in options.settings:
            if (setting, split) in done:
                continue
            classifier = DeepLDAClassifier(random_state=split, calibrate=False, **BEFORE | SETTINGS[setting])
            scores = fit_and_score(classifier, inputs, labels, train[:MOST_ROWS], test)
            row = {"table": name, "classifier": setting, "split": split, **scores}
            append_rows(options.output, COLUMNS, [row])


def summary(rows: pd.DataFrame) -> str:
    """Return the mean accuracy of each setting on each table, and its mean differences to the reference."""
    means = rows.groupby(["classifier", "table"])["accuracy"].mean().unstack("table")
    sizes = rows.groupby("table")["train_rows"].first()
    differences = means - means.loc[REFERENCE]
    lines = [means.T.round(1).to_string(), ""]
    for setting, row in differences.iterrows():
        cells = []
        for size, chosen in (("few rows", sizes <= FEW_ROWS), ("more", sizes > FEW_ROWS)):
            found = row[chosen[chosen].index].dropna()
            cells.append(f"{size} {found.mean():+6.2f} ± {found.sem():.2f} ({len(found)})")
        lines.append(f"{setting:24}" + "   ".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
