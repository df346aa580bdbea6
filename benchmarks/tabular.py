"""Accuracy on the tables that come with scikit-learn, beside its own classifiers, all with their default settings.

    python benchmarks/tabular.py [--seeds 5] [--output results/tabular.csv]

Each figure is the accuracy of a stratified 5-fold cross-validation, mean and standard deviation over the seeds; a
seed moves the folds and the starting weights alike. LogisticRegression and MLPClassifier see standardised features,
as their documentation asks for. "behind" is how far DeepLDAClassifier is behind the best of the others, in points
of accuracy and in standard deviations of its own figure; below 0 it is ahead.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deeplda.estimators import DeepLDAClassifier

TABLES = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
OURS = "DeepLDA"
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: DeepLDAClassifier(random_state=seed),
    "DeepLDA cce": lambda seed: DeepLDAClassifier(objective="cce", random_state=seed),
    "LDA": lambda _seed: LinearDiscriminantAnalysis(),
    "LogReg": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(random_state=seed)),
    "MLP": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a CSV file for the accuracy of every seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # MLPClassifier's 200 iterations do not always do, which is part of its defaults.
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(
        f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, {options.seeds} seeds, 5 folds, accuracy in %"
    )
    print(f"{'':14}" + "".join(f"{name:>15}" for name in CLASSIFIERS) + f"{'behind':>18}")
    rows: list[tuple[str, str, int, float, float]] = []
    for table in TABLES:
        found = measure(table, options.seeds)
        rows += found
        print(line(table, found), flush=True)
    print(f"{'seconds a fit':14}" + "".join(f"{seconds_a_fit(rows, name):15.2f}" for name in CLASSIFIERS))
    if options.output:
        write(options.output, rows)


def measure(table: str, seeds: int) -> list[tuple[str, str, int, float, float]]:
    """(table, classifier, seed, accuracy in %, seconds a fold) for all classifiers and seeds."""
    inputs, labels = TABLES[table](return_X_y=True)
    rows = []
    for seed in range(seeds):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        for name, make in CLASSIFIERS.items():
            start = time.perf_counter()
            accuracy = 100 * cross_val_score(make(seed), inputs, labels, cv=folds).mean()
            rows.append((table, name, seed, accuracy, (time.perf_counter() - start) / 5))
    return rows


def line(table: str, rows: list[tuple[str, str, int, float, float]]) -> str:
    """One line of the table."""
    accuracies = {name: np.array([row[3] for row in rows if row[1] == name]) for name in CLASSIFIERS}
    best = max(values.mean() for name, values in accuracies.items() if name != OURS)
    gap, spread = best - accuracies[OURS].mean(), accuracies[OURS].std(ddof=1) if len(accuracies[OURS]) > 1 else np.nan
    cells = "".join(
        f"{values.mean():8.2f} ±{values.std(ddof=min(1, len(values) - 1)):5.2f}" for values in accuracies.values()
    )
    return f"{table:14}{cells}{gap:10.2f} ({gap / spread:4.1f} s)"


def seconds_a_fit(rows: list[tuple[str, str, int, float, float]], name: str) -> float:
    return float(np.mean([row[4] for row in rows if row[1] == name]))


def write(file: Path, rows: list[tuple[str, str, int, float, float]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["table", "classifier", "seed", "accuracy", "seconds_a_fit"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
