"""What the paper's Sections 3 and 4 say of single output dimensions and of the predictors, measured on a sweep's runs.

    python benchmarks/claims.py sweeps/table2-quick results/table2-quick

Four claims: with alpha = 0 single dimensions tell the classes apart better than with alpha = 1; the outputs of DLDA
vary less than those of cross-entropy; cross-entropy ties an output to a class, so that it separates the same class in
every run, DLDA does not; the three predictors agree. Reads the models of all finished runs, embeds their test parts
and, to fit LDA in single dimensions, some of their training parts; writes claims.csv and the figures, prints a summary.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeplda import load
from deeplda.data import Data
from deeplda.experiments.published import published_accuracy
from deeplda.experiments.results import Setting, read_results
from deeplda.model import Model
from deeplda.report.analysis import (
    agreement,
    fisher_ratios,
    output_variances,
    separated_class,
    single_dimension_accuracy,
    stability,
)
from deeplda.report.figures.course import accuracy_against_alpha
from deeplda.report.figures.embedding import densities, dimension_power
from deeplda.report.figures.saving import save
from deeplda.sampling import stratified_sample
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data

FITTED_ON = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's claims on single dimensions, measured on a sweep.")
    parser.add_argument("sweep", type=Path)
    parser.add_argument("output", type=Path, help="folder for claims.csv and the figures")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    results = read_results(options.sweep)
    settings = [setting for setting in results.settings if setting.runs]
    draw_alphas(settings, results.definition.data, options.output)
    measured = {setting.label: measure_all(setting, options.output) for setting in settings}
    write_csv(options.output / "claims.csv", measured)
    draw_power(measured, options.output)
    summarise(measured)


def measure_all(setting: Setting, output: Path) -> dict[int, dict[str, Any]]:
    """By seed; the densities of the first seed are drawn for what the paper draws."""
    found = {}
    for seed, run in setting.runs.items():
        print(f"{setting.label}, seed {seed}", flush=True)
        model, data = load(run), read_data(RunConfig.read(run / "run.toml"))
        embedding = model.transform(data.test.inputs)
        if not found and setting.alpha in (None, 0, 1):
            name = "densities-cce" if setting.alpha is None else f"densities-alpha{setting.alpha:g}"
            save(densities(embedding, data.test.labels, data.class_names, title=setting.label)[0], output, name)
        found[seed] = measure(model, data, embedding)
    return found


def measure(model: Model, data: Data, embedding: NDArray[np.float32]) -> dict[str, Any]:
    """Of one run; what has a value a dimension is an array."""
    some = data.train.take(stratified_sample(data.train.labels, FITTED_ON, seed=0))
    scored = torch.from_numpy(embedding)
    decided = {name: model._named_predictor(name).predict(scored).numpy() for name in model.card.predictors}
    return {
        "fisher": fisher_ratios(embedding, data.test.labels),
        "accuracy": single_dimension_accuracy(model.transform(some.inputs), some.labels, embedding, data.test.labels),
        "variance": output_variances(embedding),
        "separates": separated_class(embedding, data.test.labels),
        "agreement": {" = ".join(pair): share for pair, share in agreement(decided).items()},
    }


def draw_alphas(settings: list[Setting], data: str, output: Path) -> None:
    """Test accuracy against alpha, the paper's above."""
    regularised = [setting for setting in settings if setting.alpha is not None]
    alphas = [setting.alpha for setting in regularised if setting.alpha is not None]
    published = {alpha: published_accuracy(data, "hyperplanes", alpha) for alpha in alphas}
    figure, _ = accuracy_against_alpha(
        alphas,
        [list(setting.test["hyperplanes"].values()) for setting in regularised],
        {s.label: list(s.test[s.predictor].values()) for s in settings if s.alpha is None},
        {alpha: accuracy / 100 for alpha, accuracy in published.items() if accuracy is not None},
    )
    save(figure, output, "accuracy-against-alpha")


def write_csv(file: Path, measured: dict[str, dict[int, dict[str, Any]]]) -> None:
    """A row a run and output dimension."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["setting", "seed", "dimension", "fisher_ratio", "accuracy", "variance", "separates_class"])
        for label, seeds in measured.items():
            for seed, found in seeds.items():
                columns = (found[name] for name in ("fisher", "accuracy", "variance", "separates"))
                for dimension, values in enumerate(zip(*columns, strict=True)):
                    writer.writerow([label, seed, dimension + 1, *(f"{value:.6g}" for value in values)])


def draw_power(measured: dict[str, dict[int, dict[str, Any]]], output: Path) -> None:
    """Single dimensions at the ends of alpha and of cross-entropy, ranked."""
    chosen = [label for label in measured if label in ("RDLDA alpha=0", "DLDA (alpha=1)", "cross-entropy")]
    fisher, accuracy = (
        {label: np.stack([found[name] for found in measured[label].values()]) for label in chosen}
        for name in ("fisher", "accuracy")
    )
    save(dimension_power(fisher, accuracy)[0], output, "dimension-power")


def summarise(measured: dict[str, dict[int, dict[str, Any]]]) -> None:
    """Mean and standard deviation over the seeds."""
    columns = {
        "best Fisher ratio": lambda run: run["fisher"].max(),
        "mean Fisher ratio": lambda run: run["fisher"].mean(),
        "best accuracy, %": lambda run: 100 * run["accuracy"].max(),
        "mean accuracy, %": lambda run: 100 * run["accuracy"].mean(),
        "median variance": lambda run: np.median(run["variance"]),
        "dead": lambda run: (run["fisher"] == 0).sum(),
    }
    print(f"\n{'single dimensions':18}" + "".join(f"{name:>20}" for name in columns) + f"{'same class':>14}")
    for label, seeds in measured.items():
        cells = [spread([of(run) for run in seeds.values()]) for of in columns.values()]
        same = f"{100 * stability([run['separates'] for run in seeds.values()]):.0f} %" if len(seeds) > 1 else "-"
        print(f"{label:18}" + "".join(f"{cell:>20}" for cell in cells) + f"{same:>14}")
    print("\npredictors decide alike, % of the test part")
    for label, seeds in measured.items():
        pairs = defaultdict(list)
        for run in seeds.values():
            for pair, share in run["agreement"].items():
                pairs[pair].append(100 * share)
        print(f"{label:18}" + "".join(f"  {pair} {spread(shares)}" for pair, shares in pairs.items()))


def spread(values: list[float]) -> str:
    deviation = f" ± {np.std(values, ddof=1):.3g}" if len(values) > 1 else ""
    return f"{np.mean(values):.4g}{deviation}"


if __name__ == "__main__":
    main()
