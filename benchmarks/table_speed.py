"""Speed of `DeepLDAClassifier` on tables, beside scikit-learn's MLP, a bare loop, and training on all features.

    python benchmarks/table_speed.py

One thread, batches of 200, ten classes. A step is measured as the difference between fits of one and of three epochs,
so it contains everything that a step does in `fit`, and nothing that is done once. "bare loop" is the same network with
cross-entropy and SGD in a plain PyTorch loop. All are measured in turn within one run, and a ratio is the median over
the turns; compare ratios, not milliseconds. The fits on few rows also show the time of the processor, which does not
contain the time that other processes take.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from torch import nn

from deeplda import DeepLDAClassifier
from deeplda.networks import MLP

BATCH, FEATURES, CLASSES = 200, 20, 10
HIDDEN = (128, 128)
WIDE = (100, 20_000)

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description="The speed of DeepLDAClassifier on tables.")
    parser.add_argument("--turns", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--many", type=int, default=300_000, help="rows of the large table; 0 leaves it out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, one thread, {options.turns} turns\n")
    steps(60_000, options.turns)
    wide(options.turns)
    if options.many:
        many(options.many)


def steps(n: int, turns: int) -> None:
    X, y = table(n)
    same = {"hidden_layer_sizes": HIDDEN, "dropout": 0.2, "calibrate": False}
    fits: dict[str, Callable[[int], object]] = {
        "DeepLDAClassifier": lambda epochs: ours(epochs, **same).fit(X, y),
        "the same, cross-entropy": lambda epochs: ours(epochs, **same, objective="cce").fit(X, y),
        "bare loop": lambda epochs: bare_loop(X, y, epochs),
        f"MLPClassifier{HIDDEN}": lambda epochs: theirs(epochs, HIDDEN).fit(X, y),
        "MLPClassifier(100,)": lambda epochs: theirs(epochs, (100,)).fit(X, y),
    }
    fits["DeepLDAClassifier"](1)
    milliseconds: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(turns):
        for name, fit in fits.items():
            spent = seconds(lambda fit=fit: fit(3)) - seconds(lambda fit=fit: fit(1))
            milliseconds[name].append(1e3 * spent / (2 * n / BATCH))
    print(f"a training step, n={n:,} d={FEATURES}")
    reference = milliseconds[f"MLPClassifier{HIDDEN}"]
    for name, values in milliseconds.items():
        ratio = median(value / other for value, other in zip(values, reference, strict=True))
        print(f"  {name:28}{median(values):8.2f} ms   {ratio:.2f} x MLPClassifier{HIDDEN}")
    print(flush=True)


def wide(turns: int) -> None:
    n, d = WIDE
    y = np.arange(n) % 2
    X = np.random.default_rng(0).normal(size=WIDE) + 0.5 * y[:, None] * (np.arange(d) < 50)
    cases = {
        "with calibration": {},
        "without calibration": {"calibrate": False},
        "without calibration, on all features": {"calibrate": False, "network": lambda shape, k: MLP(shape, k)},
    }
    spent: dict[str, list[float]] = {name: [] for name in cases}
    of_processor: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, options in cases.items():
            before = time.process_time()
            spent[name].append(seconds(lambda options=options: ours(100, **options).fit(X, y)))
            of_processor[name].append(time.process_time() - before)
    print(f"a fit of 100 epochs, n={n} d={d:,}")
    for name, values in spent.items():
        ratio = median(v / other for v, other in zip(values, spent["without calibration"], strict=True))
        processor = f"{median(of_processor[name]):.2f} s, at least {min(of_processor[name]):.2f} s, of the processor"
        print(f"  {name:38}{median(values):8.2f} s ({processor})   {ratio:.1f} x without calibration")
    print(flush=True)


def many(n: int) -> None:
    X, y = table(n + 10_000)
    X, test, y, truth = train_test_split(X, y, test_size=10_000, random_state=0)
    print(f"a fit, n={n:,} d={FEATURES}")
    for name, model in (
        ("DeepLDAClassifier, 2 epochs", ours(2)),
        (f"MLPClassifier{HIDDEN}, 2 epochs", theirs(2, HIDDEN)),
        ("MLPClassifier(100,), 2 epochs", theirs(2, (100,))),
    ):
        spent = seconds(lambda model=model: model.fit(X, y))
        print(f"  {name:38}{spent:8.2f} s   {100 * model.score(test, truth):.1f} %", flush=True)


def table(n: int) -> tuple[Rows, Labels]:
    X, y = make_classification(n, FEATURES, n_informative=15, n_classes=CLASSES, random_state=0)
    return X, y


def ours(epochs: int, **options: object) -> DeepLDAClassifier:
    return DeepLDAClassifier(max_epochs=epochs, batch_size=BATCH, random_state=0, **options)


def theirs(epochs: int, hidden: tuple[int, ...]) -> MLPClassifier:
    return MLPClassifier(hidden, batch_size=BATCH, max_iter=epochs, n_iter_no_change=epochs + 1, random_state=0)


def bare_loop(X: Rows, y: Labels, epochs: int) -> None:
    torch.manual_seed(0)
    rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    network, criterion = MLP((FEATURES,), CLASSES), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=0.01, nesterov=True, fused=True)
    for _ in range(epochs):
        for places in torch.randperm(len(rows)).split(BATCH):
            optimizer.zero_grad()
            criterion(network(rows[places]), labels[places]).backward()
            optimizer.step()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
