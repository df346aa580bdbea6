"""Classes that a model was not trained on: does it notice them, and does it learn them from a few examples?

    python benchmarks/new_classes.py [DATA] [--recipe RECIPE] [--seeds 5] [--output FILE.csv]

Seed S leaves out the classes 2 S and 2 S + 1. Shown for each seed: how often a test image of a class left out is
further from the nearest class than one of the others (area under the ROC curve; beside it, the same by the highest
probability of a network trained with cross-entropy), and the accuracy on test images of all classes once those left
out were added from 1, 5 and 20 training images each, without training, and on images of those two alone.
"""

from __future__ import annotations

import argparse
import copy
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from deeplda.data import Data, Part, load_data
from deeplda.experiments.recipes import read_recipe
from deeplda.memory import keep_freed_memory
from deeplda.model import Model
from deeplda.training.config import RunConfig
from deeplda.training.loop import train
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import build_trainee

EXAMPLES = (1, 5, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description="Classes that a model was not trained on.")
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--recipe", help="settings to train with")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a CSV file for every seed")
    options = parser.parse_args()
    keep_freed_memory()
    settings = read_recipe(options.recipe) if options.recipe else {}
    data = load_data(options.data)
    rows = []
    for seed in range(options.seeds):
        rows.append(measured(data, settings | {"data": options.data, "seed": seed}))
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    for name in [name for name in rows[0] if name not in ("seed", "left out")]:
        values = [float(row[name]) for row in rows]
        print(f"{name:32}{np.mean(values):8.4f} ± {np.std(values, ddof=1):.4f}")
    if options.output:
        with options.output.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def measured(data: Data, settings: dict[str, object]) -> dict[str, object]:
    """All figures of one seed."""
    config = RunConfig.model_validate(settings)
    left_out = np.array([2 * config.seed, 2 * config.seed + 1])
    known = without(data, left_out)
    unknown = np.isin(data.test.labels, left_out)
    model = trained(known, config)
    cross_entropy = trained(known, config.model_copy(update={"objective": "cce"}))
    highest = cross_entropy.predict_proba(data.test.inputs).max(1)
    row: dict[str, object] = {
        "seed": config.seed,
        "left out": " ".join(data.class_names[label] for label in left_out),
        "AUC by distance": round(roc_auc_score(unknown, model.mahalanobis(data.test.inputs)), 4),
        "AUC by cross-entropy": round(roc_auc_score(unknown, -highest), 4),
        "accuracy before": right(model, data, ~unknown),
    }
    everything = np.ones_like(unknown)
    for count in EXAMPLES:
        extended = with_examples(model, data, left_out, count)
        row[f"with {count} examples"] = right(extended, data, everything)
        row[f"with {count}, new classes"] = right(extended, data, unknown)
    return row


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


def with_examples(model: Model, data: Data, labels: NDArray[np.int64], count: int) -> Model:
    """A copy of the model that has learnt these classes from the first `count` training images of each."""
    extended = copy.deepcopy(model)
    for label in labels:
        places = np.flatnonzero(data.train.labels == label)[:count]
        extended.add_class(data.train.inputs[places], data.class_names[label])
    return extended


def right(model: Model, data: Data, chosen: NDArray[np.bool_]) -> float:
    """Accuracy on the chosen test images, by the names of classes."""
    truth = np.asarray(data.class_names)[data.test.labels[chosen]]
    return round(float(np.mean(model.predict(data.test.inputs[chosen]) == truth)), 4)


if __name__ == "__main__":
    main()
