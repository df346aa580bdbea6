"""Real tables: `DeepLDAClassifier` beside scikit-learn's classifiers and RealMLP, all with their default settings.

    python benchmarks/tabular.py FOLDER [--output results/tabular.csv] [--only iris wine] [--classifiers DeepLDA LDA]

FOLDER has the downloaded packages of tables, see real_tables.py. RealMLP needs the package pytabkit, and is left out
without it. Ten stratified splits, 70 % of the rows for training (at most 20,000) and 30 % for testing. A split also
seeds the classifier. LDA, LogisticRegression and the MLP get categories as one-hot columns, the mean for a missing
number with an indicator, and standardised numbers. RealMLP, which encodes the others itself, gets only missing values
filled in. HistGradientBoosting and DeepLDAClassifier get the columns as they are.

A row of the CSV file is a fit. Rows that are there already are not measured again, and the summary is made from the
file alone. It compares DeepLDAClassifier with the best of the others, the one with the best mean on the table, by the
mean difference and its 95 % interval, paired over the splits and with Nadeau and Bengio's correction for training sets
that overlap. Choosing the best afterwards favours the others.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from numpy.typing import NDArray
from paired import over_splits
from real_tables import BENCHMARK, Table
from result_rows import append_rows, matching, read_rows
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from deeplda import DeepLDAClassifier

OURS = "DeepLDA"
SPLITS, TEST_SHARE, MOST_ROWS = 10, 0.3, 20_000
COLUMNS = ("table", "classifier", "split", "accuracy", "log_loss", "cpu_seconds", "train_rows", "test_rows")


def encoded(classifier: Any) -> Any:
    """Put one-hot columns, the mean for missing numbers and a standardisation before a classifier."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (texts, make_column_selector(dtype_exclude="number"))
    )
    return make_pipeline(columns, classifier)


def real_mlp(seed: int) -> Any:
    """Put what RealMLP does not do itself before it: the mean for missing numbers, and a text for missing texts."""
    from pytabkit import RealMLP_TD_Classifier

    numbers = SimpleImputer(add_indicator=True)
    texts = FunctionTransformer(lambda frame: frame.astype(object).fillna("missing").astype("category"))
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (texts, make_column_selector(dtype_exclude="number")),
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    return make_pipeline(columns, RealMLP_TD_Classifier(random_state=seed, device="cpu", n_threads=1, verbosity=0))


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: DeepLDAClassifier(random_state=seed),
    "LDA": lambda _seed: encoded(LinearDiscriminantAnalysis()),
    "LogReg": lambda seed: encoded(LogisticRegression(random_state=seed)),
    "MLP": lambda seed: encoded(MLPClassifier(random_state=seed)),
    "HistGB": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "RealMLP": real_mlp,
}


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    # Part of the defaults: MLPClassifier's 200 epochs are not always enough, and LDA meets collinear features.
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name in options.only:
            measure(name, BENCHMARK[name], options)
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, {SPLITS} splits")
    print(summary(pd.read_csv(options.output)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the downloaded packages of tables")
    parser.add_argument("--output", type=Path, default=Path("tabular.csv"), help="the CSV file, one row per fit")
    parser.add_argument("--only", nargs="*", choices=BENCHMARK, default=list(BENCHMARK), help="measure these tables")
    installed = [name for name in CLASSIFIERS if name != "RealMLP" or importlib.util.find_spec("pytabkit")]
    parser.add_argument("--classifiers", nargs="*", choices=CLASSIFIERS, default=installed, help="measure these")
    return parser.parse_args()


def measure(name: str, table: Table, options: argparse.Namespace) -> None:
    """Fit and score the classifiers on every split of a table, except for the rows that the file already has."""
    wanted = {(classifier, split) for classifier in options.classifiers for split in range(SPLITS)}
    wanted -= {(row["classifier"], int(row["split"])) for row in matching(read_rows(options.output), table=name)}
    if not wanted:
        return
    inputs, labels = table.read(options.folder)
    splits = StratifiedShuffleSplit(SPLITS, test_size=TEST_SHARE, random_state=0).split(inputs, labels)
    for split, (train, test) in enumerate(splits):
        for classifier in CLASSIFIERS:
            if (classifier, split) in wanted:
                scores = fit_and_score(CLASSIFIERS[classifier](split), inputs, labels, train[:MOST_ROWS], test)
                row = {"table": name, "classifier": classifier, "split": split, **scores}
                append_rows(options.output, COLUMNS, [row])


def fit_and_score(
    classifier: Any, inputs: pd.DataFrame, labels: NDArray[Any], train: NDArray[np.int64], test: NDArray[np.int64]
) -> dict[str, float]:
    start = time.process_time()
    classifier.fit(inputs.iloc[train], labels[train])
    seconds = time.process_time() - start
    probabilities = classifier.predict_proba(inputs.iloc[test]).astype(np.float64)
    probabilities /= probabilities.sum(1, keepdims=True)
    predicted = classifier.predict(inputs.iloc[test])
    return {
        "accuracy": round(100 * float((predicted == labels[test]).mean()), 4),
        "log_loss": round(log_loss(labels[test], probabilities, labels=classifier.classes_), 5),
        "cpu_seconds": round(seconds, 3),
        "train_rows": len(train),
        "test_rows": len(test),
    }


def summary(rows: pd.DataFrame) -> str:
    """Return a Markdown table of each score, and how often DeepLDAClassifier is level with the best other."""
    order = [name for name in BENCHMARK if name in set(rows.loc[rows["classifier"] == OURS, "table"])]
    names = [name for name in CLASSIFIERS if name in set(rows["classifier"])]
    shares = rows.groupby("table")[["train_rows", "test_rows"]].first()
    parts = []
    for column, sign, decimals in (("accuracy", 1, 2), ("log_loss", -1, 3)):
        lines = [f"| {column} | rows | {' | '.join(names)} | {OURS} against the best other |"]
        lines.append("|---" * (len(names) + 3) + "|")
        behind, ahead = [], []
        for table in order:
            scores = rows[rows["table"] == table].pivot(index="split", columns="classifier", values=column)
            means = scores.mean()
            best = (sign * means.drop(OURS)).idxmax()
            n_train, n_test = shares.loc[table]
            found = over_splits((scores[OURS] - scores[best]).dropna().to_numpy(), n_test / n_train)
            worse, better = sorted((sign * found.low, sign * found.high))
            (behind if better < 0 else ahead if worse > 0 else []).append(table)
            cells = " | ".join(f"{means[name]:.{decimals}f}" if name in means else "" for name in names)
            mean, low, high = (f"{value:+.{decimals}f}" for value in (found.mean, found.low, found.high))
            lines.append(f"| {table} | {n_train} | {cells} | {best}: {mean} ({low} to {high}) |")
        level = len(order) - len(behind)
        lines.append(f"\nAt least level on {level} of {len(order)} tables, ahead on {ahead}, behind on {behind}.\n")
        parts += lines
    seconds = rows.groupby(["table", "classifier"])["cpu_seconds"].mean().unstack()
    return "\n".join([*parts, "CPU seconds per fit", seconds.loc[order, names].round(2).to_string()])


if __name__ == "__main__":
    main()
