"""Losses in a plain loop on scikit-learn's digits, each tuned with the same number of trials.

    python benchmarks/fair_loop.py --output results/fair-loop.csv

The network and epochs are those of examples/loss_in_your_loop.py, and an epoch has equal batches of about 200 images.
Each loss gets the same twelve trials: six learning rates of Adam, each with two values of one option of its own. A
trial is the mean accuracy on a fifth of the training images, over three splits of them. Fresh seeds then train on all
training images with the chosen settings, and the 540 test images are looked at for the first time. Networks trained
with cross-entropy decide by the highest score, those trained with a discriminant loss alone by `Hyperplanes`.

The interval of a difference covers both the seeds and the test images: see `interval` in paired.py.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from paired import interval
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from deeplda import DeepLDALoss, RDLDALoss
from deeplda.predictors import Hyperplanes

EPOCHS, BATCH_SIZE = 30, 200
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TUNING_SEEDS = (100, 101, 102)

Loss = Callable[[Tensor, Tensor], Tensor]


class Joint(nn.Module):
    """Cross-entropy plus `weight` times minus Pillai's statistic of the same outputs."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.cross_entropy, self.lda, self.weight = nn.CrossEntropyLoss(), DeepLDALoss("pillai"), weight

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        total: Tensor = self.cross_entropy(outputs, labels) + self.weight * self.lda(outputs, labels)
        return total


# For each loss: the name and the two values of its own option, and how to build it.
LOSSES: dict[str, tuple[str, tuple[float, float], Callable[[float], Loss]]] = {
    "cross-entropy": ("label_smoothing", (0.0, 0.1), lambda value: nn.CrossEntropyLoss(label_smoothing=value)),
    "wilks": ("lam", (1e-3, 1e-1), lambda value: DeepLDALoss("wilks", lam=value)),
    "pillai": ("lam", (1e-3, 1e-1), lambda value: DeepLDALoss("pillai", lam=value)),
    "rdlda": ("alpha", (0.6, 1.0), lambda value: RDLDALoss(alpha=value)),
    "joint": ("lda_weight", (1.0, 3.0), Joint),
}
SCORED = ("cross-entropy", "joint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of fresh seeds")
    parser.add_argument("--output", type=Path, help="a CSV file for every trial and every seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, test_size=0.3, stratify=labels, random_state=0)
    x_train, x_test = (torch.tensor(x, dtype=torch.float32) for x in split[:2])
    y_train, y_test = (torch.tensor(y) for y in split[2:])

    rows: list[dict[str, object]] = []
    right: dict[str, NDArray[np.bool_]] = {}
    for name, (option, values, build) in LOSSES.items():
        trials = {
            (rate, value): validation_accuracy(build(value), rate, x_train, y_train, scored=name in SCORED)
            for rate, value in product(RATES, values)
        }
        rate, value = max(trials, key=lambda trial: trials[trial])
        chosen = f"rate {rate:g}, {option} {value:g}"
        right[name] = np.stack(
            [
                correct(build(value), rate, seed, (x_train, y_train), (x_test, y_test), scored=name in SCORED)
                for seed in range(options.seeds)
            ]
        )
        accuracies = 100 * right[name].mean(1)
        print(f"{name:14} {chosen:34} {accuracies.mean():6.2f} ± {accuracies.std(ddof=1):.2f}", end="")
        print("" if name == "cross-entropy" else f"   {interval(right[name], right['cross-entropy'])}", flush=True)
        for (trial_rate, trial_value), accuracy in trials.items():
            rows.append(row(name, "trial", trial_rate, f"{option} {trial_value:g}", accuracy))
        for seed, accuracy in enumerate(accuracies):
            rows.append(row(name, "test", rate, f"{option} {value:g}", accuracy, seed))
    if options.output:
        with options.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def row(loss: str, kind: str, rate: float, option: str, accuracy: float, seed: int | str = "") -> dict[str, object]:
    return {"loss": loss, "kind": kind, "rate": rate, "option": option, "seed": seed, "accuracy": f"{accuracy:.2f}"}


def validation_accuracy(loss: Loss, rate: float, x: Tensor, y: Tensor, *, scored: bool) -> float:
    """Return the mean accuracy in % on a fifth of the samples, over three splits."""
    found = []
    for seed in TUNING_SEEDS:
        parts = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed)
        fit, held_out = (torch.from_numpy(part) for part in parts)
        found.append(correct(loss, rate, seed, (x[fit], y[fit]), (x[held_out], y[held_out]), scored=scored).mean())
    return 100 * float(np.mean(found))


def correct(
    loss: Loss, rate: float, seed: int, fit: Sequence[Tensor], test: Sequence[Tensor], *, scored: bool
) -> NDArray[np.bool_]:
    """Train, and return for each test sample whether it is classified correctly."""
    (x, y), (x_test, y_test) = fit, test
    network = train(loss, rate, x, y, seed)
    with torch.no_grad():
        outputs = network(x_test)
        predicted = outputs.argmax(1) if scored else Hyperplanes().fit(network(x), y).predict(outputs)
    return np.asarray(predicted == y_test)


def train(loss: Loss, rate: float, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for _ in range(EPOCHS):
        # Equal batches, because a discriminant loss cannot use a last one of a few samples.
        for batch in torch.randperm(len(x)).tensor_split(round(len(x) / BATCH_SIZE)):
            optimizer.zero_grad()
            torch.autograd.backward(loss(network(x[batch]), y[batch]))
            optimizer.step()
    return network


if __name__ == "__main__":
    main()
