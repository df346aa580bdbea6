"""How far the probabilities of `DeepLDAClassifier` can be trusted, and the study that its rule was chosen by.

    python benchmarks/calibration.py study --xrays chest_xray_128.zip --output results/calibration-study.csv
    python benchmarks/calibration.py reported --output results/calibration.csv
    python benchmarks/calibration.py runs --sweep FOLDER --output results/calibration-cifar10.csv

Both print mean log losses and write one line per table, rule or model, and seed. A seed moves the stratified split, of
which the part that the network does not see is scored, and the starting weights. The study compares rules for
calibration on tables and images that are not among those reported. "runs" calibrates the models of a finished sweep on
their validation images and scores their test images.

Rules of the study, all from the same networks: "softmax" is the softmax of the scores; "temperature" scales the scores;
"frequencies" also adds the logarithm of the class frequencies to them, as priors would; "temperature + share", the
rule of `Calibration`, spreads a share evenly over the classes. "5 folds" and so on say which scores the rule was fitted
on: those of all folds, or of the first one. "dropout" has the predictor's statistics from 20 passes with dropout.
"""

from __future__ import annotations

import argparse
import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import minimize_scalar
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_classification,
    make_gaussian_quantiles,
    make_moons,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deeplda import load
from deeplda.estimators import DeepLDAClassifier
from deeplda.predictors import Calibration, FeatureStatistics, Hyperplanes
from deeplda.predictors.calibration import brier_score, calibration_error, log_loss
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data

Floats = NDArray[np.float64]
Labelled = tuple[NDArray[Any], NDArray[np.int64]]
# A name and the logarithms of the probabilities of the samples that are scored.
Found = tuple[str, Floats]

MEASURES = ("log_loss", "brier", "ece", "accuracy", "balanced_accuracy")


def clusters(n: int, features: int, classes: int, **other: Any) -> Labelled:
    """Clusters in a few useful directions, `features` in all, and more samples than are trained on."""
    redundant = features // 5
    return make_classification(n, features, n_classes=classes, n_redundant=redundant, random_state=0, **other)


def diabetes() -> Labelled:
    """The progression of diabetes after a year: the lower half, the next 35 % and the upper 15 %."""
    rows, progress = load_diabetes(return_X_y=True)
    return rows, np.digitize(progress, np.quantile(progress, [0.5, 0.85]))


# The number of samples to train on, and all samples; the others are scored.
STUDY: dict[str, tuple[int, Callable[[], Labelled]]] = {
    "90 x 5, 3": (90, lambda: clusters(290, 5, 3, n_informative=3, n_clusters_per_class=1, class_sep=1.2)),
    "200 x 15, 3": (200, lambda: clusters(700, 15, 3, n_informative=8, n_clusters_per_class=1)),
    "600 x 30, 2": (600, lambda: clusters(1600, 30, 2, n_informative=12, n_clusters_per_class=2)),
    "2500 x 20, 6": (2500, lambda: clusters(4500, 20, 6, n_informative=12, n_clusters_per_class=2)),
    "600 x 10, 3, noisy": (600, lambda: clusters(1600, 10, 3, n_informative=5, n_clusters_per_class=1, flip_y=0.25)),
    "500 x 12, 9:1": (500, lambda: clusters(1500, 12, 2, n_informative=6, class_sep=0.8, weights=[0.9, 0.1])),
    "800 x 20, 50:25:15:6:4": (
        800,
        lambda: clusters(
            2400,
            20,
            5,
            n_informative=9,
            n_clusters_per_class=1,
            class_sep=0.9,
            weights=[0.5, 0.25, 0.15, 0.06, 0.04],
        ),
    ),
    "moons": (300, lambda: make_moons(500, noise=0.3, random_state=0)),
    "quantiles": (500, lambda: make_gaussian_quantiles(n_samples=900, n_features=5, n_classes=4, random_state=0)),
    "blobs": (100, lambda: make_blobs(160, n_features=6, centers=4, cluster_std=1.5, random_state=3)),
    "blobs, 300:60:30": (200, lambda: make_blobs([300, 60, 30], n_features=5, cluster_std=4.5, random_state=1)),
    "diabetes": (300, diabetes),
}
REPORTED: dict[str, Callable[[], Labelled]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "unbalanced": lambda: clusters(1500, 15, 4, n_informative=8, class_sep=0.8, weights=[0.6, 0.25, 0.1, 0.05]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["study", "reported", "runs"])
    parser.add_argument("--seeds", type=int, help="3 for the study, 10 for what is reported, unless given")
    parser.add_argument("--xrays", type=Path, help="a zip file of chest X-rays in folders NORMAL and PNEUMONIA")
    parser.add_argument("--sweep", type=Path, help="the folder of a finished sweep, for runs")
    parser.add_argument("--output", type=Path, required=True, help="a CSV file for every seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = options.seeds or (3 if options.part == "study" else 10)
    if options.part == "runs":
        rows = list(finished_runs(options.sweep))
    else:
        rows = list(study(seeds, options.xrays) if options.part == "study" else reported(seeds))
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["table", "rule" if options.part == "study" else "model", "seed", *MEASURES])
        writer.writerows([*row[:3], *(f"{value:.5f}" for value in row[3:])] for row in rows)
    show(rows)


def study(seeds: int, xrays: Path | None) -> Iterator[tuple[Any, ...]]:
    """Yield (table, rule, seed, measures...) for all tables and, if there are X-rays, for 8 x 8 and 24 x 24 pixels."""
    for seed in range(seeds):
        for table, (size, read) in STUDY.items():
            yield from scored(table, seed, of_table, *split(read(), size, seed))
        if xrays is not None:
            pixels, labels = read_xrays(xrays, 8)
            yield from scored("X-rays 8 x 8", seed, of_table, *split((pixels.reshape(-1, 64), labels), 700, seed))
            yield from scored("X-rays 24 x 24", seed, of_images, *split(read_xrays(xrays, 24), 700, seed))


def reported(seeds: int) -> Iterator[tuple[Any, ...]]:
    """Yield (table, model, seed, measures...) for all tables that are reported; a third of each is scored."""
    for table, read in REPORTED.items():
        for seed in range(seeds):
            data = read()
            yield from scored(table, seed, of_models, *split(data, round(len(data[1]) * 2 / 3), seed))


def finished_runs(sweep: Path) -> Iterator[tuple[Any, ...]]:
    """Yield (data, model, seed, measures...) for the trials of a sweep, before and after calibration on validation."""
    for run in sorted((sweep / "trials").iterdir()):
        config, model = RunConfig.of(run), load(run)
        data = read_data(config)
        name = config.objective if config.objective in ("cce", "gce") else f"{config.objective} {config.statistic}"

        def of_run(validation: Labelled, test: Labelled, _seed: int, name: str = name, model: Any = model) -> Any:
            scores = model.decision_function(test[0])
            yield f"{name}, softmax", log_softmax(scores)
            rule = Calibration().fit(model.decision_function(validation[0]), validation[1])
            yield name, rule.log_probabilities(scores)

        parts = ((part.inputs, part.labels) for part in (data.val, data.test))
        yield from scored(config.data, config.seed, of_run, *parts)


def split(data: Labelled, size: int, seed: int) -> tuple[Labelled, Labelled]:
    """Return a stratified training set of this size, and the other samples."""
    rows, labels = data
    train, test = train_test_split(np.arange(len(labels)), train_size=size, stratify=labels, random_state=seed)
    return (rows[train], labels[train]), (rows[test], labels[test])


def scored(
    table: str, seed: int, find: Callable[[Labelled, Labelled, int], Iterator[Found]], train: Labelled, test: Labelled
) -> Iterator[tuple[Any, ...]]:
    """Yield (table, name, seed, measures...) for everything that `find` yields."""
    print(f"{table}, seed {seed}", flush=True)
    for name, logs in find(train, test, seed):
        p, labels = np.exp(logs), test[1]
        right = logs.argmax(1) == labels
        recalls = [right[labels == c].mean() for c in np.unique(labels)]
        found = log_loss(logs, labels), brier_score(p, labels), calibration_error(p.max(1), right)
        yield table, name, seed, *found, right.mean(), np.mean(recalls)


def of_models(train: Labelled, test: Labelled, seed: int) -> Iterator[Found]:
    """Yield what the estimator shows, before and after calibration, its twin with cross-entropy, and scikit-learn's."""
    for name, objective in (("DeepLDA", "lda"), ("cross-entropy", "cce")):
        model = DeepLDAClassifier(objective=objective, random_state=seed).fit(*train).model_
        scores = model.decision_function(test[0])
        yield f"{name}, softmax", log_softmax(scores)
        yield name, model.predictor.calibration.log_probabilities(scores)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(*train)
    yield "LogisticRegression", logistic.predict_log_proba(test[0])


def of_table(train: Labelled, test: Labelled, seed: int) -> Iterator[Found]:
    """Yield the rules for one table."""
    rows, labels = train
    priors = np.log(np.bincount(labels) / len(labels))
    model = fitted(train, seed)
    scores, dropped = model.decision_function(test[0]), with_dropout(model, train)
    folds = {k: fold_scores(train, seed, k) for k in (2, 3, 5)}
    first = next(iter(StratifiedKFold(5, shuffle=True, random_state=seed).split(rows, labels)))[1]
    yield "softmax", log_softmax(scores)
    yield "softmax, frequencies", log_softmax(scores + priors)
    yield "softmax, dropout", log_softmax(decision(dropped, model, test[0]))
    for name, shift in (("temperature", 0 * priors), ("temperature, frequencies", priors)):
        yield f"{name}, 5 folds", log_softmax(temperature(folds[5][0], labels, shift) * scores + shift)
    for k, (found, _) in folds.items():
        yield f"temperature + share, {k} folds", Calibration().fit(found, labels).log_probabilities(scores)
    part = Calibration().fit(folds[5][0][first], labels[first])
    yield "temperature + share, 1 of 5 folds", part.log_probabilities(scores)
    rule = Calibration().fit(folds[5][1], labels)
    yield "temperature + share, dropout, 5 folds", rule.log_probabilities(decision(dropped, model, test[0]))
    twin = fitted(train, seed, objective="cce").decision_function(test[0])
    yield "cross-entropy", log_softmax(twin)
    rule = Calibration().fit(fold_scores(train, seed, 5, objective="cce")[0], labels)
    yield "cross-entropy, temperature + share, 5 folds", rule.log_probabilities(twin)


def of_images(train: Labelled, test: Labelled, seed: int) -> Iterator[Found]:
    """Yield the rules for images, with a validation set of 15 %."""
    for name, objective in (("", "lda"), ("cross-entropy, ", "cce")):
        settings = {"objective": objective, "early_stopping": True, "validation_fraction": 0.15, "random_state": seed}
        model = DeepLDAClassifier(max_epochs=10, learning_rate=0.03, batch_size=100, **settings).fit(*train).model_
        scores = model.decision_function(test[0])
        yield f"{name}softmax", log_softmax(scores)
        yield f"{name}temperature + share, validation", model.predictor.calibration.log_probabilities(scores)


def fitted(train: Labelled, seed: int, **other: Any) -> Any:
    return DeepLDAClassifier(random_state=seed, calibrate=False, **other).fit(*train).model_


def fold_scores(train: Labelled, seed: int, folds: int, **other: Any) -> tuple[Floats, Floats]:
    """Return out-of-fold scores (n, C), with the predictor's own statistics and with those under dropout."""
    rows, labels = train
    found, dropped = np.empty((2, len(labels), len(np.unique(labels))))
    for rest, held in StratifiedKFold(folds, shuffle=True, random_state=seed).split(rows, labels):
        model = fitted((rows[rest], labels[rest]), seed, **other)
        found[held] = model.decision_function(rows[held])
        if folds == 5 and not other:
            predictor = with_dropout(model, (rows[rest], labels[rest]))
            dropped[held] = decision(predictor, model, rows[held])
    return found, dropped


@torch.no_grad()
def with_dropout(model: Any, train: Labelled, passes: int = 20) -> Hyperplanes:
    """Return hyperplanes whose statistics were gathered with dropout."""
    torch.manual_seed(0)
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.train()
    rows, labels = torch.as_tensor(train[0], dtype=torch.float64), train[1]
    statistics = FeatureStatistics.for_labels(np.tile(labels, passes))
    for _ in range(passes):
        statistics.update(model(rows), labels)
    model.eval()
    return Hyperplanes().fit_statistics(statistics)


def decision(predictor: Hyperplanes, model: Any, rows: NDArray[Any]) -> Floats:
    return predictor.decision_function(model.transform(rows)).numpy()


def temperature(scores: Floats, labels: NDArray[np.int64], shift: Floats) -> float:
    """Return the inverse temperature with the lowest log loss for given priors."""

    def loss(logarithm: float) -> float:
        return log_loss(log_softmax(np.exp(logarithm) * scores + shift), labels)

    return float(np.exp(minimize_scalar(loss, bounds=(-12, 5), method="bounded").x))


def log_softmax(scores: Floats) -> Floats:
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def read_xrays(file: Path, side: int) -> Labelled:
    """Return 1,500 of the X-rays, n x 1 x side x side, and whether they show pneumonia."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith((".jpeg", ".jpg", ".png"))]
        names = [names[place] for place in sorted(np.random.default_rng(0).permutation(len(names))[:1500])]
        images = [Image.open(io.BytesIO(archive.read(name))).convert("L").resize((side, side)) for name in names]
    labels = np.array(["PNEUMONIA" in name for name in names]).astype(np.int64)
    return np.stack([np.asarray(image, np.float32) for image in images])[:, None], labels


def show(rows: list[tuple[Any, ...]]) -> None:
    """Print the mean log loss of each rule or model by table, and the mean over the tables that have it."""
    tables, names = (list(dict.fromkeys(row[place] for row in rows)) for place in (0, 1))
    width = max(map(len, names)) + 2
    print(" " * width + "".join(f"{table[:11]:>12}" for table in tables) + f"{'mean':>12}")
    for name in names:
        found = [[row[3] for row in rows if row[:2] == (table, name)] for table in tables]
        cells = "".join(f"{np.mean(values):12.3f}" if values else " " * 12 for values in found)
        print(f"{name:{width}}{cells}{np.mean([np.mean(values) for values in found if values]):12.3f}")


if __name__ == "__main__":
    main()
