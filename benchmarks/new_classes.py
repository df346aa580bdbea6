"""Classes that a model was not trained on: which rule learns them best from a few examples, without training?

    python benchmarks/new_classes.py [--output results/new_classes.csv]
    python benchmarks/new_classes.py cifar100.npz --recipe quick --epochs 6 --batch-size 1000 --precision bfloat16 \\
        --learning-rates 0.15 0.5 1.5 --left-out 20 --examples 1 5 20 100 --seeds 3 --all-classes \\
        --output results/new_classes_cifar100.csv

Seed S leaves out the classes k S to k S + k - 1, where k is `--left-out`. A network is trained on the others, with the
recipe's objective (without a recipe, the default, Wilks' statistic) and with cross-entropy. The classes left out are
then added from the first 1, 5 and 20 of their training images. Every rule is applied to both networks: the hyperplanes
on the outputs, which models without statistics of the last hidden layer use; and on the last hidden layer the nearest
mean, LDA shrunk by 0.2 towards a sphere, and `BalancedRidge`, which `Model.add_class` uses. Shown is the accuracy on
test images of the new, the old and all classes; without examples, the accuracy on the old classes before any were
added. With `--learning-rates`, each kind of network gets the rate with the best accuracy on the validation images of
the old classes of seed 0. With `--all-classes`, a network is also trained on all classes. The output file is read to
resume: networks whose rows are there are not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from result_rows import Row, append_rows, matching, read_rows

from deeplda.data import Data, Part, load_data
from deeplda.experiments.recipes import read_recipe
from deeplda.memory import keep_freed_memory
from deeplda.model import Model
from deeplda.predictors import Hyperplanes, LinearPredictor, NearestMean
from deeplda.predictors.balanced_ridge import BalancedRidge
from deeplda.training.config import RunConfig
from deeplda.training.loop import train
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import build_trainee

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
# Fits a rule on samples with labels, and returns its decisions for other samples.
Rule = Callable[[Floats, Labels, Floats], Labels]
COLUMNS = ("network", "seed", "left out", "rule", "examples", "new", "old", "all")
NETWORKS: dict[str, dict[str, Any]] = {"discriminant": {}, "cross-entropy": {"objective": "cce"}}
ON_ALL = "trained on all"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--recipe", help="settings to train with")
    parser.add_argument("--epochs", type=int, help="the number of epochs, instead of that of the recipe")
    parser.add_argument("--batch-size", type=int, help="the batch size, instead of that of the recipe")
    parser.add_argument("--precision", help="the precision of the training, instead of that of the recipe")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[], help="the rates to choose from")
    parser.add_argument("--left-out", type=int, default=2, help="the number of classes left out")
    parser.add_argument("--examples", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--all-classes", action="store_true", help="also train on all classes")
    parser.add_argument("--data-dir", type=Path, help="the folder with the known data sets")
    parser.add_argument("--output", type=Path, help="a CSV file for every seed, which is read to resume")
    options = parser.parse_args()
    keep_freed_memory()
    own = {"epochs": options.epochs, "batch_size": options.batch_size, "precision": options.precision}
    settings = read_recipe(options.recipe) if options.recipe else {}
    settings |= {name: value for name, value in own.items() if value is not None}
    data = load_data(options.data, data_dir=options.data_dir)
    rows = read_rows(options.output)
    for seed in range(options.seeds):
        left_out = np.arange(options.left_out) + options.left_out * seed
        names = " ".join(data.class_names[label] for label in left_out)
        for network, changes in NETWORKS.items():
            own = {"network": network, "seed": seed, "left out": names}

            def save(found: list[Row], own: Row = own) -> None:
                append_rows(options.output, COLUMNS, [{**own, **row} for row in found])
                rows.extend({**own, **row} for row in found)

            config = RunConfig.model_validate(settings | {"data": options.data, "seed": seed} | changes)
            if seed == 0:
                for rate in options.learning_rates:
                    if not matching(rows, **own, rule=rate_rule(rate)):
                        save([scored_rate(data, with_rate(config, rate), left_out)])
            if options.learning_rates:
                config = with_rate(config, best_rate(rows, network, options.learning_rates))
            if not matching(rows, **own, rule="before"):
                save(list(measured(data, config, left_out, options.examples)))
            if options.all_classes and not matching(rows, **own, rule=ON_ALL):
                save([trained_on_all(data, config, left_out)])
    for line in summary(rows):
        print(line)


def rate_rule(rate: float) -> str:
    """Return the name of the rows that compare learning rates."""
    return f"validation at rate {rate:g}"


def with_rate(config: RunConfig, rate: float) -> RunConfig:
    return config.model_copy(update={"learning_rate": rate})


def scored_rate(data: Data, config: RunConfig, left_out: Labels) -> Row:
    """Return the row of a learning rate, with the accuracy on the validation images of the old classes."""
    known = without(data, left_out)
    right = trained(known, config).predict(known.val.inputs) == np.asarray(known.class_names)[known.val.labels]
    return {"rule": rate_rule(config.learning_rate), "examples": 0, "new": "", "old": percent(right), "all": ""}


def best_rate(rows: list[Row], network: str, rates: list[float]) -> float:
    def accuracy(rate: float) -> float:
        (row,) = matching(rows, network=network, seed=0, rule=rate_rule(rate))
        return float(row["old"])

    return max(rates, key=accuracy)


def measured(data: Data, config: RunConfig, left_out: Labels, examples: list[int]) -> Iterator[Row]:
    """Yield the rows of one network, without its name and seed."""
    known = without(data, left_out)
    model = trained(known, config)
    unknown = np.isin(data.test.labels, left_out)
    truth = np.asarray(data.class_names)[data.test.labels]
    before = np.asarray(model.predict(data.test.inputs[~unknown]) == truth[~unknown])
    yield {"rule": "before", "examples": 0, "new": "", "old": percent(before), "all": ""}
    layers, test = Layers.of(model, known.train.inputs), Layers.of(model, data.test.inputs)
    # The classes left out have the last labels.
    names = [*known.class_names, *(data.class_names[label] for label in left_out)]
    places = np.array([names.index(name) for name in truth])
    for count in examples:
        chosen = np.concatenate([np.flatnonzero(data.train.labels == label)[:count] for label in left_out])
        labels = np.concatenate(
            [known.train.labels, [names.index(data.class_names[label]) for label in data.train.labels[chosen]]]
        )
        added = Layers.of(model, data.train.inputs[chosen])
        for name, (layer, rule) in rules(config).items():
            samples = np.concatenate([getattr(layers, layer), getattr(added, layer)])
            right = rule(samples, labels, getattr(test, layer)) == places
            shares = {"new": percent(right[unknown]), "old": percent(right[~unknown]), "all": percent(right)}
            yield {"rule": name, "examples": count, **shares}


@dataclass(frozen=True)
class Layers:
    """The outputs (n, embedding_dim) and the last hidden layer (n, d) of some samples."""

    outputs: Floats
    features: Floats

    @classmethod
    def of(cls, model: Model, inputs: Any) -> Layers:
        both = torch.cat(list(model._batches(model._with_features, inputs))).double()
        return cls(both[:, : model.card.embedding_dim].numpy(), both[:, model.card.embedding_dim :].numpy())


def rules(config: RunConfig) -> dict[str, tuple[str, Rule]]:
    """Return the layer and the rule of each name."""
    return {
        "hyperplanes on the outputs": ("outputs", by(Hyperplanes(alpha=config.alpha, lam=config.lam))),
        "nearest mean": ("features", by(NearestMean())),
        "LDA shrunk by 0.2": ("features", shrunk_lda),
        "add_class": ("features", by(BalancedRidge())),
    }


def by(predictor: LinearPredictor) -> Rule:
    return lambda samples, labels, others: predictor.fit(samples, labels).predict(others).numpy()


def shrunk_lda(samples: Floats, labels: Labels, others: Floats) -> Labels:
    """Return the decisions of LDA with equal priors, whose pooled covariance is shrunk by 0.2 towards a sphere."""
    classes = len(np.unique(labels))
    means = np.stack([samples[labels == label].mean(0) for label in range(classes)])
    centred = samples - means[labels]
    covariance = centred.T @ centred / len(samples)
    sphere = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    normals = np.linalg.solve(0.8 * covariance + 0.2 * sphere, means.T)
    scores = others @ normals - (means.T * normals).sum(0) / 2
    return np.asarray(scores.argmax(1))


def trained_on_all(data: Data, config: RunConfig, left_out: Labels) -> Row:
    """Return the row of a network that was trained on all classes."""
    right = trained(data, config).predict(data.test.inputs) == np.asarray(data.class_names)[data.test.labels]
    unknown = np.isin(data.test.labels, left_out)
    shares = {"new": percent(right[unknown]), "old": percent(right[~unknown]), "all": percent(right)}
    return {"rule": ON_ALL, "examples": "all", **shares}


def percent(right: NDArray[np.bool_]) -> float:
    return round(100 * float(np.mean(right)), 3)


def without(data: Data, left_out: NDArray[np.int64]) -> Data:
    """The data without these classes, the labels of the others closed up."""
    names = tuple(name for label, name in enumerate(data.class_names) if label not in left_out)
    place = {data.class_names.index(name): label for label, name in enumerate(names)}

    def kept(part: Part) -> Part:
        chosen = part.take(np.flatnonzero(~np.isin(part.labels, left_out)))
        return Part(chosen.inputs, np.array([place[label] for label in chosen.labels.tolist()]))

    return replace(data, train=kept(data.train), val=kept(data.val), test=kept(data.test), class_names=names)


def trained(data: Data, config: RunConfig) -> Model:
    """A model trained on the data, as `deeplda train` would."""
    classifier = build_trainee(config, data)
    train(config, data, classifier, MemoryRun(), Progress())
    return classifier.model


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each network, rule and number of examples: mean ± standard deviation over the seeds."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["network"], row["rule"], str(row["examples"])), []).append(row)
    for (network, rule, examples), found in groups.items():
        cells = []
        for name in ("new", "old", "all"):
            values = [float(row[name]) for row in found if row[name] != ""]
            spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
            cells.append(f"{name} {np.mean(values):6.2f} ± {spread:5.2f}" if values else "")
        yield f"{network:14} {rule:28} {examples:>4}  " + "   ".join(cells)


if __name__ == "__main__":
    main()
