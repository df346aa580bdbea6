"""Measure, on the runs of a sweep, what the paper's Sections 3 and 4 claim about single outputs and the predictors.

    python benchmarks/claims.py sweeps/table2-quick results/table2-quick

There are four claims. Single outputs separate the classes better with alpha = 0 than with alpha = 1. The outputs of
DLDA vary less than those of cross-entropy. Cross-entropy ties each output to a class, so that it separates the same
class in every run, while DLDA does not. The three predictors agree.

The script loads the models of all finished runs, embeds their test sets and, to fit LDA on single outputs, some
training samples. It writes claims.csv and the figures, and prints a summary.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deeplda import load
from deeplda.data import Data
from deeplda.experiments.published import published_accuracy
from deeplda.experiments.results import RunGroup, read_results
from deeplda.model import Model
from deeplda.report.analysis import fisher_ratios, separated_class, single_dimension_accuracy
from deeplda.report.figures import accuracy_against_alpha, densities, dimension_power, save
from deeplda.sampling import stratified_sample
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data

FITTED_ON = 5_000


@dataclass(frozen=True)
class Measurements:
    """Measurements of one run; arrays have one entry per output.

    `separates` is the class that an output separates best, and `agreement` the share of the test set for which two
    predictors agree.
    """

    fisher: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    variance: NDArray[np.float64]
    separates: NDArray[np.int64]
    agreement: dict[tuple[str, str], float]


# By the label of a group of runs, then by seed.
Measured = dict[str, dict[int, Measurements]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the paper's claims about single outputs on a sweep.")
    parser.add_argument("sweep", type=Path)
    parser.add_argument("output", type=Path, help="folder for claims.csv and the figures")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    results = read_results(options.sweep)
    draw_alphas(results.groups, results.definition.data, options.output)
    measured = {group.label: measure_all(group, options.output) for group in results.groups}
    write_csv(options.output / "claims.csv", measured)
    draw_power(measured, options.output)
    summarise(measured)


def measure_all(group: RunGroup, output: Path) -> dict[int, Measurements]:
    """Measure all runs of a group; draw the densities of the first one if the paper shows that case."""
    found = {}
    for seed, run in group.runs.items():
        print(f"{group.label}, seed {seed}", flush=True)
        model, data = load(run), read_data(RunConfig.read(run / "run.toml"))
        embedding = model.transform(data.test.inputs)
        if not found and group.alpha in (None, 0, 1):
            name = "densities-cce" if group.alpha is None else f"densities-alpha{group.alpha:g}"
            save(densities(embedding, data.test.labels, data.class_names, title=group.label)[0], output, name)
        found[seed] = measure(model, data, embedding)
    return found


def measure(model: Model, data: Data, embedding: NDArray[np.float32]) -> Measurements:
    some = data.train.take(stratified_sample(data.train.labels, FITTED_ON, seed=0))
    features = torch.from_numpy(embedding)
    predicted = {name: model._named_predictor(name).predict(features).numpy() for name in model.card.predictors}
    labels = data.test.labels
    return Measurements(
        fisher=fisher_ratios(embedding, labels),
        accuracy=single_dimension_accuracy(model.transform(some.inputs), some.labels, embedding, labels),
        variance=embedding.astype(np.float64).var(0),
        separates=separated_class(embedding, labels),
        agreement=agreement(predicted),
    )


def agreement(decisions: dict[str, NDArray[np.int64]]) -> dict[tuple[str, str], float]:
    """Return, for each pair of predictors, the share of samples on which they agree."""
    return {(a, b): float(np.mean(decisions[a] == decisions[b])) for a, b in combinations(decisions, 2)}


def stability(separated: list[NDArray[np.int64]]) -> float:
    """Return how often a dimension separates the same class in two of several runs, given their `separated_class`.

    This is the share of all (dimension, pair of runs); a dimension that separates no class never agrees. Random
    classes would give one over the number of classes.
    """
    return float(np.mean([(a == b) & (a >= 0) for a, b in combinations(separated, 2)]))


def draw_alphas(groups: tuple[RunGroup, ...], data: str, output: Path) -> None:
    """Draw test accuracy against alpha, with the paper's."""
    by_alpha = [(group.alpha, group) for group in groups if group.alpha is not None]
    published = {alpha: published_accuracy(data, "hyperplanes", alpha) for alpha, _ in by_alpha}
    figure, _ = accuracy_against_alpha(
        [alpha for alpha, _ in by_alpha],
        [list(group.test["hyperplanes"].values()) for _, group in by_alpha],
        {group.label: list(group.test[group.predictor].values()) for group in groups if group.alpha is None},
        {alpha: accuracy / 100 for alpha, accuracy in published.items() if accuracy is not None},
    )
    save(figure, output, "accuracy-against-alpha")


def write_csv(file: Path, measured: Measured) -> None:
    """Write one row per run and output."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["setting", "seed", "dimension", "fisher_ratio", "accuracy", "variance", "separates_class"])
        for label, seeds in measured.items():
            for seed, run in seeds.items():
                columns = (run.fisher, run.accuracy, run.variance, run.separates)
                for dimension, values in enumerate(zip(*columns, strict=True)):
                    writer.writerow([label, seed, dimension + 1, *(f"{value:.6g}" for value in values)])


def draw_power(measured: Measured, output: Path) -> None:
    """Draw what single outputs achieve, for both ends of alpha and for cross-entropy."""
    shown = [label for label in ("RDLDA alpha=0", "DLDA (alpha=1)", "cross-entropy") if label in measured]
    fisher = {label: np.stack([run.fisher for run in measured[label].values()]) for label in shown}
    accuracy = {label: np.stack([run.accuracy for run in measured[label].values()]) for label in shown}
    save(dimension_power(fisher, accuracy)[0], output, "dimension-power")


def summarise(measured: Measured) -> None:
    """Print mean and standard deviation over the seeds."""
    columns = {
        "best Fisher ratio": lambda run: run.fisher.max(),
        "mean Fisher ratio": lambda run: run.fisher.mean(),
        "best accuracy, %": lambda run: 100 * run.accuracy.max(),
        "mean accuracy, %": lambda run: 100 * run.accuracy.mean(),
        "median variance": lambda run: np.median(run.variance),
        "dead": lambda run: (run.fisher == 0).sum(),
    }
    print(f"\n{'single outputs':18}" + "".join(f"{name:>20}" for name in columns) + f"{'same class':>14}")
    for label, seeds in measured.items():
        cells = [spread([of(run) for run in seeds.values()]) for of in columns.values()]
        same = f"{100 * stability([run.separates for run in seeds.values()]):.0f} %" if len(seeds) > 1 else "-"
        print(f"{label:18}" + "".join(f"{cell:>20}" for cell in cells) + f"{same:>14}")
    print("\nagreement of the predictors, % of the test set")
    for label, seeds in measured.items():
        pairs = defaultdict(list)
        for run in seeds.values():
            for (first, second), share in run.agreement.items():
                pairs[f"{first} = {second}"].append(100 * share)
        print(f"{label:18}" + "".join(f"  {pair} {spread(shares)}" for pair, shares in pairs.items()))


def spread(values: list[float]) -> str:
    deviation = f" ± {np.std(values, ddof=1):.3g}" if len(values) > 1 else ""
    return f"{np.mean(values):.4g}{deviation}"


if __name__ == "__main__":
    main()
