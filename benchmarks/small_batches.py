"""LDA losses in small batches beside cross-entropy: classes x batch size x output width, balanced and unbalanced.

    python benchmarks/small_batches.py --output results/small-batches.csv
    python benchmarks/small_batches.py --alpha 0 --output results/small-batches-alpha-0.csv

Each cell of the grid trains the same MLP on the same generated data with cross-entropy, Wilks' and Pillai's statistic.
Alpha is 1; with another one, only a few cells are run. Each loss gets the same four learning rates of Adam; the rate
with the best validation accuracy (seed 0) is used for two further seeds, each with data of its own, whose mean test
accuracy counts. With cross-entropy, the highest score decides, with the other two `Hyperplanes`. Each row of the file
is one training run. Runs that are already in the file are skipped, so an interrupted grid can be resumed; the table at
the end is computed from the file alone.

The inputs are a random nonlinear map of a class centre with noise and of nuisance variables with a larger variance.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from deeplda import DeepLDALoss, StratifiedBatchSampler
from deeplda.batch_rule import SmallBatchWarning, is_too_small
from deeplda.predictors import Hyperplanes
from deeplda.sampling import first_batch_counts

RATES = (3e-4, 1e-3, 3e-3, 1e-2)
TUNING_SEED, SEEDS = 0, (1, 2)
LOSSES = ("cross-entropy", "wilks", "pillai")
FEATURES, NUISANCE, HIDDEN = 64, 16, 256
SUBSET = 8  # Samples per class in the cells with batches of a subset of the classes.


class Task(NamedTuple):
    """Generated data: the dimensions and the noise of the classes are chosen so that cross-entropy gets 90 to 97 %."""

    signal: int
    noise: float
    samples: int
    steps: int


TASKS = {
    10: Task(signal=8, noise=0.4, samples=20_000, steps=600),
    20: Task(signal=8, noise=0.35, samples=20_000, steps=600),
    100: Task(signal=16, noise=0.4, samples=20_000, steps=600),
    1000: Task(signal=16, noise=0.3, samples=40_000, steps=1500),
}


class Cell(NamedTuple):
    """One cell of the grid. The most common class has `imbalance` times as many samples as the rarest one.

    With `samples_per_class` 1, all classes are in every batch, as far as possible.
    """

    classes: int
    imbalance: int
    batch: int
    dims: int
    samples_per_class: int


class Run(NamedTuple):
    """One training run. Its accuracy is measured on validation data if it is a trial, otherwise on test data."""

    classes: int
    imbalance: int
    batch: int
    dims: int
    samples_per_class: int
    loss: str
    kind: str
    rate: float
    seed: int


Accuracies = dict[Run, float]
# Three cells in which the rule warns and, for comparison, one in which it does not.
OTHER_ALPHA = [Cell(10, 1, 32, 64, 1), Cell(10, 1, 64, 128, 1), Cell(20, 1, 32, 20, 1), Cell(20, 1, 128, 20, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="a CSV file to which the runs are appended")
    parser.add_argument("--alpha", type=float, default=1.0, help="of the loss and the hyperplanes; a file for each")
    parser.add_argument("--table", action="store_true", help="train nothing, and show the finished cells of the file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # The loss warns in many cells; the table shows where.
    warnings.simplefilter("ignore", SmallBatchWarning)
    found = read(options.output)
    if options.table:
        show(found)
        return
    with options.output.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not found:
            writer.writerow([*Run._fields, "accuracy"])
        for cell, loss in product(grid() if options.alpha == 1 else OTHER_ALPHA, LOSSES):
            if loss == "cross-entropy" and cell.samples_per_class > 1:
                continue
            for run in trials(cell, loss):
                measure(run, options.alpha, found, writer)
            best = best_rate(cell, loss, found)
            for seed in SEEDS:
                measure(Run(*cell, loss, "test", best, seed), options.alpha, found, writer)
            file.flush()
    show(found)


def grid() -> list[Cell]:
    """Return the cells; those with fewer than `SUBSET` samples per class also with batches of a subset of them."""
    shapes = {
        (10, 1): (*product((32, 64, 128, 256), (10, 64, 128)), (64, 5), (256, 5)),
        (20, 1): (*product((32, 64, 128, 256), (20, 64)), (64, 8), (256, 8)),
        (100, 1): (*product((64, 128, 256, 512), (32, 100)),),
        (10, 20): ((32, 10), (128, 10)),
        (20, 20): (*product((64, 128, 256), (20, 64)),),
        (100, 20): ((256, 100), (512, 100)),
        (1000, 1): ((256, 64), (256, 128)),
    }
    cells = []
    for (classes, imbalance), of_data in shapes.items():
        for batch, dims in of_data:
            subsets = (1, SUBSET) if batch < SUBSET * classes else (1,)
            cells += [Cell(classes, imbalance, batch, dims, each) for each in subsets]
    return cells


def read(file: Path) -> Accuracies:
    if not file.exists():
        return {}
    with file.open(newline="") as rows:
        return {
            Run(*map(int, values[:5]), values[5], values[6], float(values[7]), int(values[8])): float(values[9])
            for values in list(csv.reader(rows))[1:]
        }


def trials(cell: Cell, loss: str) -> list[Run]:
    return [Run(*cell, loss, "trial", rate, TUNING_SEED) for rate in RATES]


def best_rate(cell: Cell, loss: str, found: Accuracies) -> float:
    return max(trials(cell, loss), key=lambda run: found[run]).rate


def measure(run: Run, alpha: float, found: Accuracies, writer: Any) -> None:
    """Add the accuracy of a run to `found` and to the file, unless it is already there."""
    if run in found:
        return
    parts = generate(run.classes, run.imbalance, run.seed)
    held_out = parts["validation" if run.kind == "trial" else "test"]
    found[run] = round(accuracy(run, alpha, parts["train"], held_out), 2)
    writer.writerow([*run, found[run]])


@lru_cache(maxsize=3)
def generate(classes: int, imbalance: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the training, validation and test data: inputs (n, FEATURES), standardised, and labels (n,)."""
    task, generator = TASKS[classes], torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    centres, latent = normal(classes, task.signal), task.signal + NUISANCE
    first, bias, second = normal(latent, 128) / latent**0.5, 0.5 * normal(128), normal(128, FEATURES) / 128**0.5
    shares = imbalance ** -torch.linspace(0, 1, classes)
    counts = (shares / shares.sum() * task.samples).round().long()
    found = {}
    for name, scale in (("train", 1.0), ("validation", 0.25), ("test", 0.5)):
        labels = torch.arange(classes).repeat_interleave((scale * counts).round().long())
        hidden = torch.cat(
            [centres[labels] + task.noise * normal(len(labels), task.signal), 1.5 * normal(len(labels), NUISANCE)], 1
        )
        inputs = torch.tanh(1.5 * hidden @ first + bias) @ second
        found[name] = (inputs + 0.05 * normal(len(labels), FEATURES), labels)
    mean, std = found["train"][0].mean(0), found["train"][0].std(0)
    return {name: ((inputs - mean) / std, labels) for name, (inputs, labels) in found.items()}


def accuracy(run: Run, alpha: float, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> float:
    """Train a network and return its accuracy on `held_out` in %."""
    torch.manual_seed(run.seed)
    network = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, run.dims)
    )
    scored = run.loss == "cross-entropy"
    if scored and run.dims != run.classes:
        network.append(nn.Linear(run.dims, run.classes))
    criterion = nn.CrossEntropyLoss() if scored else DeepLDALoss(run.loss, alpha=alpha)
    steps = TASKS[run.classes].steps
    optimizer = torch.optim.Adam(network.parameters(), lr=run.rate, fused=True)
    # A tenth of the steps to warm up, then a linear decay to 0.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(10 * (step + 1) / steps, 1 - step / steps))
    for inputs, labels in islice(batches(run, *train), steps):
        optimizer.zero_grad()
        criterion(network(inputs), labels).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        outputs = network(held_out[0])
        if scored:
            decided = outputs.argmax(1)
        else:
            decided = Hyperplanes(alpha=alpha).fit(network(train[0]), train[1]).predict(outputs)
    return 100 * float((decided == held_out[1]).double().mean())


def batches(run: Run, inputs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    sampler = StratifiedBatchSampler(labels, run.batch, samples_per_class=run.samples_per_class, seed=run.seed)
    for epoch in count():
        sampler.set_epoch(epoch)
        for places in sampler:
            yield inputs[places], labels[places]


def show(found: Accuracies) -> None:
    """Print the mean test accuracies as a Markdown table, and how often the rule warns where over a point is lost."""
    print(
        "| classes | batch | dims | cross-entropy | Wilks, Pillai | rule | 8 per class: Wilks, Pillai | rule |\n|"
        + "---|" * 8
    )
    verdicts: dict[str, list[tuple[bool, bool]]] = {loss: [] for loss in LOSSES[1:]}
    shown: dict[tuple[str, int, int, str], list[str]] = {}
    for cell in grid():
        if not all(is_measured(cell, loss, found) for loss in verdicts):
            continue
        entropy = mean_accuracy(cell._replace(samples_per_class=1), "cross-entropy", found)
        warned = is_too_small(counts_in_a_batch(cell), cell.dims)
        differences = {loss: mean_accuracy(cell, loss, found) - entropy for loss in verdicts}
        for loss, difference in differences.items():
            verdicts[loss].append((warned, difference < -1))
        classes = f"{cell.classes}, unbalanced" if cell.imbalance > 1 else f"{cell.classes}"
        numbers = ", ".join(f"{difference:+.1f}" for difference in differences.values())
        row = shown.setdefault((classes, cell.batch, cell.dims, f"{entropy:.1f}"), [])
        row += [numbers, "warns" if warned else ""]
    for start, rest in shown.items():
        print("|", " | ".join([*map(str, start), *rest, *[""] * (4 - len(rest))]), "|")
    for loss, seen in verdicts.items():
        right = sum(warned == lost for warned, lost in seen)
        silent, needless = seen.count((False, True)), seen.count((True, False))
        print(f"{loss}: right in {right} of {len(seen)} cells, silent about {silent} losses, {needless} false alarms")


def is_measured(cell: Cell, loss: str, found: Accuracies) -> bool:
    return sum(run[:6] == (*cell, loss) and run.kind == "test" for run in found) == len(SEEDS)


def mean_accuracy(cell: Cell, loss: str, found: Accuracies) -> float:
    rate = best_rate(cell, loss, found)
    return float(np.mean([found[Run(*cell, loss, "test", rate, seed)] for seed in SEEDS]))


def counts_in_a_batch(cell: Cell) -> list[int]:
    labels = generate(cell.classes, cell.imbalance, SEEDS[0])["train"][1]
    sampler = StratifiedBatchSampler(labels, cell.batch, samples_per_class=cell.samples_per_class, seed=SEEDS[0])
    return first_batch_counts(sampler)


if __name__ == "__main__":
    main()
