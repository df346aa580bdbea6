"""Statistics and alphas for `DeepLDAClassifier` on scikit-learn's tables: what its defaults were chosen by.

    python benchmarks/table_defaults.py [--output results/table_defaults.csv]

Stratified 5-fold cross-validation as in tabular.py, on folds and weights of other seeds than that one reports.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold, cross_val_score
from tabular import TABLES

from deeplda.estimators import DeepLDAClassifier

STATISTICS = ("smallest", "wilks", "pillai", "hotelling")
ALPHAS = (1.0, 0.6)
SEEDS = (100, 101, 102)


def main() -> None:
    parser = argparse.ArgumentParser(description="Statistics and alphas on scikit-learn's tables.")
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
    inputs, labels = TABLES[table](return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    classifier = DeepLDAClassifier(statistic=statistic, alpha=alpha, random_state=seed)
    return float(100 * cross_val_score(classifier, inputs, labels, cv=folds).mean())


if __name__ == "__main__":
    main()
