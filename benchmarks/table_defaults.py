"""Statistics and alphas for `DeepLDAClassifier` on made-up tables: what its defaults were chosen by.

    python benchmarks/table_defaults.py [--output results/table_defaults.csv]

Stratified 5-fold cross-validation as in tabular.py, but on none of its tables: what is reported was not chosen by.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.datasets import make_classification, make_gaussian_quantiles
from sklearn.model_selection import StratifiedKFold, cross_val_score

from deeplda.estimators import DeepLDAClassifier

STATISTICS = ("smallest", "wilks", "pillai", "hotelling")
ALPHAS = (1.0, 0.6)
SEEDS = (0, 1)


def blobs(n: int, features: int, classes: int, **other: Any) -> Callable[[], tuple[NDArray[Any], NDArray[Any]]]:
    """Clusters in a few useful directions, `features` in all."""
    return lambda: make_classification(
        n, features, n_classes=classes, n_redundant=features // 5, random_state=0, **other
    )


TABLES: dict[str, Callable[[], tuple[NDArray[Any], NDArray[Any]]]] = {
    "150 x 4, 3": blobs(150, 4, 3, n_informative=3, n_clusters_per_class=1, class_sep=1.5),
    "200 x 15, 3": blobs(200, 15, 3, n_informative=8, n_clusters_per_class=1),
    "600 x 30, 2": blobs(600, 30, 2, n_informative=12, n_clusters_per_class=2),
    "1200 x 40, 8": blobs(1200, 40, 8, n_informative=15, n_clusters_per_class=2, class_sep=1.5),
    "quantiles, 4": lambda: make_gaussian_quantiles(n_samples=600, n_features=5, n_classes=4, random_state=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Statistics and alphas of DeepLDAClassifier on made-up tables.")
    parser.add_argument("--output", type=Path, help="a CSV file for the accuracy of every seed")
    options = parser.parse_args()
    trials = list(product(TABLES, STATISTICS, ALPHAS, SEEDS))
    accuracies = Parallel(n_jobs=-1)(delayed(accuracy)(*trial) for trial in trials)
    found = dict(zip(trials, accuracies, strict=True))
    print(f"{'':22}" + "".join(f"{table:>18}" for table in TABLES) + f"{'mean':>8}")
    for statistic, alpha in product(STATISTICS, ALPHAS):
        columns = [np.array([found[table, statistic, alpha, seed] for seed in SEEDS]) for table in TABLES]
        cells = "".join(f"{column.mean():11.2f} ±{column.std(ddof=1):5.2f}" for column in columns)
        print(f"{statistic:12} alpha {alpha:<4}{cells}{np.mean(columns):8.2f}")
    if options.output:
        with options.output.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["table", "statistic", "alpha", "seed", "accuracy"])
            writer.writerows([*trial, round(value, 3)] for trial, value in found.items())


def accuracy(table: str, statistic: str, alpha: float, seed: int) -> float:
    torch.set_num_threads(1)
    inputs, labels = TABLES[table]()
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    classifier = DeepLDAClassifier(statistic=statistic, alpha=alpha, random_state=seed)
    return float(100 * cross_val_score(classifier, inputs, labels, cv=folds).mean())


if __name__ == "__main__":
    main()
